"""Every draft-length policy over synthetic texts: against the best fixed gamma in hindsight, a policy
that knows the rate of each place, and the oracle. No model.

    python benchmarks/replay.py stationary
    python benchmarks/replay.py drifting
    python benchmarks/replay.py two_state
    python benchmarks/replay.py speed
    python benchmarks/replay.py figures
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import HERE, RESULTS, save

from foredraft.framework import theory
from foredraft.framework.plugins import registry
from foredraft.framework.records import Round
from foredraft.framework.replaying import Comparison, compare, replay
from foredraft.framework.replaying.choices import Choice, choose
from foredraft.framework.replaying.stack import Stack
from foredraft.framework.times.steps import Constant, StepTimes
from foredraft.framework.times.table import BatchTimes, TimeTable
from foredraft.framework.traces.synthetic import Drifting, Iid, Process, TwoState, synthetic_traces

MOST = 20
GAMMAS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20)
# A step that grows with its width, as SmolLM2-135M has in float32 on two CPU cores; in seconds.
STEPS = BatchTimes(
    1,
    (0,),
    (1, 2, 4, 8, 16, 21),
    ((0.090, 0.100, 0.115, 0.165, 0.270, 0.335),),
    (1, 2),
    (0.009, 0.018),
)
PROFILES: dict[str, StepTimes] = {
    "c=.02": Constant(0.02),
    "c=.1": Constant(0.1),
    "c=.3": Constant(0.3),
    "rising": TimeTable([STEPS]),
}
STATES = {  # alphas, rounds that each state lasts at the best fixed gamma
    ".9/.3, 100 rounds": ((0.9, 0.3), 100),
    ".9/.3, 300 rounds": ((0.9, 0.3), 300),
    ".8/.5, 100 rounds": ((0.8, 0.5), 100),
    ".9/.3, 25 rounds": ((0.9, 0.3), 25),
}
FIGURES = HERE.parent / "docs" / "figures"
KNOWN = ("fixed", "oracle")  # they are in every comparison


def processes(study: str, times: StepTimes) -> dict[str, Process]:
    """The texts of a study by name."""
    if study == "stationary":
        return {f"alpha {alpha:g}": Iid(alpha) for alpha in (0.3, 0.5, 0.7, 0.8, 0.9)}
    if study == "drifting":
        shapes = ((0.3, 0.9, 500), (0.3, 0.9, 2000), (0.6, 0.9, 1000))
        return {f"{low:g}-{high:g} in {n}": Drifting(low, high, n) for low, high, n in shapes}
    return {
        name: TwoState(alphas, state_lengths(alphas, rounds, times))
        for name, (alphas, rounds) in STATES.items()
    }


def state_lengths(alphas: tuple[float, ...], rounds: int, times: StepTimes) -> tuple[int, ...]:
    """Tokens for which each state goes on, so that at the fixed gamma that is best for the whole text
    every state lasts ``rounds`` rounds. All policies then see the same text."""
    tokens = theory.expected_tokens(np.array(alphas)[:, None], np.arange(MOST + 1))
    seconds = times.target(1, range(1, MOST + 2), 0) + times.draft(1, range(MOST + 1))
    best = int((tokens.mean(0) / seconds).argmax())
    # The best gamma depends on the lengths, and they on it.
    for _ in range(MOST):
        lengths = np.ceil(rounds * tokens[:, best])
        spent = (lengths[:, None] / tokens).sum(0) * seconds
        if int(spent.argmin()) >= best:
            break
        best = int(spent.argmin())
    assert (lengths >= rounds * tokens[:, int(spent.argmin())] - 1).all()
    return tuple(int(length) for length in lengths)


def choices() -> list[Choice]:
    """Every policy that is installed, with its defaults."""
    names = [name for name in registry().names("policy") if name not in KNOWN]
    return [choose(name) for name in names]


def study(name: str, texts: int, places: int, few: int) -> dict[str, Any]:
    """All cells of a study.

    Policies whose rows cannot share a session run over the first ``few`` texts only, against the best
    fixed gamma and the oracle of those.
    """
    cells = []
    for profile, times in PROFILES.items():
        for texts_of, process in processes(name, times).items():
            begin = time.perf_counter()
            traces = synthetic_traces(process, texts, places, MOST, seed=11)
            every = choices()
            found = compare(traces, [c for c in every if c.together], times, GAMMAS)
            near = [g for g in GAMMAS if abs(g - found.best_gamma) <= 2]
            rest = compare(traces[:few], [c for c in every if not c.together], times, near)
            cells.append(cell(profile, texts_of, process, found, rest))
            note = f"{profile} {texts_of}: {time.perf_counter() - begin:.0f} s"
            print(note, file=sys.stderr, flush=True)
    options = {"texts": texts, "few": few, "tokens per text": places, "deepest": MOST}
    return {"study": name, **options, "cells": cells}


def cell(
    profile: str, name: str, process: Process, found: Comparison, rest: Comparison
) -> dict[str, Any]:
    """One cost profile with one kind of text."""
    rows = [found.row(one) for one in (*found.policies, found.oracle)]
    rows += [{**rest.row(one), "few": True} for one in rest.policies]
    if found.informed:
        rows.append(found.row(found.informed))
    kept = ("policy", "tau", "mean_gamma", "accept_rate", "waste", "x_plain", "x_best", "x_best_se",
            "regret", "oracle_share", "informed_share", "informed_over_best", "capped", "few")  # fmt: skip
    shown = [{key: _short(row[key]) for key in kept if key in row} for row in rows]
    best = {
        "best_gamma": found.best_gamma,
        "x_plain": _short(found.row(found.fixed[found.best_gamma])["x_plain"]),
    }
    lengths = list(getattr(process, "lengths", ()))
    return {"profile": profile, "texts": name, "lengths": lengths, **best, "policies": shown}


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def speed(texts: int) -> dict[str, Any]:
    """Rounds of a row per minute of one core's time, for each policy."""
    stack = Stack(synthetic_traces(TwoState(), texts, 400, MOST))
    few = Stack(stack.traces[:8])
    for one in (stack, few):
        assert one.overlaps.size and one.confidences.size and one.entropies.size  # made once
    found = {}
    for choice in [*choices(), choose("oracle"), choose("fixed")]:
        over = stack if choice.together else few
        begin = time.process_time()
        got = replay(choice.policy, over, Constant(0.1), together=choice.together)
        seconds = time.process_time() - begin
        found[choice.name] = {
            "together": choice.together,
            "rounds": int(got.rounds.sum()),
            "per minute": round(got.rounds.sum() / seconds * 60),
        }
    return {"texts": texts, "policies": found}


