"""``foredraft report``: the pages and tables of one sweep, or of several side by side."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError, InputError
from .display import note

if TYPE_CHECKING:
    from ..bench.kept import Kept

HELP = """\
usage: foredraft report DIR [DIR ...] [out=DIR]

Writes report.html, summary.md, and summary.csv of a sweep into its folder; of several
sweeps, side by side, into out=DIR. A sweep that still runs may be looked at, too.

  out=DIR   another folder; it has to be there"""


def report(argv: list[str]) -> int:
    """Runs the command."""
    if not argv or "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    folders = [word for word in argv if not word.startswith("out=")]
    outs = [word.removeprefix("out=") for word in argv if word.startswith("out=")]
    if not folders or len(outs) > 1 or any(word.startswith("-") for word in folders):
        raise ConfigError("foredraft report takes folders of sweeps, and one out=DIR at most.")
    if len(folders) > 1 and not outs:
        raise ConfigError(f"a report of {len(folders)} sweeps needs out=DIR, a folder for it.")

    from ..bench.store import Store

    stores: list[Kept] = [Store.open(folder) for folder in folders]
    written(stores, Path(outs[0]).expanduser() if outs else stores[0].folder)
    return 0


def written(stores: list[Kept], folder: Path) -> None:
    """Writes the files and says where they are."""
    from ..bench.paging import page
    from ..bench.report.writing import write_report

    pages = [page(store) for store in stores]
    try:
        for path in write_report(pages, folder):
            note(str(path))
    except InputError as error:
        words = shlex.join(["foredraft", "report", *(str(store.folder) for store in stores)])
        said = str(error).removesuffix(".")
        raise InputError(f"{said}; {words} out=DIR writes the report to another folder.") from None
