"""What the tests share: engines from parts, reference answers, per-row policies, law checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from scipy.stats import chisquare
from torch import Tensor

from foredraft.drafters.none import NoDrafter
from foredraft.framework.cache import RaggedModel
from foredraft.framework.context import Context
from foredraft.framework.decoding import Batch, Parts
from foredraft.framework.engine import Defaults, Engine
from foredraft.framework.interfaces import Drafter, GammaPolicy, PolicySession, Target
from foredraft.framework.params import SamplingParams
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.records import Round
from foredraft.framework.requests import Answer
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.targets.table import TableTarget
from foredraft.framework.testing.tiny import tiny_model
from foredraft.verifiers.greedy import GreedyVerifier
from foredraft.verifiers.token import TokenVerifier

VERIFIERS = {"token": TokenVerifier, "greedy": GreedyVerifier}
FALSE_ALARM = 1e-4
TOY_TARGET = torch.tensor([0.45, 0.30, 0.20, 0.05], dtype=torch.float64)
TOY_DRAFT = torch.tensor([0.10, 0.20, 0.30, 0.40], dtype=torch.float64)
SAMPLED = SamplingParams(temperature=1.0)
# gemma2's tied head repeats its input for ever at this size, which would hide every fault.
MODEL_OPTIONS: dict[str, dict[str, Any]] = {
    "gemma2": {"tie_word_embeddings": False, "query_pre_attn_scalar": 8}
}


class PerRow(GammaPolicy):
    """Gamma by the row's place when the batch began and the round: ``rule(place, round)``."""

    def __init__(self, rule: Callable[[int, int], int]) -> None:
        self.rule = rule

    def start(self, context: Context) -> PolicySession:
        return _PerRowSession(self.rule, context)


class _PerRowSession(PolicySession):
    def __init__(self, rule: Callable[[int, int], int], context: Context) -> None:
        self.rule, self.context = rule, context
        self.places = list(range(context.rows))

    def gammas(self) -> list[int]:
        return [self.rule(place, self.context.round_index) for place in self.places]

    def select(self, rows: list[int]) -> None:
        self.places = [self.places[row] for row in rows]


def make_engine(
    target: Target,
    drafter: Drafter | None = None,
    gamma: int | GammaPolicy = 4,
    verifier: str = "token",
    names: dict[str, str] | None = None,
    **defaults: Any,
) -> Engine:
    """An engine from parts; ``defaults`` are fields of ``Defaults``."""
    policy = Fixed(FixedConfig(gamma)) if isinstance(gamma, int) else gamma
    parts = Parts(target, drafter or NoDrafter(), VERIFIERS[verifier](), policy, names or {})
    return Engine(parts, Defaults(**{"batch_size": 8, **defaults}))


def make_batch(engine: Engine, prompts: Sequence[Sequence[int]], **options: Any) -> Batch:
    """The loop's batch itself, to be stepped by hand (under ``torch.inference_mode``)."""
    answers = [Answer(engine.request(list(p), i, **options)) for i, p in enumerate(prompts)]
    with torch.inference_mode():
        return Batch(engine.parts, answers)


def rounds_of(engine: Engine, prompts: Sequence[Sequence[int]], **options: Any) -> list[Round]:
    """Every round of one batch."""
    answers = [Answer(engine.request(list(p), i, **options)) for i, p in enumerate(prompts)]
    return list(engine.run(answers))


def random_prompts(lengths: Sequence[int], vocab: int = 64, seed: int = 3) -> list[list[int]]:
    """Seeded prompts of the given lengths."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(vocab, (n,), generator=generator).tolist() for n in lengths]


@cache
def model_of(kind: str, **options: Any) -> Any:
    """A tiny model, made once."""
    return tiny_model(kind, **{**MODEL_OPTIONS.get(kind, {}), **options})


@cache
def target_of(kind: str, **options: Any) -> CausalLM:
    """A tiny model as a target, probed once."""
    return CausalLM(model_of(kind, **options))


def noisy_copy(model: Any, scale: float = 0.03, seed: int = 1) -> Any:
    """Another model that agrees with the first often, but not always."""
    import copy

    twin = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in twin.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_((noise * scale).to(parameter.dtype))
    return twin


def plain(model: Any, prompt: Sequence[int], count: int, eos: int | None = None) -> list[int]:
    """transformers' own greedy answer."""
    ids = torch.tensor([list(prompt)])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False,
        pad_token_id=0, eos_token_id=eos,
    )  # fmt: skip
    return [int(token) for token in out[0, len(prompt) :]]


def assert_same(
    model: Any, prompt: Sequence[int], expected: Sequence[int], got: Sequence[int]
) -> None:
    """Equal ids, or a message with the position, the two logits and their gap."""
    if list(expected) == list(got):
        return
    pairs = zip(expected, got, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(expected), len(got)))
    if at in (len(expected), len(got)):
        raise AssertionError(f"lengths differ: {len(expected)} expected, {len(got)} given")
    ids = torch.tensor([[*prompt, *expected[:at]]])
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False)[0][0, -1].double()
    due, given = logits[expected[at]].item(), logits[got[at]].item()
    raise AssertionError(
        f"diverged at position {at}: id {expected[at]} (logit {due:.17g}) expected, "
        f"id {got[at]} (logit {given:.17g}) given, gap {due - given:.3g}"
    )


def law_p_value(tokens: Sequence[int], law: Tensor) -> float:
    """Chi-square p-value of the tokens under the law; 0 when a token of probability 0 occurs."""
    observed = torch.bincount(torch.tensor(list(tokens)), minlength=len(law)).double()
    possible = law > 0
    if bool((observed[~possible] > 0).any()):
        return 0.0
    if int(possible.sum()) == 1:
        return 1.0
    expected = law[possible] / law[possible].sum() * observed.sum()
    return float(chisquare(observed[possible].numpy(), expected.numpy()).pvalue)


def assert_law(tokens: Sequence[int], law: Tensor) -> None:
    """The tokens follow the law (seeds are fixed; a false alarm has probability 1e-4)."""
    p_value = law_p_value(tokens, law)
    counts = torch.bincount(torch.tensor(list(tokens)), minlength=len(law)) / len(tokens)
    assert p_value > FALSE_ALARM, f"law {counts.tolist()} is not {law.tolist()} (p={p_value:.2g})"


def one_token_law(law: Tensor) -> TableTarget:
    """A target whose every token has the same law."""
    return TableTarget(law.double().unsqueeze(0), order=0)


def markov(rows: Sequence[Sequence[float]], **options: Any) -> TableTarget:
    """A target of order 1: ``rows[a][b]`` is the probability of b behind a."""
    probs = torch.tensor([*rows, rows[0]], dtype=torch.float64)
    return TableTarget(probs, order=1, **options)


def cycle(vocab: int, **options: Any) -> TableTarget:
    """0 > 1 > ... > 0, with certainty."""
    return markov(torch.eye(vocab).roll(1, 1).tolist(), **options)


def check_cache(ragged: RaggedModel, context: Context) -> None:
    """What is kept equals a fresh prefill of the committed ids, and the newest is still to come."""
    if not ragged.buffers:
        return
    fresh = RaggedModel(ragged.model, context.rows, ragged.capacity)
    fresh.prefill([t[:n] for t, n in zip(context.tokens, ragged.lengths, strict=True)], 512)
    for ours, due in zip(ragged.buffers, fresh.buffers or ragged.buffers, strict=True):
        for row, n in enumerate(ragged.lengths):
            assert n < len(context.tokens[row])
            torch.testing.assert_close(ours[row, :, :n], due[row, :, :n], atol=1e-10, rtol=1e-10)
