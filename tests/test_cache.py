"""The ragged cache: every row like a separate full forward, exact rollback, fixed addresses."""

from __future__ import annotations

import random
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from helpers import (
    PerRow,
    check_cache,
    make_batch,
    make_engine,
    model_of,
    noisy_copy,
    plain,
    random_prompts,
    target_of,
)
from torch import Tensor

from foredraft.drafters import causal_lm as causal_lm_drafter
from foredraft.drafters.builtin import EarlyExitConfig
from foredraft.drafters.causal_lm import CausalLMDrafter, ModelSession
from foredraft.drafters.early_exit import EarlyExit
from foredraft.framework.cache import RaggedModel, cache_bytes, pad
from foredraft.framework.context import Context
from foredraft.framework.decoding import Batch
from foredraft.framework.errors import ConfigError
from foredraft.framework.interfaces import Drafter, DraftSession
from foredraft.framework.lean import lean_of, make_lean
from foredraft.framework.linear import quantize_int8
from foredraft.framework.records import Draft, Round
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing.scripted import OracleDrafter, OracleSession
from foredraft.framework.testing.tiny import KINDS, tiny_model

LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{kind: (kind, {}) for kind in KINDS},
    "multi_query": ("llama", {"num_key_value_heads": 1}),
    "multi_head": ("llama", {"num_key_value_heads": 4}),
    "eager": ("llama", {"attn_implementation": "eager"}),
    "sliding_eager": ("mistral", {"attn_implementation": "eager"}),
    "lean": ("llama", {}),
    "lean_multi_query": ("llama", {"num_key_value_heads": 1, "attention_bias": True}),
}
COMPILED = ["compiled"] if find_spec("numba") else []
LAYOUTS |= {name: ("llama", {"dtype": torch.float32}) for name in COMPILED}


def layout(name: str) -> Any:
    """A tiny model. Of a lean one, what is called by itself is still transformers' forward."""
    kind, options = LAYOUTS[name]
    made = name.startswith(("lean", "compiled"))
    return lean_model(name, **options) if made else model_of(kind, **options)


@cache
def lean_model(name: str, **options: Any) -> Any:
    """Not ``model_of``'s, which other tests share. A compiled one is so for all small forwards, whatever was
    faster in the moment it was made."""
    model = tiny_model("llama", seed=1, **options)
    assert make_lean(model)
    if name.startswith("compiled"):
        lean = lean_of(model)
        assert lean is not None and lean._compiled is not None
        lean._most = 24
    return model


def tolerance(model: Any) -> dict[str, float]:
    """transformers' eager attention takes its softmax in float32, whatever the model's dtype."""
    limit = 1e-5 if model.config._attn_implementation == "eager" else 1e-10
    limit = max(limit, 300 * torch.finfo(model.dtype).eps if model.dtype == torch.float32 else 0)
    return {"atol": limit, "rtol": limit}


@torch.no_grad()
def full(model: Any, tokens: list[int]) -> Tensor:
    """Logits ``[length, vocab]`` of one row, without any cache."""
    return model(input_ids=torch.tensor([tokens]), use_cache=False)[0][0]


class Shadow:
    """A ragged model beside the committed ids that it should have taken in."""

    def __init__(self, model: Any, rows: int, capacity: int = 96) -> None:
        self.model, self.ragged = model, RaggedModel(model, rows, capacity)
        self.rows: list[list[int]] = [[] for _ in range(rows)]

    def step(self, pieces: list[list[int]], keep: list[int]) -> None:
        """Runs pieces, compares every real logit, keeps some of each."""
        counts = [len(piece) for piece in pieces]
        given = self.ragged.forward(pad(pieces, "cpu"), counts)
        for row, piece in enumerate(pieces):
            if piece:
                due = full(self.model, self.rows[row] + piece)[-len(piece) :]
                torch.testing.assert_close(given[row, : len(piece)], due, **tolerance(self.model))
        self.ragged.advance(keep)
        self.rows = [row + p[:k] for row, p, k in zip(self.rows, pieces, keep, strict=True)]
        assert self.ragged.lengths == [len(row) for row in self.rows]

    def select(self, rows: list[int]) -> None:
        self.ragged.select(rows)
        self.rows = [self.rows[row] for row in rows]


