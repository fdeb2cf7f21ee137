"""Drafters that copy, from the text or from the target's own earlier guesses: prompt lookup with
branches, token recycling, Jacobi. All their drafts are chosen, none are drawn."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from helpers import (
    SAMPLED,
    PerRow,
    assert_same,
    cycle,
    make_batch,
    markov,
    model_of,
    plain,
    random_prompts,
    rounds_of,
)
from torch.utils._python_dispatch import TorchDispatchMode

from foredraft.drafters.builtin import (
    JacobiConfig,
    PromptLookupConfig,
    TokenRecyclingConfig,
    foredraft_drafters,
)
from foredraft.drafters.jacobi import PLACES, Jacobi, place_of
from foredraft.drafters.prompt_lookup import PromptLookup, SuffixIndex
from foredraft.drafters.token_recycling import TokenRecycling, best_shape, shapes, successors_in
from foredraft.framework.decoding import Batch, Parts, decode
from foredraft.framework.engine import Defaults, Engine
from foredraft.framework.errors import ConfigError
from foredraft.framework.feedback import Fed, write
from foredraft.framework.interfaces import Drafter, GammaPolicy, Target
from foredraft.framework.law import PointMass
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.records import Round, RowOutcome
from foredraft.framework.requests import Answer, Request
from foredraft.framework.specs import DETERMINISTIC
from foredraft.framework.targets.builtin import TableConfig
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.targets.table import TableTarget
from foredraft.framework.testing.laws import chi_square, exact_joint, sequence_counts
from foredraft.framework.trie import Trie, trie_draft
from foredraft.verifiers.greedy import GreedyVerifier
from foredraft.verifiers.recursive import RecursiveVerifier
from foredraft.verifiers.token import TokenVerifier

CPU = torch.device("cpu")
PROMPTS = random_prompts((7, 1, 17, 9, 3))
PROMPTS[2][8:16] = PROMPTS[2][:8]  # something to copy
LENGTH, SHORT = 64, 24

DRAFTERS: dict[str, Callable[[Target], Drafter]] = {
    "lookup": lambda target: PromptLookup(PromptLookupConfig()),
    "lookup tree": lambda target: PromptLookup(PromptLookupConfig(branches=4)),
    "lookup, few nodes": lambda target: PromptLookup(PromptLookupConfig(branches=6, nodes=5)),
    "recycling": lambda target: TokenRecycling(TokenRecyclingConfig(successors=3), target),
    "recycling, cold": lambda target: TokenRecycling(
        TokenRecyclingConfig(nodes=30, successors=2, from_prompt=False), target
    ),
    "recycling chain": lambda target: TokenRecycling(TokenRecyclingConfig(successors=1), target),
    "jacobi": lambda target: Jacobi(JacobiConfig()),
    "jacobi, cold": lambda target: Jacobi(JacobiConfig(pool=2, from_prompt=False)),
    "jacobi, no pool": lambda target: Jacobi(JacobiConfig(pool=1)),
}
NEW = [name for name in DRAFTERS if name != "lookup"]


def engine_of(
    target: Target, drafter: Drafter, gamma: int | GammaPolicy, rule: Any = None, **defaults: Any
) -> Engine:
    policy = Fixed(FixedConfig(gamma)) if isinstance(gamma, int) else gamma
    parts = Parts(target, drafter, rule or GreedyVerifier(), policy, {})
    return Engine(parts, Defaults(**{"batch_size": 8, "max_new_tokens": LENGTH, **defaults}))


@cache
def reference() -> tuple[CausalLM, list[list[int]]]:
    """A target with an EOS that ends the first answer early, and transformers' own answers."""
    model = model_of("llama")
    full = [plain(model, prompt, LENGTH) for prompt in PROMPTS]
    others = {token for answer in full[1:] for token in answer}
    eos = next(t for at, t in enumerate(full[0]) if t not in others and at > 4)
    target = CausalLM(model)
    target.eos_ids = frozenset({eos})
    return target, [plain(model, prompt, LENGTH, eos) for prompt in PROMPTS]


