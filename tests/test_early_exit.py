"""Early exit: what it drafts with, and that verification runs only the layers that have not run yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import PerRow, make_engine, plain, random_prompts, target_of
from test_hidden import due
from test_law_engine import FLOOR, p_values
from torch import Tensor

from foredraft.drafters.builtin import EarlyExitConfig, PromptLookupConfig
from foredraft.drafters.early_exit import EarlyExit, EarlyExitSession
from foredraft.drafters.first_of import FirstOf
from foredraft.drafters.members import Member
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.framework.bases import SessionPolicy
from foredraft.framework.context import Context
from foredraft.framework.interfaces import Drafter, DraftSession, PolicySession
from foredraft.framework.lean import make_lean
from foredraft.framework.params import SamplingParams
from foredraft.framework.records import Ahead, Draft, DraftStep, Round
from foredraft.framework.requests import Answer
from foredraft.framework.targets.causal_lm import CausalLM, CausalLMSession
from foredraft.framework.testing.tiny import tiny_model

KINDS = ("llama", "qwen3", "gpt2", "mistral", "gemma2")
LEAN = (*KINDS, "lean")
RAGGED = PerRow(lambda row, number: (row + number) % 4)  # 0 among them


def layered(kind: str, layers: int) -> CausalLM:
    """A target; a lean one has hidden states and logits by the lean forward."""
    if kind != "lean":
        return target_of(kind, layers=layers)
    model = tiny_model("llama", layers=layers)
    assert make_lean(model)
    return CausalLM(model)


def exit_of(target: CausalLM, layers: int = 1) -> EarlyExit:
    return EarlyExit(EarlyExitConfig(layers), target)


@contextmanager
def counting(model: Any) -> Iterator[Counter[int]]:
    """Tokens that each layer runs, padding included."""
    seen: Counter[int] = Counter()
    base = model.base_model
    layers = base.h if hasattr(base, "h") else base.layers

    def hook(place: int) -> Any:
        return lambda module, args: seen.update({place: args[0].shape[0] * args[0].shape[1]})

    handles = [layer.register_forward_pre_hook(hook(at)) for at, layer in enumerate(layers)]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


@pytest.fixture
def resumed(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Each resumption's counts of what was there; its logits are compared with a whole forward's."""
    found: list[list[int]] = []
    real = CausalLMSession.resume

    def compared(
        session: CausalLMSession, tokens: Tensor, counts: list[int], ahead: Ahead
    ) -> Tensor:
        # Gemma's norms compute in float32, whatever its weights are.
        single = session.ragged.model.config.model_type == "gemma2"
        near = {"rtol": 1e-4, "atol": 1e-5} if single else {"rtol": 1e-9, "atol": 1e-9}
        logits = real(session, tokens, counts, ahead)
        kept = [buffer.clone() for buffer in session.ragged.buffers]
        whole = session.forward(tokens, counts)
        for row, count in enumerate(counts):
            torch.testing.assert_close(logits[row, :count], whole[row, :count], **near)
            begin = session.ragged.lengths[row]
            for mine, other in zip(kept, session.ragged.buffers, strict=True):
                slots = slice(begin, begin + count)
                torch.testing.assert_close(mine[row, :, slots], other[row, :, slots], **near)
        found.append(list(ahead.counts))
        return logits

    monkeypatch.setattr(CausalLMSession, "resume", compared)
    return found


# --- no layer runs twice -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 3])
def test_each_layer_runs_each_verified_token_once(kind: str, layers: int) -> None:
    target = target_of(kind, layers=4)
    engine = make_engine(target, exit_of(target, layers), PerRow(lambda row, number: number % 4))
    answer = Answer(engine.request([3, 1, 4, 1, 5], max_new_tokens=24))
    rounds = engine.run([answer])
    with counting(target.model) as seen:
        first = next(rounds)  # the prefill is in it
        seen.clear()
        drafted = [len(outcome.rows[0].drafted) for outcome in rounds]
    assert len(first.rows) == 1 and max(drafted) == 3 and min(drafted) == 0
    assert seen == dict.fromkeys(range(4), sum(drafted) + len(drafted))


class Sure(PolicySession):
    """Drafts a token only if its law is clear enough."""

    def gammas(self) -> list[int]:
        return [4] * self.context.rows

    def go_on(self, step: DraftStep) -> Tensor:
        return step.opinion.max(-1).values > 0.3


def test_a_policy_that_ends_a_draft_wastes_no_token() -> None:
    """It has seen the law behind the last token, which has then been run already."""
    target = target_of("llama", layers=4)
    engine = make_engine(target, exit_of(target, 2), SessionPolicy(Sure, None, stops=True))
    answer = Answer(engine.request([3, 1, 4, 1, 5], max_new_tokens=32))
    rounds = engine.run([answer])
    with counting(target.model) as seen:
        next(rounds)
        seen.clear()
        drafted = [len(outcome.rows[0].drafted) for outcome in rounds]
    assert 0 < sum(drafted) < 4 * len(drafted)
    assert seen == dict.fromkeys(range(4), sum(drafted) + len(drafted))


# --- it is the whole forward ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", LEAN)
def test_it_equals_a_whole_forward_in_a_ragged_batch(kind: str, resumed: list[list[int]]) -> None:
    """Rows that draft 0 to 3 tokens, that end at other times and in the middle of a block."""
    target = layered(kind, 3)
    prompts = random_prompts((1, 4, 9, 2))
    engine = make_engine(target, exit_of(target, 2), RAGGED)
    rows = [Answer(engine.request(p, i, max_new_tokens=12 + 5 * i)) for i, p in enumerate(prompts)]
    for _ in engine.run(rows):
        pass
    for prompt, row in zip(prompts, rows, strict=True):
        assert row.token_ids == plain(target.model, prompt, len(row.token_ids))
    assert {len(counts) for counts in resumed} >= {2, 3, 4}
    assert {0, 1, 2, 3} <= {count for counts in resumed for count in counts}


