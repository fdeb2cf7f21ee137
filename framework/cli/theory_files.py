"""Runs as ``foredraft generate`` leaves them: answers as JSON lines, or a trace of records."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import ForedraftError, InputError
from ..metrics import Metrics, total
from ..plugins import registry
from ..records import RowOutcome
from ..specs import DrafterSpec
from .prompts import read_text

PARTS = ("target", "drafter", "verifier", "policy")


@dataclass
class Run:
    """What a run left.

    Args:
        parts: names of target, drafter, verifier and policy.
        config: everything that its answers depend on; empty where that is not known.
        metrics: of all its rounds.
        lengths: how many rounds drafted how many tokens; reckoned from the sums for answers,
            which have no rounds.
        answers: how many ended.
        idle: seconds of the target's steps in rounds that drafted nothing.
    """

    parts: dict[str, str]
    config: dict[str, Any]
    metrics: Metrics = field(default_factory=Metrics)
    lengths: Counter[int] = field(default_factory=Counter)
    answers: int = 0
    idle: list[float] = field(default_factory=list)


def read_runs(key: str, path: str) -> list[Run]:
    """The runs of a file, in the order they began.

    Raises:
        InputError: it cannot be read, is neither of the two, or a run drafted trees.
    """
    found: dict[str, Run] = {}
    done: dict[str, list[Metrics]] = {}
    for number, value in _objects(key, path):
        try:
            name = _take(value, found, done)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise _foreign(key, path, number) from None
        if _drafts_trees(found[name]):
            raise InputError(f"line {number} of {key}={path} is of a run that drafts trees; the "
                             "formulas are of chains.")  # fmt: skip
    runs = [_whole(run, done.get(name, [])) for name, run in found.items()]
    if not any(run.metrics.rounds for run in runs):
        raise InputError(f"{key}={path} holds no answer and no round.")
    return [run for run in runs if run.metrics.rounds]


def _objects(key: str, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    *lines, last = read_text(path, key).split("\n")
    for number, text in enumerate(lines, 1):
        if text.strip():
            yield number, _object(text, key, path, number)
    try:  # the last line may have been cut while it was written
        whole = json.loads(last)
    except ValueError:
        return
    if isinstance(whole, dict):
        yield len(lines) + 1, whole


def _object(text: str, key: str, path: str, number: int) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _foreign(key, path, number)
    return value


def _take(value: dict[str, Any], found: dict[str, Run], done: dict[str, list[Metrics]]) -> str:
    """Adds a line to its run, whose key it returns."""
    moment = value.get("record", "answer")
    if moment == "answer":
        config = value["config"]
        name = json.dumps(config, sort_keys=True)
        found.setdefault(name, Run({part: config[part]["name"] for part in PARTS}, config))
    else:
        name = value["run"]
    if moment == "run_started":
        found[name] = Run({part: str(value["parts"][part]) for part in PARTS}, value["config"])
    elif moment == "round_done":
        _count_round(found[name], value)
    elif moment in ("answer", "request_done"):
        found[name].answers += 1
        done.setdefault(name, []).append(_metrics(value["metrics"]))
    return name


def _count_round(run: Run, record: dict[str, Any]) -> None:
    for row in record["rows"]:
        if row["path"] != list(range(len(row["path"]))) or len(row["rejected"]) > 1:
            run.config = {**run.config, "drafts_trees": True}
        outcome = RowOutcome(
            row["request"], row["drafted"], row["accepted"], row["emitted"], row["overlaps"]
        )
        run.metrics.count(outcome, record["seconds"])
        run.lengths[len(row["drafted"])] += 1
    if not any(row["drafted"] for row in record["rows"]):
        run.idle.append(float(record["seconds"]["verify"]))


def _metrics(value: dict[str, Any]) -> Metrics:
    """Counters from their JSON."""
    metrics = Metrics(value["rounds"], value["drafted"], value["accepted"], value["emitted"])
    metrics.reached_at = [int(count) for count in value["reached_at"]]
    pairs = zip(metrics.reached_at, value["accept_rate_at"], strict=True)
    metrics.accepted_at = [round(count * rate) for count, rate in pairs]
    metrics.overlap = (value["alpha"] or 0.0) * metrics.reached
    metrics.spend({phase: float(seconds) for phase, seconds in value["time"].items()})
    return metrics


def _whole(run: Run, done: list[Metrics]) -> Run:
    """A run with its sums, where no rounds were recorded."""
    if not run.metrics.rounds:
        run.metrics = total(done)
        run.lengths = _spread(run)
    return run


def _spread(run: Run) -> Counter[int]:
    """Lengths that give the mean: none or gamma where that is fixed, else the two beside the mean."""
    rounds, drafted = run.metrics.rounds, run.metrics.drafted
    gamma = run.config.get("policy", {}).get("gamma")
    low, high = 0, gamma if isinstance(gamma, int) else 0
    if not drafted <= high * rounds:
        low, high = drafted // rounds, math.ceil(drafted / rounds)
    if low == high:
        return Counter({low: rounds})
    longer = round((drafted - low * rounds) / (high - low))
    return Counter({low: rounds - longer, high: longer})


def _drafts_trees(run: Run) -> bool:
    if run.config.get("drafts_trees"):
        return True
    try:
        values = dict(run.config["drafter"])
        spec = registry().get("drafter", values.pop("name"))
        return isinstance(spec, DrafterSpec) and spec.kind_of(spec.config(**values)).tree
    except (ForedraftError, KeyError, TypeError, ValueError):
        return False  # a plugin that is not here, or an engine built from objects


def _foreign(key: str, path: str, number: int) -> InputError:
    return InputError(
        f"line {number} of {key}={path} is neither an answer of 'foredraft generate' nor a record of "
        "observers=[jsonl]."
    )
