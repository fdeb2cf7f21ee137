"""Reported faults of rollback, vocabularies, batches and seeds, each with the test that shows it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import (
    SAMPLED,
    TOY_DRAFT,
    TOY_TARGET,
    PerRow,
    assert_law,
    assert_same,
    cycle,
    make_batch,
    make_engine,
    model_of,
    noisy_copy,
    one_token_law,
    plain,
    random_prompts,
    rounds_of,
    target_of,
)

from foredraft.drafters.builtin import PromptLookupConfig
from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.framework.context import Context
from foredraft.framework.errors import ConfigError, ForedraftError, InputError, PluginFault
from foredraft.framework.interfaces import Drafter, DraftSession
from foredraft.framework.records import Draft, Round
from foredraft.framework.requests import Answer
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.targets.table import NumberTokenizer, TableTarget
from foredraft.framework.testing.scripted import (
    FaultyDrafter,
    OracleDrafter,
    ScriptedDrafter,
    WrongDrafter,
)

# --- rollback -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_wrong_draft_costs_a_round_and_leaves_one_token(kind: str) -> None:
    target = target_of(kind)
    due = plain(target.model, [7, 8], 25)
    engine = make_engine(target, WrongDrafter([[7, 8]], [due], 64), 4, max_new_tokens=25)
    answer = Answer(engine.request([7, 8]))
    for count, outcome in enumerate(engine.run([answer]), 1):
        assert len(answer.token_ids) == count
        assert outcome.rows[0].emitted == due[count - 1 : count]


def test_no_token_is_repeated_at_a_boundary() -> None:
    """p(a | a) = 0, so equal neighbours are a slip by one (imp#667)."""
    law = (torch.ones(5, 5) - torch.eye(5)).double() / 4
    target = TableTarget(torch.cat([law, law[:1]]), order=1)
    drafter = ScriptedDrafter(law=torch.full((5,), 0.2).double())
    engine = make_engine(target, drafter, 3, sampling=SAMPLED, batch_size=40, max_new_tokens=40)
    for answer in engine.generate_many([[0]] * 40):
        chain = [0, *answer.token_ids]
        assert all(a != b for a, b in zip(chain, chain[1:], strict=False))


class Spy(Drafter):
    """Asserts that what the drafter sees is what was committed, with the answers at hand."""

    def __init__(self, inner: Drafter, answers: list[Answer]) -> None:
        self.inner, self.answers = inner, answers
        self.rounds = 0

    def start(self, context: Context) -> DraftSession:
        return _SpySession(self, self.inner.start(context), context)


class _SpySession(DraftSession):
    def __init__(self, spy: Spy, inner: DraftSession, context: Context) -> None:
        self.spy, self.inner, self.context = spy, inner, context

    def _check(self) -> None:
        seen = {tuple(row) for row in self.context.tokens}
        for answer in self.spy.answers:
            if answer.finish_reason is None:
                assert tuple(answer.request.prompt + answer.token_ids) in seen

    def propose(self, gammas: list[int]) -> Draft:
        self._check()
        return self.inner.propose(gammas)

    def observe(self, outcome: Round) -> None:
        assert len(outcome.rows) == self.context.rows
        for row, tokens in zip(outcome.rows, self.context.tokens, strict=True):
            answer = next(a for a in self.spy.answers if a.request.index == row.request)
            assert tokens == answer.request.prompt + answer.token_ids
            assert tokens[-len(row.emitted) :] == row.emitted
        self.spy.rounds += 1
        self.inner.observe(outcome)

    def select(self, rows: list[int]) -> None:
        self.inner.select(rows)
        self._check()


@pytest.mark.parametrize("gamma", [0, 1, 4])
def test_drafter_and_loop_hold_the_same_ids(gamma: int) -> None:
    """Two components held different ids after rejections (vllm#20247); every round is heard."""
    target = target_of("llama")
    spy = Spy(CausalLMDrafter(noisy_copy(target.model), target), [])
    engine = make_engine(target, spy, gamma, sampling=SAMPLED)
    limits = (9, 25, 17)
    spy.answers = [
        Answer(engine.request(prompt, index, max_new_tokens=limit))
        for index, (prompt, limit) in enumerate(zip(random_prompts((4, 8, 2)), limits, strict=True))
    ]
    rounds = list(engine.run(spy.answers))
    assert spy.rounds == len(rounds) > 5
    assert [len(answer.token_ids) for answer in spy.answers] == list(limits)


# --- vocabularies -----------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "token"), [("id_too_high", 4), ("id_negative", -1)])
def test_ids_outside_the_vocabulary_name_the_drafter(fault: str, token: int) -> None:
    """A draft held an id equal to the vocabulary size (lcpp#28158)."""
    engine = make_engine(one_token_law(TOY_TARGET), FaultyDrafter(fault), 2, names={"drafter": "x"})
    with pytest.raises(PluginFault, match=rf"drafter 'x' drafted id {token} .*from 0 to 3"):
        engine.generate([0])


class Words:
    """A tokenizer as far as the comparison needs one."""

    def __init__(self, words: list[str], added: tuple[int, ...] = ()) -> None:
        self.words = words
        self.added_tokens_decoder = dict.fromkeys(added)

    def get_vocab(self) -> dict[str, int]:
        return {word: token for token, word in enumerate(self.words)}

    def decode(self, ids: list[int]) -> str:
        return " ".join(self.words[token] if token < len(self.words) else "?" for token in ids)


WORDS = [f"w{token}" for token in range(64)]


def with_tokenizer(tokenizer: Any) -> CausalLM:
    return CausalLM(model_of("llama"), tokenizer)


def test_same_size_and_other_tokens_is_refused() -> None:
    """Compatibility was checked by size only (lcpp#3812)."""
    swapped = [*WORDS]
    swapped[17], swapped[40] = swapped[40], swapped[17]
    with pytest.raises(ConfigError, match="differs from the target's at id 17 .*w40.*w17"):
        CausalLMDrafter(model_of("llama"), with_tokenizer(Words(WORDS)), Words(swapped))


def test_one_added_special_token_is_accepted_with_a_warning() -> None:
    """The check was too strict (lcpp#22358)."""
    target = with_tokenizer(Words(WORDS[:60]))
    more = Words([*WORDS[:60], "<extra>"], added=(60,))
    with pytest.warns(UserWarning, match="differ in added tokens only"):
        CausalLMDrafter(model_of("llama"), target, more)


def test_other_sizes_without_tokenizers_are_refused() -> None:
    with pytest.raises(ConfigError, match="72 ids and the target 64"):
        CausalLMDrafter(model_of("llama", vocab=72), target_of("llama"))


@pytest.mark.parametrize("vocab", [48, 50, 64, 80])
def test_padded_and_cut_embeddings(vocab: int) -> None:
    """Embeddings padded beyond the tokenizer, on either side: the law stays the target's."""
    target = with_tokenizer(Words(WORDS[:48]))
    drafter = CausalLMDrafter(model_of("llama", vocab=vocab, seed=5), target, Words(WORDS[:48]))
    engine = make_engine(target, drafter, 3, max_new_tokens=30)
    answer = engine.generate([1, 2, 3])
    assert_same(target.model, [1, 2, 3], plain(target.model, [1, 2, 3], 30), answer.token_ids)
    assert answer.metrics.drafted > 0


def test_a_smaller_vocabulary_keeps_the_law_of_what_it_lacks() -> None:
    """Drafting from shared tokens: unshared ones still come, as often as they should (vllm#38174)."""
    target_law = torch.tensor([0.3, 0.2, 0.1, 0.25, 0.15])
    draft_law = torch.tensor([0.5, 0.25, 0.25, 0.0, 0.0]).double()
    engine = make_engine(
        one_token_law(target_law), ScriptedDrafter(law=draft_law), 2, sampling=SAMPLED,
        batch_size=2000, max_new_tokens=2,
    )  # fmt: skip
    answers = engine.generate_many([[0]] * 10_000)
    assert_law([a.token_ids[0] for a in answers], target_law.double())


@pytest.mark.parametrize(
    ("ours", "theirs"), [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)]
)
def test_target_and_drafter_of_different_dtypes(ours: torch.dtype, theirs: torch.dtype) -> None:
    """Tensors were taken to have one dtype (HF#35099)."""
    target = target_of("llama", dtype=ours)
    drafter = CausalLMDrafter(model_of("llama", dtype=theirs), target)
    for sampling in (SAMPLED, None):
        options = {"sampling": sampling} if sampling else {}
        answer = make_engine(target, drafter, 3, max_new_tokens=20, **options).generate([1, 2, 3])
        assert answer.metrics.accepted > 0
        assert len(answer.token_ids) == 20


