"""Names that a report gives to cells."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_store_helpers import CELLS, cell, manifest

from foredraft.framework.bench.paging import LOSSES, page
from foredraft.framework.bench.report.words import label
from foredraft.framework.bench.store import Store


def test_presets_of_one_drafter_and_both_plain_runs_keep_their_names(tmp_path: Path) -> None:
    cells = [cell(name) for name in CELLS]
    preset = {**cell(CELLS[0]), "id": "preset", "choices": {"drafter": "long", "policy.gamma": 3}}
    again = {**cell("plain"), "id": "plain,again", "baseline": "plain"}
    with Store.create(tmp_path / "run", manifest(cells=[*cells, preset, again])) as store:
        shown = {one.id: one for one in page(store).cells}
    assert label(shown[CELLS[0]]) == "ngram, gamma 3"
    assert label(shown["preset"]) == "long, gamma 3"
    assert label(shown["plain"]) == "plain decoding"
    assert label(shown["plain,again"]) == "plain decoding again"


@pytest.mark.parametrize(
    ("share", "text"), [(0.004, "+0%"), (-0.004, "+0%"), (0.126, "+13%"), (-0.126, "-13%")]
)
def test_nothing_is_not_less_than_nothing(share: float, text: str) -> None:
    class Found:
        extra = {"sampling": share}

    assert LOSSES["sampling"][1](Found()) == f"{text} of a plain round"  # type: ignore[arg-type]
