"""Cascade: a drafting model that is drafted for. Laws, caches, forwards, and what each part hears."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import (
    SAMPLED,
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

from foredraft.drafters.builtin import NgramConfig, PromptLookupConfig
from foredraft.drafters.builtin_nested import CascadeConfig
from foredraft.drafters.cascade import Cascade, CascadeSession
from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.drafters.members import Member
from foredraft.drafters.ngram import Ngram
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.framework import load
from foredraft.framework.bases import TokenSession
from foredraft.framework.cache import RaggedModel
from foredraft.framework.config import compose, to_objects
from foredraft.framework.context import Context
from foredraft.framework.decoding import Parts, decode
from foredraft.framework.engine import Defaults, Engine
from foredraft.framework.errors import ConfigError, PluginFault
from foredraft.framework.interfaces import Drafter, DraftSession, GammaPolicy, PolicySession, Target
from foredraft.framework.law import DenseLaw
from foredraft.framework.params import SamplingParams
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.records import Draft, DraftStep, Round
from foredraft.framework.requests import Answer, Request
from foredraft.framework.specs import DETERMINISTIC, DraftKind
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing.laws import (
    chi_square,
    exact_joint,
    law_of,
    make_trial,
    plain_joint,
    random_table,
    sequence_counts,
)
from foredraft.framework.testing.tiny import tiny_model
from foredraft.framework.testing.tiny_tokenizer import save_tiny
from foredraft.verifiers.block import BlockVerifier
from foredraft.verifiers.coupled import CoupledVerifier
from foredraft.verifiers.recursive import RecursiveVerifier
from foredraft.verifiers.token import TokenVerifier
from foredraft.verifiers.traversal import TraversalVerifier

FLOOR = 1e-6
LOOKUP = Member("prompt_lookup", PromptLookup(PromptLookupConfig()))
PROMPTS = [*random_prompts((5, 1, 9)), [7, 8, 9] * 4]
MIXED = PerRow(lambda place, turn: 0 if turn % 5 == 3 else (4, 0, 2, 1)[(place + turn) % 4])


def engine_of(
    target: Target, drafter: Drafter, gamma: int | GammaPolicy = 4, rule: Any = None, **rest: Any
) -> Engine:
    policy = Fixed(FixedConfig(gamma)) if isinstance(gamma, int) else gamma
    parts = Parts(target, drafter, rule or TokenVerifier(), policy, {})
    return Engine(parts, Defaults(**{"batch_size": 8, **rest}))


def middle_of(target: Any, scale: float = 0.03) -> CausalLMDrafter:
    return CausalLMDrafter(noisy_copy(target.model, scale), target)


def inner_of(name: str, target: Any) -> Member:
    if name == "lookup":
        return LOOKUP
    if name == "ngram":
        return Member("ngram", Ngram(NgramConfig(order=2), target))
    return Member("causal_lm", middle_of(target, 0.0 if name == "itself" else 0.05))


INNER = ("lookup", "ngram", "model")


# --- the draft ------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize(
    "params",
    [{"temperature": 1.0}, {"temperature": 0.7, "repetition_penalty": 1.4, "top_p": 0.9}, {}],
)
def test_drafts_are_what_the_model_drafts_alone(
    inner: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same noise and text: the first tokens of its own chain, and their laws, up to the
    first that the inner drafter did not foresee."""
    target, made = target_of("llama"), record_drafts(monkeypatch)
    middle, settings = middle_of(target), SamplingParams(**params)
    engine = engine_of(target, Cascade(middle, inner_of(inner, target)), 5, sampling=settings)
    batch = make_batch(engine, PROMPTS, max_new_tokens=40)
    with torch.inference_mode():
        for _ in range(5):
            batch.step()
    lengths = set()
    for texts, turn, guesses, draft in made:
        alone = make_batch(engine_of(target, middle, sampling=settings), texts, max_new_tokens=16)
        alone.context.round_index = turn
        alone.context.prompt_lengths[:] = [len(prompt) for prompt in PROMPTS]
        with torch.inference_mode():
            due = alone.drafter.propose([5] * 4)
        for row, length in enumerate(draft.lengths):
            ids = due.tokens[row].tolist()
            assert length == min(5, agreed(guesses[row], ids) + 1)
            assert draft.tokens[row, :length].tolist() == ids[:length]
            ours, theirs = draft.law.rows()[row, :length], due.law.rows()[row, :length]
            torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=0)
        lengths |= set(draft.lengths)
    assert len(lengths) > 1 or inner != "model"  # the others foresee little of a random model