@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_of_any_length_are_like_separate_forwards(name: str) -> None:
    """Prefill, steps, rejections, rows that leave: all in float64, to 1e-10 where the model allows."""
    rng, shadow = random.Random(name), Shadow(layout(name), 4)
    shadow.step([[rng.randrange(64) for _ in range(n)] for n in (5, 1, 12, 0)], [5, 1, 12, 0])
    for turn in range(7):
        pieces = [[rng.randrange(64) for _ in range(rng.randint(1, 5))] for _ in shadow.rows]
        shadow.step(pieces, [rng.randint(0, len(piece)) for piece in pieces])
        if turn in (2, 4):
            shadow.select([0, 2, 3] if turn == 2 else [1])


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral", "gemma2", "lean", *COMPILED])
def test_rollback_is_a_fresh_prefill(name: str) -> None:
    model, prompts = layout(name), random_prompts((9, 14, 4))
    used, fresh = RaggedModel(model, 3, 64), RaggedModel(model, 3, 64)
    used.prefill(prompts, 512)
    used.forward(pad(random_prompts((6, 6, 6), seed=8), "cpu"), [6, 6, 6])
    used.advance([2, 0, 5])
    wrong = random_prompts((4, 4, 4), seed=9)
    used.forward(pad(wrong, "cpu"), [4, 4, 4])
    used.advance([0, 0, 0])  # all rejected
    kept = [p + more[:k] for p, more, k in zip(prompts, random_prompts((6,) * 3, seed=8), (2, 0, 5),
                                               strict=True)]  # fmt: skip
    fresh.prefill(kept, 512)
    assert used.lengths == fresh.lengths
    ask = pad(random_prompts((3, 2, 3), seed=10), "cpu")
    counts = [3, 2, 3]
    first, second = used.forward(ask, counts), fresh.forward(ask, counts)
    for row, count in enumerate(counts):
        torch.testing.assert_close(first[row, :count], second[row, :count], **tolerance(model))


@pytest.mark.parametrize("name", [*KINDS, "lean", *COMPILED])
@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_prefill_in_pieces_is_prefill_at_once(name: str, chunk: int) -> None:
    model, prompts = layout(name), random_prompts((11, 4, 20))
    caches = [RaggedModel(model, 3, 64) for _ in range(2)]
    caches[0].prefill(prompts, 512)
    caches[1].prefill(prompts, chunk)
    assert caches[0].lengths == caches[1].lengths == [11, 4, 20]
    ask = torch.tensor([[1, 2]] * 3)
    whole, pieces = [cache.forward(ask, [2, 2, 2]) for cache in caches]
    torch.testing.assert_close(whole, pieces, **tolerance(model))


@pytest.mark.parametrize("name", ["llama", "multi_query", "gpt2", "gemma2"])
def test_cache_bytes_are_the_bytes_allocated(name: str) -> None:
    for model in (layout(name), quantize_int8(layout(name))):
        ragged = RaggedModel(model, 3, 40)
        ragged.prefill([[1, 2], [3], [4, 5, 6]], 512)
        assert cache_bytes(model, 3, 40) == sum(b.nbytes for b in ragged.buffers)


def test_addresses_stay_over_a_run() -> None:
    """Rollback built new tensors for a preallocated cache (HF#30312)."""
    target = target_of("llama")
    engine = make_engine(target, CausalLMDrafter(noisy_copy(target.model), target), 4)
    batch = make_batch(engine, random_prompts((5, 9, 3)), max_new_tokens=30)
    batch.stoppers[1].limit = batch.stoppers[1].max_new_tokens = 8  # a row leaves on the way
    session: Any = batch.drafter
    places: Any = None
    with torch.inference_mode():
        while batch.answers:
            batch.step()
            now = [b.data_ptr() for cache in (batch.context.target, session)
                   for b in cache.ragged.buffers]  # type: ignore[attr-defined]  # fmt: skip
            places = places or now
            assert now == places


