"""Trained drafters beside untrained ones, live: alpha by position, tau, c, and the speed-up over plain decoding,
as measured and as predicted.

    python benchmarks/trained.py --name pycode --target pycode --prompts h.jsonl --drafters pycode_small bigram
    python benchmarks/trained.py --name smollm2 --target smollm2 --prompts q.jsonl --drafters smollm2_medusa ngram

Batch 1. All sides answer the same prompts in turns (``common.alternate``); plain decoding is there twice, and at
temperature 0 so is transformers' ``generate``, on the same tuned model. A prediction takes the acceptance of
each position given that all before it stood, pooled over all lengths of draft, and step times that were
measured apart, before the runs; nothing of a side's own seconds is in it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import alternate, ratio, same_answers, save, with_drafter
from policies import CONVERSATION

from foredraft.framework import Engine, load
from foredraft.framework.bench.measure import Sample, run_engine, run_generate
from foredraft.framework.metrics import Metrics, total
from foredraft.framework.params import SamplingParams
from foredraft.framework.replaying.choices import choose
from foredraft.framework.theory import measured_speedup, speedup, tokens_by_position
from foredraft.framework.times.profiling import Plan, measure
from foredraft.framework.times.table import BatchTimes

PLAIN, AGAIN, GENERATE = "plain", "plain again", "generate"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--name", default="drafters", help="of the results: trained-NAME.json")
    parser.add_argument("--target", default="smollm2")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--groups", nargs="*", default=[], help="task groups; none: all together")
    parser.add_argument("--drafters", nargs="+", metavar="NAME[,drafter.KEY=VALUE]", required=True)
    parser.add_argument("--gammas", nargs="+", type=int, default=[1, 2, 3, 4, 6, 8])
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 1.0])
    parser.add_argument("--count", type=int, default=8, help="prompts of a group")
    parser.add_argument("--most-words", type=int, default=250)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    plain = load("drafter=none", f"target={given.target}", "target.kernels=tuned")
    drafters = {one.partition(",")[0]: one.split(",") for one in given.drafters}
    engines = {
        name: with_drafter(plain, f"drafter={words[0]}", *words[1:])
        for name, words in drafters.items()
    }
    times = {name: step_times(engine) for name, engine in engines.items()}
    cells: list[dict[str, Any]] = []
    for group in given.groups or [None]:
        prompts = prompts_of(plain, given, group)
        for temperature in given.temperatures:
            cells.append(cell(plain, engines, times, prompts, temperature, given))
            cells[-1] |= {"group": group or "all", "prompts": len(prompts)}
            save(f"trained-{given.name}", {"steps": steps(times), "cells": cells}, show=False)
            show(cells[-1])


def prompts_of(plain: Engine, given: argparse.Namespace, group: str | None) -> list[list[int]]:
    """The first prompts of a group that are not too long, as ids."""
    found = []
    for line in given.prompts.read_text("utf-8").splitlines():
        entry = json.loads(line)
        text = entry["turns"][0] if "turns" in entry else entry["prompt"]
        label = entry.get("category", entry.get("group"))
        label = "conversation" if label in CONVERSATION and "turns" in entry else label
        if group in (None, label) and len(text.split()) <= given.most_words:
            found.append(text)
    return [plain.request(text).prompt for text in found[: given.count]]


def step_times(engine: Engine) -> BatchTimes:
    """What steps cost at batch 1, measured apart."""
    plan = Plan((256,), (1, 2, 3, 4, 5, 7, 9), (1, 2, 3, 4, 6, 8), repeats=21, seconds=30)
    return measure(engine.parts.target, engine.parts.drafter, 1, plan)


def steps(times: dict[str, BatchTimes]) -> dict[str, Any]:
    """Of each drafter: c, and how much a target step of width 4 takes over one of width 1."""
    found = {}
    for name, table in times.items():
        one, four = table.step((1, 4), 256)
        found[name] = {
            "plain ms": 1e3 * float(one),
            "c": float(table.drafting((4,))[0]) / 4 / float(one),
            "width 4": float(four / one),
        }
    return found


def cell(
    plain: Engine,
    engines: dict[str, Engine],
    times: dict[str, BatchTimes],
    prompts: list[list[int]],
    temperature: float,
    given: argparse.Namespace,
) -> dict[str, Any]:
    """All sides over the same prompts."""
    options = {
        "max_new_tokens": given.tokens,
        "sampling": SamplingParams(temperature=temperature),
    }
    sides = {PLAIN: side(plain, 0, options), AGAIN: side(plain, 0, options)}
    if temperature == 0:
        model = plain.parts.target.model  # type: ignore[attr-defined]
        sides[GENERATE] = lambda prompt: run_generate(model, [prompt], given.tokens)
    for name, engine in engines.items():
        sides |= {f"{name} {gamma}": side(engine, gamma, options) for gamma in given.gammas}
    samples = alternate(sides, prompts, given.repeats)
    same = same_answers(samples, PLAIN) if temperature == 0 else {}
    return {
        "temperature": temperature,
        "noise": ratio(samples, AGAIN, PLAIN)["decoding"],
        "generate": ratio(samples, GENERATE, PLAIN)["decoding"] if temperature == 0 else None,
        "drafters": {name: row(name, samples, times[name], given.gammas, same) for name in engines},
    }


def side(engine: Engine, gamma: int, options: dict[str, Any]) -> Callable[[list[int]], Sample]:
    """One prompt at a time."""
    policy = choose("fixed", {"gamma": gamma}).policy
    fixed = Engine(replace(engine.parts, policy=policy), engine.defaults)
    return lambda prompt: run_engine(fixed, [prompt], **options)


def row(
    name: str,
    samples: dict[str, list[list[Sample]]],
    times: BatchTimes,
    gammas: Sequence[int],
    same: dict[str, int],
) -> dict[str, Any]:
    """One drafter: what is accepted, and each gamma's speed-up."""
    runs = {gamma: summed(samples[f"{name} {gamma}"]) for gamma in gammas}
    pooled = total(runs.values())
    rates = pooled.as_dict()["accept_rate_at"]
    lengths = {gamma: one(runs[gamma], rates, gamma, times) for gamma in gammas}
    for gamma, found in lengths.items():
        found["measured"] = ratio(samples, f"{name} {gamma}", PLAIN)["decoding"]
        found["of predicted"] = found["measured"]["median"] / found["predicted"]
        if same:
            found["same ids"] = same[f"{name} {gamma}"]
    best = max(lengths, key=lambda gamma: float(lengths[gamma]["measured"]["median"]))
    return {"alpha": pooled.alpha, "accepted at": rates, "best gamma": best, "gammas": lengths}


