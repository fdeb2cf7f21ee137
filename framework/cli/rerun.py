"""``foredraft rerun``: a cell of a sweep once more."""

from __future__ import annotations

from ..errors import ConfigError
from .display import note

HELP = """\
usage: foredraft rerun DIR CELL [KEY=VALUE ...]

Decodes every prompt of one cell again, with the config, seeds and batches that the sweep's folder
has, and compares ids and counters. Nothing is written.

  KEY=VALUE  repeats what only a command line may say (target.trust_remote_code=true)

The exit code is 0, or 4 if something came out otherwise."""
OTHERWISE = 4


def rerun(argv: list[str]) -> int:
    """Runs the command."""
    if not argv or "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    folder, cell, *words = [*argv, ""] if len(argv) == 1 else argv
    if not cell or any(word.startswith("-") or "=" not in word for word in words):
        raise ConfigError(
            "foredraft rerun takes a sweep's folder and a cell's id; see foredraft report."
        )

    from ..bench import rerunning
    from ..bench.hand import Worker
    from ..bench.store import Store
    from ..plugins import current_files

    worker = Worker(limit=300.0)
    try:
        found = rerunning.rerun(Store.open(folder), cell, worker, words, current_files())
    finally:
        worker.close()
    for sentence in found.different:
        note(sentence)
    speed = f"{found.seconds:.2f} s of decoding, {found.before:.2f} s as recorded"
    same = "the same ids and counters" if not found.different else f"{len(found.different)} differ"
    print(f"{found.cell}: {found.units} units, {found.tokens} tokens, {same}; {speed}")
    return OTHERWISE if found.different else 0
