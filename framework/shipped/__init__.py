"""Models and weights that come with Foredraft: ``shipped:NAME`` names one wherever a folder is asked for."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError

PREFIX = "shipped:"
HERE = Path(__file__).parent


def names() -> list[str]:
    """What there is."""
    return sorted(folder.name for folder in HERE.iterdir() if (folder / "card.json").is_file())


def place(path: str) -> str:
    """A path as a user gave it, as one that can be opened.

    Raises:
        InputError: nothing of this name is shipped.
    """
    if not path.startswith(PREFIX):
        return str(Path(path).expanduser()) if path.startswith("~") else path
    name = path.removeprefix(PREFIX)
    if name not in names():
        raise InputError(
            f"{path} is not possible; {PREFIX} is followed by one of {', '.join(names())}."
        )
    return str(HERE / name)
