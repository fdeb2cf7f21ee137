"""Trees from autoregressive drafters: plans, laws, caches, and the text that comes out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from helpers import (
    PerRow,
    assert_same,
    check_cache,
    make_batch,
    model_of,
    noisy_copy,
    plain,
    random_prompts,
    target_of,
)
from torch import Tensor

from foredraft.drafters.builtin import CausalLMConfig, NgramConfig
from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.drafters.ngram import Ngram, witten_bell
from foredraft.drafters.ngram_table import RunningCounts
from foredraft.drafters.none import NoDrafter
from foredraft.framework import tree_drawing
from foredraft.framework.cache import cache_bytes
from foredraft.framework.children import draw_children, what_is_left
from foredraft.framework.config import compose, expand_sweep, to_objects
from foredraft.framework.context import Context
from foredraft.framework.controls import Committed, Control
from foredraft.framework.decoding import Batch, Parts, decode
from foredraft.framework.engine import Defaults, Engine
from foredraft.framework.errors import ConfigError
from foredraft.framework.growth import Growth, Level
from foredraft.framework.interfaces import Drafter, DraftSession, GammaPolicy, Target, Verifier
from foredraft.framework.law import DenseLaw
from foredraft.framework.noise import Noise
from foredraft.framework.params import SamplingParams
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.records import Draft, Round, RowOutcome
from foredraft.framework.requests import Answer, Request
from foredraft.framework.sampling import Sampler
from foredraft.framework.specs import (
    DETERMINISTIC,
    DRAWN,
    INDEPENDENT,
    WITHOUT_REPLACEMENT,
    DraftKind,
)
from foredraft.framework.targets.builtin import TableConfig
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.targets.table import TableTarget
from foredraft.framework.testing.laws import chi_square, exact_joint, sequence_counts
from foredraft.framework.testing.tables import TableTreeDrafter
from foredraft.framework.testing.tiny import tiny_model
from foredraft.framework.tree import Branches
from foredraft.verifiers.greedy import GreedyVerifier
from foredraft.verifiers.recursive import RecursiveVerifier
from foredraft.verifiers.token import TokenVerifier

FLOOR = 1e-6
GREEDY, SAMPLED = SamplingParams(), SamplingParams(temperature=1.0)
PROMPTS = random_prompts((9, 1, 4, 17, 2))


def growths(children: str) -> dict[str, Growth]:
    return {
        "wide": Growth((3, 2, 1), children=children),
        "narrow": Growth((1, 2, 1, 2), children=children),
        "budget": Growth(nodes=14, branching=2, children=children),
    }


ALL = {f"{name}-{way}": g for way in DRAWN for name, g in growths(way).items()}


def engine_of(
    target: Target,
    drafter: Drafter,
    verifier: Verifier,
    gamma: int | GammaPolicy = 4,
    **defaults: Any,
) -> Engine:
    policy = Fixed(FixedConfig(gamma)) if isinstance(gamma, int) else gamma
    parts = Parts(target, drafter, verifier, policy, {})
    return Engine(parts, Defaults(**{"batch_size": 8, **defaults}))


# --- plans --------------------------------------------------------------------------------------


def test_widths_are_cut_by_the_depth() -> None:
    growth = Growth((3, 2, 1))
    whole = [Level(1, 3), Level(3, 2), Level(6, 1)]
    assert [growth.levels(depth) for depth in range(5)] == [[], *(whole[:n] for n in (1, 2, 3, 3))]
    assert growth.max_nodes == 15 and growth.kind == DraftKind(WITHOUT_REPLACEMENT, tree=True)


def test_a_budget_is_kept_and_spent() -> None:
    for nodes, branching, depth in itertools.product((4, 7, 16, 64), (1, 2, 4), range(1, 9)):
        levels = Growth(nodes=nodes, branching=branching).levels(depth)
        total = sum(level.size for level in levels)
        assert total <= nodes and len(levels) <= depth
        assert all(b.expanded <= a.size for a, b in itertools.pairwise(levels))
        saturated = all(b.expanded == a.size for a, b in itertools.pairwise(levels))
        assert saturated or total > nodes - branching
    assert Growth(nodes=14, branching=2).levels(4) == [Level(1, 2)] + [Level(2, 2)] * 3


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"widths": [2], "nodes": 4}, "beside"),
    ({"widths": []}, "widths=[]"),
    ({"widths": [2, 9]}, "from 1 to 8"),
    ({"widths": [0]}, "from 1 to 8"),
    ({"widths": [4, 4, 4]}, "84 nodes"),
    ({"nodes": 65}, "drafter.nodes=65"),
    ({"nodes": 3, "branching": 4}, "drafter.nodes=3"),
    ({"nodes": 16, "branching": 9}, "drafter.branching=9"),
    ({"branching": 3}, "no effect"),
    ({"widths": [2], "branching": 3}, "no effect"),
    ({"children": DETERMINISTIC}, "no effect on a chain"),
    ({"widths": [2], "children": "sorted"}, "drafter.children"),
]


@pytest.mark.parametrize(("values", "words"), REFUSED)
@pytest.mark.parametrize("config", [NgramConfig, CausalLMConfig])
def test_plans_that_cannot_be_are_refused(config: Any, values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(**values)
    text = str(error.value)
    assert words in text and text.endswith(".") and text.count(". ") == 0


def test_more_children_than_tokens_are_refused() -> None:
    target = table(1)
    with pytest.raises(ConfigError, match=r"drafter\.widths asks for 4 .* vocabulary of 3"):
        Ngram(NgramConfig(widths=[2, 4]), target)
    assert Ngram(NgramConfig(widths=[2, 4], children=INDEPENDENT), target).max_nodes == 10


@pytest.mark.parametrize("name", ["ngram", "causal_lm"])
def test_trees_come_through_the_config(name: str) -> None:
    def kind(*overrides: str) -> DraftKind:
        part = to_objects(compose([f"drafter={name}", *overrides])).drafter
        spec: Any = part.spec
        found: DraftKind = spec.kind_of(part.config)
        return found

    assert kind() == DraftKind()
    assert kind("drafter.widths=[2,2,1]") == DraftKind(WITHOUT_REPLACEMENT, tree=True)
    assert kind("drafter.nodes=8", "drafter.children=independent") == DraftKind(INDEPENDENT, True)
    config: Any = to_objects(compose([f"drafter={name}", "drafter.widths=[2,2,1]"])).drafter.config
    assert config.widths == [2, 2, 1] and config.growth.max_nodes == 10
    sweep = expand_sweep([f"drafter={name}", "drafter.widths=[2,1],[3],null"])
    grown = [to_objects(compose(job)).drafter.config.growth for job in sweep]
    assert [g and g.widths for g in grown] == [(2, 1), (3,), None]
    for wrong in ("[2,x]", "2", "[[2]]", "[2.0]"):
        with pytest.raises(ConfigError, match=r"drafter\.widths"):
            to_objects(compose([f"drafter={name}", f"drafter.widths={wrong}"]))


# --- what is drafted ----------------------------------------------------------------------------


def table(seed: int, vocab: int = 3, order: int = 2, zeros: float = 0.2) -> TableTarget:
    config = TableConfig(vocab_size=vocab, order=order, sharpness=1.2, zeros=zeros, seed=seed)
    return TableTarget.from_config(config)


def context_of(
    target: Target,
    prompts: Sequence[Sequence[int]],
    params: Sequence[SamplingParams],
    controls: Sequence[Control] = (),
) -> Context:
    tokens = [list(prompt) for prompt in prompts]
    session = target.start(len(tokens), 40)
    session.prefill([row[:-1] for row in tokens])
    sampler = Sampler(params, target.device, controls)
    noise = Noise([5] * len(tokens), list(range(len(tokens))), target.device)
    return Context(tokens, 40, session, sampler, noise)


def drafted(drafter: Drafter, context: Context, gammas: list[int]) -> Draft:
    with torch.inference_mode():
        return drafter.start(context).propose(gammas)


def laws_of(draft: Draft) -> Tensor:
    """The reported law of every node, ``[batch, width, vocab]``."""
    assert isinstance(draft.law, DenseLaw)
    return draft.law.rows()


def joint_of(law: Tensor, count: int, children: str) -> Tensor:
    """The joint law of siblings, ``[vocab] * count``."""
    vocab = len(law)
    if children == INDEPENDENT:
        return torch.cartesian_prod(*[law] * count).reshape(vocab**count, count).prod(1)
    joint = torch.zeros([vocab] * count, dtype=law.dtype)
    for tokens in itertools.permutations(range(vocab), count):
        unused, chance = torch.ones_like(law), 1.0
        for token in tokens:
            chance *= float(what_is_left(law, unused)[token])
            unused[token] = 0
        joint[tokens] = chance
    return joint


ROWS = 4000
NARROW = SamplingParams(temperature=1.0, top_k=2)


@pytest.mark.parametrize("children", [INDEPENDENT, WITHOUT_REPLACEMENT])
@pytest.mark.parametrize("shape", ["wide", "budget"])
def test_drawn_tokens_follow_the_reported_law(shape: str, children: str) -> None:
    """Siblings jointly, those of the root and those of the first node."""
    growth = growths(children)[shape]
    settings = [s for s in (SAMPLED, NARROW, GREEDY) for _ in range(ROWS)]
    context = context_of(table(1, vocab=4), [[1, 0, 1]] * len(settings), settings)
    drafter = TableTreeDrafter(table(2, vocab=4, zeros=0), growth)
    draft = drafted(drafter, context, [3] * len(settings))
    first, second = growth.levels(3)[:2]
    groups = [(torch.ones(len(settings), dtype=torch.bool), 0, first.children)]
    under = draft.shape.parents[:, first.size] == 0
    for token in range(4):
        groups.append((under & (draft.tokens[:, 0] == token), first.size, second.children))
    laws, judged = laws_of(draft), 0
    for begin, (mask, node, count) in itertools.product(range(0, 3 * ROWS, ROWS), groups):
        rows = torch.arange(begin, begin + ROWS)[mask[begin : begin + ROWS]]
        if len(rows) < 100:
            continue
        law = laws[rows[0], node]
        assert (laws[rows][:, node : node + count] == law).all()
        counts = sequence_counts(draft.tokens[rows, node : node + count].tolist(), 4, count)
        assert chi_square(counts, joint_of(law, count, children).flatten()) > FLOOR
        judged += 1
    assert judged >= 7


def test_reported_laws_are_those_of_each_path() -> None:
    """Each node's law is what a chain that came to its parent would have reported."""
    draft_table = table(2, vocab=4)
    target, rows = table(1, vocab=4), 12
    params = [SAMPLED, NARROW, SamplingParams(temperature=0.7, draft="none")] * 4
    prompts = [[row % 4, (row * 3) % 4, 1] for row in range(rows)]
    for growth in (ALL["wide-independent"], ALL["budget-independent"]):
        context = context_of(target, prompts, params)
        draft = drafted(TableTreeDrafter(draft_table, growth), context, [3] * rows)
        for node in range(draft.width):
            paths = [path_to(draft, row, node)[:-1] for row in range(rows)]
            texts = [[*prompts[row], *(int(draft.tokens[row, n]) for n in path)]
                     for row, path in enumerate(paths)]  # fmt: skip
            keys = [text[-2] * 5 + text[-1] for text in texts]
            due = context_of(target, texts, params).law(draft_table.logits[keys])
            assert torch.equal(laws_of(draft)[:, node], due)


