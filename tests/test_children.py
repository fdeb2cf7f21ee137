"""Drawing the children of a node, and what the rules read of their laws."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from foredraft.framework.children import ChildLaws, draw_children, what_is_left
from foredraft.framework.errors import InputError
from foredraft.framework.law import DenseLaw, PointMass
from foredraft.framework.records import Draft
from foredraft.framework.specs import DETERMINISTIC, INDEPENDENT, WITHOUT_REPLACEMENT
from foredraft.framework.testing.laws import chi_square
from foredraft.framework.tree import Tree

DRAWS = 20_000
FALSE_ALARM = 1e-4
LAWS = {
    "flat": [0.4, 0.3, 0.2, 0.1],
    "one impossible": [0.6, 0.0, 0.3, 0.1],
    "two possible": [0.0, 0.8, 0.0, 0.2],  # the third child is any of the others
    "one possible": [0.0, 0.0, 1.0, 0.0],
}


def left_of(law: list[float], taken: tuple[int, ...]) -> list[float]:
    """What is left of a law, in plain Python."""
    rest = [0.0 if token in taken else p for token, p in enumerate(law)]
    if sum(rest) == 0:
        rest = [0.0 if token in taken else 1.0 for token in range(len(law))]
    return [p / sum(rest) for p in rest]


def law_of_samples(law: list[float], count: int, replaced: bool) -> Tensor:
    """The law of ordered samples, flat ``[vocab ** count]``."""
    probs = []
    for sample in itertools.product(range(len(law)), repeat=count):
        chance = 1.0
        for place, token in enumerate(sample):
            chance *= law[token] if replaced else left_of(law, sample[:place])[token]
        probs.append(chance)
    return torch.tensor(probs, dtype=torch.float64)


def drawn_counts(law: list[float], count: int, drawn: str, dtype: torch.dtype) -> Tensor:
    probs = torch.tensor(law, dtype=dtype).expand(DRAWS // 2, 2, -1).contiguous()
    tokens = draw_children(probs, torch.rand(DRAWS // 2, 2, count, dtype=torch.float64), drawn)
    assert tokens.shape == (DRAWS // 2, 2, count)
    codes = (tokens * len(law) ** torch.arange(count - 1, -1, -1)).sum(-1).flatten()
    return torch.bincount(codes, minlength=len(law) ** count)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_samples_follow_their_law(count: int, name: str, dtype: torch.dtype) -> None:
    for drawn in (INDEPENDENT, WITHOUT_REPLACEMENT):
        counts = drawn_counts(LAWS[name], count, drawn, dtype)
        law = law_of_samples(LAWS[name], count, drawn == INDEPENDENT)
        assert chi_square(counts, law) > FALSE_ALARM


def test_the_law_test_tells_the_ways_of_drawing_apart() -> None:
    counts = drawn_counts(LAWS["flat"], 2, INDEPENDENT, torch.float64)
    assert chi_square(counts, law_of_samples(LAWS["flat"], 2, False)) < FALSE_ALARM
    # In order of size, as if the likeliest of a family had been drawn first.
    samples = torch.rand(DRAWS, 1, 2, dtype=torch.float64)
    probs = torch.tensor(LAWS["flat"], dtype=torch.float64).expand(DRAWS, 1, 4)
    tokens = draw_children(probs, samples, WITHOUT_REPLACEMENT).sort(-1).values[:, 0]
    counts = torch.bincount(tokens[:, 0] * 4 + tokens[:, 1], minlength=16)
    assert chi_square(counts, law_of_samples(LAWS["flat"], 2, False)) < FALSE_ALARM


def test_each_place_has_its_own_law() -> None:
    probs = torch.eye(4, dtype=torch.float64)[torch.tensor([[2, 0], [1, 3]])]
    uniforms = torch.rand(2, 2, 1, dtype=torch.float64)
    for drawn in (INDEPENDENT, WITHOUT_REPLACEMENT, DETERMINISTIC):
        assert draw_children(probs, uniforms, drawn).squeeze(-1).tolist() == [[2, 0], [1, 3]]


def test_all_tokens_are_drawn_once_when_as_many_are_asked_for() -> None:
    probs = torch.tensor([[[0.0, 1.0, 0.0]]]).expand(50, 1, 3)
    tokens = draw_children(probs, torch.rand(50, 1, 3, dtype=torch.float64), WITHOUT_REPLACEMENT)
    assert (tokens[..., 0] == 1).all()
    assert (tokens.sort(-1).values == torch.arange(3)).all()
    assert len({tuple(row) for row in tokens[:, 0].tolist()}) == 2


def test_deterministic_children_are_the_likeliest_in_order() -> None:
    probs = torch.tensor([[[0.1, 0.5, 0.0, 0.4], [0.2, 0.1, 0.3, 0.4]]])
    tokens = draw_children(probs, torch.zeros(1, 2, 3, dtype=torch.float64), DETERMINISTIC)
    assert tokens.tolist() == [[[1, 3, 0], [3, 2, 0]]]


def test_no_child_is_no_fault() -> None:
    for drawn in (INDEPENDENT, WITHOUT_REPLACEMENT, DETERMINISTIC):
        assert draw_children(torch.rand(2, 3, 4), torch.zeros(2, 3, 0).double(), drawn).shape == (
            2,
            3,
            0,
        )


@pytest.mark.parametrize("drawn", [WITHOUT_REPLACEMENT, DETERMINISTIC])
def test_more_children_than_ids_are_refused(drawn: str) -> None:
    with pytest.raises(InputError, match=r"4 children .* at most 3"):
        draw_children(torch.full((1, 1, 3), 1 / 3), torch.zeros(1, 1, 4).double(), drawn)


def test_an_unknown_way_of_drawing_is_refused() -> None:
    with pytest.raises(InputError, match="'best'.*independent"):
        draw_children(torch.full((1, 1, 3), 1 / 3), torch.zeros(1, 1, 2).double(), "best")


@pytest.mark.parametrize("tiny", [1e-30, 1e-44])
def test_a_sliver_is_still_something(tiny: float) -> None:
    law = torch.tensor([1.0, tiny, 0.0])  # the smaller is below float32's normal numbers
    left = what_is_left(law, torch.tensor([0.0, 1.0, 1.0]))
    assert left.tolist() == [0.0, 1.0, 0.0]
    nothing = what_is_left(law, torch.tensor([0.0, 0.0, 1.0]))
    assert nothing.tolist() == [0.0, 0.0, 1.0]


def family(drawn: str, dtype: torch.dtype) -> tuple[Draft, list[list[float]]]:
    """Two rows of other shapes; node 3 of row 0 repeats node 0's token elsewhere in the tree."""
    parents = torch.tensor([[-1, -1, -1, 0, 0], [-1, 0, 0, 0, -1]])
    tokens = torch.tensor([[1, 3, 0, 1, 2], [2, 0, 1, 3, 0]])
    tree = Tree(parents, 2, 3)
    laws = [LAWS["two possible"], LAWS["flat"]]
    index = torch.tensor([[0, 0, 0, 1, 1], [1, 0, 0, 0, 1]])
    probs = torch.tensor([laws, laws], dtype=dtype)
    known = [[laws[index[r, n]] for n in range(5)] for r in range(2)]
    if drawn == WITHOUT_REPLACEMENT:
        elder = [[(), (1,), (1, 3), (), (1,)], [(), (), (0,), (0, 1), (2,)]]
        known = [[left_of(known[r][n], elder[r][n]) for n in range(5)] for r in range(2)]
    law = PointMass(tokens) if drawn == DETERMINISTIC else DenseLaw(probs, index)
    if drawn == DETERMINISTIC:
        known = torch.nn.functional.one_hot(tokens, 4).tolist()
    return Draft(tokens, [5, 5], law, tree, drawn), known


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("drawn", [INDEPENDENT, WITHOUT_REPLACEMENT, DETERMINISTIC])
def test_laws_of_children(drawn: str, dtype: torch.dtype) -> None:
    draft, known = family(drawn, dtype)
    laws, rows = ChildLaws(draft), torch.rand(2, 4, dtype=dtype)
    for nodes in itertools.product(range(5), repeat=2):
        law = torch.tensor([known[0][nodes[0]], known[1][nodes[1]]], dtype=dtype)
        own = draft.tokens[[0, 1], list(nodes)]
        prob, left = laws.judge(rows, torch.tensor(nodes))
        torch.testing.assert_close(prob, law[[0, 1], own].double(), check_dtype=False)
        torch.testing.assert_close(left, (rows - law).clamp(min=0))
        assert torch.equal(laws.prob(torch.tensor(nodes)), prob)
        assert torch.equal(laws.residual(rows, torch.tensor(nodes)), left)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_drawn_child_was_possible_where_it_is_judged(dtype: torch.dtype) -> None:
    # Peaked laws, of which nothing or next to nothing is left after the first child.
    logits = 40 * torch.randn(300, 1, 6, dtype=dtype)
    probs = logits.softmax(-1).where(torch.rand(300, 1, 6) < 0.6, 0.0)
    probs[..., 0] += 1e-20
    probs /= probs.sum(-1, keepdim=True)
    uniforms = torch.rand(300, 1, 4, dtype=torch.float64)
    tokens = draw_children(probs, uniforms, WITHOUT_REPLACEMENT)[:, 0]
    tree = Tree(torch.full((300, 4), -1), 1, 4)
    law = DenseLaw(probs, torch.zeros(300, 4, dtype=torch.int64))
    laws = ChildLaws(Draft(tokens, [4] * 300, law, tree, WITHOUT_REPLACEMENT))
    assert (law.prob(tokens) == 0).any()  # some came from the uniform law
    for child in range(4):
        assert (laws.prob(torch.full((300,), child)) > 0).all()
