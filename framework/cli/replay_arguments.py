"""The arguments of ``foredraft replay``, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..checks import check_range, check_whole
from ..errors import ConfigError, near_match
from ..files import file_to_write
from ..traces.synthetic import PROCESSES, Process

LISTS = ("traces",)
MAKING = {
    "texts": int, "places": int, "gamma_max": int, "seed": int,
    "concentration": float, "insight": float, "greedy": bool,
}  # fmt: skip
SINGLE = ("synthetic", "policies", "c", "times", "gammas", "batch", "out", "save", "--config-dir")
KEYS = (*LISTS, "policy", *SINGLE, *MAKING)
OWN = {name: [f.name for f in fields(kind)] for name, kind in PROCESSES.items()}  # type: ignore[arg-type]
EVERY = tuple(dict.fromkeys([*KEYS, *(key for keys in OWN.values() for key in keys)]))


@dataclass
class Arguments:
    """What was asked for.

    Args:
        words: as typed.
        traces: files to read.
        process: of synthetic texts; None for files.
        making: arguments of ``synthetic_traces``.
        policies: the overrides of each policy.
        gammas: fixed ones, or None for all.
    """

    words: Sequence[str]
    traces: list[str] = field(default_factory=list)
    process: Process | None = None
    making: dict[str, Any] = field(default_factory=dict)
    policies: list[list[str]] = field(default_factory=list)
    gammas: list[int] | None = None
    c: float = 0.05
    times: str | None = None
    batch: int = 1
    out: str | None = None
    save: str | None = None
    config_dir: str | None = None


def parse(argv: Sequence[str]) -> Arguments:
    """Reads ``key=value`` words.

    Raises:
        ConfigError: an unknown key, a value of another kind, keys that do not go together.
    """
    single, traces, overrides = _words(argv)
    found = Arguments(list(argv), traces, out=single.get("out"), save=single.get("save"))
    found.config_dir = single.get("--config-dir")
    _texts(found, single)
    _policies(found, single, overrides)
    _costs(found, single)
    if "gammas" in single:
        found.gammas = [_whole("gammas", text, 256) for text in single["gammas"].split(",")]
    found.batch = _whole("batch", single.get("batch", "1"), 4096, 1)
    for key, path in (("out", found.out), ("save", found.save)):
        if path is not None:
            file_to_write(path, key)
    return found


def _words(argv: Sequence[str]) -> tuple[dict[str, str], list[str], list[str]]:
    single: dict[str, str] = {}
    traces: list[str] = []
    overrides: list[str] = []
    words = iter(argv)
    for word in words:
        key, equals, value = word.partition("=")
        if key == "--config-dir" and not equals:
            equals, value = "=", next(words, "")
        if not equals or key.split(".")[0] not in EVERY or ("." in key and key[:7] != "policy."):
            hint = near_match(key, EVERY)
            raise ConfigError(
                f"foredraft replay does not take {word!r}; {hint}see foredraft replay --help."
            )
        if not value or key in single:
            raise ConfigError(f"{key}= needs one value; it is given once.")
        if key == "traces":
            traces.append(value)
        elif key.split(".")[0] == "policy":
            overrides.append(word)
        else:
            single[key] = value
    return single, traces, overrides


def _texts(found: Arguments, single: dict[str, str]) -> None:
    name = single.get("synthetic")
    own = OWN.get(name or "", [])
    making = [key for key in single if key in MAKING or key == "save"]
    strange = [key for key in single if key not in (*KEYS, *own)]
    if bool(found.traces) == (name is not None):
        raise ConfigError(
            "foredraft replay needs traces=FILE or synthetic=PROCESS, one of the two."
        )
    if name is None and (making or strange):
        raise ConfigError(
            f"{[*making, *strange][0]}= goes with synthetic=PROCESS, not with traces=FILE."
        )
    if name is None:
        return
    if name not in PROCESSES:
        raise ConfigError(
            f"synthetic={name!r} is not possible; {near_match(name, PROCESSES)}it must be one of "
            f"{', '.join(PROCESSES)}."
        )
    if strange:
        raise ConfigError(f"{strange[0]}= is no key of synthetic={name}; it has {', '.join(own)}.")
    found.process = PROCESSES[name](**{key: _own(key, single[key]) for key in own if key in single})
    found.making = {
        key: _number(key, single[key], kind) for key, kind in MAKING.items() if key in single
    }


def _own(key: str, text: str) -> Any:
    """The value of a key of a process."""
    if key in ("alphas", "lengths"):
        kind = float if key == "alphas" else int
        return tuple(_number(key, part, kind) for part in text.split(","))
    return _number(key, text, int if key == "period" else float)


def _policies(found: Arguments, single: dict[str, str], overrides: list[str]) -> None:
    names = [word for word in overrides if word.startswith("policy=")]
    if "policies" in single:
        if overrides:
            raise ConfigError(
                f"{overrides[0]!r} does not go with policies=; one policy with values is policy=NAME."
            )
        found.policies = [[f"policy={name}"] for name in single["policies"].split(",")]
    elif overrides:
        if len(names) != 1:
            raise ConfigError("policy= needs one value; several policies are policies=A,B.")
        found.policies = [overrides]


def _costs(found: Arguments, single: dict[str, str]) -> None:
    if "c" in single and "times" in single:
        raise ConfigError("c= and times= do not go together; one says what steps cost.")
    found.times = single.get("times")
    found.c = _number("c", single.get("c", "0.05"), float)
    check_range("c", found.c, 0, 1e6)


def _whole(key: str, text: str, high: int, low: int = 0) -> int:
    value: int = _number(key, text, int)
    check_whole(key, value, low, high)
    return value


def _number(key: str, text: str, kind: type) -> Any:
    words = {"true": True, "false": False}
    if kind is bool and text.lower() in words:
        return words[text.lower()]
    try:
        if kind is not bool:
            return kind(text)
    except ValueError:
        pass
    name = {int: "a whole number", float: "a number", bool: "true or false"}[kind]
    raise ConfigError(f"{key}={text} is not possible; it must be {name}.")