# --- the same text as without ---------------------------------------------------------------


@pytest.mark.parametrize("gamma", range(1, 7))
@pytest.mark.parametrize("name", NEW)
def test_greedy_answers_are_plain_decodings(name: str, gamma: int) -> None:
    """Five rows of different lengths, the first of which ends early."""
    target, due = reference()
    assert len(due[0]) < LENGTH == len(due[2])
    given = engine_of(target, DRAFTERS[name](target), gamma).generate_many(PROMPTS)
    for prompt, expected, got in zip(PROMPTS, due, given, strict=True):
        assert_same(target.model, prompt, expected, got.token_ids)
    assert sum(answer.metrics.accepted for answer in given) > 20


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_row_has_a_gamma_of_its_own(name: str) -> None:
    target, due = reference()
    policy = PerRow(lambda place, number: (place + number) % 4)
    given = engine_of(target, DRAFTERS[name](target), policy).generate_many(PROMPTS)
    for prompt, expected, got in zip(PROMPTS, due, given, strict=True):
        assert_same(target.model, prompt, expected, got.token_ids)


def table(seed: int) -> TableTarget:
    config = TableConfig(vocab_size=3, order=2, sharpness=1.2, zeros=0.2, seed=seed)
    return TableTarget.from_config(config)


@pytest.mark.parametrize(
    ("name", "gamma"),
    [(name, 3) for name in NEW if name not in ("lookup, few nodes", "jacobi, cold")]
    + [("recycling", 1)],
)
def test_sampled_answers_follow_the_joint_law(name: str, gamma: int) -> None:
    """Four tokens take several rounds, so that the later ones use what was learned."""
    target, prompt, draws, length = table(5), [1, 0, 1, 2, 0, 1], 10_000, 4
    drafter = DRAFTERS[name](target)
    rule = RecursiveVerifier() if drafter.kind.tree else TokenVerifier()
    parts = Parts(target, drafter, rule, Fixed(FixedConfig(gamma)), {})
    answers = [Answer(Request(prompt, length, SAMPLED, seed=7, index=i)) for i in range(draws)]
    for begin in range(0, draws, 1000):
        for _ in decode(parts, answers[begin : begin + 1000]):
            pass
    assert sum(answer.metrics.accepted for answer in answers) > draws / 4
    counts = sequence_counts([answer.token_ids for answer in answers], 3, length)
    assert chi_square(counts, exact_joint(target, prompt, length, SAMPLED)) > 1e-5


# --- state ----------------------------------------------------------------------------------


def trace(engine: Engine, prompts: list[list[int]]) -> list[Any]:
    """All that a run decided, without its times."""
    return [
        [(row.request, row.drafted, row.path, row.emitted) for row in one.rows]
        for one in rounds_of(engine, prompts)
    ]


@pytest.mark.parametrize("name", DRAFTERS)
def test_nothing_is_left_behind_for_the_next_request(name: str) -> None:
    target, _ = reference()
    engine = engine_of(target, DRAFTERS[name](target), 4, max_new_tokens=SHORT)
    first = trace(engine, PROMPTS[:2])
    trace(engine, PROMPTS[2:])
    assert trace(engine, PROMPTS[:2]) == first


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_row_drafts_the_same_in_any_batch(name: str) -> None:
    """Also when rows before it leave: the first one ends early."""
    target, due = reference()
    policy = PerRow(lambda place, number: number % 5)
    engine = engine_of(target, DRAFTERS[name](target), policy, max_new_tokens=SHORT)
    together = [row for one in trace(engine, PROMPTS) for row in one]
    assert len(due[0]) < SHORT
    for place, prompt in enumerate(PROMPTS):
        alone = [row[1:] for one in trace(engine, [prompt]) for row in one]
        assert [row[1:] for row in together if row[0] == place] == alone


