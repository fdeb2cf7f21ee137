"""``foredraft export``: the winning configuration in the words of vLLM or SGLang."""

from __future__ import annotations

from pathlib import Path

from ..errors import ConfigError
from ..files import written_whole
from .display import note

HELP = """\
usage: foredraft export PRESET.yaml|DIR to=vllm|sglang [cell=ID] [out=FILE]

A preset, or the winner of a race (foredraft tune) or of a sweep (foredraft bench), as vLLM's
speculative_config (JSON) or SGLang's flags. What cannot be carried over is said on standard error,
key by key.

  to=vllm|sglang  the server
  cell=ID         a cell of the folder, in place of the winner
  out=FILE        a file, in place of standard output

The exit code is 0, also when the winner is plain decoding; 2 if the server has nothing like it."""
KEYS = ("to", "cell", "out")


def export(argv: list[str]) -> int:
    """Runs the command."""
    if not argv or "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    source, given = _read(argv)

    from ..bench import exporting
    from ..bench.exporting.reading import chosen

    if given.get("to") not in exporting.SERVERS:
        raise ConfigError(
            f"to={given.get('to', '')} is not possible; it must be one of "
            f"{', '.join(exporting.SERVERS)}."
        )
    found = chosen(source, given.get("cell"))
    made = exporting.export(found.config, given["to"], found.drafted)
    note(found.says)
    for sentence in made.lost:
        note(f"not carried over: {sentence}")
    note(f"use: {made.use}")
    _write(made.text, given.get("out"))
    return 0


def _read(argv: list[str]) -> tuple[str, dict[str, str]]:
    given: dict[str, str] = {}
    sources = []
    for word in argv:
        key, equals, value = word.partition("=")
        if equals and key in KEYS and key not in given and value:
            given[key] = value
        else:
            sources.append(word)
    if len(sources) != 1 or sources[0].startswith("-"):
        raise ConfigError(
            "foredraft export takes one preset or folder, to=vllm or to=sglang, cell= and out=, each "
            "once."
        )
    return sources[0], given


def _write(text: str, out: str | None) -> None:
    if out is None:
        print(text)
        return
    with written_whole(Path(out), "out=") as partial:
        partial.write_text(text + "\n", "utf-8")
    note(out)
