"""Which installed distributions have an entry point of group ``foredraft``. Loads none of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from importlib import metadata

from .registry import Broken, Source

GROUP = "foredraft"
ONLY = "FOREDRAFT_PLUGINS"
BLOCK = "FOREDRAFT_BLOCK_PLUGINS"


def installed() -> Iterator[tuple[Source, Callable[[], object]] | Broken]:
    """Every entry point with what loads it, or why it is left out, in a fixed order.

    ``FOREDRAFT_PLUGINS`` names the only ones to load, ``FOREDRAFT_BLOCK_PLUGINS`` those to leave
    out, both as a comma list of distributions or entry points.
    """
    only, blocked = _listed(ONLY), _listed(BLOCK) or set()
    seen: set[str] = set()
    for source, point in sorted(_points(), key=lambda found: str(found[0].plugin)):
        names = {_normal(source.plugin), _normal(source.distribution)}
        seen |= names
        if names & blocked:
            yield Broken(source, f"it is named in {BLOCK}.")
        elif isinstance(point, Exception):
            yield Broken(source, f"its entry points cannot be read: {point}.")
        elif only is None or names & only:
            yield source, point.load
    for variable, names in ((ONLY, only or set()), (BLOCK, blocked)):
        for name in sorted(names - seen):
            yield Broken(Source(name, name, "?"), f"{variable} names it and it is not installed.")


def _points() -> Iterator[tuple[Source, metadata.EntryPoint | Exception]]:
    # metadata.entry_points() is not used: one unreadable file in any package would end it.
    seen: set[str] = set()
    for dist in metadata.distributions():
        try:
            if f"[{GROUP}]" not in (dist.read_text("entry_points.txt") or ""):
                continue
            name, version = dist.metadata["Name"] or "?", dist.metadata["Version"] or "?"
        except Exception:  # another package's damaged files are not ours to report
            continue
        if _normal(name) in seen:
            continue
        seen.add(_normal(name))  # the first on the path is the one that imports
        try:
            points = list(dist.entry_points.select(group=GROUP))
        except Exception as error:
            yield Source(name, name, version), error
            continue
        for point in points:
            yield Source(point.name, name, version, point.value.partition(":")[0].strip()), point


def _listed(variable: str) -> set[str] | None:
    value = os.environ.get(variable)
    return None if value is None else {_normal(n) for n in value.split(",") if n.strip()}


def _normal(name: str) -> str:
    """Distribution names compare as in PEP 503."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
