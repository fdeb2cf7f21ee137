"""The sides of a sweep at work: what a cell is when it decodes.

The target is loaded once. Cells that configure their drafter alike share it, because a drafter has
no state outside of its sessions.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..api import engine_from
from ..clock import now
from ..engine import Engine
from ..errors import ConfigError
from ..metrics import Metrics
from ..models import load_model
from ..records import RowOutcome
from ..requests import Answer
from ..targets.builtin import ModelConfig
from .course import by_round
from .measure import run_generate

WARM = 4  # tokens of the uncounted run of each cell
Run = dict[str, Any]


class Sides:
    """Everything that the cells of a sweep need, made when it is first used.

    Args:
        cells: by id, as the manifest has them.
        prompts: by index, as the manifest has them.
        warmup: uncounted runs before the first one of a cell.
        assistant: folder of the small model of ``generate_assisted``.
    """

    def __init__(
        self,
        cells: Mapping[str, Mapping[str, Any]],
        prompts: Mapping[int, Mapping[str, Any]],
        warmup: int = 1,
        assistant: str | None = None,
    ) -> None:
        self.cells, self.prompts = cells, prompts
        self.warmup, self.assistant = warmup, assistant
        self._target: tuple[str, Any] | None = None
        self._untuned: Any = None
        self._drafters: dict[str, Any] = {}
        self._engines: dict[str, Engine] = {}
        self._generates: dict[str, Callable[[Sequence[int]], Run]] = {}

    def prepare(self, cell_id: str) -> None:
        """Builds what a cell needs and warms it up, unless that was done."""
        self._side(cell_id)

    def run(self, cell_id: str, prompts: Sequence[int]) -> Run:
        """One cell over one unit: seconds, seconds of the prefill, seconds by phase, and rows."""
        return self._side(cell_id)(prompts)

    def engine(self, cell_id: str) -> Engine:
        """The engine of a cell; of a ``generate`` cell, the plain one with the same target."""
        if cell_id not in self._engines:
            self._engines[cell_id] = self._made(dict(self.cells[cell_id]["config"]))
        return self._engines[cell_id]

    def _side(self, cell_id: str) -> Callable[[Sequence[int]], Run]:
        if cell_id not in self._generates:
            kind = self.cells[cell_id]["kind"]
            side = self._ours(cell_id) if kind in ("engine", "plain") else self._theirs(cell_id)
            self._generates[cell_id] = side
        return self._generates[cell_id]

    def _ours(self, cell_id: str) -> Callable[[Sequence[int]], Run]:
        engine = self.engine(cell_id)
        first = next(iter(self.prompts))
        for _ in range(self.warmup):
            decoded(engine, self._contents([first]), [first], max_new_tokens=WARM)
        return lambda prompts: decoded(engine, self._contents(prompts), prompts)

    def _theirs(self, cell_id: str) -> Callable[[Sequence[int]], Run]:
        """transformers' own loop on the model as the library runs it."""
        cell, engine = self.cells[cell_id], self.engine(cell_id)
        model, options = self._library_model(cell["config"], engine), {}
        if cell["kind"] == "generate_lookup":
            options = {"prompt_lookup_num_tokens": 10}
        if cell["kind"] == "generate_assisted":
            assert self.assistant is not None  # options.py asks for one
            settings = ModelConfig(device=str(engine.parts.target.device))
            options = {"assistant_model": load_model(self.assistant, settings)}
        for _ in range(self.warmup):
            ids = engine.request(self._contents([next(iter(self.prompts))])[0]).prompt
            run_generate(model, [ids], WARM, **options)
        return lambda prompts: self._generated(engine, model, prompts, options)

    def _library_model(self, config: Mapping[str, Any], engine: Engine) -> Any:
        """The target as transformers loads it: a second copy, where ours has other kernels."""
        target, own = config["target"], engine.parts.target
        if target.get("kernels", "library") != "library":
            if self._untuned is None:
                plain = {**config, "target": {**target, "kernels": "library"}}
                self._untuned = engine_from(plain).parts.target
            own = self._untuned
        if not hasattr(own, "model"):
            name = engine.parts.names.get("target", "")
            raise ConfigError(f"generate cannot run target={name}; it needs a transformers model.")
        return own.model

    def _generated(
        self, engine: Engine, model: Any, prompts: Sequence[int], options: Mapping[str, Any]
    ) -> Run:
        limit = engine.defaults.max_new_tokens
        assert limit is not None  # baselines.py leaves generate out without one
        ids = [engine.request(content).prompt for content in self._contents(prompts)]
        sample = run_generate(model, ids, limit, **options)
        rows = [{"prompt": p, "ids": t} for p, t in zip(prompts, sample.tokens, strict=True)]
        return {
            **{"seconds": sample.seconds, "prefill": sample.prefill, "time": {}},
            **{"by_prefill": sample.by_prefill, "rows": rows},
        }

    def _contents(self, prompts: Sequence[int]) -> list[Any]:
        return [self.prompts[index]["content"] for index in prompts]

    def _made(self, config: dict[str, Any]) -> Engine:
        target = self._target_of(config)
        key = json.dumps(config["drafter"], sort_keys=True)
        engine = engine_from(config, target, same_target=True, drafter=self._drafters.get(key))
        self._drafters[key] = engine.parts.drafter
        self._target = json.dumps(config["target"], sort_keys=True), engine.parts.target
        return engine

    def _target_of(self, config: Mapping[str, Any]) -> Any:
        """The loaded target, if it is this config's; another one makes room first."""
        if self._target is None:
            return None
        key, target = self._target
        if key == json.dumps(config["target"], sort_keys=True):
            return target
        self._target = self._untuned = None
        for kept in (self._drafters, self._engines, self._generates):
            kept.clear()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return None


def decoded(engine: Engine, contents: Sequence[Any], indexes: Sequence[int], **options: Any) -> Run:
    """Answers the prompts of a unit as one batch, and times it."""
    answers = [
        Answer(engine.request(content, index, **options))
        for content, index in zip(contents, indexes, strict=True)
    ]
    spent: dict[str, float] = {}
    heard: list[RowOutcome] = []
    begin = now()
    for outcome in engine.run(answers):
        heard += outcome.rows
        for phase, value in outcome.seconds.items():
            spent[phase] = spent.get(phase, 0.0) + value
    seconds = now() - begin
    # No round has the prefill, which takes in all rows of a batch at once.
    prefill = answers[0].metrics.seconds["prefill"]
    along = by_round(heard)
    rows = [
        {"prompt": index, **_row(answer), **({"by_round": along[index]} if index in along else {})}
        for index, answer in zip(indexes, answers, strict=True)
    ]
    return {"seconds": seconds, "prefill": prefill, "time": spent, "rows": rows}


def _row(answer: Answer) -> dict[str, Any]:
    found: Metrics = answer.metrics
    return {
        "ids": list(answer.token_ids),
        "finish": answer.finish_reason,
        "rounds": found.rounds,
        "drafted": found.drafted,
        "accepted": found.accepted,
        "emitted": found.emitted,
        "reached_at": list(found.reached_at),
        "accepted_at": list(found.accepted_at),
        "overlap": found.overlap,
    }
