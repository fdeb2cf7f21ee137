"""``foredraft plugins``: everything that can be chosen by name, and what could not be loaded."""

from __future__ import annotations

import json
from typing import Any

from ..plugins import registry
from ..plugins.registry import KINDS, Broken, Offer
from ..specs import DrafterSpec
from .display import console, one_line
from .options import OneLineParser

FLAGS = {True: "yes", False: "no", None: ""}


def plugins(argv: list[str]) -> int:
    """Runs the command. A broken plugin is a row here, not a failure."""
    parser = OneLineParser("plugins", "List every part that can be chosen by name.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    if parser.parse_args(argv).json:
        parts = [_offer(offer) for offer in registry().offers()]
        broken = [_broken(fault) for fault in registry().broken()]
        print(json.dumps({"parts": parts, "broken": broken}, indent=2))
    else:
        _show()
    return 0


def _offer(offer: Offer) -> dict[str, Any]:
    return {
        "kind": offer.kind,
        "name": offer.name,
        "distribution": offer.distribution,
        "version": offer.version,
        "plugin": offer.source.plugin,
        "summary": offer.summary,
        "lossless": offer.lossless,
        "deterministic": _deterministic(offer),
        "fault": offer.fault or None,
    }


def _broken(fault: Broken) -> dict[str, str]:
    source = fault.source
    return {
        "plugin": source.plugin,
        "distribution": source.distribution,
        "version": source.version,
        "cause": one_line(fault.cause),
    }


def _deterministic(offer: Offer) -> bool | None:
    return offer.spec.deterministic if isinstance(offer.spec, DrafterSpec) else None


def _show() -> None:
    from rich import box
    from rich.table import Table

    out = console()
    for kind in KINDS:
        flag = {"drafter": "deterministic", "verifier": "lossless"}.get(kind)
        columns = [kind, "from", *([flag] if flag else []), "what it is"]
        table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
        for offer in registry().offers(kind):
            flags = [FLAGS[_deterministic(offer) if kind == "drafter" else offer.lossless]]
            what = one_line(offer.fault or offer.summary)
            table.add_row(offer.name, str(offer.source), *(flags if flag else []), what)
        out.print(table)
    for fault in registry().broken():
        out.print(f"broken: {one_line(str(fault))}", soft_wrap=True)
