"""Which loss makes the drafter that is accepted most: 1 - alpha, cross-entropy, divergences, on one budget.

    python benchmarks/training/objectives.py [--seeds 8] [--steps 300] [--lrs 0.003 0.01] [--warm 0]
    python benchmarks/training/objectives.py --words target=smollm2 task=own drafter=medusa ...

Of each seed, all objectives begin with the same weights and see the same texts in the same order. The figure is
alpha on held-out answers, the mean over positions, of the best of five looks; differences are paired by seed,
with 95 % t intervals. With ``--warm N`` each seed's weights first make N steps with ``kl``, from which all
objectives go on. Without ``--words`` the target is the sharp tiny one of ``sharp.py``, and the drafter a new
``causal_lm`` of one layer, too small for the whole law.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from common import save
from rich.console import Console
from rich.table import Table
from scipy import stats

from foredraft.framework.testing.sharp import Source, save_sharp, write_prompts
from foredraft.framework.training.asked import asked
from foredraft.framework.training.distilling import Distillation
from foredraft.framework.training.loop import fit
from foredraft.framework.training.options import LoopOptions
from foredraft.framework.training.session import Training
from foredraft.framework.training.state import Weights, put_back, weights_of

OBJECTIVES = {
    "tv": {"tv": 1.0}, "ce": {"ce": 1.0}, "kl": {"kl": 1.0}, "kl + tv": {"kl": 1.0, "tv": 1.0},
    "reverse_kl": {"reverse_kl": 1.0},
}  # fmt: skip
BASE, LEVEL, LOOKS = "ce", 0.95, 4
PROMPTS, BEGIN, TOKENS = 160, 8, 40


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--lrs", type=float, nargs="+", default=[0.003, 0.01])
    parser.add_argument("--warm", type=int, default=0)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--words", nargs="+", default=[])
    parser.add_argument("--name", default="training-objectives")
    given = parser.parse_args()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        words = given.words or tiny(Path(place), given.hidden)
        whole = asked([*words, "sampling.temperature=1", f"out={place}/out"])
        problem, texts = Training(whole, "").prepared()
        found = {
            lr: compared(problem, Path(place), given.seeds, options(given.steps, lr), given.warm)
            for lr in given.lrs
        }
    tables = {str(lr): table(alphas) for lr, alphas in found.items()}
    about = {"texts": len(texts), "held out": len(problem.held), "given": vars(given)}
    show(tables, given.seeds)
    save(
        given.name, {**about, "seconds": round(time.perf_counter() - begun), "by lr": tables}, False
    )


def tiny(folder: Path, hidden: int) -> list[str]:
    """Makes the sharp target, and the words for it and its drafter."""
    source = Source(letters=8, memory=2)
    save_sharp(folder / "target", source, steps=300)
    write_prompts(folder / "p.jsonl", source, PROMPTS, BEGIN)
    return [
        "drafter=causal_lm", "train.shape.layers=1", f"train.shape.hidden_size={hidden}",
        "train.shape.heads=2", "target=causal_lm", f"target.model={folder / 'target'}", "task=file",
        f"task.file={folder / 'p.jsonl'}", f"max_new_tokens={TOKENS}", "runtime.batch_size=32",
    ]  # fmt: skip


def options(steps: int, lr: float) -> LoopOptions:
    """The budget."""
    every = max(1, steps // LOOKS)
    return LoopOptions(steps=steps, lr=lr, warmup=20, evaluate_every=every, keep_every=steps)


def compared(
    problem: Distillation, folder: Path, seeds: int, chosen: LoopOptions, warm: int
) -> dict[str, list[float]]:
    """Alpha of each objective, seed by seed."""
    found: dict[str, list[float]] = {name: [] for name in OBJECTIVES}
    for seed in range(seeds):
        start = begin(problem, folder, seed, options(warm, chosen.lr) if warm else None)
        for name, weights in OBJECTIVES.items():
            found[name].append(trained(problem, folder, seed, weights, chosen, start)[0])
        print(chosen.lr, seed, {name: round(row[-1], 3) for name, row in found.items()}, flush=True)
    return found


def begin(problem: Distillation, folder: Path, seed: int, warm: LoopOptions | None) -> Weights:
    """The weights that all objectives of a seed begin with."""
    torch.manual_seed(seed)
    old = problem.trainee
    new = type(old)(old.config, old.target, old.shape, old.ids)
    start = weights_of(new.module)
    return trained(problem, folder, seed, OBJECTIVES["kl"], warm, start)[1] if warm else start


def trained(
    problem: Distillation, folder: Path, seed: int, objective: dict[str, float], chosen: LoopOptions,
    start: Weights,
) -> tuple[float, Weights]:  # fmt: skip
    """Held-out alpha of the best look, and its weights."""
    put_back(problem.module, start)
    own = Distillation(
        problem.trainee, problem.head, problem.features, problem.train, problem.held, problem.groups,
        objective, problem.size, problem.temperature, seed,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(dir=folder) as state:
        progress = fit(own, chosen, Path(state))
    assert progress.best is not None
    return progress.best[0], progress.weights


def table(alphas: dict[str, list[float]]) -> dict[str, Any]:
    """Of each objective: its mean, and by how much it is above cross-entropy."""
    found: dict[str, Any] = {}
    for name, row in alphas.items():
        gains = [one - other for one, other in zip(row, alphas[BASE], strict=True)]
        found[name] = {"alpha": statistics.mean(row), "minus ce": interval(gains), "by seed": row}
    return found


def interval(values: Sequence[float]) -> dict[str, float]:
    """The mean with its t interval."""
    middle, error = statistics.mean(values), stats.sem(values)
    half = float(error * stats.t.ppf((1 + LEVEL) / 2, len(values) - 1))
    return {"mean": middle, "low": middle - half, "high": middle + half}


def show(tables: dict[str, dict[str, Any]], seeds: int) -> None:
    """As a table for each learning rate."""
    for lr, rows in tables.items():
        shown = Table("objective", "alpha", f"minus {BASE}, {seeds} seeds", title=f"train.lr={lr}")
        for name, one in rows.items():
            mean, low, high = (one["minus ce"][key] for key in ("mean", "low", "high"))
            shown.add_row(name, f"{one['alpha']:.3f}", f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]")
        Console().print(shown)


if __name__ == "__main__":
    main()