Made = tuple[list[list[int]], int, list[list[int]], Draft]


def record_drafts(monkeypatch: pytest.MonkeyPatch) -> list[Made]:
    """The text, the round, the guesses and the draft of every proposal."""
    made: list[Made] = []
    real = CascadeSession.propose

    def propose(self: CascadeSession, gammas: list[int]) -> Draft:
        texts = [list(row) for row in self.context.tokens]
        draft = real(self, gammas)
        made.append((texts, self.context.round_index, list(self._guessed), draft))
        return draft

    monkeypatch.setattr(CascadeSession, "propose", propose)
    return made


def agreed(guess: list[int], tokens: list[int]) -> int:
    same = [a == b for a, b in zip(guess, tokens, strict=False)]
    return same.index(False) if False in same else len(same)


class Counting:
    """Counts forwards of a model and the tokens in them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, model: Any) -> None:
        self.counts: list[list[int]] = []
        real = RaggedModel.forward

        def forward(ragged: RaggedModel, tokens: Tensor, counts: list[int], **rest: Any) -> Tensor:
            if ragged.model is model and rest.get("logits", True):
                self.counts.append(counts)
            return real(ragged, tokens, counts, **rest)

        monkeypatch.setattr(RaggedModel, "forward", forward)


def test_the_model_runs_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_of("llama")
    middle = middle_of(target, 0.0)
    counting = Counting(monkeypatch, middle.model)
    engine = engine_of(target, Cascade(middle, inner_of("itself", target)))
    answers = engine.generate_many(PROMPTS, max_new_tokens=40)
    rounds = max(answer.metrics.rounds for answer in answers)
    drafted = max(answer.metrics.drafted for answer in answers)
    assert len(counting.counts) <= rounds < drafted / 1.5
    # The newest id, one that was never fed, and three guesses; after the first round.
    assert all(1 <= n <= 5 for counts in counting.counts[1:] for n in counts)


# --- policies -------------------------------------------------------------------------------------


class Asks(GammaPolicy):
    """Stops before position ``stop`` of each round, and writes down what it was asked."""

    stops = True

    def __init__(self, stop: int) -> None:
        self.stop, self.asked = stop, list[tuple[int, int, tuple[int, ...]]]()

    def start(self, context: Context) -> PolicySession:
        return AsksSession(context, self)


class AsksSession(PolicySession):
    def gammas(self) -> list[int]:
        return [5] * self.context.rows

    def go_on(self, step: DraftStep) -> Tensor:
        self.config.asked.append((step.position, len(step.probs), tuple(step.law.shape)))
        more = step.position < self.config.stop
        return torch.full((self.context.rows,), more, dtype=torch.bool)


@pytest.mark.parametrize("stop", [0, 1, 3, 9])
def test_policies_are_asked_at_each_position_in_order(stop: int) -> None:
    """About the model's laws alone: the inner drafter's tokens are none of theirs."""
    target = target_of("llama")
    cascade = Cascade(middle_of(target, 0.0), inner_of("itself", target))
    policy = Asks(stop)
    batch = make_batch(engine_of(target, cascade, policy, sampling=SAMPLED), PROMPTS)
    longest = 0
    with torch.inference_mode():
        for _ in range(4):
            policy.asked.clear()
            rows = batch.step().rows
            asked = [position for position, _, _ in policy.asked]
            assert asked == list(range(len(asked))) and len(asked) <= min(stop + 1, 5)
            assert all(n == position for position, n, _ in policy.asked)
            assert all(len(row.drafted) <= stop for row in rows)
            longest = max(longest, *(len(row.drafted) for row in rows))
    assert longest == min(stop, 5)


# --- losslessness ---------------------------------------------------------------------------------

RULES: dict[str, Callable[[], Any]] = {
    "token": TokenVerifier,
    "block": BlockVerifier,
    "recursive": RecursiveVerifier,
    "traversal": TraversalVerifier,
}
Prefix = tuple[int, ...]


def foreseen_joint(
    rule: Any, target: Any, middle: Any, guess: Any, gamma: int, tokens: int, vocab: int,
    keep: bool = True,
) -> Tensor:  # fmt: skip
    """The exact joint law when drafts are drawn from ``middle`` and end with the first token that is
    not the ``guess`` behind the same text; with ``keep`` False, before it: the biased form."""
    reached: dict[Prefix, float] = {(): 1.0}
    law = torch.zeros([vocab] * tokens, dtype=torch.float64)
    while reached:
        start = min(reached, key=len)
        weight = reached.pop(start)
        if len(start) >= tokens:
            law[start[:tokens]] += weight
            continue
        for draft, chance in _drafts(middle, guess, start, gamma, vocab, keep):
            for kept, after, likely in _verdicts(rule, target, middle, start, draft):
                base = (*start, *kept)
                for token, p in enumerate(after.tolist()):
                    if p > 0 and likely * chance > 0:
                        end = (*base, token)[: max(tokens, 0)]
                        reached[end] = reached.get(end, 0.0) + weight * chance * likely * p
    return law


def _drafts(
    middle: Any, guess: Any, start: Prefix, gamma: int, vocab: int, keep: bool
) -> list[tuple[Prefix, float]]:
    found, level = [], [((), 1.0)]
    for position in range(gamma):
        following: list[Any] = []
        for draft, chance in level:
            probs = middle((*start, *draft))
            for token in range(vocab):
                p = chance * float(probs[token])
                same = token == guess((*start, *draft))
                if p == 0:
                    continue
                if not same and not keep:
                    found.append((draft, p))
                elif same and position + 1 < gamma:
                    following.append(((*draft, token), p))
                else:
                    found.append(((*draft, token), p))
        level = following
    return found


def _verdicts(
    rule: Any, target: Any, middle: Any, start: Prefix, draft: Prefix
) -> list[tuple[Prefix, Tensor, float]]:
    """Every way in which the rule can decide: what stands, the law behind it, how likely."""
    width = len(draft)
    texts = [(*start, *draft[:n]) for n in range(width + 1)]
    count = 1 << width
    laws = torch.stack([target(text) for text in texts]).expand(count, -1, -1)
    given = torch.stack([middle(text) for text in texts])[:width].expand(count, -1, -1)
    bits = (torch.arange(count).unsqueeze(1) >> torch.arange(width)) & 1 > 0
    ids = torch.tensor(draft, dtype=torch.int64).expand(count, width)
    made = Draft(ids, [width] * count, DenseLaw(given))
    uniforms = torch.where(bits, 0.0, 1 - 2.0**-53).double()
    verdict = rule.verify(make_trial(made, laws.contiguous(), uniforms))
    likely = torch.where(bits, verdict.accept_probs, 1 - verdict.accept_probs).prod(1)
    return [
        (draft[: int(verdict.accepted[n])], verdict.next_law[n], float(likely[n]))
        for n in range(count)
        if likely[n] > 0
    ]


def picked(table: list[int], text: Prefix) -> int:
    """A guess that depends on the whole text."""
    return table[hash(text) % len(table)]


@pytest.mark.parametrize("name", RULES)
def test_joint_law_of_drafts_that_end_behind_a_surprise_is_the_targets(name: str) -> None:
    """By enumeration: context-dependent laws with zeros, drafts of 1 to 3 tokens."""
    for seed in range(4):
        target, middle = law_of(random_table(seed, 2)), law_of(random_table(seed + 70, 2))
        best = random_table(seed + 140, 2).argmax(1).tolist()
        got = foreseen_joint(
            RULES[name](),
            target,
            middle,
            partial(picked, best),
            3,
            4,
            2,
        )
        assert (got - plain_joint(target, 4)).abs().max() < 1e-12


def test_ending_before_the_surprise_is_seen_to_be_wrong() -> None:
    """The token that differs has to stay: without it the same enumeration is far off."""
    target, middle = law_of(random_table(3, 2, 0.0)), law_of(random_table(73, 2, 0.0))
    got = foreseen_joint(TokenVerifier(), target, middle, lambda text: 0, 3, 4, 2, keep=False)
    assert (got - plain_joint(target, 4)).abs().sum() / 2 > 0.01


@pytest.mark.parametrize(
    "inner", ["lookup", pytest.param("ngram", marks=pytest.mark.slow), "model"]
)
def test_engine_draws_follow_the_joint_law(inner: str) -> None:
    """Inner drafters that draw do so with the same noise: it must not show in the law."""
    target = CausalLM(tiny_model("llama", vocab=5, layers=1, seed=0, dtype=torch.float32))
    middle = CausalLMDrafter(tiny_model("llama", vocab=5, layers=1, seed=1), target)
    small = CausalLMDrafter(tiny_model("llama", vocab=5, layers=1, seed=2), target)
    part = Member("model", small) if inner == "model" else inner_of(inner, target)
    settings = [SAMPLED, SamplingParams(temperature=0.7, top_k=3)]
    parts = Parts(target, Cascade(middle, part), TokenVerifier(), Fixed(FixedConfig(3)), {})
    prompt, draws = [1, 0, 1], 6000
    answers = [Answer(Request(prompt, 3, settings[i % 2], seed=7, index=i)) for i in range(draws)]
    for begin in range(0, draws, 2000):
        for _ in decode(parts, answers[begin : begin + 2000]):
            pass
    assert sum(answer.metrics.accepted for answer in answers) > draws / 4
    for n, params in enumerate(settings):
        counts = sequence_counts([a.token_ids for a in answers[n::2]], 5, 3)
        assert chi_square(counts, exact_joint(target, prompt, 3, params)) > FLOOR


@pytest.mark.parametrize("gamma", [4, MIXED], ids=["four", "mixed"])
@pytest.mark.parametrize("inner", INNER)
def test_greedy_text_is_that_of_plain_decoding(inner: str, gamma: Any) -> None:
    target = target_of("llama")
    cascade = Cascade(middle_of(target), inner_of(inner, target))
    answers = engine_of(target, cascade, gamma).generate_many(PROMPTS, max_new_tokens=40)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert_same(target.model, prompt, plain(target.model, prompt, 40), answer.token_ids)
    assert sum(answer.metrics.accepted for answer in answers) > 20


def test_penalties_see_the_drafted_tokens() -> None:
    """A model that is the target has all its tokens accepted, penalties or not."""
    target = target_of("llama")
    cascade = Cascade(CausalLMDrafter(target.model, target), inner_of("lookup", target))
    params = SamplingParams(repetition_penalty=1.5, frequency_penalty=0.5, temperature=0.8)
    answers = engine_of(target, cascade, sampling=params).generate_many(PROMPTS, max_new_tokens=40)
    for answer in answers:
        assert answer.metrics.accept_rate == 1.0 and answer.metrics.drafted > 0
        assert answer.metrics.alpha == pytest.approx(1, abs=1e-9)


def test_coupled_text_is_that_of_plain_decoding() -> None:
    target = target_of("llama")
    cascade = Cascade(middle_of(target), inner_of("ngram", target))
    texts = [
        engine_of(target, cascade, gamma, CoupledVerifier(), sampling=SAMPLED).generate_many(
            PROMPTS, max_new_tokens=30
        )
        for gamma in (0, 4)
    ]
    assert [a.token_ids for a in texts[0]] == [a.token_ids for a in texts[1]]
    assert sum(answer.metrics.accepted for answer in texts[1]) > 5


# --- caches and what is heard ---------------------------------------------------------------------


@pytest.mark.parametrize("params", [SamplingParams(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("gamma", [4, MIXED], ids=["four", "mixed"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral"])
def test_caches_are_the_committed_ids(
    kind: str, gamma: int | GammaPolicy, params: SamplingParams
) -> None:
    """Of the model and of an inner model, after each round; a row leaves on the way."""
    target = target_of(kind)
    cascade = Cascade(middle_of(target), inner_of("model", target))
    engine = engine_of(target, cascade, gamma, sampling=params)
    batch = make_batch(engine, PROMPTS, max_new_tokens=24)
    batch.stoppers[1].limit = batch.stoppers[1].max_new_tokens = 9
    session: Any = batch.drafter
    accepted = 0
    with torch.inference_mode():
        while batch.answers:
            accepted += sum(row.accepted for row in batch.step().rows)
            if batch.answers:
                check_cache(session.ragged, batch.context)
                check_cache(session.cheap.ragged, batch.context)
    assert accepted > 3


class Fixed3(Drafter):
    """Guesses ``ids`` for every row, and writes down what it hears."""

    kind = DraftKind(DETERMINISTIC)

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids, self.heard = ids, list[Round]()

    def start(self, context: Context) -> DraftSession:
        return Fixed3Session(context, self)


class Fixed3Session(TokenSession):
    def continuation(self, row: int, gamma: int) -> Sequence[int]:
        found: Sequence[int] = self.config.ids[:gamma]
        return found

    def observe(self, outcome: Round) -> None:
        self.config.heard.append(outcome)


def test_the_inner_drafter_hears_of_its_own_guesses() -> None:
    target = target_of("llama")
    prompt = PROMPTS[0]
    text = plain(target.model, prompt, 8)
    wrong = (text[2] + 1) % 64
    for ids, stood, rejected in (
        (text[:3], 3, []),
        ([text[0], text[1], wrong], 2, [wrong]),
        ([wrong if text[0] != wrong else 1], 0, None),
    ):
        for learns in (False, True):
            inner = Fixed3(ids)
            cascade = Cascade(middle_of(target, 0.0), Member("three", inner, learns))
            batch = make_batch(engine_of(target, cascade), [prompt], max_new_tokens=8)
            with torch.inference_mode():
                outcome = batch.step()
            (row,) = inner.heard[0].rows
            assert row.emitted == outcome.rows[0].emitted
            if learns:
                assert row == outcome.rows[0]
                continue
            assert (row.drafted, row.accepted) == (list(ids), stood)
            assert row.path == list(range(stood))
            assert rejected is None or row.rejected == rejected


@pytest.mark.parametrize("wrong", [64, -1])
def test_a_wrong_id_of_the_inner_drafter_is_its_fault(wrong: int) -> None:
    target = target_of("llama")
    cascade = Cascade(middle_of(target), Member("three", Fixed3([1, wrong])))
    with pytest.raises(PluginFault, match=f"drafter 'three' drafted id {wrong} in row 0"):
        engine_of(target, cascade).generate([1, 2, 3], max_new_tokens=8)


def test_a_model_with_a_shorter_context_stops_drafting() -> None:
    target, prompts = target_of("gpt2"), random_prompts((5, 30, 2))
    middle = CausalLMDrafter(model_of("gpt2", context=24, seed=4), target)
    engine = engine_of(target, Cascade(middle, LOOKUP), max_new_tokens=40)
    for prompt, answer in zip(prompts, engine.generate_many(prompts), strict=True):
        assert answer.token_ids == plain(target.model, prompt, 40)


# --- configs --------------------------------------------------------------------------------------


def test_it_works_by_name_with_any_inner_drafter(tmp_path: Path) -> None:
    save_tiny(tmp_path / "model", eos=False, layers=1, seed=1, vocab=64)
    overrides = [f"drafter.model={tmp_path / 'model'}", "drafter.drafter={name:ngram,order:2}"]
    engine = load(*overrides, drafter="cascade", model=model_of("llama"))
    assert len(engine.generate([1, 2, 3], max_new_tokens=9).token_ids) == 9
    drafter: Any = engine.parts.drafter
    assert (drafter.inner.name, drafter.inner.drafter.order) == ("ngram", 2)
    inner = drafter.inner.drafter
    assert drafter.weight_bytes() == drafter.middle.weight_bytes() + inner.weight_bytes() > 0
    assert drafter.session_bytes(2, 30) == drafter.middle.session_bytes(2, 30) > 0


REFUSED = {
    "drafter.drafter={name:ngram,order:9}": "drafter.drafter.order=9 is not possible",
    "drafter.drafter=token_recycling": "drafter.drafter=token_recycling drafts trees here",
    "drafter.drafter=[ngram]": "drafter.drafter=['ngram'] is not possible",
    "drafter.drafter={name:cascade,drafter:{name:ngram,order:9}}": (
        "drafter.drafter.drafter.order=9 is not possible"
    ),
    "drafter.device_map=auto": "drafter.device_map is not possible",
    "drafter.widths=[2]": "drafter.widths is not a key of drafter 'cascade'",
}


@pytest.mark.parametrize("override", REFUSED)
def test_what_is_not_possible_is_refused_by_its_key(override: str) -> None:
    with pytest.raises(ConfigError) as error:
        compose(["target=table", "drafter=cascade", "drafter.model=x", override])
    assert str(error.value).startswith(REFUSED[override])


def test_the_inner_drafter_is_lookup_unless_it_is_said() -> None:
    config = to_objects(compose(["target=table", "drafter=cascade"])).drafter.config
    assert isinstance(config, CascadeConfig) and config.inner.spec.name == "prompt_lookup"
