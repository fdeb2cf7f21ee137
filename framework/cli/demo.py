"""``foredraft demo``: models that come along, alone and with drafters, measured side by side."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..errors import ConfigError
from .demo_shows import Prompts, Show, Sides, shows
from .options import OneLineParser

if TYPE_CHECKING:
    from ..engine import Engine

# Heading: key of a row, digits shown.
COLUMNS = {
    "tau": ("tau", 2),
    "accept": ("accept_rate", 2),
    "alpha": ("alpha", 2),
    "c": ("c", 2),
    "tok/s": ("tokens_per_second", 1),
    "x plain": ("x_plain", 2),
    "x generate": ("x_generate", 2),
    "MiB": ("memory_mib", 0),
}


def demo(argv: list[str]) -> int:
    """Runs the demo; returns the exit code."""
    options = _parser().parse_args(argv)
    console = Console(stderr=options.json, width=None if sys.stdout.isatty() else 100)
    from transformers.utils import logging

    logging.set_verbosity_error()
    if options.tokens < 2:
        raise ConfigError(
            f"--tokens {options.tokens} is not possible; it must be a whole number from 2."
        )
    rows: list[dict[str, Any]] = []
    for show in shows(options.overrides):
        rows += [{"target": show.target[0], **row} for row in _shown(show, options, console)]
    if options.json:
        print(json.dumps(rows, indent=1))
    return 0


def _shown(show: Show, options: Any, console: Console) -> list[dict[str, Any]]:
    """One target: measured, and unless JSON is wanted shown."""
    from ..api import load
    from ..targets.causal_lm import CausalLM

    reference = load("drafter=none", *show.target)
    if not isinstance(reference.parts.target, CausalLM):
        raise ConfigError(
            f"{show.target[0]} is not possible; the demo needs a transformers target."
        )
    plain = load("drafter=none", "policy.gamma=0", *show.target, "target.kernels=tuned")
    prompts = show.read()
    ids = [plain.request(entry["prompt"]).prompt for entry in prompts]
    with tempfile.TemporaryDirectory() as folder:
        results = _measure(
            plain,
            reference.parts.target.model,
            show.sides,
            ids,
            options.tokens,
            Path(folder),
            console,
        )
    rows: list[dict[str, Any]] = results["rows"]
    if not options.json:
        console.print(_table(show.title, rows))
        _figure(plain, prompts, show.traced, results, console)
    return rows


def _parser() -> OneLineParser:
    parser = OneLineParser("demo", __doc__ or "")
    parser.add_argument("--tokens", type=int, default=40, help="new tokens per prompt (default 40)")
    parser.add_argument(
        "overrides", nargs="*", help="another target: target=causal_lm target.model=DIR"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the rows as JSON and nothing else"
    )
    return parser


def _measure(
    plain: Engine, model: Any, chosen: Sides, ids: list[list[int]], tokens: int, folder: Path,
    console: Console,
) -> dict[str, Any]:  # fmt: skip
    """Runs every side over every prompt, plain decoding first and last, and makes the rows."""
    from ..bench.measure import run_engine, run_generate
    from ..bench.rows import row

    total = len(chosen) + 3
    with _progress(console) as progress:
        task = progress.add_task("", total=total)

        def step(name: str) -> None:
            progress.update(task, description=name, advance=1)

        step("plain loop")
        run_engine(plain, ids[:1], max_new_tokens=2)  # warms the caches of the machine
        first = run_engine(plain, ids, max_new_tokens=tokens)
        step("transformers' generate")
        generate = run_generate(model, ids, tokens)
        samples = {}
        engines = {}
        for name, overrides in chosen.items():
            step(name)
            engines[name] = _engine(plain, overrides, folder)
            samples[name] = run_engine(engines[name], ids, max_new_tokens=tokens)
        step("plain loop again")
        again = run_engine(plain, ids, max_new_tokens=tokens)
    best = min(first, again, key=lambda sample: sample.seconds)
    sides = {"plain loop": (plain, best), "generate": (None, generate)}
    sides |= {name: (engines[name], samples[name]) for name in chosen}
    rows = [
        row(n, engine, sample, best, generate, ids, model) for n, (engine, sample) in sides.items()
    ]
    return {"rows": rows, "samples": samples}


def _engine(plain: Engine, overrides: tuple[str, ...], folder: Path) -> Engine:
    """The same target with another drafter."""
    from ..api import load
    from ..bench.small import save_first_layers

    target: Any = plain.parts.target
    depth = int(target.model.config.num_hidden_layers)
    if any("{small}" in text for text in overrides):
        save_first_layers(target, max(1, depth * 2 // 3), folder)
    values = {"small": folder, "exit": max(1, depth * 4 // 5)}
    return load(*(text.format(**values) for text in overrides), target=target)


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:<24}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, caption=_caption(), box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("side", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("output")
    for row in rows:
        cells = [COLUMNS[heading] for heading in COLUMNS]
        shown = ["-" if row[key] is None else f"{row[key]:.{digits}f}" for key, digits in cells]
        style = "bold" if row["side"] == "plain loop" else None
        table.add_row(row["side"], *shown, row["output"], style=style)
    return table


def _caption() -> str:
    return (
        "tau: tokens per round. accept: accepted over judged drafts. alpha: mean overlap of\n"
        "draft and target law. c: draft step over target step. x: decoding speed, prefill apart.\n"
        "MiB: weights and caches beyond the target's own. output: against the plain loop's ids."
    )


def _figure(
    plain: Engine, prompts: Prompts, side: str, results: dict[str, Any], console: Console
) -> None:
    """The last prompt's answer as the paper's Figure 1."""
    from ..bench.trace import legend, trace

    rounds = results["samples"][side].rounds
    last = [r for r in rounds if r.rows[0].request == len(prompts) - 1]
    console.print(f"\n[bold]{prompts[-1]['kind']}[/bold], drafted by {side}, one line per round:")
    console.print(trace(last, plain.tokenizer))
    console.print(legend())
