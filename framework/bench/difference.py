"""What a resumed sweep would change, in sentences: such a sweep is refused. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# What says where and how long a sweep runs, but not what it measures.
LIMITS = ("minutes", "limit_s", "on_error")
FREE = ("dir", "resume", *LIMITS)
COMPARED = ("kind", "baseline", "lossless")
# Memory differs a little from boot to boot.
MACHINE = ("cpu", "machine", "system", "cores", "usable_cores", "threads", "device")
_NONE = object()
_Change = tuple[str, Any, Any]


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One sentence for each thing that differs between two manifests, the weightiest first."""
    return [
        *_cells(then["cells"], now["cells"]),
        *_block("bench", _kept(then["options"]), _kept(now["options"])),
        *_block("task", then["task"], now["task"]),
        *_prompts(then, now),
        *_block("versions", then["versions"], now["versions"]),
        *_block("hardware", _machine(then["hardware"]), _machine(now["hardware"])),
    ]


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One sentence for each value that differs, by its dotted key."""
    return [_said(change) for change in _changes(then, now)]


def _cells(then: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    old, new = ({cell["id"]: cell for cell in cells} for cells in (then, now))
    yield from _listed("is no longer among the cells", [name for name in old if name not in new])
    yield from _listed("is new among the cells", [name for name in new if name not in old])
    both = [name for name in old if name in new]
    found: dict[str, tuple[_Change, list[str]]] = {}
    for name in both:
        for change in _changes(_compared(old[name]), _compared(new[name])):
            found.setdefault(json.dumps(change, default=str), (change, []))[1].append(name)
    for change, names in found.values():
        yield f"{_who(names, len(both))}: {_said(change)}"


def _who(names: Sequence[str], every: int) -> str:
    if len(names) == 1:
        return f"cell {names[0]}"
    return f"all {every} cells" if len(names) == every else f"{len(names)} cells ({names[0]}, ...)"


def _listed(what: str, names: Sequence[str]) -> Iterator[str]:
    for name in names[:5]:
        yield f"cell {name} {what}"
    if names[5:]:
        yield f"{len(names) - 5} more: each {what}"


def _prompts(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    old, new = then["prompts"], now["prompts"]
    if old["count"] != new["count"]:
        yield f"prompts: there were {old['count']}, there are {new['count']}"
    elif old["sha256"] != new["sha256"]:
        yield "prompts: they are as many as they were, but not the same"
    elif then["units"] != now["units"]:
        yield "units: the prompts are put together in other batches or another order"


def _block(name: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for key, was, now_is in _changes(then, now):
        yield _said((f"{name}.{key}", was, now_is))


def _changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[_Change]:
    old, new = _flat(then), _flat(now)
    for key in dict.fromkeys([*old, *new]):
        was, now_is = old.get(key, _NONE), new.get(key, _NONE)
        # As JSON, for 1 is not 1.0 here, and neither is it true.
        if json.dumps(was, default=str) != json.dumps(now_is, default=str):
            yield key, was, now_is


def _said(change: _Change) -> str:
    key, was, now_is = change
    if was is _NONE:
        return f"{key} was not there, is {_shown(now_is)}"
    if now_is is _NONE:
        return f"{key} was {_shown(was)}, is not there"
    return f"{key} was {_shown(was)}, is {_shown(now_is)}"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _flat(value: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            found |= _flat(item, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = item
    return found


def _compared(cell: Mapping[str, Any]) -> dict[str, Any]:
    """A cell's config by its own keys, and the rest by name."""
    rest = {key: cell.get(key) for key in COMPARED}
    return {**cell["config"], **rest}


def _kept(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in FREE}


def _machine(hardware: Mapping[str, Any]) -> dict[str, Any]:
    return {key: hardware[key] for key in MACHINE if key in hardware}
