"""An answer round by round: what was drafted, what stood, what the target said, for people to read."""

from __future__ import annotations

from typing import Any

from ..engine import Engine
from ..interfaces import Observer
from ..observing import RoundRecord
from ..records import RowOutcome
from ..requests import Answer

MOST = 48  # tokens of an answer that is looked at


class _Listener(Observer):
    """Keeps the rounds."""

    detailed = True

    def __init__(self) -> None:
        self.rows: list[RowOutcome] = []

    def round_done(self, record: RoundRecord) -> None:
        self.rows += record.rows


def taken_down(engine: Engine, index: int, content: Any) -> dict[str, Any]:
    """One answer: the prompt's index, and its rounds."""
    heard = _Listener()
    listening = Engine(engine.parts, engine.defaults, engine.config, [heard])
    limit = min(engine.defaults.max_new_tokens or MOST, MOST)
    answer = Answer(listening.request(content, index, max_new_tokens=limit))
    for _ in listening.run([answer]):
        pass
    return {"prompt": index, "rounds": [_round(engine, row) for row in heard.rows]}


def _round(engine: Engine, row: RowOutcome) -> dict[str, Any]:
    """Texts of the tokens that stood, of those tried in vain, and of the target's own; with the
    probabilities of the drafted ones for drafter and verifier."""
    stood, detail = row.path[: row.accepted], row.detail
    told = (detail.confidence, detail.accept_probs) if detail else ([], [])
    # What was tried in vain lies behind the accepted node: in a chain next to it.
    behind = stood[-1] + 1 if stood else 0
    fallen = [row.drafted.index(token, behind) for token in row.rejected]
    return {
        "accepted": [_token(engine, row.drafted[node], node, *told) for node in stood],
        "rejected": [_token(engine, row.drafted[node], node, *told) for node in fallen],
        "own": [_token(engine, token, -1, *told) for token in row.emitted[row.accepted :]],
    }


def _token(
    engine: Engine, token: int, node: int, confidence: list[float], accept: list[float]
) -> dict[str, Any]:
    text = str(token) if engine.tokenizer is None else engine.tokenizer.decode([token])
    known = 0 <= node < len(accept)
    return {
        "text": text,
        "draft_prob": confidence[node] if known else None,
        "accept_prob": accept[node] if known else None,
    }
