"""An argument parser for the commands that take flags: errors are one sentence, like all others."""

from __future__ import annotations

import argparse
from typing import NoReturn

from ..errors import ConfigError


class OneLineParser(argparse.ArgumentParser):
    """``argparse``, without its two-line errors and without guessing at abbreviations."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__(f"foredraft {command}", description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raises what the command line prints as one line."""
        raise ConfigError(f"{self.prog}: {message}; see {self.prog} --help.")
