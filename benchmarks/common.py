"""What the benchmark scripts share: prompts, engines, alternating runs, results on disk."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch
import transformers

from foredraft.framework import Engine, load
from foredraft.framework.bench.measure import Sample

HERE = Path(__file__).parent
RESULTS = HERE / "results"
Side = Callable[[list[int]], Sample]


def read_prompts(path: Path, groups: Sequence[str] = (), limit: int | None = None) -> list[str]:
    """Prompts of a JSON-lines file (``prompt``, or Spec-Bench ``turns``), some groups or all."""
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    kept = [e for e in entries if not groups or e.get("category", e.get("group")) in groups]
    return [e["prompt"] if "prompt" in e else e["turns"][0] for e in kept][:limit]


def plain_engine(kernels: str = "library") -> Engine:
    """The plain loop on SmolLM2 in float32."""
    return load("drafter=none", "policy.gamma=0", "target=smollm2", f"target.kernels={kernels}")


def with_drafter(plain: Engine, *overrides: str) -> Engine:
    """The same loaded target with another drafter."""
    return load(*overrides, target=plain.parts.target)


def alternate(
    sides: dict[str, Side], prompts: Sequence[list[int]], repeats: int
) -> dict[str, list[list[Sample]]]:
    """Runs every side on every prompt ``repeats`` times, the sides in turn, prompt by prompt.

    Returns ``[prompt][repeat]`` samples by side. One run of each side comes first, uncounted.
    """
    for side in sides.values():
        side(prompts[0])
    samples: dict[str, list[list[Sample]]] = {name: [[] for _ in prompts] for name in sides}
    for repeat in range(repeats):
        for index, prompt in enumerate(prompts):
            names = list(sides) if repeat % 2 == 0 else list(reversed(sides))
            for name in names:
                samples[name][index].append(sides[name](prompt))
            print(
                f"\rrepeat {repeat + 1}/{repeats} prompt {index + 1}/{len(prompts)}",
                end="",
                file=sys.stderr,
            )
    print(file=sys.stderr)
    return samples


def ratio(samples: dict[str, list[list[Sample]]], fast: str, base: str) -> dict[str, Any]:
    """How many times faster ``fast`` is than ``base``, per token over all prompts: the median over
    repeats of the ratio within one repeat, with its quartiles as the spread; of decoding alone and
    of whole calls, prefill included."""
    repeats = range(len(samples[fast][0]))
    decode = [_rate(samples[fast], r, True) / _rate(samples[base], r, True) for r in repeats]
    whole = [_rate(samples[fast], r, False) / _rate(samples[base], r, False) for r in repeats]
    return {"decoding": _quartiles(decode), "whole call": _quartiles(whole)}


def _rate(runs: list[list[Sample]], repeat: int, decoding: bool) -> float:
    """Tokens per second over all prompts in one repeat."""
    samples = [prompt[repeat] for prompt in runs]
    if not decoding:
        return sum(s.count for s in samples) / sum(s.seconds for s in samples)
    seconds = sum(s.seconds - s.prefill for s in samples)
    return sum(s.decode_rate * (s.seconds - s.prefill) for s in samples) / seconds


def _quartiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    low, middle, high = statistics.quantiles(ordered, n=4) if len(ordered) > 1 else [ordered[0]] * 3
    return {"median": middle, "low": low, "high": high, "repeats": len(values)}


def same_answers(samples: dict[str, list[list[Sample]]], base: str) -> dict[str, int]:
    """On how many prompts each side's ids equal those of ``base``."""
    first = [prompt[0].tokens for prompt in samples[base]]
    return {
        name: sum(prompt[0].tokens == ids for prompt, ids in zip(runs, first, strict=True))
        for name, runs in samples.items()
    }


def _named(argument: str) -> str:
    """An argument as others can repeat it: of a path, the name."""
    return Path(argument).name if "/" in argument else argument


def _script() -> str:
    """The running script, as it is called from a checkout."""
    path = Path(sys.argv[0]).resolve()
    return (
        path.relative_to(HERE.parent).as_posix() if path.is_relative_to(HERE.parent) else path.name
    )


def save(name: str, figures: dict[str, Any], show: bool = True) -> None:
    """Writes figures with what they were measured on, and prints them if ``show``."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        cwd=HERE,
        check=False,
    )
    record = {
        "command": " ".join(["python", _script(), *map(_named, sys.argv[1:])]),
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
        "cores": psutil.cpu_count(),
        "machine": platform.machine(),
        **figures,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if show:
        print(json.dumps(record, indent=1))
