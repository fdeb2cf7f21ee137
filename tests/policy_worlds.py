"""A world without a model for policies that reckon in seconds: what stands, and what rounds take.

The loop of ``decoding.py`` in a few lines: rows of endless texts, tokens that stand by a rate, a clock
that a test sets. What the policy is told of step times may differ from what rounds take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from foredraft.framework.context import Context
from foredraft.framework.interfaces import GammaPolicy
from foredraft.framework.records import Round, RowOutcome
from foredraft.framework.theory import expected_tokens
from foredraft.framework.times.steps import Constant, Seconds, StepTimes


class Linear(StepTimes):
    """A step of width w takes ``base + slope w rows`` seconds, a drafted token ``c``."""

    def __init__(self, slope: float = 0.0, c: float = 0.0, base: float = 1.0) -> None:
        self.slope, self.c, self.base = slope, c, base

    def target(self, batch: int, widths: object, context: int) -> Seconds:
        return self.base + self.slope * batch * (np.asarray(list(widths)) - 1)  # type: ignore[call-overload]

    def draft(self, batch: int, gammas: object) -> Seconds:
        return self.c * np.asarray(list(gammas), dtype=np.float64)  # type: ignore[call-overload]


class BareContext(Context):
    """Rows and times, and nothing else."""

    def __init__(self, rows: int, told: StepTimes) -> None:
        self.tokens = [[0] * 10 for _ in range(rows)]
        self.prompt_lengths = [10] * rows
        self.capacity, self.round_index, self.member = 1 << 20, 0, None
        self.times = lambda: told

    def select(self, rows: list[int]) -> None:
        self.tokens = [self.tokens[row] for row in rows]


@dataclass
class World:
    """What happens to a policy.

    Args:
        alpha: the rate of acceptance in a round.
        truth: what rounds take.
        told: what the table says; None is the truth.
        given: the chance that a drafter has a draft; members of ``one_of`` each have their own rate
            with ``alphas``.
        noise: standard deviation of the logarithm of a round's seconds.
        clock: whether rounds say what they took.
    """

    alpha: Callable[[int], float]
    truth: StepTimes = field(default_factory=lambda: Constant(0.1))
    told: StepTimes | None = None
    given: float = 1.0
    alphas: tuple[float, ...] = ()
    noise: float = 0.0
    clock: bool = True
    rows: int = 1
    seed: int = 0

    def run(
        self, policy: GammaPolicy, rounds: int, keep: dict[int, list[int]] | None = None
    ) -> Run:
        """Plays so many rounds; ``keep`` says which rows stay after a round."""
        draws, context = (
            np.random.default_rng(self.seed),
            BareContext(self.rows, self.told or self.truth),
        )
        session, run = policy.start(context), Run()
        for index in range(rounds):
            gammas, member = session.gammas(), session.member()
            assert len(gammas) == len(context.tokens)
            assert all(type(gamma) is int for gamma in gammas)
            rate = self.alpha(index) if member is None else self.alphas[member]
            outcomes = [self._row(row, gamma, rate, draws) for row, gamma in enumerate(gammas)]
            seconds = self._seconds(outcomes, context, draws)
            run.note(index, gammas, outcomes, sum(seconds.values()), member)
            for tokens, row in zip(context.tokens, outcomes, strict=True):
                tokens.extend(row.emitted)
            session.observe(Round(index, outcomes, seconds if self.clock else {}))
            context.round_index += 1
            if keep and index in keep:
                context.select(keep[index])
                session.select(list(keep[index]))
        return run

    def _row(self, row: int, gamma: int, rate: float, draws: np.random.Generator) -> RowOutcome:
        length = gamma if draws.random() < self.given else 0
        stands = draws.random(length) < rate
        accepted = length if stands.all() else int(stands.argmin())
        overlaps = [rate] * min(accepted + 1, length)
        return RowOutcome(row, [0] * length, accepted, [0] * (accepted + 1), overlaps, gamma=gamma)

    def _seconds(
        self, outcomes: list[RowOutcome], context: BareContext, draws: np.random.Generator
    ) -> dict[str, float]:
        width, asked = max(len(r.drafted) for r in outcomes), max(r.gamma for r in outcomes)
        longest = max(len(row) for row in context.tokens)
        factor = float(np.exp(self.noise * draws.standard_normal()))
        verify = float(self.truth.target(len(outcomes), [width + 1], longest)[0])
        return {
            "draft": float(self.truth.draft(len(outcomes), [asked])[0]) * factor,
            "verify": verify * factor,
        }


@dataclass
class Run:
    """What was seen: per round the largest gamma, tokens, seconds, and the member that drafted."""

    gammas: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    members: list[int | None] = field(default_factory=list)

    def note(
        self,
        index: int,
        gammas: list[int],
        rows: list[RowOutcome],
        seconds: float,
        member: int | None,
    ) -> None:
        self.gammas.append(max(gammas))
        self.tokens.append(sum(len(row.emitted) for row in rows))
        self.seconds.append(seconds)
        self.members.append(member)

    def rate(self, begin: int = 0, end: int | None = None) -> float:
        """Tokens per second of some rounds."""
        return sum(self.tokens[begin:end]) / sum(self.seconds[begin:end])

    def share(self, gamma: int, begin: int = 0, end: int | None = None) -> float:
        """How many of some rounds had this gamma."""
        part = self.gammas[begin:end]
        return part.count(gamma) / len(part)


def value(run: Run, alpha: float, truth: StepTimes, rows: int = 1, begin: int = 0) -> float:
    """Expected tokens per second of the gammas that were chosen, over those of the best one: what a
    policy is worth, without the luck of its tokens."""
    gammas = np.arange(65)
    tokens = rows * expected_tokens(alpha, gammas)
    seconds = truth.target(rows, gammas + 1, 10) + truth.draft(rows, gammas)
    chosen = np.array(run.gammas[begin:])
    return float(tokens[chosen].sum() / seconds[chosen].sum() / (tokens / seconds).max())