def test_sampled_rows_with_controls(resumed: list[list[int]]) -> None:
    target = target_of("llama", layers=3)
    sampling = SamplingParams(temperature=0.8, top_k=12, repetition_penalty=1.3)
    engine = make_engine(target, exit_of(target), RAGGED, sampling=sampling, max_new_tokens=20)
    rows = engine.generate_many(random_prompts((5, 1, 8)))
    assert len(resumed) > 8 and [len(row.token_ids) for row in rows] == [20, 20, 20]


def test_penalised_greedy_ids_up_to_a_stop_are_plain_ones(resumed: list[list[int]]) -> None:
    target = target_of("qwen3", layers=3)
    given: dict[str, Any] = {
        "sampling": SamplingParams(repetition_penalty=1.5),
        "stop_ids": (7, 11, 40),
    }
    found = []
    for drafter in (exit_of(target), None):
        engine = make_engine(target, drafter, RAGGED, max_new_tokens=30, **given)
        rows = engine.generate_many(random_prompts((5, 1, 8, 3)))
        found.append([(row.token_ids, row.finish_reason) for row in rows])
    assert resumed and found[0] == found[1]
    assert len({len(ids) for ids, _ in found[0]}) > 1


@pytest.mark.parametrize("draws", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_draws_follow_the_joint_law(draws: int) -> None:
    target = CausalLM(tiny_model("gpt2", vocab=6, layers=3, seed=0, dtype=torch.float32))
    assert min(p_values(target, exit_of(target, 2), 2, draws, batch=2000)) > FLOOR


class Watching(EarlyExit):
    """Reads every layer, and notes what there is after each round."""

    reads = (0, 1, 2, 3)

    def start(self, context: Context) -> WatchingSession:
        return WatchingSession(self, context)


class WatchingSession(EarlyExitSession):
    def observe(self, outcome: Round) -> None:
        target: Any = self.context.target
        for row, ids in enumerate(self.context.tokens):
            for layer in self.drafter.reads:
                found = target.hidden(layer)[row, : len(ids) - 1]
                expected = due(target.ragged.model, ids[:-1], layer)
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2", "qwen3", "lean"])
def test_hidden_states_are_kept_as_by_a_whole_forward(kind: str, resumed: list[list[int]]) -> None:
    target = layered(kind, 3)
    engine = make_engine(target, Watching(EarlyExitConfig(2), target), RAGGED, max_new_tokens=8)
    engine.generate_many(random_prompts((4, 9, 2)))
    assert resumed


def test_a_model_that_cannot_be_taken_apart_is_verified_in_full(
    monkeypatch: pytest.MonkeyPatch, resumed: list[list[int]]
) -> None:
    monkeypatch.setattr("foredraft.framework.targets.causal_lm.resumes", lambda *args: False)
    target = CausalLM(tiny_model("llama", layers=3))
    engine = make_engine(target, exit_of(target), 3, max_new_tokens=12)
    (prompt,) = random_prompts((5,))
    assert engine.generate(prompt).token_ids == plain(target.model, prompt, 12)
    assert not resumed


# --- within other drafters -----------------------------------------------------------------------


class Meddling(Drafter):
    """Passes on other tokens than were drafted, with their law."""

    def __init__(self, inner: Drafter) -> None:
        self.inner = inner

    def start(self, context: Context) -> DraftSession:
        return MeddlingSession(context, self.inner.start(context))


class MeddlingSession(DraftSession):
    def propose(self, gammas: list[int]) -> Draft:
        draft = self.config.propose(gammas)
        vocab = self.context.vocab_size
        law = torch.full((*draft.tokens.shape, vocab), 1 / vocab, dtype=torch.float64)
        return replace(draft, tokens=(draft.tokens + 1) % vocab, law=type(draft.law)(law))


def test_a_draft_that_was_changed_is_verified_in_full(resumed: list[list[int]]) -> None:
    target = target_of("llama", layers=3)
    engine = make_engine(target, Meddling(exit_of(target)), 3, max_new_tokens=16)
    (prompt,) = random_prompts((5,))
    assert engine.generate(prompt).token_ids == plain(target.model, prompt, 16)
    assert not resumed


def test_behind_another_drafter_only_its_own_rows_have_run(resumed: list[list[int]]) -> None:
    target = target_of("llama", layers=3)
    lookup = PromptLookup(PromptLookupConfig(min_ngram=2))
    both = FirstOf([Member("prompt_lookup", lookup), Member("early_exit", exit_of(target))])
    prompts = [[1, 2, 3, 1, 2], [7, 8, 9], [4, 5, 4, 5]]
    engine = make_engine(target, both, 3, max_new_tokens=24)
    for prompt, row in zip(prompts, engine.generate_many(prompts), strict=True):
        assert row.token_ids == plain(target.model, prompt, 24)
    assert any(0 in counts and max(counts) > 1 for counts in resumed)


def test_a_view_made_first_does_not_double_hidden_states() -> None:
    """transformers hooks layers once per model, when hidden states are first asked for."""
    model, ids = tiny_model("llama", layers=3), torch.tensor([[1, 5, 9]])
    untouched = tiny_model("llama", layers=3)
    EarlyExit(EarlyExitConfig(layers=1), CausalLM(model)).view.model(
        input_ids=ids, use_cache=False, output_hidden_states=True
    )
    with torch.inference_mode():
        found, right = (
            one(input_ids=ids, use_cache=False, output_hidden_states=True).hidden_states
            for one in (model, untouched)
        )
    assert len(found) == len(right) == 4
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other)