@pytest.mark.parametrize("name", DRAFTERS)
def test_ids_lie_in_the_vocabulary_and_siblings_differ(name: str) -> None:
    target = table(6)
    drafter = DRAFTERS[name](target)
    rule = RecursiveVerifier() if drafter.kind.tree else TokenVerifier()
    engine = engine_of(target, drafter, 5, rule, sampling=SAMPLED)
    batch = make_batch(engine, [[0], [2, 1], [1, 1, 1, 1]])
    for _ in range(12):
        drafts = propose(batch, 4)
        assert drafts == propose(batch, 4)  # looking changes nothing
        for nodes in drafts:
            assert len(set(nodes)) == len(nodes)
            assert all(0 <= token < 3 for _, token in nodes)
        with torch.inference_mode():
            batch.step()


def propose(batch: Batch, gamma: int) -> list[list[tuple[int, int]]]:
    """Parent and token of each node, by row."""
    with torch.inference_mode():
        draft = batch.drafter.propose([gamma] * batch.context.rows)
    assert isinstance(draft.law, PointMass) and draft.kind.drawn == DETERMINISTIC
    parents = draft.shape.parents.tolist()
    pairs = zip(parents, draft.tokens.tolist(), draft.lengths, strict=True)
    return [list(zip(p, t, strict=True))[:length] for p, t, length in pairs]


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_drafter_hears_of_rounds_that_drafted_nothing(name: str) -> None:
    """On a cycle, what the plain rounds taught is enough for a whole draft."""
    target = cycle(6)
    policy = PerRow(lambda place, number: 4 if number == 7 else 0)
    rounds = rounds_of(engine_of(target, DRAFTERS[name](target), policy, max_new_tokens=16), [[0]])
    assert all(not one.rows[0].drafted for one in rounds[:7])
    assert rounds[7].rows[0].accepted == (0 if name == "jacobi, no pool" else 4)


class _NoReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.overloadpacket not in (
            torch.ops.aten._local_scalar_dense,
            torch.ops.aten.nonzero,
            torch.ops.aten.masked_select,
        ), f"{func} waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", NEW)
def test_nothing_is_read_from_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, _ = reference()
    batch = make_batch(engine_of(target, DRAFTERS[name](target), 4), PROMPTS)
    propose, observe = batch.drafter.propose, batch.drafter.observe

    def fault(tensor: torch.Tensor) -> Any:
        raise AssertionError("tolist waits for the device")

    def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
        def inside(argument: Any) -> Any:
            with _NoReads(), monkeypatch.context() as patch:  # type: ignore[no-untyped-call]
                patch.setattr(torch.Tensor, "tolist", fault)
                return call(argument)

        return inside

    batch.drafter.propose = guarded(propose)  # type: ignore[method-assign]
    batch.drafter.observe = guarded(observe)  # type: ignore[method-assign]
    for _ in range(6):
        with torch.inference_mode():
            batch.step()
    with pytest.raises(AssertionError, match="waits"), _NoReads():  # type: ignore[no-untyped-call]
        torch.ones(2).sum().item()


# --- tries ----------------------------------------------------------------------------------


def test_chains_are_merged_by_their_beginnings() -> None:
    rows = [[[1, 2, 3], [1, 2, 4], [5], [1, 6, 7]], [], [[8]]]
    draft = trie_draft(rows, 10, CPU)
    assert draft.lengths == [7, 0, 1]
    assert draft.tokens[0].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert draft.shape.parents[0].tolist() == [-1, 0, 1, 1, -1, 0, 5]
    assert (int(draft.tokens[2, 0]), int(draft.shape.parents[2, 0])) == (8, -1)
    assert draft.tree is not None and (draft.tree.depth, draft.tree.children) == (3, 2)
    assert draft.kind.drawn == DETERMINISTIC and draft.kind.tree


def test_earlier_chains_have_the_room() -> None:
    trie = Trie(4)
    for chain in ([1, 2, 3], [1, 4, 5], [6], [1, 2, 3]):
        trie.add(chain)
    assert (trie.tokens, trie.parents) == ([1, 2, 3, 4], [-1, 0, 1, 0])