# --- figures -----------------------------------------------------------------------------------


def figures() -> None:
    """From the results on disk, and one replay for the course of gamma."""
    for name in ("stationary", "drifting", "two_state"):
        ratios(json.loads((RESULTS / f"replay-{name}.json").read_text("utf-8")), name)
    course()


def _looks(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A colour and a mark for each policy; grey for the one that knows more than it could."""
    from foredraft.framework.figures import COLOURS

    colours = (*COLOURS, "#7A4B00", "#999933")
    marks = "osD^vP*X<>"
    looks = {n: (colours[i % len(colours)], marks[i % len(marks)]) for i, n in enumerate(names)}
    return {**looks, "informed": ("#888888", "_")}


def ratios(results: dict[str, Any], name: str) -> None:
    """Each policy's tokens per second over the best fixed gamma's: a panel per cost profile."""
    from matplotlib.figure import Figure

    cells = results["cells"]
    kinds = list(dict.fromkeys(cell["texts"] for cell in cells))
    order = [row["policy"] for row in cells[0]["policies"] if row["policy"] != "oracle"]
    order = sorted(order, key=lambda policy: (policy == "informed", policy))
    looks = _looks(order)
    figure = Figure(figsize=(11, 6.4), dpi=130, facecolor="white", layout="constrained")
    panels = figure.subplots(2, 2, sharex=True)
    for axes, profile in zip(panels.flat, PROFILES, strict=True):
        of = {c["texts"]: c for c in cells if c["profile"] == profile}
        for place, policy in enumerate(order):
            rows = [
                next(r for r in of[kind]["policies"] if r["policy"] == policy) for kind in kinds
            ]
            x = np.arange(len(kinds)) + (place - (len(order) - 1) / 2) * 0.75 / len(order)
            colour, mark = looks[policy]
            axes.errorbar(
                x, [r["x_best"] for r in rows], [2 * (r["x_best_se"] or 0) for r in rows],
                fmt=mark, color=colour, label=policy, linewidth=1,
                markersize=11 if mark == "_" else 5,
            )  # fmt: skip
        axes.axhline(1, color="#444444", linewidth=1)
        for edge in np.arange(len(kinds) - 1) + 0.5:
            axes.axvline(edge, color="#DDDDDD", linewidth=0.8)
        axes.set_title(profile, fontsize=10)
        axes.set_xticks(range(len(kinds)), kinds, fontsize=8)
        axes.set_xlim(-0.5, len(kinds) - 0.5)
        axes.grid(True, axis="y", color="#EEEEEE")
        axes.spines[["top", "right"]].set_visible(False)
    figure.supylabel("tokens per second over the best fixed gamma's", fontsize=10)
    figure.suptitle(f"Policies on {name.replace('_', '-')} texts", fontsize=12)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False)
    figure.savefig(FIGURES / f"replay-{name}.png")


def course() -> None:
    """The mean gamma at each place of a two-state text, for policies that share a session."""
    from foredraft.framework.figures import Line, draw

    times, lengths = Constant(0.1), (400, 400)
    process = TwoState((0.9, 0.3), lengths)
    traces = synthetic_traces(process, 60, 3200, MOST, seed=5)
    lines = []
    for choice in choices():
        if choice.together:
            lines.append(Line(choice.name, *mean_gamma(choice, traces, times, process.cycle)))
    places = np.arange(process.cycle)
    best = theory.best_gamma(process.rates(places), 0.1, MOST)[0]
    lines.append(Line("best for the rate", places, best, steps=True))
    draw(
        FIGURES / "replay-course.png", lines, legend="policy",
        title="Two states: alpha .9 up to place 400, then .3 (c = .1)",
        x="place in the cycle, tokens", y="mean drafted tokens per round",
    )  # fmt: skip


def mean_gamma(
    choice: Choice, traces: Sequence[Any], times: StepTimes, cycle: int, bin_size: int = 20
) -> tuple[np.ndarray, np.ndarray]:
    """Mean number of drafted tokens by place in the cycle, after the first one."""
    at = np.array([trace.about["start"] for trace in traces])
    done = np.zeros(len(traces), dtype=np.int64)
    sums, counts = np.zeros(cycle // bin_size), np.zeros(cycle // bin_size)

    def hear(outcome: Round) -> None:
        rows = np.array([row.request for row in outcome.rows])
        place = (at[rows] + done[rows]) % cycle // bin_size
        old = done[rows] >= cycle
        drafted = np.array([len(row.drafted) for row in outcome.rows])
        np.add.at(sums, place[old], drafted[old])
        np.add.at(counts, place[old], 1)
        done[rows] += [len(row.emitted) for row in outcome.rows]

    replay(choice.policy, traces, times, together=True, recorder=hear)
    return (np.arange(len(sums)) + 0.5) * bin_size, sums / counts


def main() -> None:
    """Runs one study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "study", choices=["stationary", "drifting", "two_state", "speed", "figures"]
    )
    parser.add_argument("--texts", type=int, default=30, help="texts of a cell (default 30)")
    parser.add_argument("--places", type=int, default=2400, help="tokens of a text (default 2400)")
    parser.add_argument("--few", type=int, default=3, help="texts for policies that share state")
    options = parser.parse_args()
    Path(FIGURES).mkdir(exist_ok=True)
    if options.study == "figures":
        figures()
    elif options.study == "speed":
        save("replay-speed", speed(max(options.texts, 1000)))
    else:
        found = study(options.study, options.texts, options.places, options.few)
        save(f"replay-{options.study}", found, show=False)


if __name__ == "__main__":
    main()
