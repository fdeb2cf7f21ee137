"""Reading a folder of documents as ids of the target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from foredraft.framework import ConfigError, ForedraftError, InputError, Target

if TYPE_CHECKING:
    from . import RetrievalConfig


def read_documents(config: RetrievalConfig, target: Target) -> list[list[int]]:
    """The ids of each document, in the order of the file names.

    Raises:
        ConfigError: when no path is set.
        InputError: when there is no document, or one cannot be read or has ids that the target
            has not.
    """
    documents = [_ids(_text(file), file, target) for file in find_files(config.path, config.glob)]
    if not any(documents):
        raise InputError(f"drafter.path={config.path} has no text in any of its documents.")
    return documents


def find_files(path: str, glob: str) -> list[Path]:
    """The documents at a path: the file itself, or the files of the folder that fit ``glob``."""
    if not path:
        raise ConfigError("drafter.path is not set; give a folder of documents or a text file.")
    place = Path(path).expanduser()
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise InputError(f"drafter.path={path} does not exist; give a folder or a text file.")
    try:
        found = sorted(file for file in place.glob(glob) if file.is_file())
    except (ValueError, NotImplementedError) as error:
        raise ConfigError(f"drafter.glob={glob!r} is not a pattern of files: {error}.") from None
    if not found:
        raise InputError(f"drafter.path={path} has no file that fits drafter.glob={glob!r}.")
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8; drafter.path takes text alone.") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}.") from None


def _ids(text: str, file: Path, target: Target) -> list[int]:
    """Ids of a document: by the target's tokenizer, else as numbers with spaces between."""
    if target.tokenizer is None:
        ids = _numbers(text, file)
    else:
        try:
            ids = list(target.tokenizer.encode(text, add_special_tokens=False))
        except ForedraftError as error:  # a target of numbers refuses words
            reason = str(error).rstrip(".")
            raise InputError(f"{file} cannot be read as the target's tokens: {reason}.") from None
    wrong = next((token for token in ids if not 0 <= token < target.vocab_size), None)
    if wrong is not None:
        raise InputError(
            f"{file} has the id {wrong}; the ids of this target are 0 to {target.vocab_size - 1}."
        )
    return ids


def _numbers(text: str, file: Path) -> list[int]:
    for word in text.split():
        if not word.isdecimal():
            raise InputError(
                f"{file} has {word!r}; this target has no tokenizer, so that documents must be "
                "ids with spaces between."
            )
    return [int(word) for word in text.split()]
