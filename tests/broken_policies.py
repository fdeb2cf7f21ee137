"""Policies that are broken in one way each, and the check that has to notice."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

import torch
from planted import Planted
from torch import Tensor

from foredraft.framework import Context, DraftStep, GammaPolicy, PolicySession, PolicySpec, Round
from foredraft.framework.noise import Stream


@dataclass
class Config:
    """What they have in common.

    Args:
        gamma: drafted tokens per round, where it is fixed.
    """

    gamma: int = 3


class Fixed(PolicySession):
    """What all of them start from, which is sound."""

    def gammas(self) -> list[int]:
        return [self.config.gamma] * self.context.rows


class Adaptive(PolicySession):
    """Per row, one more after all stood and one less otherwise; sound as well."""

    def __init__(self, context: Context, config: Any = None) -> None:
        super().__init__(context, config)
        self.lengths = [config.gamma] * context.rows

    def gammas(self) -> list[int]:
        return list(self.lengths)

    def observe(self, outcome: Round) -> None:
        for row, seen in enumerate(outcome.rows):
            whole = seen.accepted == len(seen.drafted)
            self.lengths[row] = min(8, max(1, self.lengths[row] + (1 if whole else -1)))

    def select(self, rows: list[int]) -> None:
        self.lengths = [self.lengths[row] for row in rows]


class Floats(Adaptive):
    def observe(self, outcome: Round) -> None:
        shares = (max(1, seen.accepted) / max(1, len(seen.drafted)) for seen in outcome.rows)
        self.lengths = [8 * share for share in shares]


class Bools(Fixed):
    def gammas(self) -> list[int]:
        return [len(row) % 2 == 0 for row in self.context.tokens]


class Negative(Adaptive):
    """Forgets where to stop."""

    def observe(self, outcome: Round) -> None:
        for row, seen in enumerate(outcome.rows):
            self.lengths[row] += 1 if seen.accepted == len(seen.drafted) else -2


class TensorOfGammas(Fixed):
    def gammas(self) -> list[int]:
        return torch.full((self.context.rows,), 3)  # type: ignore[return-value]


class ForgetsSelect(Adaptive):
    def select(self, rows: list[int]) -> None:
        pass


class ListOfTruths(Fixed):
    def go_on(self, step: DraftStep) -> Tensor:
        return [bool(best > 0.5) for best in step.law.amax(-1)]  # type: ignore[return-value]


class OneTruth(Fixed):
    """``[1]`` in place of ``[batch]``: right as long as there is one row."""

    def go_on(self, step: DraftStep) -> Tensor:
        return step.law.amax(-1).mean(0, keepdim=True) > 0.5


class TrimsText(Fixed):
    """Keeps what it looks at short."""

    def gammas(self) -> list[int]:
        for row in self.context.tokens:
            row[:] = row[-4:]
        return super().gammas()


class RewritesNewest(Fixed):
    def observe(self, outcome: Round) -> None:
        for row in self.context.tokens:
            row[-1] = 0


class SortsOutcome(Adaptive):
    """Orders the rows by their success, in place."""

    def observe(self, outcome: Round) -> None:
        super().observe(outcome)
        outcome.rows.sort(key=lambda row: -row.accepted)


class EmptiesOutcome(Adaptive):
    def observe(self, outcome: Round) -> None:
        super().observe(outcome)
        for row in outcome.rows:
            row.overlaps.clear()


class WritesLaw(Fixed):
    """Clears small probabilities on the way to an entropy."""

    def go_on(self, step: DraftStep) -> Tensor:
        kept = step.law.masked_fill_(step.law < 0.1, 0.0)
        return -(kept * kept.clamp(min=1e-9).log()).sum(-1) < 1.2


class WritesTokens(Fixed):
    def go_on(self, step: DraftStep) -> Tensor:
        for drafted in step.tokens:
            drafted.clamp_(max=2)
        return torch.ones(self.context.rows, dtype=torch.bool)


class SetsContext(Adaptive):
    """Leaves a note for other parts."""

    def gammas(self) -> list[int]:
        self.context.last_gammas = list(self.lengths)  # type: ignore[attr-defined]
        return super().gammas()


class DrawsGlobally(Fixed):
    def gammas(self) -> list[int]:
        return [random.randrange(4) for _ in range(self.context.rows)]


class SeedsGlobally(Fixed):
    """The same gammas each time, and the same noise for everybody else."""

    def gammas(self) -> list[int]:
        torch.manual_seed(self.context.round_index)
        return [int(torch.randint(4, ())) for _ in range(self.context.rows)]


class ReadsClock(Fixed):
    def __init__(self, context: Context, config: Any = None) -> None:
        super().__init__(context, config)
        self.since = time.perf_counter()

    def gammas(self) -> list[int]:
        slow = time.perf_counter() - self.since > 0.1
        self.since = time.perf_counter()
        return [1 if slow else 4] * self.context.rows


class ReadsSeconds(Adaptive):
    """Drafts less where a draft takes longer than it saves, by the times in the record."""

    def observe(self, outcome: Round) -> None:
        spent = outcome.seconds
        cheap = spent["draft"] < spent["verify"] * 10
        self.lengths = [4 if cheap else 1 for _ in outcome.rows]


class OnObject(GammaPolicy):
    """One session for all runs."""

    def __init__(self, config: Config) -> None:
        self.scale, self.config = [3], config

    def start(self, context: Context) -> PolicySession:
        return _Scaled(context, self.scale)


class _Scaled(PolicySession):
    def gammas(self) -> list[int]:
        return [min(8, self.config[0])] * self.context.rows

    def observe(self, outcome: Round) -> None:
        accepted = sum(row.accepted for row in outcome.rows)
        self.config[0] = max(1, self.config[0] + (1 if accepted > len(outcome.rows) else -1))


class OnClass(Adaptive):
    """Remembers by request, in a table that all sessions share."""

    seen: dict[int, int] = {}

    def gammas(self) -> list[int]:
        return [1 + self.seen.get(row[-1], 0) % 5 for row in self.context.tokens]

    def observe(self, outcome: Round) -> None:
        for row in outcome.rows:
            self.seen[row.emitted[-1]] = self.seen.get(row.emitted[-1], 0) + row.accepted


class NeverFreed(GammaPolicy):
    """Serves one run at a time, and is free again when that one's last row has left."""

    def __init__(self, config: Config) -> None:
        self.config, self.busy = config, False

    def start(self, context: Context) -> PolicySession:
        if self.busy:
            raise RuntimeError("another run is under way")
        self.busy = True
        return _Freeing(context, self)


