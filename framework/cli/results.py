"""One answer as one JSON object: what ``output=json`` prints and ``out=`` keeps."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..requests import Answer
    from .prompts import Item

# Where texts come from and go to is not what an answer depends on.
ELSEWHERE = ("prompt", "prompts", "out", "output")


def kept_config(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a config that answers depend on, as JSON will hold it."""
    kept = {key: value for key, value in config.items() if key not in ELSEWHERE}
    result: dict[str, Any] = strict(kept)
    return result


def result(
    item: Item, turn: int, answer: Answer, tokenizer: Any, lossless: bool, config: dict[str, Any]
) -> dict[str, Any]:
    """The object of one answer; ``config`` is what ``kept_config`` gave."""
    request = answer.request
    return {
        "id": item.id,
        "turn": turn,
        "sample": item.sample,
        "index": request.index,
        item.form if item.form != "turns" else "prompt": item.asked(turn),
        "prompt_tokens": len(request.prompt),
        "prompt_sha256": item.sha256,
        "text": answer.text if tokenizer is not None else None,
        "trimmed_text": answer.trimmed_text if tokenizer is not None else None,
        "token_ids": answer.token_ids,
        "finish_reason": answer.finish_reason,
        **item.options,
        **_scores(answer),
        "metrics": strict(answer.metrics.as_dict()),
        "lossless": lossless,
        "seed": request.seed,
        "config": config,
    }


def _scores(answer: Answer) -> dict[str, Any]:
    """Log-probabilities and ranks, where the request asked for them."""
    found: dict[str, Any] = {}
    if answer.request.logprobs:
        found |= {"logprobs": strict(answer.logprobs), "ranks": answer.ranks}
    if answer.request.prompt_logprobs:
        found["prompt_logprobs"] = strict(answer.prompt_logprobs)
        found["prompt_ranks"] = answer.prompt_ranks
    return found


def line(value: dict[str, Any]) -> str:
    """One line of strict JSON, in ASCII: some readers of lines split at U+2028 too."""
    return json.dumps(value, allow_nan=False) + "\n"


def strict(value: Any) -> Any:
    """The value with ``inf`` and ``nan``, which JSON lacks, as words (a config reads them back)."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return value