def path_to(draft: Draft, row: int, node: int) -> list[int]:
    """From the root's child to the node."""
    path = [node]
    while (parent := int(draft.shape.parents[row, path[0]])) >= 0:
        path.insert(0, parent)
    return path


class Echoing(Control):
    """Bans the newest token of each path, so that a wrong path shows."""

    def apply(self, logits: Tensor, committed: Committed, branches: Branches) -> Tensor:
        newest = torch.tensor([[row[-1]] for row in committed])
        return logits.scatter(-1, branches.last(1, newest), -torch.inf)

    def select(self, rows: list[int]) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("name", ALL)
def test_controls_see_each_nodes_own_path(name: str) -> None:
    prompts = [[0, 1, 2], [3, 3], [1]] * 2
    params = [SAMPLED] * 3 + [GREEDY] * 3
    context = context_of(table(1, vocab=8), prompts, params, [Echoing()])
    growth = ALL[name]
    draft = drafted(TableTreeDrafter(table(2, vocab=8, zeros=0), growth), context, [4, 1, 3] * 2)
    for row, length in enumerate(draft.lengths):
        for node in range(length):
            text = [*prompts[row], *(int(draft.tokens[row, n]) for n in path_to(draft, row, node))]
            assert text[-1] != text[-2]
    if name.startswith("budget"):
        assert growth.levels(4) != growth.levels(3)  # rows of a batch are cut differently