# --- rows and seeds -----------------------------------------------------------------------------

ROW_LAWS = torch.tensor(
    [[0.45, 0.30, 0.20, 0.05], [0.05, 0.05, 0.1, 0.8], [0.25, 0.25, 0.25, 0.25],
     [0.0, 0.5, 0.5, 0.0], [0.9, 0.1, 0.0, 0.0]], dtype=torch.float64
)  # fmt: skip


def laws_by_prompt() -> TableTarget:
    """Tokens 0-4 name a row's law and keep it: order 1, where every token leads back to itself."""
    probs = torch.zeros(11, 10, dtype=torch.float64)
    for row in range(5):
        probs[row, 5:9] = ROW_LAWS[row, :4]
    probs[5:, 9] = 1.0
    return TableTarget(probs, order=1)


@pytest.mark.parametrize("plan", ["all", "mixed"])
def test_five_rows_keep_their_own_law(plan: str) -> None:
    """Draft laws went to the wrong row when there were more than two (1Cat-vLLM#656); rows with and
    without drafts were read in another order than they were written (vllm-fork#823)."""
    rows = 5 * 4000
    drafts = torch.zeros(rows, 10, dtype=torch.float64)
    drafts[:, 5:9] = ROW_LAWS.flip(0).repeat(4000, 1)  # each row's own, unlike its target's
    rule = {"all": lambda place, turn: 2, "mixed": lambda place, turn: (0, 3, 0, 2)[place % 4]}
    engine = make_engine(
        laws_by_prompt(), ScriptedDrafter(law=drafts), PerRow(rule[plan]), sampling=SAMPLED,
        batch_size=rows, max_new_tokens=2,
    )  # fmt: skip
    answers = engine.generate_many([[row % 5] for row in range(rows)])
    for row in range(5):
        found = [answer.token_ids[0] - 5 for answer in answers[row::5]]
        assert_law(found, ROW_LAWS[row])
    assert {answer.token_ids[1] for answer in answers} == {9}