def test_a_trie_of_nothing_is_no_draft() -> None:
    draft = trie_draft([[], [[]]], 4, CPU)
    assert (draft.width, draft.lengths, draft.tree) == (0, [0, 0], None)


def test_a_trie_holds_just_the_beginnings_of_its_chains() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        chains = torch.randint(3, (6, 4), generator=generator).tolist()
        trie = Trie(1000)
        paths: list[tuple[int, ...]] = []
        for chain in chains:
            trie.add(chain)
        for node, token in enumerate(trie.tokens):
            parent = trie.parents[node]
            assert parent < node
            paths.append((*(paths[parent] if parent >= 0 else ()), token))
        due = {tuple(chain[:length]) for chain in chains for length in range(1, 5)}
        assert len(paths) == len(due) and set(paths) == due


# --- prompt lookup with branches ------------------------------------------------------------


def lookup(history: list[int], gamma: int, **config: Any) -> list[tuple[int, int]]:
    """Parent and token of each node that lookup drafts behind a history."""
    target = TableTarget(torch.full((1, 10), 0.1), order=0)
    engine = engine_of(target, PromptLookup(PromptLookupConfig(**config)), gamma)
    return propose(make_batch(engine, [history]), gamma)[0]


def test_branches_come_longest_match_first_then_most_recent() -> None:
    history = [1, 2, 3, 9, 1, 2, 3, 7, 1, 2, 3]
    assert lookup(history, 1, branches=2) == [(-1, 7), (-1, 9)]
    assert lookup(history, 2, branches=2) == [(-1, 7), (0, 1), (-1, 9), (2, 1)]
    history = [5, 1, 2, 3, 9, 8, 2, 3, 7, 1, 2, 3]
    assert lookup(history, 1, branches=3) == [(-1, 9), (-1, 7)]  # longer beats newer
    assert lookup([3, 8, 3, 7, 3], 1, branches=2, max_ngram=1) == [(-1, 7), (-1, 8)]
    assert lookup([3, 8, 3, 7, 3], 1, branches=1, max_ngram=1) == [(-1, 7)]


def test_the_newest_tokens_match_nothing_but_what_came_before() -> None:
    assert lookup([1, 2, 3], 4, branches=4) == []
    assert lookup([4, 1, 5, 1], 3, branches=4, min_ngram=2) == []
    assert lookup([3, 3, 3], 2, branches=4) == [(-1, 3), (0, 3)]


def test_branches_share_their_beginning_and_keep_to_the_nodes() -> None:
    history = [1, 2, 3, 1, 2, 4, 1, 5, 6, 1]
    whole = [(-1, 5), (0, 6), (1, 1), (-1, 2), (3, 4), (4, 1), (3, 3), (6, 1)]
    assert lookup(history, 3, branches=8) == whole
    for nodes in range(1, 9):
        assert lookup(history, 3, branches=8, nodes=nodes) == whole[:nodes]


def test_an_index_finds_what_a_search_finds() -> None:
    tokens = torch.randint(3, (120,), generator=torch.Generator().manual_seed(1)).tolist()
    index = SuffixIndex(1, 3)
    for length in range(1, 121):
        text = tokens[:length]
        index.extend(text)
        due = [
            end
            for size in (3, 2, 1)
            for end in range(length - 1, size - 1, -1)
            if text[end - size : end] == text[-size:] and size < length
        ]
        assert list(index.ends(text)) == list(dict.fromkeys(due))


@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_eos_copied_from_the_prompt_with_branches(gamma: int) -> None:
    """A lookup copied an EOS from the prompt and ran on past it (HF#31301)."""
    rows = [[0.0] * 5 for _ in range(5)]
    for before, after in ((0, 4), (4, 2), (2, 3), (3, 0), (1, 0)):
        rows[before][after] = 1.0
    drafter = PromptLookup(PromptLookupConfig(max_ngram=1, branches=3))
    engine = engine_of(markov(rows, eos=4), drafter, gamma)
    answer = engine.generate([0, 3, 0, 1, 0, 4, 2, 3, 0])
    assert (answer.token_ids, answer.finish_reason) == ([4], "eos")
    assert (answer.metrics.rounds, answer.metrics.accepted) == (1, 1)


