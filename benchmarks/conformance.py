"""The conformance kit itself: does it catch what is broken, and leave alone what is not?

    python benchmarks/conformance.py table [--only NAME ...] [--missing]
    python benchmarks/conformance.py page
    python benchmarks/conformance.py false-alarms [--seeds 20] [--variants 5] [--only NAME ...]

``table`` runs every planted drafter, verifier and policy of ``tests/`` against all checks of its
kind, and ends with an error if one is not caught by the check that is named for it; it then
writes the generated parts of ``docs/conformance.md``, as ``page`` does from the last results.
``false-alarms`` runs all checks on every part that is installed, the two examples among them if they
are, once for each seed (``--variants`` for configs other than the default); none may fail. With
``--only``, what is known of the other parts is kept.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from common import HERE, save

sys.path.insert(0, str(HERE.parent / "tests"))

from all_planted import PLANTED as BY_KIND
from planted import Planted

from foredraft.framework.plugins import registry
from foredraft.framework.testing.kit import Report, checks_of, run_checks, subject_of
from foredraft.framework.testing.tiny import tiny_model

KINDS = ("drafter", "verifier", "policy")
PLANTED = [planted for kind in KINDS for planted in BY_KIND[kind]]
RESULTS, PAGE = HERE / "results" / "conformance-faults.json", HERE.parent / "docs/conformance.md"
ALARMS = HERE / "results" / "conformance-false-alarms.json"
SHOWN = 4  # names of checks in a row of the table; a crash fails nearly all of them
# Built-in parts that change what they are with their config are tried with these values, too.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "prompt_lookup": [{"branches": 3}],
    "token_recycling": [{"successors": 1}],
    "jacobi": [{"pool": 1}],
    "ngram": [
        {"widths": [2, 2]},
        {"widths": [2, 1], "children": "independent"},
        {"nodes": 6, "children": "deterministic"},
    ],
    "causal_lm": [{"widths": [2, 2]}, {"nodes": 6}],
    "retrieval": [{"branches": 3, "nodes": 6}],
}
EXAMPLES = HERE.parent / "examples"
ELSEWHERE = "medusa", "eagle", "layer_skip", "oracle"
"""Drafters with weights for one target, which their tests make; and a policy that no live run has."""


# --- planted faults ---------------------------------------------------------------------------


def faults(only: Sequence[str], missing: bool) -> None:
    """Runs the planted parts, or those named or not yet run, and rewrites the page.

    What was found is kept if the run is broken off.
    """
    found = {key(p): known()[key(p)] for p in PLANTED if key(p) in known()}
    missed = []
    chosen = [
        p for p in PLANTED if (not only or p.name in only) and not (missing and key(p) in found)
    ]
    try:
        for planted in chosen:
            report = run_checks(planted.subject())
            found[key(planted)] = failed = [outcome.check.name for outcome in report.failed]
            missed += [] if planted.caught_by[0] in failed else [key(planted)]
            say(seconds(report), f"{key(planted)}: {', '.join(failed)}")
    finally:
        save(RESULTS.stem, {"failed checks": dict(sorted(found.items()))})
        page()
    if missed:
        sys.exit(f"not caught by the check that is named for it: {', '.join(missed)}")


def known() -> dict[str, list[str]]:
    """The failed checks of each planted part, from the last run."""
    found: dict[str, list[str]] = {}
    if RESULTS.exists():
        found = json.loads(RESULTS.read_text("utf-8"))["failed checks"]
    return found


def key(planted: Planted) -> str:
    """Its kind and name: names are of one kind only."""
    return f"{planted.kind}/{planted.name}"


# --- the page ---------------------------------------------------------------------------------


def page() -> None:
    """Writes what is generated between the markers of the page."""
    text = PAGE.read_text("utf-8")
    for kind in KINDS:
        text = between(text, f"checks of a {kind}", list_of_checks(kind))
        text = between(text, f"planted in a {kind}", table_of_faults(kind))
    PAGE.write_text(text, "utf-8")


def between(text: str, marker: str, content: str) -> str:
    """``text`` with ``content`` between the two comments that name ``marker``."""
    pattern = rf"(<!-- begin: {marker} -->\n).*?(<!-- end: {marker} -->)"
    new, count = re.subn(pattern, lambda m: f"{m[1]}\n{content}\n{m[2]}", text, flags=re.DOTALL)
    if count != 1:
        sys.exit(f"{PAGE.name} has {count} places for {marker!r}; one is due.")
    return new


def list_of_checks(kind: str) -> str:
    """A list, because a table's lines cannot be broken."""
    lines = []
    for one in checks_of(kind):
        device = " (needs a CUDA device)" if one.gpu else ""
        lines += [f"- **`{one.name}`**{device}: {one.meaning}", f"  *Why:* {one.why}"]
    wrap = textwrap.TextWrapper(110, subsequent_indent="  ", break_long_words=False)
    wrap.break_on_hyphens = False
    return "\n".join(wrap.fill(line) if line[0] == "-" else indented(line) for line in lines) + "\n"