def test_greedy_rows_draft_the_likeliest_children() -> None:
    """In order, at every node, for both ways of drawing different children; ties go to the first."""
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0, -torch.inf]] * 7, dtype=torch.float64)
    flat = TableTarget(logits.softmax(-1), order=1)
    for way in (DETERMINISTIC, WITHOUT_REPLACEMENT):
        context = context_of(flat, [[0]] * 50, [GREEDY] * 50)
        draft = drafted(TableTreeDrafter(flat, Growth((5, 2), children=way)), context, [2] * 50)
        due = [1, 2, 4, 3, 0] + [1, 2] * 5
        off = (draft.tokens != torch.tensor(due)).sum()
        assert off <= (0 if way == DETERMINISTIC else 2)
        assert draft.law.valid(draft.tokens).all()


def test_a_law_with_too_few_tokens_gets_spares() -> None:
    """Also where sampling or a control leaves a single token: every drafted token is possible."""
    law = torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.4, 0.6]])
    logits = torch.tensor([[-torch.inf, 2.0, -torch.inf, 0.5], [3.0, 1.0, 4.0, 5.0]])
    filled = tree_drawing.with_spares(law, logits, 3)
    assert filled.sum(-1).tolist() == pytest.approx([1.0, 1.0])
    assert filled[0].argsort(descending=True).tolist() == [1, 3, 0, 2]
    assert filled[0].min() == 0 and filled[1].tolist()[1] == 0
    assert filled[1].argsort(descending=True).tolist() == [3, 2, 0, 1]
    assert float(filled[1, 0]) == pytest.approx(0.4 * tree_drawing.SPARE, rel=1e-3)
    whole = torch.tensor([0.5, 0.25, 0.125, 0.125])
    assert torch.equal(tree_drawing.with_spares(whole, whole.log(), 4), whole)


