"""The work of ``foredraft score``: texts once, a pass per drafter, live runs beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import t

from ..decoding import decode
from ..engine import Engine
from ..metrics import Metrics, total
from ..policies.builtin import FixedConfig
from ..policies.fixed import Fixed
from ..replaying import replay
from ..requests import Answer, Request
from ..traces import write_traces
from ..traces.scoring import Score, Text, score
from .display import named_column
from .scored_texts import texts_of
from .walk_arguments import Words, batches

if TYPE_CHECKING:
    from rich.table import Table

SEEDS = 16  # replays of each scored text, from which tau is predicted
# Heading: key of a row.
COLUMNS = {
    "T": "temperature",
    "drafted": "drafted",
    "alpha": "alpha",
    "alpha, live": "alpha_live",
    "tau, predicted": "tau_predicted",
    "tau, live": "tau_live",
    "error": "tau_error",
}


class Run:
    """Scores drafters one by one.

    Args:
        words: the command line.
        temperatures: of the laws.
        live: gamma of the live runs; 0: none.
    """

    def __init__(self, words: Words, temperatures: Sequence[float], live: int) -> None:
        self.words, self.temperatures, self.live = words, temperatures, live
        self.texts: list[Text] = []
        self.scores: list[tuple[str, Score]] = []
        self.rows: list[dict[str, Any]] = []

    def add(self, name: str, engine: Engine) -> None:
        """Scores a drafter on the texts, which the first one's target gives or reads."""
        self.texts = self.texts or texts_of(engine, self.words)
        own, size = engine.defaults.sampling, engine.defaults.batch_size
        samplings = [replace(own, temperature=value) for value in self.temperatures]
        scores = score(engine.parts, self.texts, samplings, size)
        self.scores += [(name, one) for one in scores]
        for sampling in samplings:
            mine = [one for one in scores if one.sampling is sampling]
            row = {"drafter": name, "temperature": sampling.temperature, **figures(mine)}
            if self.live:
                row |= predicted(mine, self.live)
                if sampling.temperature == own.temperature:
                    row |= lived(_decoded(engine, self.texts, self.live), row["tau_predicted"])
            self.rows.append(row)

    def save_traces(self, path: Path, most: int) -> None:
        """Keeps every score as a trace; a place's draw is the same for every drafter."""
        found = [one.trace(most, place, {"drafter": name}) for place, (name, one) in self._placed()]
        write_traces(path, found)

    def _placed(self) -> list[tuple[int, tuple[str, Score]]]:
        places = {id(text): place for place, text in enumerate(self.texts)}
        return [(places[id(one.text)], (name, one)) for name, one in self.scores]

    def table(self) -> Table:
        """What the terminal shows."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        places = sum(len(text.answer) for text in self.texts)
        title = f"{len(self.texts):,} answers of {places:,} tokens"
        table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
        named_column(table, "drafter", [row["drafter"] for row in self.rows])
        shown = {h: k for h, k in COLUMNS.items() if any(k in row for row in self.rows)}
        for heading in shown:
            table.add_column(heading, justify="right")
        for row in self.rows:
            table.add_row(row["drafter"], *(_cell(key, row) for key in shown.values()))
        return table


def figures(scores: Sequence[Score]) -> dict[str, Any]:
    """Alpha over all places with a draft, and the share of such places."""
    drafted = np.concatenate([one.drafted for one in scores])
    counts = [int(one.drafted.sum()) for one in scores]
    alpha, within = rate([float(one.overlaps[one.drafted].sum()) for one in scores], counts)
    return {
        "alpha": alpha,
        "alpha_within": within,
        "drafted": float(drafted.mean()),
        "places": len(drafted),
    }


def rate(sums: Sequence[float], counts: Sequence[int]) -> tuple[float | None, float | None]:
    """A mean over all places of several texts, and half its 95 % interval: texts are what is drawn
    at random, and places of one text are alike (ratio of sums, linearised; t with texts - 1)."""
    found, seen = np.array(sums), np.array(counts)
    if not seen.any():
        return None, None
    mean, texts = float(found.sum() / seen.sum()), len(seen)
    if texts < 2:
        return mean, None
    error = np.sqrt(((found - mean * seen) ** 2).sum() * texts / (texts - 1)) / seen.sum()
    return mean, float(t.ppf(0.975, texts - 1) * error)


def predicted(scores: Sequence[Score], gamma: int) -> dict[str, Any]:
    """Tokens per round with a fixed gamma, by replays of the scores."""
    traces = [one.trace(gamma, seed) for one in scores for seed in range(SEEDS)]
    found = replay(Fixed(FixedConfig(gamma)), traces, together=True)
    return {"gamma": gamma, "tau_predicted": float(found.tokens.sum() / found.rounds.sum())}


def lived(runs: Sequence[Metrics], expected: float) -> dict[str, Any]:
    """What live runs, one per text, had, and by how much the prediction was off."""
    alpha, within = rate([one.overlap for one in runs], [one.reached for one in runs])
    tau = total(runs).tau
    assert tau is not None
    return {
        "alpha_live": alpha,
        "alpha_live_within": within,
        "tau_live": tau,
        "tau_error": expected / tau - 1,
    }


def _decoded(engine: Engine, texts: Sequence[Text], gamma: int) -> list[Metrics]:
    """Live runs of the prompts of all texts."""
    parts = replace(engine.parts, policy=Fixed(FixedConfig(gamma)))
    sampling, seed = engine.defaults.sampling, engine.defaults.seed
    answers = [
        Answer(Request(text.prompt, len(text.answer), sampling, seed, index=text.about["index"]))
        for text in texts
    ]
    for batch in batches(answers, engine.defaults.batch_size):
        for _ in decode(parts, list(batch)):
            pass
    return [answer.metrics for answer in answers]


def _cell(key: str, row: dict[str, Any]) -> str:
    value, within = row.get(key), row.get(f"{key}_within")
    if value is None:
        return "-"
    if within is not None:
        return f"{value:.3f} ±{within:.3f}"
    if key in ("drafted", "tau_error"):
        return f"{value:+.1%}" if key == "tau_error" else f"{value:.0%}"
    return f"{value:g}" if key == "temperature" else f"{value:.3f}"