class Asserting(Drafter):
    """Checks, before each draft and after each round, that caches hold the committed ids."""

    def __init__(self, inner: Drafter) -> None:
        self.inner = inner

    def start(self, context: Context) -> DraftSession:
        return _AssertingSession(self.inner.start(context), context)


class _AssertingSession(DraftSession):
    def __init__(self, inner: DraftSession, context: Context) -> None:
        self.inner, self.context = inner, context

    def propose(self, gammas: list[int]) -> Draft:
        return self.inner.propose(gammas)

    def observe(self, outcome: Round) -> None:
        self.inner.observe(outcome)
        target: Any = self.context.target
        assert target.ragged.lengths == [len(row) - 1 for row in self.context.tokens]

    def select(self, rows: list[int]) -> None:
        self.inner.select(rows)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_early_exit_shares_the_cache_and_its_lengths(layers: int) -> None:
    """Partial forwards crashed on positions, or left layers at different lengths (HF#34240)."""
    model = model_of("llama", layers=4)
    target = CausalLM(model)
    drafter = Asserting(EarlyExit(EarlyExitConfig(layers), target))
    prompts = random_prompts((6, 2))
    answers = make_engine(target, drafter, 3, max_new_tokens=60).generate_many(prompts)
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer.token_ids == plain(model, prompt, 60)


def test_target_length_after_every_round() -> None:
    """The whole cache was reset instead of rolled back on a rejection (paiml/aprender#2014)."""
    target, prompts = target_of("gpt2"), random_prompts((6, 2))
    due = [plain(target.model, prompt, 40) for prompt in prompts]
    oracle = OracleDrafter(prompts, due, target.vocab_size, wrong=0.5)
    engine = make_engine(target, Asserting(oracle), 3, max_new_tokens=40)
    assert [answer.token_ids for answer in engine.generate_many(prompts)] == due


# --- the drafter's own cache ------------------------------------------------------------------


class Mixed(Drafter):
    """Drafts with a model in even rounds and with an oracle in odd ones."""

    def __init__(self, model: CausalLMDrafter, oracle: OracleDrafter) -> None:
        self.model, self.oracle = model, oracle

    def start(self, context: Context) -> DraftSession:
        return MixedSession(self.model.start(context), OracleSession(self.oracle, context), context)


class MixedSession(DraftSession):
    def __init__(self, model: ModelSession, oracle: OracleSession, context: Context) -> None:
        self.model, self.oracle, self.context = model, oracle, context

    def propose(self, gammas: list[int]) -> Draft:
        part = self.oracle if self.context.round_index % 2 else self.model
        return part.propose(gammas)

    def observe(self, outcome: Round) -> None:
        self.model.observe(outcome)

    def select(self, rows: list[int]) -> None:
        self.model.select(rows)