@pytest.mark.parametrize("name", ALL)
def test_rows_stop_at_their_own_gamma(name: str) -> None:
    """Rows with gamma 0 beside others: a prefix of the numbering, the same nodes as alone."""
    growth, gammas = ALL[name], [3, 0, 1, 2, 4]
    prompts, params = (
        [[row % 3] * 2 for row in range(5)],
        [SAMPLED, GREEDY, SAMPLED, GREEDY, SAMPLED],
    )
    drafter = TableTreeDrafter(table(2), growth)
    draft = drafted(drafter, context_of(table(1), prompts, params), gammas)
    assert draft.lengths == [sum(level.size for level in growth.levels(g)) for g in gammas]
    assert draft.kind == drafter.kind and draft.width <= drafter.max_nodes
    for row, gamma in enumerate(gammas):
        parents = draft.shape.parents[row].tolist()
        depth = {-1: -1}
        for node in range(draft.lengths[row]):
            assert parents[node] < node
            depth[node] = depth[parents[node]] + 1
        levels = list(depth.values())
        assert levels == sorted(levels) and levels[-1] < gamma or gamma == 0
        context = context_of(table(1), prompts, params)
        context.select([row])
        alone = drafted(drafter, context, [gamma])
        length = alone.lengths[0]
        assert length == draft.lengths[row]
        assert torch.equal(alone.tokens[0, :length], draft.tokens[row, :length])
        assert alone.shape.parents[0, :length].tolist() == parents[:length]