def run_seeds(seeds: list[int | None], **options: Any) -> list[Answer]:
    engine = make_engine(
        one_token_law(TOY_TARGET), ScriptedDrafter(law=TOY_DRAFT), 3, sampling=SAMPLED, **options
    )
    answers = [Answer(engine.request([0], seed=seed, max_new_tokens=40)) for seed in seeds]
    for _ in engine.run(answers):
        pass
    return answers


def test_a_row_without_a_seed_among_seeded_ones() -> None:
    """It was not sampled at all (vllm#9441)."""
    answers = run_seeds([1, None, 2])
    alone = run_seeds([1])[0]
    assert answers[0].token_ids == alone.token_ids
    assert all(len(set(answer.token_ids)) >= 3 for answer in answers)
    assert isinstance(answers[1].request.seed, int)
    again = run_seeds([answers[1].request.seed])[0]  # the seed that was drawn repeats it
    assert again.token_ids == answers[1].token_ids


def test_unseeded_rows_follow_the_law() -> None:
    engine = make_engine(
        one_token_law(TOY_TARGET), ScriptedDrafter(law=TOY_DRAFT), 1, sampling=SAMPLED,
        batch_size=3000, max_new_tokens=1, seed=None,
    )  # fmt: skip
    answers = engine.generate_many([[0]] * 3000)
    assert len({answer.request.seed for answer in answers}) == 3000
    share = sum(answer.token_ids[0] == 0 for answer in answers) / 3000
    assert abs(share - 0.45) < 6 * (0.45 * 0.55 / 3000) ** 0.5  # false alarm 2e-9: not seeded


def test_same_seed_same_ids_and_same_accept_trace() -> None:
    """The request's seed was ignored; replicas drew other uniforms (vllm#6038)."""
    first, second, other = run_seeds([5])[0], run_seeds([5])[0], run_seeds([6])[0]
    assert first.token_ids == second.token_ids != other.token_ids
    assert first.metrics.accepted_at == second.metrics.accepted_at


def test_the_same_prompt_three_times_is_three_draws() -> None:
    engine = make_engine(
        one_token_law(TOY_TARGET), ScriptedDrafter(law=TOY_DRAFT), 3, sampling=SAMPLED
    )
    answers = engine.generate_many([[0]] * 3, max_new_tokens=40)
    assert len({tuple(answer.token_ids) for answer in answers}) == 3


def test_several_sequences_per_prompt_are_refused_by_name() -> None:
    """They crashed (vllm#6137)."""
    engine = make_engine(one_token_law(TOY_TARGET))
    with pytest.raises((TypeError, ForedraftError), match="num_return_sequences"):
        engine.generate([0], num_return_sequences=3)


# --- prompts --------------------------------------------------------------------------------


