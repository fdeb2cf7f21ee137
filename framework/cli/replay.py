"""``foredraft replay``: gamma policies over dense traces, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write_json
from .replay_arguments import Arguments, parse

if TYPE_CHECKING:
    from rich.table import Table

    from ..replaying import Comparison
    from ..times.steps import StepTimes
    from ..traces import DenseTrace

HELP = """\
usage: foredraft replay traces=FILE... | synthetic=PROCESS   policy=NAME | policies=A,B,...
                        [c=.05 | times=FILE] [gammas=0,1,2,4,8] [out=FILE.json]

Runs draft-length policies over texts whose every draft is known, beside every fixed gamma and
beside the oracle, which drafts exactly up to the first rejection. No model is loaded.

  traces=FILE     dense traces that were recorded; may be repeated
  synthetic=NAME  texts made up: iid (alpha=.7), drifting (low=.3 high=.9 period=2000) or
                  two_state (alphas=.9,.3 lengths=400,400, in tokens); also texts=50 places=2000
                  gamma_max=16 seed=0 concentration=4 insight=.7 greedy=true
  save=FILE       keep the synthetic texts, for traces=FILE
  policy=NAME     a policy, with policy.KEY=VALUE as for foredraft generate
  policies=A,B    several, each with its defaults
  c=N             seconds to draft a token, when a target step takes 1 (default .05)
  times=FILE      measured step times in its place
  gammas=LIST     the fixed gammas beside it (default: all that the traces hold)
  batch=N         texts that decode together and share each round's time (default 1)
  out=FILE        all figures as JSON
  --config-dir DIR  a folder with presets of your own"""

# Heading: key of a row, digits shown.
COLUMNS = {
    "x plain": ("x_plain", 3),
    "x best fixed": ("x_best", 3),
    "tau": ("tau", 2),
    "gamma": ("mean_gamma", 2),
    "accept": ("accept_rate", 3),
    "waste": ("waste", 2),
    "regret": ("regret", 3),
    "of oracle's gain": ("oracle_share", 2),
    "of informed's": ("informed_share", 2),
}


def replay(argv: list[str]) -> int:
    """Runs the command."""
    if "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    arguments = parse(argv)
    found = _compare(arguments, _traces(arguments))
    _print(found)
    if arguments.out:
        _save(arguments, found)
    return 0


def _traces(arguments: Arguments) -> list[DenseTrace]:
    from ..traces import read_traces, write_traces
    from ..traces.synthetic import synthetic_traces

    if arguments.process is None:
        return [trace for path in arguments.traces for trace in read_traces(path)]
    traces = synthetic_traces(arguments.process, **arguments.making)
    if arguments.save:
        write_traces(arguments.save, traces)
    return traces


def _compare(arguments: Arguments, traces: list[DenseTrace]) -> Comparison:
    from ..config import compose, to_objects
    from ..replaying import compare
    from ..replaying.choices import from_part

    chosen = [
        from_part(to_objects(compose(overrides, arguments.config_dir)).policy, arguments.batch)
        for overrides in arguments.policies
    ]
    return compare(traces, chosen, _times(arguments), arguments.gammas, arguments.batch)


def _times(arguments: Arguments) -> StepTimes:
    from ..times.steps import Constant

    if arguments.times is None:
        return Constant(arguments.c)
    from ..times.table import TimeTable

    return TimeTable.load(arguments.times)


def _print(found: Comparison) -> None:
    from .display import console, note

    console().print(_table(found))
    for one in found.policies:
        if one.capped:
            note(
                f"foredraft: {one.policy} asked for more tokens than the traces hold in {one.capped:,} of "
                f"{one.rounds.sum():,} rounds."
            )


def _table(found: Comparison) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    texts = len(found.plain.tokens)
    title = f"{texts:,} texts of {found.plain.tokens.sum():,} tokens, batch {found.batch}"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    rows = found.rows()
    # Figures are short; where there is no room, their headings wrap, and names stay whole.
    table.add_column("policy", no_wrap=True, min_width=max(len(row["policy"]) for row in rows))
    shown = {h: c for h, c in COLUMNS.items() if any(row[c[0]] is not None for row in rows)}
    for heading in shown:
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [_cell(row[key], digits) for key, digits in shown.values()]
        best = row["policy"] == f"fixed {found.best_gamma}"
        table.add_row(row["policy"], *cells, style="bold" if best else None)
    return table


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _save(arguments: Arguments, found: Comparison) -> None:
    path = Path(str(arguments.out)).expanduser()
    record: dict[str, Any] = {
        "arguments": list(arguments.words),
        "best_gamma": found.best_gamma,
        "rows": found.rows(),
    }
    write_json(path, record, "out=")


__all__: Sequence[str] = ("replay",)
