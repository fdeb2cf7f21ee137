"""Losslessness of the whole engine, by draws: 100,000 answers against the exact joint law.

Every batch holds 1,000 rows or more with four settings of temperature, top-k and top-p interleaved,
so that a row that read another row's law, length or noise would show. The same test has to fail on
each planted fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from foredraft.drafters.builtin import EarlyExitConfig, NgramConfig, PromptLookupConfig
from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.drafters.early_exit import EarlyExit
from foredraft.drafters.ngram import Ngram
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.framework.bases import StepSession
from foredraft.framework.decoding import Parts, decode
from foredraft.framework.interfaces import Drafter, Target
from foredraft.framework.law import DenseLaw
from foredraft.framework.noise import Noise
from foredraft.framework.params import SamplingParams
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.records import Draft
from foredraft.framework.requests import Answer, Request
from foredraft.framework.targets.builtin import TableConfig
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.targets.table import TableSession, TableTarget
from foredraft.framework.testing.laws import chi_square, exact_joint, sequence_counts
from foredraft.framework.testing.tables import TableDrafter, TableDraftSession
from foredraft.framework.testing.tiny import tiny_model
from foredraft.framework.tree import Tree
from foredraft.framework.verdicts import correction_law, law_at
from foredraft.verifiers import token as token_rule
from foredraft.verifiers.token import TokenVerifier

SETTINGS = [
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.5),
    SamplingParams(temperature=1.3, top_k=2),
    SamplingParams(temperature=0.9, top_p=0.85),
]
FLOOR = 1e-6
Pair = Callable[[], tuple[Target, Drafter]]


def table(seed: int, vocab: int = 3, order: int = 2, zeros: float = 0.2) -> TableTarget:
    config = TableConfig(vocab_size=vocab, order=order, sharpness=1.2, zeros=zeros, seed=seed)
    return TableTarget.from_config(config)


def p_values(target: Target, drafter: Drafter, gamma: int, draws: int, batch: int) -> list[float]:
    """One p-value per setting; the answers are gamma + 2 tokens long."""
    tokens, prompt = gamma + 2, [1, 0, 1]
    parts = Parts(target, drafter, TokenVerifier(), Fixed(FixedConfig(gamma)), {})
    answers: list[list[list[int]]] = [[] for _ in SETTINGS]
    for begin in range(0, draws, batch):
        rows = [
            Answer(Request(list(prompt), tokens, SETTINGS[i % 4], seed=11, index=i))
            for i in range(begin, begin + batch)
        ]
        for _ in decode(parts, rows):
            pass
        for row in rows:
            answers[row.request.index % 4].append(row.token_ids)
    found = []
    for params, ids in zip(SETTINGS, answers, strict=True):
        counts = sequence_counts(ids, target.vocab_size, tokens)
        found.append(chi_square(counts, exact_joint(target, prompt, tokens, params)))
    return found


def full_law() -> tuple[Target, Drafter]:
    return table(1), TableDrafter(table(2))


def running_ngram() -> tuple[Target, Drafter]:
    target = table(3)
    return target, Ngram(NgramConfig(order=2), target)


def lookup() -> tuple[Target, Drafter]:
    return table(4), PromptLookup(PromptLookupConfig(max_ngram=2))


def small_model() -> tuple[Target, Drafter]:
    """Sharp tiny models: their laws overlap by about .5 (asserted below)."""
    target = CausalLM(tiny_model("llama", vocab=6, layers=2, seed=0, dtype=torch.float32))
    return target, CausalLMDrafter(tiny_model("llama", vocab=6, layers=1, seed=1), target)


def first_layers() -> tuple[Target, Drafter]:
    target = CausalLM(tiny_model("qwen3", vocab=6, layers=3, seed=0, dtype=torch.float32))
    return target, EarlyExit(EarlyExitConfig(layers=1), target)


@pytest.mark.parametrize(
    ("pair", "gamma", "draws"),
    [
        (full_law, 2, 20_000),
        pytest.param(full_law, 2, 100_000, marks=pytest.mark.slow),
        (full_law, 1, 20_000),
        (running_ngram, 2, 20_000),
        (lookup, 3, 20_000),
        (small_model, 2, 20_000),
        (first_layers, 2, 20_000),
        pytest.param(small_model, 2, 100_000, marks=pytest.mark.slow),
        pytest.param(first_layers, 2, 100_000, marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_engine_draws_follow_the_joint_law(pair: Pair, gamma: int, draws: int) -> None:
    assert min(p_values(*pair(), gamma, draws, batch=2000)) > FLOOR


def test_tiny_models_are_sharp_enough_for_the_test_to_mean_something() -> None:
    target, drafter = small_model()
    parts = Parts(target, drafter, TokenVerifier(), Fixed(FixedConfig(2)), {})
    answers = [Answer(Request([1, 0, 1], 8, SETTINGS[0], seed=3, index=i)) for i in range(1000)]
    for _ in decode(parts, answers):
        pass
    alpha = sum(a.metrics.overlap for a in answers) / sum(a.metrics.reached for a in answers)
    assert 0.3 < alpha < 0.8


# --- planted faults: the same test has to fail on each ------------------------------------------


def _no_residual(draft: Draft, target_probs: Tensor, accepted: Tensor) -> Tensor:
    return law_at(target_probs, accepted)


def _bonus_off_by_one(draft: Draft, target_probs: Tensor, accepted: Tensor) -> Tensor:
    full = (accepted == draft.mask.sum(1)).unsqueeze(1)
    wrong = law_at(target_probs, (accepted - 1).clamp(min=0))
    return wrong.where(full, correction_law(draft, target_probs, accepted))


def _raw_law_reported(self: StepSession, gammas: list[int]) -> Draft:
    """Draws through the request's temperature, but reports the raw softmax."""
    raw: list[Tensor] = []
    inner = self.next_logits

    def spy(drafted: list[Tensor]) -> Tensor:
        raw.append(inner(drafted))
        return raw[-1]

    self.next_logits = spy  # type: ignore[method-assign]
    draft = StepSession.propose(self, gammas)
    self.next_logits = inner  # type: ignore[method-assign]
    return (
        Draft(draft.tokens, draft.lengths, DenseLaw(torch.stack(raw, 1).softmax(-1)))
        if raw
        else draft
    )