def run_checked(batch: Batch) -> list[Round]:
    rounds = []
    session: Any = batch.drafter
    with torch.inference_mode():
        while batch.answers:
            rounds.append(batch.step())
            if batch.answers:
                check_cache(getattr(session, "model_session", session).ragged, batch.context)
    return rounds


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral"])
@pytest.mark.parametrize("gamma", [1, 2, 5])
@pytest.mark.parametrize("which", ["itself", "noisy"])
def test_drafter_cache_is_the_committed_ids(which: str, gamma: int, kind: str) -> None:
    """Rounds that stood whole left a hole in the draft cache (vllm#9730)."""
    target = target_of(kind)
    model = target.model if which == "itself" else noisy_copy(target.model)
    engine = make_engine(target, CausalLMDrafter(model, target), gamma)
    rounds = run_checked(make_batch(engine, random_prompts((5, 1, 8)), max_new_tokens=24))
    accepted = {row.accepted for outcome in rounds for row in outcome.rows}
    if which == "itself":
        assert gamma in accepted  # rounds that stood whole
    else:
        assert {0, 1} <= accepted  # and rounds that did not


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_drafter_catches_up_after_rounds_it_did_not_draft(kind: str) -> None:
    """Rounds with gamma 0, per row and for all, and rounds that another drafter drafted."""
    target, prompts = target_of(kind), random_prompts((5, 1, 8))
    due = [plain(target.model, prompt, 30) for prompt in prompts]
    model = CausalLMDrafter(noisy_copy(target.model), target)
    mixed = Mixed(model, OracleDrafter(prompts, due, target.vocab_size, wrong=0.3))
    plan = PerRow(lambda place, turn: 0 if turn % 5 == 3 else (3, 0, 2)[(place + turn) % 3])
    for drafter in (model, mixed):
        batch = make_batch(make_engine(target, drafter, plan), prompts, max_new_tokens=30)
        answers = list(batch.answers)
        if drafter is mixed:
            batch.drafter.model_session = batch.drafter.model  # type: ignore[attr-defined]
        run_checked(batch)
        assert [answer.token_ids for answer in answers] == due


def test_a_drafter_with_a_shorter_context_stops_drafting() -> None:
    target, prompts = target_of("llama"), random_prompts((5, 30, 2))
    drafter = CausalLMDrafter(model_of("llama", context=24), target)
    answers = make_engine(target, drafter, 4, max_new_tokens=40).generate_many(prompts)
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer.token_ids == plain(target.model, prompt, 40)
        assert answer.metrics.drafted <= max(0, 24 - len(prompt) + 4)
    assert answers[1].metrics.drafted == 0 < answers[0].metrics.drafted


# --- refusals ---------------------------------------------------------------------------------

NO_ENDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def recurrent() -> Any:
    return transformers.MambaForCausalLM(
        transformers.MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, state_size=4)
    )


def encoder_decoder() -> Any:
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4,
            decoder_start_token_id=0,
        )
    )  # fmt: skip


class IgnoresMask(transformers.LlamaForCausalLM):
    """A model whose attention is its own affair."""

    def forward(self, *args: Any, attention_mask: Any = None, **kwargs: Any) -> Any:
        return super().forward(*args, attention_mask=None, **kwargs)


class NoCache(transformers.LlamaForCausalLM):
    """A model that takes a cache and never fills it."""

    def forward(self, *args: Any, past_key_values: Any = None, **kwargs: Any) -> Any:
        return super().forward(*args, **{**kwargs, "use_cache": False})


def other_llama(kind: type) -> Any:
    config = model_of("llama").config
    torch.manual_seed(0)
    return kind(config).double().eval()


REFUSED = {
    "recurrent": (recurrent, "MambaForCausalLM.*recurrent state"),
    "encoder_decoder": (encoder_decoder, "T5ForConditionalGeneration.*encoder-decoder"),
    "ignores_mask": (lambda: other_llama(IgnoresMask), "IgnoresMask"),
    "no_cache": (lambda: other_llama(NoCache), "NoCache"),
    "not_a_model": (lambda: torch.nn.Linear(2, 2), "Linear is not a transformers causal LM"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_rolled_back_is_refused(name: str) -> None:
    """As a target and as a drafter, at build time, with the reason."""
    make, reason = REFUSED[name]
    model = make()
    with pytest.raises(ConfigError, match=reason):
        CausalLM(model)
    with pytest.raises(ConfigError, match=reason):
        CausalLMDrafter(model, target_of("llama"))


def test_drafters_leave_cache_tensors_alone() -> None:
    """Hand slicing on a fixed axis broke on another layout (HF#23182)."""
    folder = Path(causal_lm_drafter.__file__).parent
    files = sorted(folder.glob("*.py"))
    assert len(files) > 5
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"\.(keys|values)\[|past_key_values|cache_utils|\.crop\(", text), file