def one(run: Metrics, rates: Sequence[float], gamma: int, times: BatchTimes) -> dict[str, Any]:
    """One length of draft: tokens a round, and two predictions of the speed-up."""
    plain, wide = (float(value) for value in times.step((1, gamma + 1), 256))
    draft = float(times.drafting((gamma,))[0])
    tokens = float(tokens_by_position(rates[:gamma])[-1])
    return {
        "tau": run.tau,
        "alpha": run.alpha,
        "predicted": float(measured_speedup(tokens, wide, draft, plain)),
        "theorem 3.8": float(speedup(run.alpha or 0.0, gamma, draft / gamma / plain)),
    }


def summed(runs: Sequence[Sequence[Sample]]) -> Metrics:
    """Over prompts and repeats."""
    return total(one.metrics for each in runs for one in each if one.metrics is not None)


def show(found: dict[str, Any]) -> None:
    """A line per drafter."""
    noise = found["noise"]
    print(
        f"{found['group']}, temperature {found['temperature']}: plain again {noise['median']:.3f}"
    )
    for name, line in found["drafters"].items():
        best = line["gammas"][line["best gamma"]]
        measured = best["measured"]
        print(
            f"  {name}: alpha {line['alpha'] or 0:.3f}, gamma {line['best gamma']}, tau {best['tau']:.2f}, "
            f"x {measured['median']:.2f} [{measured['low']:.2f}, {measured['high']:.2f}], predicted "
            f"{best['predicted']:.2f}"
        )


if __name__ == "__main__":
    main()