def indented(line: str) -> str:
    """A wrapped second line of a list's entry."""
    return textwrap.indent(textwrap.fill(line.strip(), 108, break_on_hyphens=False), "  ")


def table_of_faults(kind: str) -> str:
    """Faults and the checks that failed: first the one that has to."""
    results, rows = known(), ["| planted | fault | caught by |", "|---|---|---|"]
    for planted in BY_KIND[kind]:
        caught = by(planted, results.get(key(planted), list(planted.caught_by)))
        rows.append(f"| `{planted.name}` | {planted.what} | {caught} |")
    return "\n".join(rows) + "\n"


def by(planted: Planted, failed: Sequence[str]) -> str:
    """The names, the first one first, and how many more."""
    others = [name for name in failed if name != planted.caught_by[0]]
    expected = [name for name in others if name in planted.caught_by]
    names = [planted.caught_by[0], *expected, *(n for n in others if n not in expected)]
    more = f", {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"`{name}`" for name in names[:SHOWN]) + more


# --- false alarms -----------------------------------------------------------------------------


def false_alarms(seeds: int, variants: int, only: Sequence[str]) -> None:
    """Runs every part over the seeds, and ends with an error if a check has failed."""
    alarms: dict[str, list[str]] = {}
    parts: dict[str, list[float]] = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for label, report in reports(Path(folder), seeds, variants, only):
                found, seed = alarms.setdefault(label, []), report.subject.seed
                found += [f"seed {seed}: {o.check.name}: {o.detail}" for o in report.failed]
                parts.setdefault(label, []).append(seconds(report))
                say(seconds(report), f"{label}, seed {seed}; false alarms so far: {len(found)}")
    finally:
        figures = {
            name: {
                "seeds": len(each),
                "false alarms": alarms[name],
                "seconds": round(sum(each) / len(each), 2),
                "most": round(max(each), 2),
            }
            for name, each in parts.items()
        }
        before = json.loads(ALARMS.read_text("utf-8"))["parts"] if only and ALARMS.exists() else {}
        save(ALARMS.stem, {"parts": dict(sorted({**before, **figures}.items()))})
    if any(alarms.values()):
        sys.exit(f"{sum(map(len, alarms.values()))} false alarms")


def reports(
    folder: Path, seeds: int, variants: int, only: Sequence[str]
) -> Iterator[tuple[str, Report]]:
    """All checks of every part and seed."""
    for kind, name, values in shipped(folder):
        label = f"{kind} {name} {values or ''}"
        label = label.replace(str(folder), "tiny").replace(str(EXAMPLES), "examples").strip()
        varied = any(extra.items() <= values.items() for extra in VARIANTS.get(name, ()))
        for seed in range(variants if varied else seeds) if not only or name in only else ():
            yield label, run_checks(subject_of(kind, name, values, seed))


def seconds(report: Report) -> float:
    """How long all its checks took."""
    return sum(outcome.seconds for outcome in report.outcomes)


def say(spent: float, text: str) -> None:
    """A line of progress."""
    print(f"{spent:6.1f} s  {text}", file=sys.stderr, flush=True)


def shipped(folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every part that is installed, with its defaults and its variants, but for ``ELSEWHERE``."""
    needs: dict[str, dict[str, Any]] = {
        "causal_lm": {"model": tiny_lm(folder)},
        "cascade": {"model": tiny_lm(folder)},
        "retrieval": {"path": str(EXAMPLES / "foredraft-retrieval/tests/data"), "min_match": 1},
    }
    for kind in KINDS:
        for offer in registry().offers(kind):
            if offer.name in ELSEWHERE:
                continue
            for values in ({}, *VARIANTS.get(offer.name, ())):
                yield kind, offer.name, {**needs.get(offer.name, {}), **values}


def tiny_lm(folder: Path) -> str:
    """A folder with a random model of the size of the kit's targets, for ``causal_lm``."""
    path = folder / "model"
    if not path.exists():
        tiny_model("llama", vocab=8, layers=1, seed=7).save_pretrained(path)
    return str(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("page")
    table = commands.add_parser("table")
    table.add_argument("--only", nargs="+", default=[])
    table.add_argument("--missing", action="store_true", help="those that have no result yet")
    alarms = commands.add_parser("false-alarms")
    alarms.add_argument("--seeds", type=int, default=20)
    alarms.add_argument("--variants", type=int, default=5)
    alarms.add_argument("--only", nargs="+", default=[])
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.command == "page":
        page()
    elif given.command == "table":
        faults(given.only, given.missing)
    else:
        false_alarms(given.seeds, given.variants, given.only)


if __name__ == "__main__":
    main()