def test_a_budget_goes_to_the_likeliest_paths() -> None:
    """Of each level's nodes, those with the likeliest paths have children, in that order."""
    draft_table, rows = table(2, vocab=6, zeros=0), 40
    growth = Growth(nodes=24, branching=4, children=INDEPENDENT)  # draws are in no order
    assert growth.levels(3) == [Level(1, 4), Level(3, 4), Level(2, 4)]
    context = context_of(draft_table, [[1, 2]] * rows, [SAMPLED] * rows)
    draft = drafted(TableTreeDrafter(draft_table, growth), context, [3] * rows)
    probs = draft.law.prob(draft.tokens)
    for row in range(rows):
        score, parents = {-1: 1.0}, draft.shape.parents[row].tolist()
        for node, parent in enumerate(parents):
            score[node] = score[parent] * float(probs[row, node])
        for above, below in ((range(4), range(4, 16)), (range(4, 16), range(16, 24))):
            taken = list(dict.fromkeys(parents[node] for node in below))
            best = sorted((score[node] for node in above), reverse=True)
            assert [score[node] for node in taken] == pytest.approx(best[: len(taken)], rel=1e-9)


# --- n-gram -------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [{"widths": [3, 2, 1]}, {"nodes": 14, "children": INDEPENDENT}])
def test_ngram_trees_have_the_law_of_each_path(plan: dict[str, Any]) -> None:
    target, prompts = table(1, vocab=8), random_prompts((20, 3, 11), vocab=8)
    drafter = Ngram(NgramConfig(order=3, **plan), target)
    draft = drafted(drafter, context_of(target, prompts, [SAMPLED] * 3), [3, 0, 2])
    assert draft.kind == drafter.kind and draft.width <= drafter.max_nodes
    assert draft.lengths[1] == 0 < draft.lengths[2] < draft.lengths[0]
    for row, length in enumerate(draft.lengths):
        counts = RunningCounts(3)
        counts.extend(prompts[row])
        for node in range(length):
            chain = [int(draft.tokens[row, n]) for n in path_to(draft, row, node)[:-1]]
            due = witten_bell(counts, [*prompts[row], *chain], 3, 8)
            torch.testing.assert_close(laws_of(draft)[row, node], torch.from_numpy(due))


# --- whole runs, greedy -------------------------------------------------------------------------

LENGTH = 64


@cache
def due(kind: str) -> list[list[int]]:
    return [plain(model_of(kind), prompt, LENGTH) for prompt in PROMPTS]


@cache
def twin(kind: str) -> Any:
    return noisy_copy(model_of(kind))


def drafter_of(kind: str, name: str) -> Drafter:
    return CausalLMDrafter(twin(kind), target_of(kind), growth=ALL[name])


def check_greedy(target: Any, drafter: Drafter, kind: str, verifier: Verifier) -> None:
    answers = engine_of(target, drafter, verifier, max_new_tokens=LENGTH).generate_many(PROMPTS)
    for prompt, expected, answer in zip(PROMPTS, due(kind), answers, strict=True):
        assert_same(target.model, prompt, expected, answer.token_ids)
    assert sum(answer.metrics.accepted for answer in answers) > 0


@pytest.mark.parametrize("name", ALL)
def test_greedy_text_is_that_of_plain_decoding(name: str) -> None:
    check_greedy(target_of("llama"), drafter_of("llama", name), "llama", GreedyVerifier())


@pytest.mark.parametrize("name", ["wide-without_replacement", "budget-deterministic"])
@pytest.mark.parametrize("kind", ["gpt2", "mistral", "gemma2"])
def test_positions_and_windows_are_those_of_each_path(kind: str, name: str) -> None:
    """Absolute positions, a window of 8 that the trees cross, and layers of both kinds."""
    check_greedy(target_of(kind), drafter_of(kind, name), kind, RecursiveVerifier())


@pytest.mark.parametrize("plan", [{"widths": [2, 2, 1]}, {"nodes": 12, "children": DETERMINISTIC}])
def test_ngram_trees_leave_greedy_text_as_it_is(plan: dict[str, Any]) -> None:
    target = target_of("llama")
    check_greedy(target, Ngram(NgramConfig(order=2, **plan), target), "llama", RecursiveVerifier())