def _keeps_a_rejected_entry(self: TableSession, kept: list[list[int]]) -> None:
    """Leaves the first rejected token in the target's cache."""
    counts = torch.tensor([len(columns) for columns in kept])
    _ADVANCE(self, kept)
    self.lengths = self.lengths + (counts < self.counts).long()  # type: ignore[attr-defined]


def _remembers_width(
    self: TableSession, tokens: Tensor, counts: list[int], tree: Tree | None
) -> Tensor:
    self.counts = torch.tensor(counts)  # type: ignore[attr-defined]
    return _FORWARD(self, tokens, counts, tree)


def _noise_without_round(
    self: Noise, stream: Any, round_index: int, start: int, count: int
) -> Tensor:
    return _UNIFORM(self, stream, 0, start, count)


_FORWARD, _ADVANCE, _UNIFORM = TableSession.forward, TableSession.advance, Noise.uniform
FAULTS: dict[str, list[tuple[Any, str, Any]]] = {
    "residual left out": [(token_rule, "correction_law", _no_residual)],
    "bonus row off by one": [(token_rule, "correction_law", _bonus_off_by_one)],
    "draft law without temperature": [(TableDraftSession, "propose", _raw_law_reported)],
    "target cache not rolled back": [
        (TableSession, "advance", _keeps_a_rejected_entry),
        (TableSession, "forward", _remembers_width),
    ],
    "noise keyed without the round": [(Noise, "uniform", _noise_without_round)],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, drafter = full_law()
    truth = {id(p): exact_joint(target, [1, 0, 1], 4, p) for p in SETTINGS}
    for owner, name, broken in FAULTS[fault]:
        monkeypatch.setattr(owner, name, broken)
    monkeypatch.setitem(globals(), "exact_joint", lambda t, prompt, n, params: truth[id(params)])
    # None of them needs more: the least conspicuous has p < 1e-30 here.
    assert min(p_values(target, drafter, 2, 8000, batch=2000)) < FLOOR