class _Freeing(PolicySession):
    def gammas(self) -> list[int]:
        return [3] * self.context.rows

    def observe(self, outcome: Round) -> None:
        self.config.busy = any(row.finish is None for row in outcome.rows)


class KeepsFirstRows(Adaptive):
    """Has the right number of lengths when rows leave, but not the right ones."""

    def select(self, rows: list[int]) -> None:
        self.lengths = self.lengths[: len(rows)]


class BatchMean(Adaptive):
    """One length for all, from what all accepted; says nothing of it in its spec."""

    def observe(self, outcome: Round) -> None:
        mean = sum(row.accepted for row in outcome.rows) / len(outcome.rows)
        self.lengths = [1 + round(mean)] * len(outcome.rows)


class Budget(Fixed):
    """Shares a budget of drafted tokens between the rows."""

    def gammas(self) -> list[int]:
        return [max(1, 8 // self.context.rows)] * self.context.rows


class AnyRowStops(Fixed):
    """Ends the drafts of all rows with the first."""

    def go_on(self, step: DraftStep) -> Tensor:
        return (step.law.amax(-1) > 0.45).all().expand(self.context.rows)


class DividesByDrafted(Adaptive):
    def observe(self, outcome: Round) -> None:
        self.lengths = [1 + 4 * row.accepted // len(row.drafted) for row in outcome.rows]


class ReadsFirstRejected(Adaptive):
    """Takes it that something was rejected."""

    def observe(self, outcome: Round) -> None:
        self.lengths = [1 + row.rejected[0] for row in outcome.rows]


class PeeksAtDraw(Fixed):
    """Draws the next token ahead, with its own noise, and stops if it would be an unlikely one."""

    def go_on(self, step: DraftStep) -> Tensor:
        token = self.context.draw(step.law, step.position)
        return step.law.gather(1, token.unsqueeze(1)).squeeze(1) > 0.3


class PeeksAtUniforms(Fixed):
    """The same at the start of a round: as many tokens as will not come from the law's end."""

    def gammas(self) -> list[int]:
        low = self.context.uniforms(0, 3) < 0.8
        return [int(n) for n in low.long().cumprod(1).sum(1).tolist()]


class PeeksAtAcceptance(Fixed):
    """Stops before a token that would hardly be accepted."""

    def go_on(self, step: DraftStep) -> Tensor:
        noise, place = self.context.noise, self.context.round_index
        return noise.uniform(Stream.ACCEPT, place, step.position, 1)[:, 0] < 0.8


class PeeksAtNext(Fixed):
    """Drafts only where the round's own token would come from the end of its law."""

    def gammas(self) -> list[int]:
        place = self.context.round_index
        noise = self.context.noise.uniform(Stream.NEXT, place, 0, 1)[:, 0]
        return [3 if high else 0 for high in (noise > 0.5).tolist()]


class KeepsRounds(Adaptive):
    """A history, with all that hangs on it."""

    def __init__(self, context: Context, config: Any = None) -> None:
        super().__init__(context, config)
        self.history: list[Round] = []

    def observe(self, outcome: Round) -> None:
        super().observe(outcome)
        self.history.append(outcome)


class Lengthens(Adaptive):
    """A tensor of all accept counts so far, made anew each round."""

    def __init__(self, context: Context, config: Any = None) -> None:
        super().__init__(context, config)
        self.counts = torch.zeros(0)

    def observe(self, outcome: Round) -> None:
        super().observe(outcome)
        self.counts = torch.cat([self.counts, torch.tensor([float(outcome.rows[0].accepted)])])


class KeepsContexts(GammaPolicy):
    """Every batch it ever served."""

    def __init__(self, config: Config) -> None:
        self.config, self.served = config, list[Context]()

    def start(self, context: Context) -> PolicySession:
        self.served.append(context)
        return Fixed(context, self.config)


def _planted(name: str, part: type, caught_by: str, what: str) -> Planted:
    spec = PolicySpec(name, part, Config, what, contract=1)
    return Planted(name, what, spec, tuple(caught_by.split()))


PLANTED: tuple[Planted, ...] = (
    _planted("floats", Floats, "well_formed_gammas", "gammas are floats"),
    _planted("bools", Bools, "well_formed_gammas", "gammas are truth values"),
    _planted("negative", Negative, "well_formed_gammas", "gammas fall below 0"),
    _planted("tensor", TensorOfGammas, "well_formed_gammas", "gammas are a tensor"),
    _planted(
        "forgets_select", ForgetsSelect, "well_formed_gammas row_fates",
        "one gamma for each row that there ever was",
    ),
    _planted("list_of_truths", ListOfTruths, "well_formed_gammas", "go_on answers with a list"),
    _planted("one_truth", OneTruth, "well_formed_gammas", "go_on answers once for all rows"),
    _planted("trims_text", TrimsText, "inputs_unchanged", "cuts the committed ids"),
    _planted(
        "rewrites_newest", RewritesNewest, "greedy_equality inputs_unchanged joint_law",
        "changes the newest committed id",
    ),
    _planted("sorts_outcome", SortsOutcome, "inputs_unchanged", "sorts the outcome's rows in place"),
    _planted("empties_outcome", EmptiesOutcome, "inputs_unchanged", "empties lists of the outcome"),
    _planted("writes_law", WritesLaw, "inputs_unchanged", "writes into the step's law"),
    _planted("writes_tokens", WritesTokens, "inputs_unchanged", "writes into the drafted tokens"),
    _planted("sets_context", SetsContext, "inputs_unchanged", "adds an attribute to the context"),
    _planted("draws_globally", DrawsGlobally, "repeatable", "draws from Python's generator"),
    _planted("seeds_globally", SeedsGlobally, "repeatable", "seeds torch's generator"),
    _planted("reads_clock", ReadsClock, "repeatable", "reads a clock and declares no such thing"),
    _planted("reads_seconds", ReadsSeconds, "repeatable", "reads the times in the outcome"),
    _planted("on_object", OnObject, "no_state_across_runs", "keeps its state on the policy object"),
    _planted("on_class", OnClass, "no_state_across_runs", "keeps its state on the session's class"),
    _planted("never_freed", NeverFreed, "interrupted_runs", "is locked by a run that was given up"),
    _planted("keeps_first_rows", KeepsFirstRows, "row_fates", "gives rows the state of others"),
    _planted("batch_mean", BatchMean, "rows_independent", "shares what it learns between rows"),
    _planted("budget", Budget, "rows_independent row_fates", "depends on the number of rows"),
    _planted("any_row_stops", AnyRowStops, "rows_independent", "one row's stop ends all drafts"),
    _planted("divides", DividesByDrafted, "every_round_observed", "divides by the drafted tokens"),
    _planted(
        "first_rejected", ReadsFirstRejected, "every_round_observed",
        "reads a rejected token where there may be none",
    ),
    _planted("peeks_at_draw", PeeksAtDraw, "causal_stopping joint_law", "draws the token ahead"),
    _planted(
        "peeks_at_uniforms", PeeksAtUniforms, "causal_stopping joint_law",
        "reads the noise of the tokens to come",
    ),
    _planted(
        "peeks_at_acceptance", PeeksAtAcceptance, "causal_stopping joint_law",
        "reads the noise that will accept",
    ),
    _planted(
        "peeks_at_next", PeeksAtNext, "joint_law", "reads the noise of the round's own token",
    ),
    _planted("keeps_rounds", KeepsRounds, "memory_growth", "keeps every outcome"),
    _planted("lengthens", Lengthens, "memory_growth", "a tensor grows with the rounds"),
    _planted("keeps_contexts", KeepsContexts, "memory_growth", "keeps every batch that it served"),
)  # fmt: skip
