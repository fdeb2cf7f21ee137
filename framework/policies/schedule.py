"""Gamma from a table: by the number of live rows, or by the place in the answer."""

from __future__ import annotations

from collections.abc import Mapping

from ..interfaces import PolicySession


class ScheduleSession(PolicySession):
    """The gamma of the largest key that is not above the number of live rows (``config.by`` =
    ``batch``) or of the row's emitted tokens (``position``)."""

    def gammas(self) -> list[int]:
        if self.config.by == "batch":
            return [looked_up(self.config.gammas, self.context.rows)] * self.context.rows
        lengths = zip(self.context.tokens, self.context.prompt_lengths, strict=True)
        return [looked_up(self.config.gammas, len(row) - prompt) for row, prompt in lengths]


def looked_up(table: Mapping[int, int], value: int) -> int:
    """The entry of the largest key up to ``value``; below the first key, the first entry."""
    keys = [key for key in sorted(table) if key <= value]
    return table[keys[-1] if keys else min(table)]
