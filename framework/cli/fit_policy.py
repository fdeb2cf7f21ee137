"""``foredraft fit policy=specdecpp``: trains a policy's head from dense traces."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checks import check_range
from ..errors import ConfigError, near_match
from ..files import file_to_write
from .display import console

if TYPE_CHECKING:
    from ..policies.specdecpp_head import Head
    from ..traces import DenseTrace

POLICY = "specdecpp"
KEYS = ("policy", "traces", "out", "hidden", "reject_weight", "seed")


@dataclass(frozen=True)
class Asked:
    """A command line, taken apart."""

    traces: list[str]
    out: str
    hidden: int = 8
    reject_weight: float = 1.0
    seed: int = 0


def fit_policy(argv: Sequence[str]) -> int:
    """Runs the command."""
    asked = _parse(argv)

    from ..policies.specdecpp_fit import examples_of, train
    from ..traces import read_traces

    traces = [trace for path in asked.traces for trace in read_traces(path)]
    examples = examples_of(traces)
    head = train(examples, asked.hidden, asked.reject_weight, asked.seed)
    head = replace(head, about={**head.about, "traces": _described(traces)})
    head.save(asked.out)
    _report(head, asked, len(traces))
    return 0


def _parse(argv: Sequence[str]) -> Asked:
    traces: list[str] = []
    single: dict[str, str] = {}
    for word in argv:
        key, equals, value = word.partition("=")
        if not equals or key not in KEYS:
            raise ConfigError(
                f"foredraft fit policy={POLICY} does not take {word!r}; {near_match(key, KEYS)}it takes "
                f"{'=, '.join(KEYS)}=."
            )
        if not value or key in single:
            raise ConfigError(f"{key}= needs one value; it is given once.")
        if key == "traces":
            traces.append(value)
        else:
            single[key] = value
    return _checked(traces, single)


def _checked(traces: list[str], single: dict[str, str]) -> Asked:
    if single.get("policy") != POLICY:
        raise ConfigError(
            f"policy={single.get('policy')} has nothing to be trained; the one that has is {POLICY}."
        )
    if not traces or "out" not in single:
        raise ConfigError(f"foredraft fit policy={POLICY} needs traces=FILE and out=FILE.")
    out = file_to_write(single["out"])
    weight = _number("reject_weight", single.get("reject_weight", "1"))
    check_range("reject_weight", weight, 0.01, 100)
    hidden, seed = _whole("hidden", single, 8, 256), _whole("seed", single, 0, 2**31)
    return Asked(traces, str(out), hidden, weight, seed)


def _whole(key: str, single: dict[str, str], default: int, most: int) -> int:
    text = single.get(key, str(default))
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > most:
        raise ConfigError(
            f"{key}={text} is not possible; it must be a whole number from 0 to {most}."
        )
    return int(text)


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{key}={text!r} is not possible; it must be a number.") from None


def _described(traces: Sequence[DenseTrace]) -> list[dict[str, Any]]:
    """Where the head comes from: each kind of trace once."""
    kinds = [
        {key: str(trace.about[key]) for key in ("target", "drafter") if key in trace.about}
        for trace in traces
    ]
    return [kind for number, kind in enumerate(kinds) if kind not in kinds[:number]]


def _report(head: Head, asked: Asked, count: int) -> None:
    about = head.about
    kind = "on positions it was not trained on" if about["held_out"] else "on its own positions"
    print(
        f"{about['examples']:,} reached tokens of {count:,} traces, {about['accepted']:.2f} accepted"
    )
    print(
        f"log-loss {about['log_loss']:.4f} {kind}; of the best constant {about['constant_log_loss']:.4f}"
    )
    console().print(
        f"{asked.out}: {Path(asked.out).stat().st_size / 1024:,.0f} KiB", soft_wrap=True
    )
    path = asked.out
    if not re.fullmatch(r"[\w./-]+", path):
        path = "'" + re.sub(r"(['\\])", r"\\\1", path) + "'"
    drafters = {str(kind["drafter"]) for kind in about["traces"] if "drafter" in kind}
    drafter = drafters.pop() if len(drafters) == 1 else "..."
    use = [f"drafter={drafter}", f"policy={POLICY}", f"policy.path={path}"]
    print(f"use it: foredraft generate {shlex.join(use)} prompt=...")
