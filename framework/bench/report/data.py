"""What a report shows: plain values, and nothing that has to be computed from a model or a run folder.

All text here may come from a prompt, a model or a plugin: it is data, and whoever shows it escapes it.
A number that is not known is None; one that is not finite is shown as if it were not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Choice = str | int | float | bool | None


@dataclass(frozen=True)
class Interval:
    """An estimate, and the interval around it if there is one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Stretch:
    """A stretch of answers.

    Args:
        first, last: its tokens, from 1, both inside.
        rate: the share of drafted tokens accepted, of rounds that began there.
    """

    first: int
    last: int
    rate: Interval

    @property
    def middle(self) -> float:
        """How many tokens of the answer stand before the middle of it."""
        return (self.first - 1 + self.last) / 2


@dataclass(frozen=True)
class Factor:
    """One thing that keeps a setting from being faster.

    Args:
        name: ``acceptance``, ``draft cost``, ``width cost``, ``overhead``, ``batch``.
        value: the figure, in words: ``alpha 0.61``, ``c 0.05``, ``11 % of a round``.
        ideal: the speed-up that the setting would have if this alone were ideal.
    """

    name: str
    value: str
    ideal: float | None = None


@dataclass(frozen=True)
class Why:
    """Why a setting is not faster.

    Args:
        sentence: the largest cause, in one sentence.
        factors: every cause, in one order for all settings.
        try_first: the setting to try first, in words or as the words of a command.
    """

    sentence: str
    factors: Sequence[Factor] = ()
    try_first: str = ""


@dataclass(frozen=True)
class Cell:
    """One measured setting, or a baseline.

    Args:
        id: unique in its page.
        choices: what varies over the run, by config key, in the order given.
        kind: ``engine`` for a setting; a baseline is ``plain``, ``again``, ``generate``, ``generate_lookup`` or
            ``generate_assisted``.
        drafter: its name; the figures draw one line for each.
        gamma: how many tokens it drafts per round; None if that varies.
        status: ``ok``, ``failed`` or ``missing``: there is no run of it yet.
        cause: why it failed, in one sentence.
        units: how many pairs of runs are behind its intervals.
        tokens: how many tokens it emitted while it was timed.
        speedup: the reported one: against the fastest plain decoding of the same run, geometric mean
            over the pairs. 1.0 and above is faster.
        totals: the same as the ratio of total times.
        against_loop: against this project's own plain loop.
        groups: the same as ``speedup`` for each group of prompts, each interval on its own.
        tau: tokens emitted per round.
        alpha: share of drafted tokens accepted among those that were tried.
        by_position: that share at the first, second, ... drafted token of a round, if it was reached.
        c: seconds of a draft step over seconds of a target step.
        predicted: the speed-up of Theorem 3.8 (arXiv:2211.17192) with this ``alpha`` and ``c``.
        predicted_timed: the same with the measured time of each step in place of ``c``.
        phases: seconds per emitted token by phase, in the order to draw them.
        course: that share over the course of an answer.
        verdict: is the output that of plain decoding? A word or two: ``identical``, ``lossy``.
        verdict_ok: True if that was shown, False if it was refuted, None if nothing was shown.
        verdict_note: how it was found out, or the first difference.
        lossy: the verifier does not promise the target's output.
        contended: other processes took part of the machine, so its times say little.
        noise: of plain decoding, itself measured against itself: speed-ups inside it mean nothing.
        why: why it is not faster.
    """

    id: str
    choices: Mapping[str, Choice] = field(default_factory=dict)
    kind: str = "engine"
    drafter: str = ""
    gamma: float | None = None
    status: str = "ok"
    cause: str = ""
    units: int = 0
    tokens: int = 0
    speedup: Interval | None = None
    totals: Interval | None = None
    against_loop: Interval | None = None
    groups: Mapping[str, Interval] = field(default_factory=dict)
    tau: Interval | None = None
    alpha: Interval | None = None
    by_position: Sequence[float] = ()
    c: float | None = None
    predicted: float | None = None
    predicted_timed: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    course: Sequence[Stretch] = ()
    verdict: str = ""
    verdict_ok: bool | None = None
    verdict_note: str = ""
    lossy: bool = False
    contended: bool = False
    noise: Interval | None = None
    why: Why | None = None


@dataclass(frozen=True)
class Token:
    """A token's text, and what is known of how it came to be there.

    Args:
        draft_prob: its probability for the drafter.
        accept_prob: the chance with which it was accepted.
        target_prob: its probability for the target.
    """

    text: str
    draft_prob: float | None = None
    accept_prob: float | None = None
    target_prob: float | None = None


@dataclass(frozen=True)
class Round:
    """One round of an answer.

    Args:
        accepted: drafted tokens that stand.
        rejected: drafted tokens that were tried and do not stand; in a chain, one at most.
        own: the target's own tokens: the correction after a rejection, else the one more it adds.
    """

    accepted: Sequence[Token] = ()
    rejected: Sequence[Token] = ()
    own: Sequence[Token] = ()


@dataclass(frozen=True)
class Answer:
    """A prompt and how a setting answered it, round by round."""

    cell: str
    group: str
    prompt: str
    rounds: Sequence[Round] = ()


@dataclass(frozen=True)
class About:
    """Where the figures come from. ``facts`` are further lines by name: task, repeats, limits, seed."""

    command: str = ""
    date: str = ""
    commit: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """One run.

    Args:
        title: what the run is called; the name of its folder, for example.
        groups: the groups of prompts, in the order to show them.
        intervals: what the intervals over all prompts are, for captions.
        headline: the result in one sentence; empty lets the report write it.
        notes: sentences that belong beside the result: what was stopped early, what was contended.
    """

    title: str
    cells: Sequence[Cell] = ()
    groups: Sequence[str] = ()
    about: About = field(default_factory=About)
    answers: Sequence[Answer] = ()
    intervals: str = "95 % intervals that hold for all settings together"
    headline: str = ""
    notes: Sequence[str] = ()
