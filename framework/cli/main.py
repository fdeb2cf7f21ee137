"""``foredraft <command> ...``: picks the command and turns every failure into one line."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from importlib import metadata
from typing import TextIO

from ..errors import ConfigError, ForedraftError, near_match
from .display import note, one_line

COMMANDS = {
    "generate": "answer a prompt, or a file of prompts, with any drafter and target",
    "plugins": "list every target, drafter, verifier, policy and observer that can be chosen",
    "fit": "count n-grams of your texts for drafter=ngram, or train a policy from traces",
    "bench": "measure a grid of settings side by side, on one loaded target",
    "report": "the page and the tables of a sweep, or of several side by side",
    "rerun": "a cell of a sweep once more: do the same ids come out?",
    "tune": "race settings, drop the slow ones early, and write the winner as a preset",
    "export": "a preset or a winner as vLLM speculative_config or SGLang flags",
    "compare": "what changed from one sweep to another, for CI too",
    "train": "train a drafter on the answers of its target",
    "score": "the acceptance of many drafters on the same answers, without decoding",
    "record": "note what a drafter would draft at every place, for replay",
    "fetch": "bring the default model into the cache folder",
    "theory": "what speculation should bring, by the paper's formulas; predicted beside measured",
    "replay": "run draft-length policies over recorded or synthetic texts, without a model",
    "times": "measure what the steps of a target and a drafter cost",
    "demo": "decode with and without drafts, side by side",
    "new": "write a package with a drafter, verifier or policy of your own",
    "check": "try to break what a drafter, verifier or policy promises",
}
USAGE = f"""\
usage: foredraft <command> [arguments]

commands:
{chr(10).join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())}

options:
  --help         this text; after a command, that command's
  --version      print the version
  --plugin FILE  take a Python file as a plugin, without installing it; may be repeated
  --trace        show the whole traceback of an error (also FOREDRAFT_FULL_ERROR=1)

try: foredraft generate prompt="Why is the sky blue?" max_new_tokens=64"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code.

    0 is success, 2 an error that names what to change, 1 a fault of the program, 130 Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    trace = "--trace" in words or os.environ.get("FOREDRAFT_FULL_ERROR") == "1"
    _prepare_streams()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = _dispatch([word for word in words if word != "--trace"])
            sys.stdout.flush()
            return code
    except KeyboardInterrupt:
        return 130
    except SystemExit as end:  # argparse has printed its help
        return end.code if isinstance(end.code, int) else 0
    except BrokenPipeError:
        # Python flushes stdout once more at exit, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except Exception as error:
        if trace:
            traceback.print_exc()
        return _report(error)


def _dispatch(words: list[str]) -> int:
    words, files = _take_plugins(words)
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0
    name, *rest = words
    if name == "--version":
        print(f"foredraft {_version()}")
        return 0
    if name not in COMMANDS:
        hint = near_match(name, COMMANDS)
        raise ConfigError(f"unknown command {name!r}; {hint}commands: {', '.join(COMMANDS)}.")
    module = f"{__package__}.{name}"
    if importlib.util.find_spec(module) is None:
        raise ConfigError(f"the command {name!r} is not part of this installation.")
    command = getattr(importlib.import_module(module), name)
    if not files:
        return int(command(rest) or 0)

    from ..plugins import registered_files

    with registered_files(files):
        return int(command(rest) or 0)


def _take_plugins(words: list[str]) -> tuple[list[str], list[str]]:
    """The command line without ``--plugin FILE``, wherever it stands, and the files."""
    rest: list[str] = []
    files: list[str] = []
    left = iter(words)
    for word in left:
        if word != "--plugin" and not word.startswith("--plugin="):
            rest.append(word)
            continue
        file = word.partition("=")[2] or ("" if "=" in word else next(left, ""))
        if not file:
            raise ConfigError("--plugin needs a Python file: --plugin ./mine.py.")
        files.append(file)
    return rest, files


def _report(error: Exception) -> int:
    if isinstance(error, ForedraftError):
        note(f"foredraft: {one_line(str(error))}")
        return 2
    text = one_line(str(error)).rstrip(".")
    note(
        f"foredraft: unexpected {type(error).__name__}{': ' if text else ''}{text}; "
        "run it again with --trace to see where."
    )
    return 1


def _version() -> str:
    try:
        return metadata.version("foredraft")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _prepare_streams() -> None:
    # transformers reads this when it is first imported; its remarks are no results of ours.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    note(f"foredraft: warning: {one_line(str(message))}")


if __name__ == "__main__":
    sys.exit(main())
