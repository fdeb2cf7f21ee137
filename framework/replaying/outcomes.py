"""What policies and recorders are told of a round, made lean: a replay makes millions."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import RowOutcome

LENGTH = "length"


def outcomes(
    columns: Sequence[list[int]], overlaps: list[list[float]], ends: list[bool]
) -> list[RowOutcome]:
    """What each row is told. Ids are 0; lists of the same length are one list.

    Args:
        columns: by row: trace, tokens drafted, accepted, emitted, positions reached, gamma.
        overlaps: by row, at least as deep as it reached.
        ends: whether the row ends with this round.
    """
    _, drafts, _, emits, _, _ = columns
    most = max([*drafts, *emits], default=0) + 1
    zeros, places = [[0] * n for n in range(most)], [list(range(n)) for n in range(most)]
    return [
        RowOutcome(
            request=trace,
            drafted=zeros[drafted],
            accepted=accepted,
            emitted=zeros[emitted],
            overlaps=overlap[:reached],
            finish=LENGTH if end else None,
            path=places[accepted],
            rejected=zeros[1 if reached > accepted else 0],
            gamma=gamma,
        )
        for (trace, drafted, accepted, emitted, reached, gamma), overlap, end in zip(
            zip(*columns, strict=True), overlaps, ends, strict=True
        )
    ]
