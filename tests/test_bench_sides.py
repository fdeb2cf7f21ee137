"""What a sweep's clock counts, on a target whose steps take a known time."""

from __future__ import annotations

from typing import Any

import pytest

from foredraft.framework import load
from foredraft.framework.bench.sides import decoded
from foredraft.framework.clock import book

PREFILL, STEP = 10.0, 1.0


@pytest.mark.parametrize("words", [("drafter=none",), ("drafter=ngram", "policy.gamma=3")])
@pytest.mark.parametrize("prompts", [[[0, 1, 2]], [[0, 1, 2], [3, 1]]])
def test_the_prefill_is_told_apart(
    words: tuple[str, ...], prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load("target=table", "max_new_tokens=6", *words)
    target = engine.parts.target
    kept = target.start

    def start(*given: Any) -> Any:
        session = kept(*given)
        for name, seconds in (("prefill", PREFILL), ("forward", STEP)):
            monkeypatch.setattr(session, name, slowed(getattr(session, name), seconds))
        return session

    monkeypatch.setattr(target, "start", start)
    found = decoded(engine, prompts, range(len(prompts)))
    rounds = max(row["rounds"] for row in found["rows"])
    assert found["prefill"] == pytest.approx(PREFILL, abs=0.5)
    assert found["seconds"] - found["prefill"] == pytest.approx(rounds * STEP, abs=0.5)
    assert found["time"]["verify"] == pytest.approx(rounds * STEP, abs=0.5)
    assert "prefill" not in found["time"]


def slowed(call: Any, seconds: float) -> Any:
    def slow(*given: Any, **named: Any) -> Any:
        book(seconds)
        return call(*given, **named)

    return slow
