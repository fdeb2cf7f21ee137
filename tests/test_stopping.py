"""Every stop is exact inside a block: EOS, stop strings, lengths, the context's end, streaming."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from helpers import SAMPLED, cycle, make_engine, markov, model_of, plain, target_of

from foredraft.drafters.builtin import PromptLookupConfig
from foredraft.drafters.causal_lm import CausalLMDrafter, ModelSession
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.framework.engine import Engine
from foredraft.framework.errors import ConfigError, InputError
from foredraft.framework.requests import Answer
from foredraft.framework.stopping import Stopper, trim
from foredraft.framework.targets.table import NumberTokenizer, TableTarget
from foredraft.framework.testing.scripted import OracleDrafter, ScriptedDrafter

VOCAB = 16


def walk(eos: int | None = None, max_context: int = 4096) -> tuple[TableTarget, list[int]]:
    """A target that counts 1, 2, ... 15, 0, 1, ... behind a 0."""
    target = cycle(VOCAB, eos=eos, max_context=max_context)
    return target, [(1 + at) % VOCAB for at in range(200)]


def oracle_engine(gamma: int, eos: int | None = None, **options: object) -> Engine:
    target, answer = walk(eos, int(str(options.pop("max_context", 4096))))
    return make_engine(target, OracleDrafter([[0]], [answer], VOCAB), gamma, **options)


@pytest.mark.parametrize("step", range(1, 11))
@pytest.mark.parametrize("gamma", range(2, 9))
def test_eos_in_mid_block(gamma: int, step: int) -> None:
    """Only the last committed token was examined for EOS (HF#47912)."""
    answer = oracle_engine(gamma, eos=step, max_new_tokens=40).generate([0])
    assert answer.token_ids == list(range(1, step + 1))
    assert answer.finish_reason == "eos"
    assert answer.metrics.emitted == step
    assert sum(answer.metrics.accepted_at) == answer.metrics.accepted <= step


@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_eos_copied_from_the_prompt(gamma: int) -> None:
    """A lookup copied an EOS from the prompt and ran on past it (HF#31301)."""
    rows = [[0.0] * 5 for _ in range(5)]
    for before, after in ((0, 4), (4, 2), (2, 3), (3, 0), (1, 0)):
        rows[before][after] = 1.0
    target = markov(rows, eos=4)
    drafter = PromptLookup(PromptLookupConfig(max_ngram=1))
    answer = make_engine(target, drafter, gamma).generate([1, 0, 4, 2, 3, 0])
    assert answer.token_ids == [4]
    assert (answer.metrics.drafted, answer.metrics.accepted) == (gamma, 1)


@pytest.mark.parametrize("gamma", range(1, 9))
@pytest.mark.parametrize("stop", ["3 4", "5 6 7", "9", "10 11", "2", "14 15 0 1"])
def test_stop_string_across_blocks(stop: str, gamma: int) -> None:
    """The search window assumed one token per step (openvino.genai#1719); text was cut, ids were
    not (vllm#47616)."""
    answer = oracle_engine(gamma, max_new_tokens=60, stop=(stop,)).generate([0])
    last = int(stop.split()[-1])
    length = last + (16 if stop.endswith("0 1") else 0)
    assert answer.token_ids == [(1 + at) % VOCAB for at in range(length)]
    assert answer.finish_reason == "stop"
    assert answer.text == NumberTokenizer(VOCAB).decode(answer.token_ids)
    assert answer.text.endswith(stop)
    assert answer.trimmed_text == answer.text[: -len(stop)]
    assert stop not in answer.trimmed_text
    assert answer.metrics.emitted == len(answer.token_ids)


def test_the_first_of_several_stops_wins() -> None:
    answer = oracle_engine(8, max_new_tokens=60, stop=("7", "4 5")).generate([0])
    assert answer.token_ids == [1, 2, 3, 4, 5]
    assert answer.trimmed_text == "1 2 3 "


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
@pytest.mark.parametrize("gamma", [1, 2, 8])
def test_exact_length_on_a_repetitive_prompt(gamma: int, limit: int) -> None:
    """Lookup returned more than the cap (HF#46993)."""
    target, prompt = target_of("llama"), [5, 6, 7] * 6
    drafter = PromptLookup(PromptLookupConfig())
    answer = make_engine(target, drafter, gamma, max_new_tokens=limit).generate(prompt)
    assert answer.token_ids == plain(target.model, prompt, limit)
    assert answer.finish_reason == "length"
    assert answer.metrics.drafted <= limit - 1


@pytest.mark.parametrize("gamma", [0, 1, 4, 8])
def test_no_limit_runs_to_eos(gamma: int) -> None:
    """A "no limit" sentinel made the draft count negative (mlx-lm#1591)."""
    answer = oracle_engine(gamma, eos=9, max_new_tokens=None).generate([0])
    assert answer.token_ids == list(range(1, 10))
    assert answer.finish_reason == "eos"


@pytest.mark.parametrize("limit", [-1, 0, True, 2.0, "3"])
def test_impossible_limits_are_refused(limit: object) -> None:
    with pytest.raises(ConfigError, match=f"max_new_tokens={limit!r}"):
        oracle_engine(2).generate([0], max_new_tokens=limit)


@pytest.mark.parametrize("gamma", [0, 1, 3, 8])
@pytest.mark.parametrize("prompt", [[0], [13, 14, 15, 0]])
def test_context_end(prompt: list[int], gamma: int) -> None:
    target, walked = walk(max_context=12)
    drafter = OracleDrafter([prompt], [walked], VOCAB)
    answer = make_engine(target, drafter, gamma, max_new_tokens=None).generate(prompt)
    assert answer.token_ids == walked[: 12 - len(prompt)]
    assert answer.finish_reason == "context"


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_context_end_of_a_model(kind: str) -> None:
    """Verification and drafting stay inside a learned position table."""
    model = model_of(kind, context=24)
    target = target_of(kind, context=24)
    for gamma in (1, 4, 8):
        engine = make_engine(target, CausalLMDrafter(model, target), gamma, max_new_tokens=None)
        answers = engine.generate_many([[1, 2, 3], [4] * 20])
        assert [len(answer.token_ids) for answer in answers] == [21, 4]
        assert answers[0].token_ids == plain(model, [1, 2, 3], 21)
        assert {answer.finish_reason for answer in answers} == {"context"}


def test_length_and_context_at_once_is_length() -> None:
    answer = oracle_engine(4, max_new_tokens=11, max_context=12).generate([0])
    assert answer.finish_reason == "length"


def test_prompt_that_fills_the_context_is_refused() -> None:
    with pytest.raises(InputError, match="has 12 tokens.*context is 12"):
        oracle_engine(4, max_context=12).generate([0] * 12)


@pytest.mark.parametrize("gamma", [0, 1, 3, 8])
@pytest.mark.parametrize("options", [{"stop": ("6 7",)}, {"max_new_tokens": 13}, {}])
def test_streamed_pieces_join_to_the_answer(gamma: int, options: dict[str, object]) -> None:
    """A block was streamed before the stop was looked for (exllamav2#108)."""
    engine = oracle_engine(gamma, eos=15, **{"max_new_tokens": 40, **options})
    pieces = list(engine.stream("0"))
    assert "".join(pieces) == engine.generate("0").text
    assert all(pieces)
    if gamma == 3:
        assert len(pieces) < len(engine.generate("0").token_ids)  # blocks, not tokens


@pytest.mark.parametrize("gamma", [0, 1, 3, 8])
def test_rounds_bring_every_token_once(gamma: int) -> None:
    engine = oracle_engine(gamma, eos=14, max_new_tokens=40)
    answer = Answer(engine.request([0]))
    emitted = [token for outcome in engine.run([answer]) for token in outcome.rows[0].emitted]
    assert emitted == answer.token_ids == list(range(1, 15))


@cache
def lm_target() -> tuple[object, CausalLMDrafter]:
    target = target_of("llama")
    return target, CausalLMDrafter(target.model, target)


@pytest.mark.parametrize(("limit", "most"), [(1, 0), (2, 1), (3, 2)])
def test_no_draft_past_what_can_be_emitted(
    limit: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draft model proposed more than could still be emitted (HF#28555)."""
    forwards: list[int] = []
    real = ModelSession.next_logits

    def counted(self: ModelSession, drafted: list[torch.Tensor]) -> torch.Tensor:
        forwards.append(len(drafted))
        return real(self, drafted)

    monkeypatch.setattr(ModelSession, "next_logits", counted)
    target, drafter = lm_target()
    engine = make_engine(target, drafter, 8, max_new_tokens=limit)  # type: ignore[arg-type]
    answer = engine.generate([1, 2, 3])
    assert len(answer.token_ids) == limit
    assert len(forwards) == most


@pytest.mark.parametrize("gamma", [2, 5])
def test_one_row_ends_and_the_others_go_on(gamma: int) -> None:
    target, walked = walk(eos=9)
    prompts = [[0], [12], [5], [9]]
    answers = [[(p[0] + 1 + at) % VOCAB for at in range(30)] for p in prompts]
    engine = make_engine(target, OracleDrafter(prompts, answers, VOCAB), gamma, max_new_tokens=14)
    given = engine.generate_many(prompts)
    assert [len(answer.token_ids) for answer in given] == [9, 13, 4, 14]
    assert [answer.finish_reason for answer in given] == ["eos", "eos", "eos", "length"]
    for answer, due in zip(given, answers, strict=True):
        assert answer.token_ids == due[: len(answer.token_ids)]


@pytest.mark.parametrize("gamma", [1, 4])
def test_sampled_answers_stop_at_the_same_rules(gamma: int) -> None:
    rows = [[0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0.5, 0.4, 0.1]]
    target = markov(rows, eos=2)
    law = torch.tensor([0.3, 0.5, 0.2], dtype=torch.float64)
    engine = make_engine(
        target, ScriptedDrafter(law=law), gamma, sampling=SAMPLED, max_new_tokens=6, batch_size=200
    )
    for answer in engine.generate_many([[0]] * 200):
        assert 2 not in answer.token_ids[:-1]
        ended = answer.token_ids[-1] == 2
        assert answer.finish_reason == ("eos" if ended else "length")
        assert ended or len(answer.token_ids) == 6


# --- the pieces themselves ------------------------------------------------------------------


def test_stopper_feeds_and_cuts() -> None:
    stopper = Stopper(frozenset({9}), max_new_tokens=5)
    assert stopper.room() == 5
    assert stopper.feed([1, 2]) == ([1, 2], None)
    assert stopper.room() == 3
    assert stopper.feed([3, 9, 4]) == ([3, 9], "eos")


def test_stopper_prefers_eos_to_length() -> None:
    assert Stopper(frozenset({9}), max_new_tokens=2).feed([1, 9]) == ([1, 9], "eos")


def test_stopper_needs_some_limit() -> None:
    with pytest.raises(ConfigError, match="max_new_tokens=null"):
        Stopper(frozenset())


def test_stopper_needs_a_tokenizer_for_strings() -> None:
    with pytest.raises(ConfigError, match="tokenizer"):
        Stopper(frozenset(), ["x"], None, 5)
    with pytest.raises(ConfigError, match="stop=''"):
        oracle_engine(2).generate([0], stop=("",))


def test_stop_string_longer_than_the_slack() -> None:
    numbers = ["0"] * 10 + [str(1 + n % 9) for n in range(110)]
    tokenizer = NumberTokenizer(10)
    stop = " ".join(numbers[10:110])
    stopper = Stopper(frozenset(), [stop], tokenizer, 200)
    assert stopper.feed([int(n) for n in numbers]) == ([int(n) for n in numbers[:110]], "stop")


def test_trim_takes_the_earliest() -> None:
    assert trim("a b c", ["c", "b"]) == "a "
    assert trim("a b c", ["x"]) == "a b c"
