"""A replay is the run itself without the model: it gives the very rounds of a live run, the counts of a
slow reference, and the numbers of the formulas."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from helpers import SAMPLED
from replay_helpers import POLICIES, Shared, Steps, by_request, dense, live, told

from foredraft.drafters.builtin import PromptLookupConfig
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.framework import (
    ConfigError,
    DraftStep,
    InputError,
    PluginFault,
    PolicySession,
    theory,
)
from foredraft.framework.bases import SessionPolicy
from foredraft.framework.decoding import Parts
from foredraft.framework.interfaces import Drafter, GammaPolicy, Verifier
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.policies.oracle import Oracle
from foredraft.framework.records import Round
from foredraft.framework.replaying import Comparison, Replay, compare, replay
from foredraft.framework.replaying.choices import Choice, choose
from foredraft.framework.replaying.compare import share
from foredraft.framework.requests import Request
from foredraft.framework.targets.builtin import TableConfig
from foredraft.framework.targets.table import TableTarget, random_table
from foredraft.framework.testing.tables import TableDrafter
from foredraft.framework.times.steps import Constant, Seconds, StepTimes
from foredraft.framework.traces import DenseTrace
from foredraft.framework.traces.synthetic import Drifting, Iid, TwoState, synthetic_traces
from foredraft.verifiers.coupled import CoupledVerifier
from foredraft.verifiers.token import TokenVerifier

pytestmark = pytest.mark.usefixtures("only_builtins")

TIMES = Constant(0.1)
MOST = 8
LIVE = {"fixed 0": Fixed(FixedConfig(0)), "fixed 3": Fixed(FixedConfig(3)), **POLICIES}
STOPPING = ("sure", "open")


class Rising(StepTimes):
    """Wider steps, longer contexts and larger batches take longer."""

    def target(self, batch: int, widths: object, context: int) -> Seconds:
        wide = np.asarray(list(widths), dtype=np.float64)  # type: ignore[call-overload]
        return 1 + 0.1 * wide + 0.01 * context + 0.2 * batch

    def draft(self, batch: int, gammas: object) -> Seconds:
        return 0.05 * batch * np.asarray(list(gammas), dtype=np.float64)  # type: ignore[call-overload]


# --- live runs ---------------------------------------------------------------------------------


@cache
def tables() -> tuple[TableTarget, TableTarget]:
    """A target that can end, and a drafter that is often right."""
    config = TableConfig(vocab_size=12, order=2, sharpness=1.5)
    probs = random_table(config)
    noise = torch.randn(
        probs.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    draft = (probs.log() + 0.7 * noise).softmax(-1)
    return TableTarget(probs, 2, eos=7), TableTarget(draft, 2)


def parts(kind: str) -> Parts:
    target, draft = tables()
    drafter: Drafter = TableDrafter(draft)
    if kind == "lookup":
        drafter = PromptLookup(PromptLookupConfig())
    verifier: Verifier = CoupledVerifier() if kind == "coupled" else TokenVerifier()
    return Parts(target, drafter, verifier, Fixed(FixedConfig(0)), {}, lambda rows: TIMES)


def requests(kind: str) -> list[Request]:
    prompts = ([0, 1], [5], [3, 2, 4, 3, 2])
    options = {"sampling": SAMPLED} if kind == "coupled" else {}
    return [Request(list(p), 24, index=i, **options) for i, p in enumerate(prompts)]  # type: ignore[arg-type]


@cache
def dense_traces(kind: str) -> list[DenseTrace]:
    return [dense(parts(kind), request, MOST) for request in requests(kind)]


def heard(policy: GammaPolicy, traces: list[DenseTrace], batch: int, together: bool) -> list[Round]:
    rounds: list[Round] = []
    replay(policy, traces, TIMES, batch=batch, together=together, recorder=rounds.append)
    return rounds


CASES = [
    (kind, name)
    for kind in ("greedy", "coupled", "lookup")
    for name in LIVE
    if kind != "lookup" or name not in STOPPING  # chosen tokens have no law
]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_replay_gives_the_rounds_of_the_live_run(kind: str, name: str) -> None:
    traces, policy = dense_traces(kind), LIVE[name]
    due = [told(live(parts(kind), policy, [request])) for request in requests(kind)]
    flat = [row for rounds in due for (row,) in rounds]
    for together in (False, True):
        assert by_request(heard(policy, traces, 1, together)) == flat
    result = replay(policy, traces, TIMES)
    assert result.rounds.tolist() == [len(rounds) for rounds in due]
    assert result.tokens.tolist() == [trace.places for trace in traces]


def test_the_live_cases_have_every_kind_of_round() -> None:
    """Ends by a stop and by length; full, partial and failed drafts; drafts cut short."""
    rows = [row for r in heard(LIVE["steps"], dense_traces("coupled"), 1, False) for row in r.rows]
    assert {len(row.drafted) - row.accepted for row in rows} >= {0, 2, 3}
    traces = dense_traces("coupled") + dense_traces("greedy")
    assert {trace.places == trace.room for trace in traces} == {True, False}
    stopped = [r for r in heard(LIVE["sure"], dense_traces("coupled"), 1, True)]
    assert any(len(row.drafted) < min(row.gamma, MOST) for r in stopped for row in r.rows)


@pytest.mark.parametrize("name", ["learner", "steps", "open", "shared"])
def test_a_batch_is_replayed_as_a_batch(name: str) -> None:
    policy = SessionPolicy(Shared, None) if name == "shared" else LIVE[name]
    due = told(live(parts("coupled"), policy, requests("coupled")))
    assert told(heard(policy, dense_traces("coupled"), 4, False)) == due


def built_in() -> list[str]:
    from foredraft.framework.plugins import registry

    specs = [offer.spec for offer in registry().offers("policy")]
    kept = [s for s in specs if s.name != "oracle" and s.ability("repeatable", s.config())]
    return [spec.name for spec in kept]


@pytest.mark.parametrize("kind", ["greedy", "coupled"])
def test_built_in_policies_replay_as_they_run(kind: str) -> None:
    for name in built_in():
        choice = choose(name)
        due = [
            row
            for request in requests(kind)
            for (row,) in told(live(parts(kind), choice.policy, [request]))
        ]
        deep = [row for row in due if row[1] > MOST]  # type: ignore[operator]
        if not deep:  # the traces hold what it wants
            rounds = heard(choice.policy, dense_traces(kind), 1, choice.together)
            assert by_request(rounds) == due, name


# --- a slow reference --------------------------------------------------------------------------


def slow(
    traces: list[DenseTrace], gamma: Callable[[int], int], times: StepTimes
) -> list[list[float]]:
    """Rounds, tokens, drafted, accepted, reached and seconds of each text, token by token;
    ``gamma(round)``."""
    found = []
    for trace in traces:
        at = rounds = drafts = accepts = reaches = 0
        seconds = 0.0
        while at < trace.places:
            drafted = min(gamma(rounds), trace.places - at - 1, int(trace.lengths[at]))
            accepted = 0
            while accepted < drafted and trace.accepts[at, accepted]:
                accepted += 1
            context = trace.prompt_tokens + at - 1
            seconds += float(times.target(1, [drafted + 1], context)[0])
            seconds += float(times.draft(1, [drafted])[0])
            rounds, drafts, accepts = rounds + 1, drafts + drafted, accepts + accepted
            reaches += min(accepted + 1, drafted)
            at += accepted + 1
        found.append([rounds, at, drafts, accepts, reaches, seconds])
    return found


class Wave(PolicySession):
    """Gammas that go up and down with the round."""

    def gammas(self) -> list[int]:
        return [self.context.round_index % 6] * self.context.rows


def ragged() -> list[DenseTrace]:
    """Texts of several lengths, of a drafter that often has less than was asked for."""
    noise = np.random.default_rng(5)
    found = []
    for places, most in ((1, 4), (37, 4), (80, 6), (53, 2)):
        shape = (places, most)
        accepts, numbers = noise.random(shape) < 0.7, np.zeros(shape, dtype=np.float32)
        lengths = noise.integers(0, most + 1, places)
        found.append(
            DenseTrace(accepts, numbers, numbers, numbers, lengths, {"prompt_tokens": places % 7})
        )
    return found


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("gamma", [0, 1, 3, 9, None])
def test_counts_and_seconds_are_those_of_a_slow_reference(
    gamma: int | None, together: bool
) -> None:
    wave = gamma is None
    policy = SessionPolicy(Wave, None) if wave else Fixed(FixedConfig(gamma or 0))
    due = slow(ragged(), (lambda r: r % 6) if wave else (lambda r: gamma or 0), Rising())
    got = replay(policy, ragged(), Rising(), together=together)
    columns = (got.rounds, got.tokens, got.drafted, got.accepted, got.reached, got.seconds)
    assert np.allclose(np.array(columns).T, np.array(due))


def test_rows_of_a_batch_wait_for_the_widest() -> None:
    """Two texts: one drafts 2 and keeps none, the other drafts nothing."""
    ones, none = np.ones((2, 2), dtype=np.float32), np.zeros((2, 2), dtype=bool)
    traces = [
        DenseTrace(none, ones, ones, ones, np.array([length, 0]), {"prompt_tokens": prompt})
        for length, prompt in ((2, 1), (0, 4))
    ]
    got = replay(Fixed(FixedConfig(1)), traces, Rising(), batch=2)
    first = 1 + 0.2 + 0.03 + 0.4 + 0.1  # width 2, context 3, batch 2; one drafting step
    second = 1 + 0.1 + 0.04 + 0.4
    assert got.seconds == pytest.approx([(first + second) / 2] * 2)


def test_a_row_alone_in_a_batch_is_a_batch_of_one() -> None:
    alone = replay(Fixed(FixedConfig(2)), ragged(), Rising())
    batched = replay(Fixed(FixedConfig(2)), ragged()[-1:], Rising(), batch=3)
    assert batched.seconds[0] == pytest.approx(alone.seconds[-1])


# --- formulas ----------------------------------------------------------------------------------


def interval(result: Replay) -> float:
    """Four standard errors of tau, texts being independent."""
    tau = result.tokens / result.rounds
    return float(4 * tau.std(ddof=1) / len(tau) ** 0.5)


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("greedy", [True, False])
def test_fixed_gammas_and_the_oracle_are_as_the_formulas_say(alpha: float, greedy: bool) -> None:
    traces = synthetic_traces(Iid(alpha), 200, 300, 64, seed=2, greedy=greedy)
    for gamma in (1, 2, 5, 10):
        got = replay(Fixed(FixedConfig(gamma)), traces, TIMES, together=True)
        due = float(theory.expected_tokens(alpha, gamma))
        assert abs(got.tau - due) < interval(got), gamma
        factor = got.rate / 1.0  # plain decoding takes 1 second per token
        assert factor == pytest.approx(float(theory.speedup(alpha, gamma, 0.1)), rel=0.04)
    got = replay(Oracle(), traces, TIMES, together=True)
    assert abs(got.tau - float(theory.oracle_tokens(alpha))) < interval(got) + 0.15
    assert got.rate == pytest.approx(float(theory.oracle_speedup(alpha, 0.1)), rel=0.04)
    assert got.waste == 0 and got.accept_rate == 1


def test_nothing_is_better_than_the_oracle_where_steps_cost_the_same() -> None:
    found = compare(synthetic_traces(Drifting(), 8, 600, 12), [], TIMES)
    assert all(one.rate < found.oracle.rate for one in found.fixed.values())
    assert found.informed is not None and found.informed.rate < found.oracle.rate
    assert found.row(found.oracle)["oracle_share"] == pytest.approx(1)
    assert found.row(found.plain)["oracle_share"] == 0


def test_knowing_the_state_beats_every_fixed_gamma() -> None:
    process = TwoState((0.9, 0.3), (300, 300))
    found = compare(synthetic_traces(process, 60, 600, 16), [], Constant(0.1))
    assert found.informed is not None
    row = found.row(found.informed)
    assert row["x_best"] > 1.08 and row["informed_share"] == 1 and row["informed_over_best"] == 1
    # By the formulas: each state's best gamma, against the best of one for both.
    one = 1 / np.array([theory.speedup(a, np.arange(17), 0.1) for a in (0.9, 0.3)])
    due = one.sum(0).min() / one.min(1).sum()
    assert row["x_best"] == pytest.approx(due, rel=0.03)


def test_the_best_fixed_gamma_on_one_rate_is_the_formulas() -> None:
    for alpha, c in ((0.3, 0.3), (0.7, 0.1), (0.8, 0.3)):
        found = compare(synthetic_traces(Iid(alpha), 400, 300, 6), [], Constant(c))
        best = int(theory.best_gamma(alpha, c)[0])
        assert found.best_gamma in (best - 1, best, best + 1)
        assert found.fixed[found.best_gamma].rate == pytest.approx(
            float(theory.speedup(alpha, best, c)), rel=0.03
        )


# --- comparisons -------------------------------------------------------------------------------


def comparison() -> Comparison:
    choices = [Choice("fixed", Fixed(FixedConfig(2)), True), Choice("steps", POLICIES["steps"])]
    return compare(synthetic_traces(Iid(0.7), 10, 200, 6), choices, TIMES, [1, 2])


def test_a_comparison_is_of_one_table() -> None:
    found = comparison()
    names = [row["policy"] for row in found.rows()]
    assert names == ["fixed 0", "fixed 1", "fixed 2", "fixed", "steps", "informed", "oracle"]
    twin, best = found.row(found.policies[0]), found.row(found.fixed[2])
    assert found.best_gamma == 2 and best["x_best"] == 1 and best["regret"] == 0
    assert {k: v for k, v in twin.items() if k != "policy"} == {
        k: v for k, v in best.items() if k != "policy"
    }
    steps = found.row(found.policies[1])
    assert steps["regret"] == 1 - steps["x_best"] and steps["x_best_se"] > 0
    assert best["x_best_se"] == 0


def test_a_share_of_no_gain_is_none() -> None:
    found = comparison()
    assert share(found.plain, found.plain, found.plain) is None
    assert share(found.plain, None, found.plain) is None
    assert found.row(found.plain)["accept_rate"] is None


def test_asking_for_more_than_the_traces_hold_is_counted() -> None:
    got = replay(Fixed(FixedConfig(9)), synthetic_traces(Iid(0.5), 2, 50, 4), TIMES)
    assert 0 < got.capped <= got.rounds.sum()
    assert replay(Fixed(FixedConfig(4)), synthetic_traces(Iid(0.5), 2, 50, 4)).capped == 0


# --- what stopping costs -----------------------------------------------------------------------


class Limit(PolicySession):
    """Ends every draft at two tokens, by a look at the law or without one."""

    looks = False

    def gammas(self) -> list[int]:
        return [5] * self.context.rows

    def go_on(self, step: DraftStep) -> torch.Tensor:
        more = torch.full((self.context.rows,), step.position < 2)
        return more & (step.entropy > -1) if self.looks else more


class Look(Limit):
    looks = True


def test_looking_at_a_law_costs_the_step_that_makes_it() -> None:
    traces = synthetic_traces(Iid(0.5), 5, 100, 8)
    quiet = replay(SessionPolicy(Limit, None, True), traces, TIMES, together=True)
    looked = replay(SessionPolicy(Look, None, True), traces, TIMES, together=True)
    due = replay(Fixed(FixedConfig(2)), traces, TIMES)
    assert np.array_equal(quiet.drafted, due.drafted) and np.allclose(quiet.seconds, due.seconds)
    assert np.array_equal(looked.drafted, due.drafted)
    # One step more in each round that could have gone on; the last rounds of a text cannot.
    extra = (looked.seconds - quiet.seconds) / 0.1
    assert (extra > due.rounds - 4).all() and (extra <= due.rounds).all()


# --- refusals ----------------------------------------------------------------------------------


class Peeking(PolicySession):
    """Wants what a replay does not have."""

    def gammas(self) -> list[int]:
        self.context.uniforms(0, 1)
        return [1] * self.context.rows


class Lawful(Limit):
    def go_on(self, step: DraftStep) -> torch.Tensor:
        return step.law.amax(-1) > 0


class Negative(Steps):
    def gammas(self) -> list[int]:
        return [-1] * self.context.rows


@pytest.mark.parametrize(
    ("session", "error", "words"),
    [
        (Peeking, ConfigError, "context.noise"),
        (Lawful, ConfigError, "step.law"),
        (Negative, PluginFault, "policy 'mine'"),
    ],
)
def test_what_a_trace_cannot_give_is_said(
    session: type[PolicySession], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        replay(SessionPolicy(session, None, True), ragged()[1:], name="mine")


def test_impossible_replays_are_refused() -> None:
    with pytest.raises(InputError, match="no trace"):
        replay(Oracle(), [])
    with pytest.raises(ConfigError, match="batch=0"):
        replay(Oracle(), ragged(), batch=0)
    with pytest.raises(ConfigError, match="together"):
        replay(Oracle(), ragged(), batch=2, together=True)
    with pytest.raises(ConfigError, match="nobody knows"):
        from foredraft.framework.replaying.informed import Informed
        from foredraft.framework.replaying.stack import Costs, Stack

        Informed(Stack(ragged()), Costs(TIMES, Stack(ragged())))


def test_the_oracle_cannot_be_run_live() -> None:
    with pytest.raises(ConfigError, match="foredraft replay"):
        live(parts("greedy"), Oracle(), requests("greedy"))


def test_a_policy_that_ends_drafts_is_refused_for_drafts_that_are_chosen() -> None:
    traces = dense_traces("lookup")
    chosen = [
        DenseTrace(
            t.accepts, t.overlaps, t.confidences, t.entropies, t.lengths,
            {"drawn": "deterministic", "drafter": "prompt_lookup"},
        )
        for t in traces
    ]  # fmt: skip
    sure = Choice("sure", POLICIES["sure"], True, stops=True)
    with pytest.raises(ConfigError, match="policy=sure .* drafter=prompt_lookup"):
        compare(chosen, [sure], TIMES)
    assert compare(chosen, [Choice("steps", POLICIES["steps"])], TIMES).policies


def test_a_live_choice_corrects_its_table_and_a_replayed_one_does_not() -> None:
    """What is measured with a clock must be the policy that a user runs."""
    for name in ("goodput", "optimal", "bandit"):
        assert choose(name).policy.config.frozen  # type: ignore[attr-defined]
        assert not choose(name, live=True).policy.config.frozen  # type: ignore[attr-defined]
