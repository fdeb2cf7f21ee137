"""``foredraft score``: the acceptance of many drafters on the same answers, without decoding."""

from __future__ import annotations

import re

from ..errors import ConfigError
from ..files import write_json
from .display import bar, console
from .walk_arguments import Words, take

HELP = """\
usage: foredraft score drafter=A[,B,...] prompt=TEXT|prompts=FILE|answers=FILE [...]

Fixes answers of the target once, and gives sum(min(target, draft)), the chance that a drafted token
stands, at every place of them, for every drafter and temperature: how Table 3 of Leviathan et al.
2023 was made. One pass per drafter scores all temperatures.

  drafter=A,B       drafters of chains, by name; drafter.KEY=VALUE only with one of them
  temperatures=0,1  of target and draft laws (default: sampling.temperature)
  answers=FILE      what foredraft generate wrote with out=, in place of prompts to be answered
  traces=FILE.npz   keeps the scores as traces for foredraft replay, up to most= tokens a round
  most=N            1 to 64 (default 8)
  live=GAMMA        also decodes with each drafter, and shows how far the prediction was off
  out=FILE.json     all figures
  prompt=, prompts=, target=, sampling.*, max_new_tokens=, runtime.*, seed=
                    as for foredraft generate; of a conversation, the first turn is answered"""
KEYS = ("drafter", "temperatures", "answers", "traces", "most", "live")
MOST = 8


def score(argv: list[str]) -> int:
    """Runs the command."""
    if "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    words = take("score", argv, KEYS)
    drafters, temperatures = _drafters(words), _temperatures(words)
    most, live = words.whole("most", MOST, 1, 64), words.whole("live", 0, 0, 64)
    out, traces = words.file("out"), words.file("traces")

    from .scoring_run import Run

    run = Run(words, temperatures, live)
    try:
        with bar("scoring", len(drafters)) as advance:
            for name, engine in words.engines(drafters):
                run.add(name, engine)
                advance(1)
    finally:  # what was scored before a drafter that cannot be is kept
        if run.rows:
            console().print(run.table())
            if traces is not None:
                run.save_traces(traces, most)
            if out is not None:
                write_json(out, {"arguments": list(argv), "rows": run.rows}, "out=")
    return 0


def _drafters(words: Words) -> list[str]:
    names = words.own.get("drafter", "").split(",")
    if not all(names):
        raise ConfigError(
            "foredraft score needs drafter=NAME, or several: drafter=ngram,quantized."
        )
    nested = [text for text in words.rest.overrides if text.startswith("drafter.")]
    if nested and len(names) > 1:
        raise ConfigError(
            f"{nested[0]} cannot be told of which drafter it is; score them one by one."
        )
    return names


def _temperatures(words: Words) -> list[float]:
    text = words.own.get("temperatures")
    if text is None:
        return [float(words.first()["sampling"]["temperature"])]
    if not re.fullmatch(r"[0-9.]+(,[0-9.]+)*", text):
        raise ConfigError(f"temperatures={text} is not possible; write numbers from 0: 0,0.7,1.")
    return [_number(part) for part in text.split(",")]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"temperatures={text} is not possible; it is no number.") from None