@pytest.mark.parametrize("name", ["wide-without_replacement", "budget-independent"])
def test_greedy_rows_beside_sampled_ones(name: str) -> None:
    target, settings = target_of("llama"), [GREEDY, SAMPLED, GREEDY, NARROW, GREEDY]
    parts = engine_of(target, drafter_of("llama", name), RecursiveVerifier()).parts
    answers = [
        Answer(Request(list(prompt), 40, params, index=i))
        for i, (prompt, params) in enumerate(zip(PROMPTS, settings, strict=True))
    ]
    for _ in decode(parts, answers):
        pass
    for row in (0, 2, 4):
        assert answers[row].token_ids == due("llama")[row][:40]


def test_penalties_reach_the_trees() -> None:
    target = target_of("llama")
    params = SamplingParams(repetition_penalty=1.5, bad_words=[[token] for token in range(20)])
    texts, accepted = [], []
    for drafter in (NoDrafter(), drafter_of("llama", "wide-deterministic")):
        engine = engine_of(target, drafter, GreedyVerifier(), max_new_tokens=30, sampling=params)
        answers = engine.generate_many(PROMPTS)
        texts.append([answer.token_ids for answer in answers])
        accepted.append(sum(answer.metrics.accepted for answer in answers))
    assert texts[0] == texts[1] and accepted[0] == 0 < 20 < accepted[1]
    assert texts[0] != [answer[:30] for answer in due("llama")]


def tau(target: Target, drafter: Drafter, verifier: Verifier, params: SamplingParams) -> float:
    """Tokens per round."""
    engine = engine_of(target, drafter, verifier, 3, max_new_tokens=50, sampling=params)
    answers = engine.generate_many(random_prompts((6, 3, 9, 5, 7, 4)))
    rounds = sum(answer.metrics.rounds for answer in answers)
    return sum(len(answer.token_ids) for answer in answers) / rounds


@pytest.mark.parametrize("shape", ["wide", "budget"])
def test_greedy_trees_accept_no_less_than_chains(shape: str) -> None:
    target = target_of("llama")
    model = noisy_copy(target.model, 0.03)

    def found(growth: Growth | None) -> float:
        drafter = CausalLMDrafter(model, target, growth=growth)
        return tau(target, drafter, GreedyVerifier(), GREEDY)

    chain = found(None)
    trees = {way: found(growths(way)[shape]) for way in DRAWN}
    assert 1.3 < chain < 3.5
    assert trees[DETERMINISTIC] > chain * 1.1 and trees[WITHOUT_REPLACEMENT] > chain * 1.1
    if shape == "wide":  # the same chain, with copies of its nodes
        assert trees[INDEPENDENT] == pytest.approx(chain, rel=0.02)


# --- caches -------------------------------------------------------------------------------------


def stepped(batch: Batch) -> Iterator[list[RowOutcome]]:
    with torch.inference_mode():
        while batch.answers:
            yield batch.step().rows


MIXED = PerRow(lambda place, turn: 0 if turn % 5 == 3 else (4, 0, 2, 1)[(place + turn) % 4])


@pytest.mark.parametrize(
    "name", ["wide-deterministic", "narrow-independent", "budget-without_replacement"]
)
@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral"])
@pytest.mark.parametrize("gamma", [4, MIXED], ids=["four", "mixed"])
def test_caches_are_the_committed_ids(gamma: int | GammaPolicy, kind: str, name: str) -> None:
    """After each round, of target and drafter; and hardly anything is run twice."""
    target, drafter = target_of(kind), drafter_of(kind, name)
    engine = engine_of(target, drafter, RecursiveVerifier(), gamma, sampling=SAMPLED)
    batch = make_batch(engine, random_prompts((5, 1, 8, 3)), max_new_tokens=24)
    batch.stoppers[1].limit = batch.stoppers[1].max_new_tokens = 9  # a row leaves on the way
    session: Any = batch.drafter
    moved, addresses = 0, [b.data_ptr() for b in session.ragged.buffers]
    for rows in stepped(batch):
        moved += sum(row.path != list(range(len(row.path))) for row in rows)
        if not batch.answers:
            break
        check_cache(batch.context.target.ragged, batch.context)  # type: ignore[attr-defined]
        check_cache(session.ragged, batch.context)
        for ids, length in zip(batch.context.tokens, session.ragged.lengths, strict=True):
            # The newest id, a last node that was not fed, and those of rounds without a draft.
            assert 1 <= len(ids) - length <= (2 if gamma == 4 else 5)
    assert moved > 3 or name.startswith("narrow")
    assert not addresses or addresses == [b.data_ptr() for b in session.ragged.buffers]