def test_a_long_prompt_and_then_a_short_one_with_branches() -> None:
    """An index kept positions beyond a shortened history (lcpp#21815)."""
    target, _ = reference()
    engine = engine_of(target, DRAFTERS["lookup tree"](target), 4, max_new_tokens=20)
    eos = next(iter(target.eos_ids))
    for prompt in ([3, 4, 5] * 10, [3, 4, 5, 3, 4], [9] * 30, [4]):
        assert engine.generate(prompt).token_ids == plain(target.model, prompt, 20, eos)


# --- token recycling ------------------------------------------------------------------------


def test_the_best_tree_by_hand() -> None:
    """Chances .4, .1, .05: 0 (.4), 00 (.16), 1 (.1), 000 (.064), 2 (.05), then .04 twice."""
    shape = best_shape(5, 3, 9)
    assert shape.parents == [-1, 0, -1, 1, -1] and shape.ranks == [0, 0, 1, 0, 2]
    assert shape.children == 3
    assert best_shape(5, 1, 3).parents == [-1, 0, 1]
    assert best_shape(9, 4, 1).parents == [-1] * 4


def test_trees_of_every_depth() -> None:
    found = shapes(16, 8)
    assert [shape.depth for shape in found] == list(range(len(found)))
    assert [len(shape.parents) for shape in found] == [0, 8] + [16] * (len(found) - 2)
    for shape in found:
        depths: list[int] = []
        for parent in shape.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 1)
        assert max(depths, default=0) == shape.depth
        assert len(set(zip(shape.parents, shape.ranks, strict=True))) == len(shape.ranks)


def test_what_followed_what() -> None:
    assert successors_in([1, 2, 1, 3, 1, 2, 4], 2) == {1: [2, 3], 2: [4, 1], 3: [1]}
    assert successors_in([1, 2, 1, 3, 1, 4], 2)[1] == [4, 3]
    assert successors_in([5], 2) == {}


