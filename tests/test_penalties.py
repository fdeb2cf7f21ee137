"""Penalties, biases and bans: at every place of a draft what transformers' processors give there."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import (
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from foredraft.framework.errors import ConfigError
from foredraft.framework.params import SamplingParams
from foredraft.framework.penalties import Penalties, penalties
from foredraft.framework.tree import Branches, Tree

VOCAB = 11
EOS = frozenset({3, 10})
Processor = Callable[[Tensor, Tensor], Tensor]

WORDS = [[4], [1, 2], [0, 1, 5], [5, 5, 5, 5], [2, 2], [7, 2], [3], [9, 10], [1, 2, 1, 2, 1, 2]]
SETTINGS = {
    "off": SamplingParams(),
    "repetition": SamplingParams(repetition_penalty=1.5),
    "reward": SamplingParams(repetition_penalty=0.7),
    "presence": SamplingParams(presence_penalty=0.9),
    "frequency": SamplingParams(frequency_penalty=0.3),
    "negative": SamplingParams(frequency_penalty=-0.4, presence_penalty=-1.1),
    "bias": SamplingParams(logit_bias={0: 2.5, 7: -1.25, 10: -math.inf}),
    "words": SamplingParams(bad_words=WORDS),
    "short words": SamplingParams(bad_words=[[4], [9]]),
    "no words": SamplingParams(bad_words=[[3], [10]]),
    "least": SamplingParams(min_new_tokens=5),
    "all": SamplingParams(
        temperature=0.7, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.25,
        logit_bias={1: -3.0, 2: 4.0, 8: -math.inf}, bad_words=WORDS[:6], min_new_tokens=9,
    ),
}  # fmt: skip


def reference(p: SamplingParams, prompt: int) -> list[Processor]:
    """Transformers' processors for one request, in transformers' order."""
    found: list[Any] = []
    if p.logit_bias:
        found.append(SequenceBiasLogitsProcessor({(k,): b for k, b in p.logit_bias.items()}))
    if p.repetition_penalty != 1:
        found.append(RepetitionPenaltyLogitsProcessor(p.repetition_penalty))

    def openai(ids: Tensor, scores: Tensor) -> Tensor:
        counts = torch.bincount(ids[0, prompt:], minlength=VOCAB).to(scores.dtype)
        return (
            scores
            - p.frequency_penalty * counts
            - p.presence_penalty * (counts > 0).to(scores.dtype)
        )

    found.append(openai)
    words = [word for word in p.bad_words if word not in ([3], [10])]
    if words:  # transformers refuses to be left with none
        found.append(NoBadWordsLogitsProcessor(p.bad_words, sorted(EOS)))
    if p.min_new_tokens:
        found.append(MinNewTokensLengthLogitsProcessor(prompt, p.min_new_tokens, sorted(EOS)))
    return found


@dataclasses.dataclass
class Row:
    params: SamplingParams
    prompt: int
    committed: list[int]

    def expected(self, path: Sequence[int], logits: Tensor) -> Tensor:
        """What plain decoding has behind ``path``; ``[vocab]``."""
        ids = torch.tensor([[*self.committed, *path]])
        scores = logits.unsqueeze(0)
        for process in reference(self.params, self.prompt):
            scores = process(ids, scores)
        return scores[0]


def start(settings: Sequence[SamplingParams], seed: int) -> tuple[Penalties, list[Row]]:
    rng = random.Random(seed)
    rows = []
    for params in settings:
        prompt = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 6))]
        rows.append(Row(params, len(prompt), prompt))
    lengths = [row.prompt for row in rows]
    return Penalties(settings, lengths, EOS, VOCAB, "cpu"), rows


def path_to(node: int, tokens: list[int], parents: list[int]) -> list[int]:
    path: list[int] = []
    while node >= 0:
        path, node = [tokens[node], *path], parents[node]
    return path


def drafted(rng: random.Random, rows: int, width: int, tree: bool) -> tuple[Tensor, Tensor]:
    """Few different tokens, so that they repeat; parents before children."""
    tokens = [[rng.choice([1, 2, 5, 9, 3]) for _ in range(width)] for _ in range(rows)]
    parents = [[rng.randrange(-1, i) if tree else i - 1 for i in range(width)] for _ in range(rows)]
    shape = (rows, width)
    return torch.tensor(tokens).long().view(shape), torch.tensor(parents).long().view(shape)


def compare(control: Penalties, rows: list[Row], branches: Branches, logits: Tensor) -> None:
    """Every row and every place, exactly."""
    given = logits.clone()
    result = control.apply(logits, [row.committed for row in rows], branches)
    assert torch.equal(logits, given) and result.shape == logits.shape
    assert result.dtype == logits.dtype
    for r, row in enumerate(rows):
        tokens, parents = branches.tokens[r].tolist(), branches.tree.parents[r].tolist()
        for place, node in enumerate(branches.at[r].tolist()):
            path = path_to(node, tokens, parents)
            assert torch.equal(result[r, place], row.expected(path, given[r, place])), (path, row)


def all_places(tokens: Tensor, parents: Tensor) -> Branches:
    rows, width = tokens.shape
    at = torch.arange(-1, width).expand(rows, width + 1)
    return Branches(tokens, Tree(parents, width, max(width, 1)), at)


def live(control: Penalties, rows: list[Row], seed: int, tree: bool, rounds: int = 6) -> None:
    """Rounds as the loop makes them: drafting asks at one place, verification at all, and then
    some path is committed with one more token."""
    rng = random.Random(seed)
    for turn in range(rounds):
        tokens, parents = drafted(rng, len(rows), 0 if turn == 2 else rng.randint(1, 6), tree)
        whole = all_places(tokens, parents)
        for known in range(tokens.shape[1]):
            at = torch.full((len(rows), 1), known - 1)
            before = all_places(tokens[:, :known], parents[:, :known])
            logits = torch.randn(len(rows), 1, VOCAB, dtype=torch.float64) * 3
            compare(control, rows, dataclasses.replace(before, at=at), logits)
        logits = torch.randn(len(rows), tokens.shape[1] + 1, VOCAB, dtype=torch.float64) * 3
        compare(control, rows, whole, logits)
        for r, row in enumerate(rows):
            node = rng.randrange(-1, tokens.shape[1])
            kept = path_to(node, tokens[r].tolist(), parents[r].tolist())
            row.committed += [*kept, rng.randrange(VOCAB)]
        if turn == 3 and len(rows) > 2:
            kept_rows = sorted(rng.sample(range(len(rows)), len(rows) // 2))
            control.select(kept_rows)
            rows[:] = [rows[r] for r in kept_rows]


@pytest.mark.parametrize("tree", [False, True], ids=["chain", "tree"])
@pytest.mark.parametrize("name", SETTINGS)
def test_each_control_is_transformers_own(name: str, tree: bool) -> None:
    for seed in range(2):
        live(*start([SETTINGS[name]] * 3, seed), seed, tree)


@pytest.mark.parametrize("tree", [False, True], ids=["chain", "tree"])
@pytest.mark.parametrize("seed", range(4))
def test_rows_with_different_settings(seed: int, tree: bool) -> None:
    """And rows that leave: half of them, in the fourth round."""
    settings = list(SETTINGS.values())
    random.Random(seed).shuffle(settings)
    live(*start(settings, seed), seed, tree, rounds=7)


def test_float32_gives_the_same_up_to_rounding() -> None:
    control, rows = start([SETTINGS["all"]] * 3, 0)
    tokens, parents = drafted(random.Random(0), 3, 5, True)
    logits = torch.randn(3, 6, VOCAB)
    whole, committed = all_places(tokens, parents), [row.committed for row in rows]
    narrow = control.apply(logits, committed, whole)
    wide = control.apply(logits.double(), committed, whole)
    assert narrow.dtype == torch.float32
    assert torch.allclose(narrow.double(), wide, atol=1e-5)


# --- where counting goes wrong ---------------------------------------------------------------------


def one_row(params: SamplingParams, prompt: int = 1) -> Penalties:
    return Penalties([params], [prompt], EOS, VOCAB, "cpu")


def behind(*tokens: int) -> Branches:
    """One place, behind a chain of drafted tokens."""
    drawn = torch.tensor([tokens]).long().view(1, -1)
    at = torch.full((1, 1), len(tokens) - 1)
    return dataclasses.replace(all_places(drawn, torch.arange(-1, len(tokens) - 1)[None]), at=at)


def test_a_drafted_token_counts_once() -> None:
    """a=1.0 and b=.6 with .3 off for one a: a stays ahead; counted twice, b would be (vllm#33251)."""
    control = one_row(SamplingParams(frequency_penalty=0.3))
    logits = torch.full((1, 1, VOCAB), -5.0, dtype=torch.float64)
    logits[..., 0], logits[..., 1] = 1.0, 0.6
    for committed, branches in (([9, 0], behind()), ([9], behind(0)), ([0], behind(0))):
        result = control.apply(logits, [committed], branches)
        assert result[0, 0].argmax() == 0
        assert result[0, 0, 0] == pytest.approx(0.7)
        control = one_row(SamplingParams(frequency_penalty=0.3))
    twice = control.apply(logits, [[9, 0]], behind(0))
    assert twice[0, 0].argmax() == 1 and twice[0, 0, 0] == pytest.approx(0.4)


def test_asking_again_counts_nothing_again() -> None:
    control = one_row(SamplingParams(frequency_penalty=1.0, repetition_penalty=2.0))
    logits = torch.ones(1, 1, VOCAB, dtype=torch.float64)
    first = control.apply(logits, [[9, 0]], behind(0, 5))
    for _ in range(3):
        assert torch.equal(control.apply(logits, [[9, 0]], behind(0, 5)), first)


def test_nothing_is_kept_of_a_rejected_token() -> None:
    """A drafted token weighs on the places behind it, and no longer once it is rejected."""
    params = dataclasses.replace(SETTINGS["all"], bad_words=[[5, 6]], min_new_tokens=2)
    control, fresh = one_row(params), one_row(params)
    logits = torch.randn(1, 1, VOCAB, dtype=torch.float64)
    clean = fresh.apply(logits, [[1, 2]], behind())
    dirty = control.apply(logits, [[1, 2]], behind(5))
    assert dirty[0, 0, 5] != clean[0, 0, 5] and dirty[0, 0, 6] == -math.inf != clean[0, 0, 6]
    assert dirty[0, 0, 9] == clean[0, 0, 9]
    assert torch.equal(control.apply(logits, [[1, 2]], behind()), clean)
    assert torch.equal(control.apply(logits, [[1, 2, 7]], behind()),
                       fresh.apply(logits, [[1, 2, 7]], behind()))  # fmt: skip


def test_siblings_do_not_see_each_other() -> None:
    control = one_row(SamplingParams(presence_penalty=1.0, bad_words=[[4, 6]]))
    tree = Tree(torch.tensor([[-1, -1]]), 1, 2)
    branches = Branches(torch.tensor([[4, 5]]), tree, torch.tensor([[0, 1, -1]]))
    result = control.apply(torch.zeros(1, 3, VOCAB), [[0]], branches)[0]
    assert result[:, 4].tolist() == [-1, 0, 0] and result[:, 5].tolist() == [0, -1, 0]
    assert result[:, 6].tolist() == [-math.inf, 0, 0]


def test_only_the_repetition_penalty_looks_at_the_prompt() -> None:
    logits = torch.ones(1, 1, VOCAB, dtype=torch.float64)
    answer = one_row(SamplingParams(presence_penalty=1.0, frequency_penalty=1.0), prompt=3)
    result = answer.apply(logits, [[4, 4, 5, 6]], behind())[0, 0]
    assert [result[i].item() for i in (4, 5, 6)] == [1, 1, -1]
    both = one_row(SamplingParams(repetition_penalty=2.0, frequency_penalty=1.0), prompt=3)
    result = both.apply(logits, [[4, 4, 5, 6]], behind())[0, 0]
    assert [result[i].item() for i in (4, 5, 6, 7)] == [0.5, 0.5, -0.5, 1]


def test_end_tokens_are_held_back_to_the_token() -> None:
    control = one_row(SamplingParams(min_new_tokens=3), prompt=2)
    logits = torch.zeros(1, 5, VOCAB)
    chain = all_places(torch.tensor([[1, 1, 1, 1]]), torch.tensor([[-1, 0, 1, 2]]))
    result = control.apply(logits, [[7, 7, 1]], chain)[0]  # one answered: two more are due
    assert (result == -math.inf).sum(1).tolist() == [2, 2, 0, 0, 0]
    assert result[0, sorted(EOS)].tolist() == [-math.inf] * 2
    assert torch.equal(control.apply(logits, [[7, 7, 1, 1, 1]], chain), logits)


def test_bad_words_of_rows_do_not_mix() -> None:
    """Rows with fewer or shorter words, and words that are longer than the text."""
    settings = [SamplingParams(bad_words=w) for w in ([], [[1]], [[1, 1, 5], [2, 6]], [[0, 0, 7]])]
    control = Penalties(settings, [1] * 4, EOS, VOCAB, "cpu")
    nothing = Branches.chain(torch.zeros(4, 0).long(), torch.full((4, 1), -1))
    for text, banned in (([1], [[], [1], [], []]), ([2], [[], [1], [6], []]),
                         ([1, 1], [[], [1], [5], []]), ([0, 0], [[], [1], [], [7]])):  # fmt: skip
        result = control.apply(torch.zeros(4, 1, VOCAB), [text] * 4, nothing)
        assert [row[0].isinf().nonzero().flatten().tolist() for row in result] == banned


def test_padding_may_hold_anything() -> None:
    """Columns beyond a row's length are not on the way to any of its places."""
    params = SETTINGS["all"]
    control = Penalties([params, params], [1, 1], EOS, VOCAB, "cpu")
    tokens = torch.tensor([[1, 2, 5], [1, 2**40, -7]])
    chain = all_places(tokens, torch.tensor([[-1, 0, 1], [-1, 0, 1]]))
    logits = torch.randn(1, 4, VOCAB, dtype=torch.float64).expand(2, -1, -1)
    result = control.apply(logits, [[4], [4]], chain)
    assert torch.equal(result[0, :2], result[1, :2])


def test_ids_without_a_logit_are_passed_over() -> None:
    """An embedding can be larger than the head; transformers ignores such ids of a prompt too."""
    control = one_row(SamplingParams(repetition_penalty=2.0), prompt=2)
    result = control.apply(torch.ones(1, 1, VOCAB), [[VOCAB + 3, 4]], behind())
    assert (result != 1).nonzero().tolist() == [[0, 0, 4]]


def test_a_long_text_in_several_steps() -> None:
    """More different ids than the first buffer holds."""
    vocab, rng = 300, random.Random(3)
    params = SamplingParams(repetition_penalty=1.5, frequency_penalty=0.1)
    control = Penalties([params] * 2, [2, 2], frozenset(), vocab, "cpu")
    committed = [[1, 2], [5, 5]]
    for _ in range(40):
        for ids in committed:
            ids += [rng.randrange(vocab) for _ in range(rng.randint(1, 9))]
        logits = torch.randn(2, 1, vocab, dtype=torch.float64)
        nothing = Branches.chain(torch.zeros(2, 0).long(), torch.full((2, 1), -1))
        result = control.apply(logits, committed, nothing)
        for r, ids in enumerate(committed):
            scores = RepetitionPenaltyLogitsProcessor(1.5)(torch.tensor([ids]), logits[r])
            counts = torch.bincount(torch.tensor(ids[2:]), minlength=vocab).double()
            assert torch.equal(result[r], scores - 0.1 * counts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_settings_stay_numbers(dtype: torch.dtype) -> None:
    params = SamplingParams(
        repetition_penalty=1e-300, presence_penalty=-1e308, frequency_penalty=1e308,
        logit_bias={2: 1e308, 4: -1e308},
    )  # fmt: skip
    result = one_row(params).apply(torch.randn(1, 1, VOCAB, dtype=dtype), [[0, 1, 1]], behind(1))
    assert result.isfinite().all()


# --- what it costs, and what it refuses ------------------------------------------------------------


class Reads(TorchFunctionMode):
    """Collects the calls that would wait for a device."""

    NAMES = ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__",
             "nonzero", "masked_select", "equal", "unique", "argwhere", "masked_scatter")  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        picked = args[1] if name in ("__getitem__", "__setitem__") else ()
        picked = picked if isinstance(picked, tuple) else (picked,)
        by_mask = any(isinstance(i, Tensor) and i.dtype == torch.bool for i in picked)
        if name in self.NAMES or by_mask:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def test_nothing_is_read_back() -> None:
    control, rows = start(list(SETTINGS.values()), 0)
    tokens, parents = drafted(random.Random(0), len(rows), 5, True)
    committed = [row.committed for row in rows]
    with Reads() as reads:
        assert torch.ones(3)[torch.ones(3) > 0].sum().item() == 3
        assert torch.ones(1)
    assert reads.found == ["__getitem__", "item", "__bool__"]
    with Reads() as reads, torch.inference_mode():
        for _ in range(2):
            control.apply(torch.randn(len(rows), 6, VOCAB), committed, all_places(tokens, parents))
            committed = [[*ids, 1, 2] for ids in committed]
        control.select([0, 3, len(rows) - 1])
    assert reads.found == []
    assert control.host_reads == 0


def test_rows_that_ask_for_nothing_cost_nothing() -> None:
    plain = SamplingParams(temperature=0.7, top_k=3, top_p=0.9, min_p=0.1, typical_p=0.5)
    assert penalties([plain, SamplingParams()], [1, 1], EOS, VOCAB, "cpu") is None
    control = penalties([plain, SETTINGS["all"]], [1, 1], EOS, VOCAB, "cpu")
    assert control is not None
    control.select([0])
    logits = torch.randn(1, 1, VOCAB)
    assert control.apply(logits, [[1]], behind()) is logits


@pytest.mark.parametrize(
    "params, message",
    [
        (
            SamplingParams(logit_bias={2: 1.0, VOCAB: 1.0}),
            "sampling.logit_bias has the token id 11",
        ),
        (SamplingParams(bad_words=[[1], [2, VOCAB]]), "sampling.bad_words has the token id 11"),
        (SamplingParams(bad_words=[[2**62, 1]]), f"sampling.bad_words has the token id {2**62}"),
    ],
)
def test_ids_that_the_target_does_not_have_are_refused(
    params: SamplingParams, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"{message}, .* the largest id of the target is 10"):
        penalties([SamplingParams(), params], [1, 1], EOS, VOCAB, "cpu")


# --- settings --------------------------------------------------------------------------------------


def test_keys_of_a_bias_may_be_text() -> None:
    params = SamplingParams(logit_bias={"42": 1, 7: -math.inf})  # type: ignore[dict-item]
    assert params.logit_bias == {42: 1.0, 7: -math.inf} and type(params.logit_bias[42]) is float
    with pytest.raises(ConfigError, match="given once"):
        SamplingParams(logit_bias={"7": 1, 7: 2})  # type: ignore[dict-item]


def test_settings_do_not_share_their_lists() -> None:
    words = [[1, 2]]
    first, second = SamplingParams(bad_words=words), SamplingParams(bad_words=words)
    words[0].append(3)
    first.bad_words.append([9])
    first.logit_bias[1] = 2.0
    assert second.bad_words == [[1, 2]] and second.logit_bias == {}
    assert SamplingParams().bad_words == []


WRONG: list[tuple[str, Any]] = [
    ("typical_p", 0), ("typical_p", 1.1), ("typical_p", "0.5"), ("repetition_penalty", 0),
    ("repetition_penalty", -1.0), ("repetition_penalty", math.inf), ("repetition_penalty", True),
    ("presence_penalty", math.nan), ("frequency_penalty", math.inf), ("frequency_penalty", None),
    ("frequency_penalty", 10**400), ("min_new_tokens", -1), ("min_new_tokens", 1.0),
    ("draft", "ful"), ("logit_bias", [1]), ("logit_bias", {"a": 1}), ("logit_bias", {-1: 1}),
    ("logit_bias", {True: 1}), ("logit_bias", {1: "x"}), ("logit_bias", {1: True}),
    ("logit_bias", {1: math.nan}), ("logit_bias", {1: math.inf}), ("logit_bias", {1.0: 1}),
    ("bad_words", "ab"), ("bad_words", ["ab"]), ("bad_words", [1]), ("bad_words", [[]]),
    ("bad_words", [[-1]]), ("bad_words", [[True]]), ("bad_words", [[1.0]]), ("bad_words", None),
]  # fmt: skip


@pytest.mark.parametrize("key, value", WRONG)
def test_impossible_settings_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^sampling\.{key}[^ ]*=.* is not possible; .*\.$"):
        SamplingParams(**{key: value})


def test_text_for_a_bad_word_is_told_that_ids_are_due() -> None:
    with pytest.raises(ConfigError, match="token ids .text is not possible., such as"):
        SamplingParams(bad_words=["damn"])  # type: ignore[list-item]


@pytest.mark.parametrize("name", SETTINGS)
def test_what_counts_as_a_control(name: str) -> None:
    assert SETTINGS[name].controlled == (name != "off")
    assert not SETTINGS[name].for_draft().controlled or SETTINGS[name].draft == "full"


def test_what_a_drafters_law_goes_through() -> None:
    full = dataclasses.replace(SETTINGS["all"], top_k=4, top_p=0.9, min_p=0.1, typical_p=0.8)
    assert full.for_draft() is full
    assert dataclasses.replace(full, draft="temperature").for_draft() == SamplingParams(0.7)
    assert dataclasses.replace(full, draft="none").for_draft() == SamplingParams(1.0)
    for draft in ("temperature", "none"):
        greedy = dataclasses.replace(full, temperature=0.0, draft=draft)
        assert greedy.for_draft() == SamplingParams(0.0)
