"""Figures: PNG files with what was asked, and one sentence where they cannot be made."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from foredraft.framework import figures
from foredraft.framework.errors import ConfigError, InputError
from foredraft.framework.figures import Line, draw, figure_2, figure_3

LINES = [Line("a", [0, 1], [1, 2], marked=True), Line("b", [0, 1], [2, 2], steps=True)]


def pixels(path: Path) -> np.ndarray:
    image = pytest.importorskip("PIL.Image")
    with image.open(path) as opened:
        assert opened.format == "PNG"
        return np.asarray(opened.convert("RGB"))


def has(found: np.ndarray, colour: str) -> bool:
    """Whether enough pixels have exactly this colour to be a line."""
    wanted = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return int((found == wanted).all(-1).sum()) > 100


@pytest.fixture(autouse=True)
def needs_matplotlib() -> None:
    pytest.importorskip("matplotlib")


def test_lines_are_drawn_in_their_colours_on_white(tmp_path: Path) -> None:
    path = draw(tmp_path / "x.png", LINES, title="t", x="x", y="y", y_limits=(0, 3))
    found = pixels(path)
    assert (found[0, 0] == 255).all() and has(found, figures.COLOURS[0])
    assert has(found, figures.COLOURS[1]) and not has(found, figures.COLOURS[2])


def test_the_legend_stands_beside_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    monkeypatch.setattr(figures, "_saved", lambda figure, path: kept.append(figure))
    draw(tmp_path / "x.png", LINES, title="t", x="seconds", y="tokens", legend="what")
    (figure,) = kept
    figure.savefig(tmp_path / "x.png")
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend.get_window_extent().x0 > axes.get_window_extent().x1
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("seconds", "tokens")


def test_the_papers_figures_have_the_papers_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, dict[str, Line]] = {}

    def keep(path: Path, lines: list[Line], **words: object) -> Path:
        drawn[path.name] = {line.name: line for line in lines}
        return path

    monkeypatch.setattr(figures, "draw", keep)
    figure_2(tmp_path), figure_3(tmp_path)
    two, three = drawn["figure2.png"], drawn["figure3.png"]
    endless = two["gamma = ∞"]
    assert list(two) == [f"gamma = {gamma}" for gamma in ("∞", 7, 5, 3, 2, 1)]
    assert np.asarray(two["gamma = 5"].y)[[0, -1]].tolist() == [1, 6]
    assert np.interp(0.8, np.asarray(endless.x), np.asarray(endless.y)) == pytest.approx(5)
    at = np.asarray(three["c = 0.05"].x).searchsorted(0.8)
    assert np.asarray(three["c = 0.05"].y)[at] == 8


def test_the_papers_figures_are_written(tmp_path: Path) -> None:
    for path in (figure_2(tmp_path / "new"), figure_3(tmp_path / "new")):
        assert all(has(pixels(path), colour) for colour in figures.COLOURS[:6])


def test_without_matplotlib_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install 'foredraft\[figures\]'"):
        draw(tmp_path / "x.png", LINES, title="t", x="x", y="y")
    assert not (tmp_path / "x.png").exists()


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        draw(tmp_path / "no" / "such" / "x.png", LINES, title="t", x="x", y="y")