def test_prompts_that_cannot_be_used_are_refused() -> None:
    engine = make_engine(one_token_law(TOY_TARGET))
    for prompt, reason in (([], "empty"), ("", "empty"), ([4], "holds id 4"), ([-1], "id -1")):
        with pytest.raises(InputError, match=reason):
            engine.generate(prompt)
    assert engine.generate("1 2 3", max_new_tokens=2).text.count(" ") == 1


def test_a_target_without_tokenizer_takes_ids_only() -> None:
    engine = make_engine(target_of("llama"))
    with pytest.raises(InputError, match="no tokenizer"):
        engine.generate("text")
    with pytest.raises(ConfigError, match="tokenizer"):
        engine.generate([1], stop=("x",))


def lookup(history: list[int], gamma: int, most: int = 3, least: int = 1) -> list[int]:
    """What prompt lookup drafts behind a history."""
    target = TableTarget(torch.full((1, 10), 0.1), order=0)
    drafter = PromptLookup(PromptLookupConfig(max_ngram=most, min_ngram=least))
    engine = make_engine(target, drafter, gamma, max_new_tokens=gamma + 1)
    return rounds_of(engine, [history])[0].rows[0].drafted


def test_which_match_wins() -> None:
    """The tie rule was undocumented (vllm#22437): here the longest, then the most recent."""
    assert lookup([1, 2, 3, 9, 1, 2, 3, 7, 1, 2, 3], 2) == [7, 1]
    assert lookup([5, 1, 2, 3, 9, 8, 2, 3, 7, 1, 2, 3], 1) == [9]  # longer beats newer
    assert lookup([1, 2, 3], 4) == []  # the tail never matches itself
    assert lookup([3, 1, 2, 3], 3, most=1) == [1, 2, 3]
    assert lookup([3, 3], 3, most=1) == [3, 3, 3]
    assert lookup([4, 1, 5, 1], 3, most=3, least=2) == []


def test_generated_text_is_searched_too() -> None:
    drafter = PromptLookup(PromptLookupConfig())
    walk = [(1 + at) % 6 for at in range(40)]
    engine = make_engine(cycle(6), drafter, 4, max_new_tokens=40)
    answer = engine.generate([0])
    assert answer.token_ids == walk
    assert answer.metrics.accepted > 20


def test_a_long_prompt_and_then_a_short_one() -> None:
    """An index kept positions beyond a shortened history (lcpp#21815)."""
    target = target_of("llama")
    engine = make_engine(target, PromptLookup(PromptLookupConfig()), 4, max_new_tokens=20)
    for prompt in ([3, 4, 5] * 10, [3, 4, 5, 3, 4], [9] * 30, [4]):
        assert engine.generate(prompt).token_ids == plain(target.model, prompt, 20)


@pytest.mark.parametrize("gamma", range(1, 7))
def test_repetitive_list_prompt(gamma: int) -> None:
    """Greedy text changed with a lookup proposer, always at the same place (vllm#41758)."""
    target, prompt = target_of("llama"), [1, 20, 30, 2, 20, 30, 3, 20, 30, 4, 20, 30]
    drafter = PromptLookup(PromptLookupConfig())
    answer = make_engine(target, drafter, gamma, max_new_tokens=60).generate(prompt)
    assert_same(target.model, prompt, plain(target.model, prompt, 60), answer.token_ids)
    assert answer.metrics.drafted > 0


def test_number_tokenizer_round_trip() -> None:
    tokenizer: Any = NumberTokenizer(12)
    assert tokenizer.encode("3 11 0") == [3, 11, 0]
    assert tokenizer.decode([3, 11, 0]) == "3 11 0"
    for text in ("12", "x", "-1", "1.5"):
        with pytest.raises(InputError, match="numbers from 0 to 11"):
            tokenizer.encode(text)


def test_oracle_is_right_as_often_as_asked() -> None:
    """The helper itself: an oracle with errors really has that share of errors."""
    due = [at % 7 for at in range(2000)]
    drafter = OracleDrafter([[0]], [due], 7, wrong=0.3)
    context = make_context(2000)
    chain = drafter.start(context).propose([2000]).tokens[0]
    wrong = (chain != torch.tensor(due)).double().mean().item()
    assert abs(wrong - 0.3) < 0.04
    assert torch.equal(chain, drafter.start(context).propose([2000]).tokens[0])


def make_context(capacity: int) -> Any:
    engine = make_engine(TableTarget(torch.full((1, 7), 1 / 7), 0), max_new_tokens=capacity)
    return make_batch(engine, [[0]]).context
