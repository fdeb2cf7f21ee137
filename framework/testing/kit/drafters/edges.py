"""Prompts and targets at the edge of what is possible."""

from __future__ import annotations

from collections.abc import Sequence

from ....errors import ConfigError, InputError
from ....requests import Request
from ....targets.table import TableTarget
from ..checks import NotApplicable, ascending, check, fail
from ..subject import Subject
from .lab import GREEDY, SAMPLED, Lab
from .targets import exact_targets, first_built
from .wellformed import malformed

SHORT = 28  # context of the kit's targets where a text reaches its end
LONGEST = 1024  # a longer context is not filled


@check(
    "drafter",
    "Prompts of one token work, alone and beside longer ones; an empty one never reaches a drafter.",
    "Users send them, and much code looks at the token before the newest.",
)
def tiny_prompts(subject: Subject) -> None:
    lab = Lab(subject)
    try:
        Request([])
    except InputError:
        pass
    else:
        fail("an empty prompt was accepted")

    def run(lengths: list[int], gamma: int) -> str | None:
        prompts = lab.prompts(*lengths)
        lab.run(prompts, gamma, 1, 6, SAMPLED, judge=lambda made: malformed(made, lab.target))
        return unlike_plain(lab, prompts, gamma, 8)

    ascending(
        [{"lengths": lengths, "gamma": gamma} for lengths in ([1], [1, 2, 6]) for gamma in (1, 4)],
        run,
    )


@check(
    "drafter",
    "A text can run to the end of the target's context, and beyond that of the drafter.",
    "A drafter whose own context is full has to stop drafting, not to stop the answer.",
)
def end_of_context(subject: Subject) -> None:
    lab = Lab(subject, context=SHORT)
    cases = [*_ends(lab.target.max_context), *_crossings(lab)]
    if not cases:
        raise NotApplicable(
            f"neither the target's context ({lab.target.max_context}) nor the drafter's is short enough "
            f"to be filled (at most {LONGEST})"
        )

    def run(lengths: list[int], tokens: int | None) -> str | None:
        prompts = lab.prompts(*lengths)
        return unlike_plain(lab, prompts, 4, tokens)

    ascending(cases, run)


def _ends(limit: int | None) -> list[dict[str, object]]:
    if limit is None or not 16 <= limit <= LONGEST:
        return []
    lengths = [[limit - 1], [limit - 3], [limit - 8], [limit - 3, limit - 12]]
    return [{"lengths": some, "tokens": None} for some in lengths]


def _crossings(lab: Lab) -> list[dict[str, object]]:
    own, whole = getattr(lab.drafter, "max_context", None), lab.target.max_context
    if type(own) is not int or not 8 <= own <= LONGEST or (whole is not None and whole < own + 16):
        return []
    return [
        {"lengths": lengths, "tokens": 10} for lengths in ([own - 4], [own + 3], [own - 6, own + 2])
    ]


@check(
    "drafter",
    "A target with another vocabulary is refused when the drafter is built, or drafted for rightly.",
    "Ids of another vocabulary mean other tokens, or none.",
)
def other_vocabulary(subject: Subject) -> None:
    tables = isinstance(Lab(subject).target, TableTarget)

    def run(vocab: int) -> str | None:
        try:
            targets = exact_targets(vocab, subject.seed, models=not tables)
            target, _ = first_built(subject, targets)
        except (ConfigError, InputError):
            return None
        lab = Lab(subject, target=target)
        prompts = lab.prompts(5, 8)
        lab.run(prompts, 3, 1, 8, SAMPLED, judge=lambda made: malformed(made, lab.target))
        return unlike_plain(lab, prompts, 3, 10)

    ascending([{"vocab": vocab} for vocab in (3, 13)], run)


def unlike_plain(
    lab: Lab,
    prompts: Sequence[Sequence[int]],
    gamma: int,
    tokens: int | None,
    stop_ids: Sequence[int] = (),
) -> str | None:
    """How greedy answers differ from plain decoding's, in words."""
    due = lab.plain(prompts, tokens, stop_ids)
    got = lab.run(prompts, gamma, None, tokens, GREEDY, stop_ids=stop_ids).ids
    for row, (ours, theirs) in enumerate(zip(got, due, strict=True)):
        if ours != theirs:
            return f"row {row} answered {ours}; plain decoding answers {theirs}"
    return None