class Turns(Drafter):
    """Two drafters take turns; both hear of every round."""

    def __init__(self, one: Drafter, other: Drafter) -> None:
        self.parts, self.kind = (one, other), one.kind
        self.max_nodes = max(one.max_nodes, other.max_nodes)

    def start(self, context: Context) -> DraftSession:
        return TurnsSession([part.start(context) for part in self.parts], context)


class TurnsSession(DraftSession):
    def __init__(self, parts: list[DraftSession], context: Context) -> None:
        self.parts, self.context = parts, context

    def propose(self, gammas: list[int]) -> Draft:
        return self.parts[self.context.round_index % 2].propose(gammas)

    def observe(self, outcome: Round) -> None:
        for part in self.parts:
            part.observe(outcome)

    def select(self, rows: list[int]) -> None:
        for part in self.parts:
            part.select(rows)


@pytest.mark.parametrize("name", ["wide-independent", "budget-independent"])
def test_rounds_that_another_drafter_drafted_leave_no_entries(name: str) -> None:
    target = target_of("llama")
    other = Ngram(NgramConfig(order=2, widths=[2, 2], children=INDEPENDENT), target)
    drafter = Turns(drafter_of("llama", name), other)
    engine = engine_of(target, drafter, RecursiveVerifier(), sampling=SAMPLED)
    batch = make_batch(engine, random_prompts((5, 1, 8)), max_new_tokens=30)
    session: Any = batch.drafter
    stood = [0, 0]
    for turn, rows in enumerate(stepped(batch)):
        stood[turn % 2] += sum(row.accepted for row in rows)
        if batch.answers:
            check_cache(session.parts[0].ragged, batch.context)
    assert min(stood) > 3


def test_a_drafter_with_a_shorter_context_stops_drafting() -> None:
    """gpt2 has no position beyond its table; nodes lie in slots beyond it, never at positions."""
    target, prompts = target_of("gpt2"), random_prompts((5, 30, 2))
    for name in ("wide-without_replacement", "budget-deterministic"):
        model = model_of("gpt2", context=24, seed=4)
        drafter = CausalLMDrafter(model, target, growth=ALL[name])
        engine = engine_of(target, drafter, GreedyVerifier(), max_new_tokens=40)
        batch = make_batch(engine, prompts)
        answers = list(batch.answers)
        for rows in stepped(batch):
            for row in rows:
                answer = answers[row.request]
                before = len(prompts[row.request]) + len(answer.token_ids) - len(row.emitted)
                assert bool(row.drafted) == (before <= 24 and len(answer.token_ids) < 40)
        for prompt, answer in zip(prompts, answers, strict=True):
            assert answer.token_ids == plain(target.model, prompt, 40)


def test_session_bytes_count_the_nodes() -> None:
    target = target_of("llama")
    drafter = drafter_of("llama", "wide-independent")
    assert drafter.max_nodes == 15
    assert drafter.session_bytes(3, 40) == cache_bytes(twin("llama"), 3, 55)
    engine = engine_of(target, drafter, RecursiveVerifier())
    batch = make_batch(engine, [[1, 2]], max_new_tokens=10)
    next(stepped(batch))
    session: Any = batch.drafter
    assert sum(b.nbytes for b in session.ragged.buffers) == drafter.session_bytes(1, 12)


# --- whole runs, sampled ------------------------------------------------------------------------

SETTINGS = [SAMPLED, SamplingParams(temperature=0.7), SamplingParams(temperature=1.2, top_k=2)]