def recycled(prompt: list[int], rounds: int, **config: Any) -> list[tuple[int, int]]:
    """What is drafted with gamma 2 after some plain rounds on a target of order 1."""
    laws = [[0.0, 0.6, 0.4, 0.0], [0.0, 0.0, 0.7, 0.3], [0.8, 0.2, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    target = markov(laws)
    drafter = TokenRecycling(TokenRecyclingConfig(**{"successors": 2, **config}), target)
    batch = make_batch(engine_of(target, drafter, 0), [prompt])
    with torch.inference_mode():
        for _ in range(rounds):
            batch.step()
    return propose(batch, 2)[0]


def test_a_tree_of_the_targets_candidates() -> None:
    """Greedy: 0 > 1 > 2 > 0. Behind 0 come 1 and 2, behind 1 come 2 and 3, behind 2 come 0 and 1."""
    assert recycled([0], 3, nodes=6) == [(-1, 1), (0, 2), (-1, 2), (0, 3), (2, 0), (2, 1)]


def test_a_row_whose_newest_id_was_never_fed_drafts_nothing() -> None:
    assert recycled([0], 0) == recycled([0], 1) == recycled([0], 2) == []
    assert recycled([3, 0, 3], 0, from_prompt=False) == []


def test_the_prompt_is_the_first_source() -> None:
    """Where it has too few successors, the lowest other ids fill up; the target's then replace all."""
    assert recycled([3, 1, 3], 0, nodes=6)[:2] == [(-1, 1), (0, 3)]
    assert [token for parent, token in recycled([3, 1, 3], 0) if parent == -1] == [1, 0]
    assert [token for parent, token in recycled([2, 3, 2], 3) if parent == -1] == [0, 1]


def test_accepted_and_later_places_win() -> None:
    """Of equal keys, padding never, an accepted place before any other, else the later one."""
    keys = torch.tensor([[4, 4, 5, 5, 4], [5, 5, 4, 4, 6]])
    order = torch.tensor([[0, 1, 7, 3, -1], [-1, -1, 2, 3, -1]])
    values = torch.arange(10).reshape(2, 5)
    for slots, due in (([0, 1], [[1, 2], [8, 0]]), ([2, 0], [[8, 0], [0, 0]])):
        board = torch.zeros(3, 8, dtype=torch.int32)
        write(board, torch.tensor(slots), keys, values, order)
        assert board[:2, 4:6].tolist() == due
        assert board[:, 6].tolist() == [0, 0, 0]


def test_what_was_fed_in_a_round() -> None:
    target = CausalLM(model_of("llama"))  # no EOS: no row leaves
    batch = make_batch(engine_of(target, DRAFTERS["recycling"](target), 3), PROMPTS)
    heard: list[Round] = []
    learn = batch.drafter.observe

    def spy(outcome: Round) -> None:
        heard.append(outcome)
        learn(outcome)

    batch.drafter.observe = spy  # type: ignore[method-assign]
    for _ in range(8):
        before = [row[-1] for row in batch.context.tokens]
        with torch.inference_mode():
            batch.step()
        one = heard[-1]
        assert one.scored is not None
        fed = Fed.of(one, one.scored, batch.context)
        assert fed.tokens[:, 0].tolist() == before
        for number, row in enumerate(one.rows):
            check_fed(fed.tokens[number].tolist(), fed.order[number].tolist(), row)
    assert sum(row.accepted for one in heard for row in one.rows) > 5


def check_fed(tokens: list[int], order: list[int], row: RowOutcome) -> None:
    count = len(row.drafted) + 1
    assert tokens[1:count] == row.drafted
    assert len(set(order[:count])) == count and set(order[count:]) <= {-1}
    stood = {0, *(node + 1 for node in row.path)}
    assert sorted(range(count), key=order.__getitem__) == sorted(
        range(count), key=lambda place: (place in stood, place)
    )


def test_more_successors_than_ids_are_refused() -> None:
    with pytest.raises(ConfigError, match="drafter.successors=8 is not possible"):
        TokenRecycling(TokenRecyclingConfig(), table(1))


# --- Jacobi ---------------------------------------------------------------------------------


def drafted(target: TableTarget, config: JacobiConfig, prompt: list[int], gamma: int) -> Any:
    engine = engine_of(target, Jacobi(config), gamma, max_new_tokens=24)
    return [(row.drafted, row.accepted) for one in rounds_of(engine, [prompt]) for row in one.rows]


def test_guesses_without_a_pool() -> None:
    """A token is guessed right once the token before it was: here the law has no memory of more.

    0 > 1 > ... > 5 > 0. Round 1 feeds 0 0 0 0, whose guesses are 1 1 1 1: the first is emitted, the
    others are the next draft, which stands as far as 1 > 2, and so on.
    """
    got = drafted(cycle(6), JacobiConfig(pool=1), [0], 3)
    assert got[:3] == [([0, 0, 0], 0), ([1, 1, 1], 0), ([2, 2, 2], 0)]
    constant = markov([[0.0, 1.0], [0.0, 1.0]])
    assert drafted(constant, JacobiConfig(pool=1), [0], 3)[:2] == [([0, 0, 0], 0), ([1, 1, 1], 3)]


def test_guesses_for_positions_further_on_are_kept() -> None:
    """The law looks at the last token but one: a guess behind a wrong token can still be right."""
    vocab = 4
    laws = torch.zeros((vocab + 1) ** 2, vocab, dtype=torch.float64)
    for older in range(vocab + 1):
        for newer in range(vocab + 1):
            laws[older * (vocab + 1) + newer, (min(older, 3) + 1) % vocab] = 1.0
    target = TableTarget(laws, order=2)
    got = drafted(target, JacobiConfig(pool=1), [0, 2], 4)
    assert got[0] == ([2, 2, 2, 2], 0)  # the target's guesses: 1, 3, 3, 3, 3
    assert got[1] == ([3, 3, 3, 3], 1)  # behind 1 comes 3, by the guess for that position


def test_the_pool_prefers_longer_contexts() -> None:
    """What the prompt shows: 1 2 > 3, 0 2 > 4, and 2 > 4 at last."""
    target = TableTarget(torch.full((1, 6), 1 / 6), order=0)
    prompt = [1, 2, 3, 0, 2, 4, 1, 2]
    assert drafted(target, JacobiConfig(pool=3), prompt, 2)[0][0] == [3, 0]
    assert drafted(target, JacobiConfig(pool=2), prompt, 2)[0][0] == [4, 1]
    assert drafted(target, JacobiConfig(pool=3, from_prompt=False), prompt, 2)[0][0] == [2, 2]


def test_the_pool_learns_what_the_target_guessed() -> None:
    got = drafted(cycle(4), JacobiConfig(pool=2, from_prompt=False), [0], 3)
    # Fed were 0, then 1, 2 and 3, each once: from then on every draft stands.
    assert got[0] == ([0, 0, 0], 0)
    assert all(accepted == 3 for _, accepted in got[4:-1])
    assert len(got) < 10


def test_contexts_have_places_of_their_own() -> None:
    """Different pairs of ids rarely meet, and short prompts are padded alike everywhere."""
    pairs = torch.cartesian_prod(torch.arange(40), torch.arange(40))
    assert len(place_of(pairs.unbind(1)).unique()) > 1500
    assert len({place_of([token]) for token in range(PLACES)}) == PLACES
    assert place_of([5, 9]) == int(place_of(torch.tensor([5, 9])))
    assert place_of([-1, -1, 7]) == place_of([7])


# --- what they say of themselves ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "config", "tree"),
    [
        ("prompt_lookup", PromptLookupConfig(), False),
        ("prompt_lookup", PromptLookupConfig(branches=2), True),
        ("token_recycling", TokenRecyclingConfig(), True),
        ("token_recycling", TokenRecyclingConfig(successors=1), False),
        ("jacobi", JacobiConfig(), False),
    ],
)
def test_the_spec_says_what_the_drafter_is(name: str, config: Any, tree: bool) -> None:
    spec = next(spec for spec in foredraft_drafters() if spec.name == name)
    drafter = spec.factory(config, target_with(8))
    assert drafter.kind == spec.kind_of(config)
    assert (drafter.kind.drawn, drafter.kind.tree) == (DETERMINISTIC, tree)
    assert bool(drafter.max_nodes) == tree and spec.host_reads == 0


def target_with(vocab: int) -> TableTarget:
    return TableTarget(torch.full((1, vocab), 1 / vocab), order=0)


def test_memory_is_what_is_allocated() -> None:
    target = target_with(8)
    recycling = TokenRecycling(TokenRecyclingConfig(successors=4), target)
    batch = make_batch(engine_of(target, recycling, 2), [[0], [1]])
    assert batch.drafter.matrix.nbytes == recycling.session_bytes(2, 65)  # type: ignore[attr-defined]
    jacobi = Jacobi(JacobiConfig(pool=4))
    batch = make_batch(engine_of(target, jacobi, 2), [[0], [1]])
    allocated = sum(pool.nbytes for pool in batch.drafter.pools)  # type: ignore[attr-defined]
    assert allocated == jacobi.session_bytes(2, 65)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PromptLookupConfig(branches=0),
        lambda: PromptLookupConfig(branches=17),
        lambda: PromptLookupConfig(nodes=0),
        lambda: TokenRecyclingConfig(nodes=0),
        lambda: TokenRecyclingConfig(successors=33),
        lambda: JacobiConfig(pool=0),
        lambda: JacobiConfig(pool=7),
    ],
)
def test_impossible_values_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError, match="is not possible; it must be a whole number"):
        make()