def p_values(target: Target, drafter: Drafter, draws: int) -> list[float]:
    """One p-value per setting, of the joint law of three tokens. Rows of all settings share
    batches; two in three have temperature 1."""
    parts = Parts(target, drafter, RecursiveVerifier(), Fixed(FixedConfig(3)), {})
    prompt, picked = [1, 0, 1], [max(0, i % 6 - 3) for i in range(draws)]
    requests = [
        Request(prompt, 3, SETTINGS[place], seed=7, index=i) for i, place in enumerate(picked)
    ]
    answers = [Answer(request) for request in requests]
    for begin in range(0, draws, 3000):
        for _ in decode(parts, answers[begin : begin + 3000]):
            pass
    found = []
    for setting, params in enumerate(SETTINGS):
        ids = [a.token_ids for a, place in zip(answers, picked, strict=True) if place == setting]
        counts = sequence_counts(ids, target.vocab_size, 3)
        found.append(chi_square(counts, exact_joint(target, prompt, 3, params)))
    return found


@pytest.mark.parametrize("name", [name for name in ALL if not name.startswith("narrow")])
def test_engine_draws_follow_the_joint_law(name: str) -> None:
    assert min(p_values(table(1), TableTreeDrafter(table(2), ALL[name]), 15_000)) > FLOOR


def test_engine_draws_of_models_follow_the_joint_law() -> None:
    target = CausalLM(tiny_model("llama", vocab=5, layers=1, seed=0, dtype=torch.float32))
    model = tiny_model("llama", vocab=5, layers=1, seed=1)
    for name in ("wide-without_replacement", "budget-deterministic"):
        drafter = CausalLMDrafter(model, target, growth=ALL[name])
        assert min(p_values(target, drafter, 6000)) > FLOOR


def _sorted_children(probs: Tensor, uniforms: Tensor, drawn: str) -> Tensor:
    tokens = _DRAW(probs, uniforms, drawn)
    order = probs.gather(-1, tokens).argsort(dim=-1, descending=True)
    return tokens.gather(-1, order)


def _same_noise_for_all(self: Context, start: int, count: int) -> Tensor:
    return _UNIFORMS(self, 0, 1).expand(-1, count)


_DRAW, _UNIFORMS = draw_children, Context.uniforms
FAULTS: dict[str, tuple[str, Any, str, Any]] = {
    "siblings put in order": (
        "wide-without_replacement",
        tree_drawing,
        "draw_children",
        _sorted_children,
    ),
    "one uniform for all nodes": ("wide-independent", Context, "uniforms", _same_noise_for_all),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, owner, attribute, broken = FAULTS[fault]
    monkeypatch.setattr(owner, attribute, broken)
    assert min(p_values(table(1), TableTreeDrafter(table(2), ALL[name]), 12_000)) < FLOOR


@pytest.mark.parametrize("name", ["wide-without_replacement", "budget-independent"])
def test_a_sampled_row_does_not_depend_on_its_batch(name: str) -> None:
    """Nor does the budget of its last rounds, which are cut at the end of the answer."""
    target, drafter = table(1, vocab=6), TableTreeDrafter(table(2, vocab=6), ALL[name])
    parts = Parts(target, drafter, RecursiveVerifier(), Fixed(FixedConfig(4)), {})

    def run(picked: Sequence[int]) -> list[list[int]]:
        requests = [Request([i % 6, 1], 8 + 3 * i, SAMPLED, seed=2, index=i) for i in picked]
        answers = [Answer(request) for request in requests]
        for _ in decode(parts, answers):
            pass
        return [answer.token_ids for answer in answers]

    assert run(range(6)) == [run([i])[0] for i in range(6)]


def test_sampled_trees_accept_more_than_chains() -> None:
    target = target_of("llama")
    model = noisy_copy(target.model, 0.03)
    chain = tau(target, CausalLMDrafter(model, target), TokenVerifier(), SAMPLED)
    for name in ("wide-without_replacement", "budget-without_replacement", "wide-independent"):
        drafter = CausalLMDrafter(model, target, growth=ALL[name])
        assert tau(target, drafter, RecursiveVerifier(), SAMPLED) > chain
