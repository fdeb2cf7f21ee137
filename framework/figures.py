"""Figures as PNG files: lines with names, and Figures 2 and 3 of the paper (arXiv:2211.17192).

matplotlib is an optional extra, imported where it is used: ``pip install 'foredraft[figures]'``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from . import theory
from .errors import ConfigError, InputError
from .files import written_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito: told apart by all common kinds of colour vision. After the seventh, dashed.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")
FIGURE_2_GAMMAS = (1, 2, 3, 5, 7, np.inf)
FIGURE_3_COSTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
TOP_2, TOP_3 = 10.0, 25.0  # where the axes end: both quantities grow without end towards alpha 1


@dataclass(frozen=True)
class Line:
    """A named line.

    Args:
        name: what the legend calls it.
        x, y: numbers of the same length.
        steps: whether ``y`` is constant between its jumps, as whole numbers are.
        marked: whether each point gets a mark.
    """

    name: str
    x: ArrayLike
    y: ArrayLike
    steps: bool = False
    marked: bool = False


@dataclass(frozen=True)
class Panel:
    """One of several pairs of axes over the same x.

    Args:
        lines: what is drawn.
        y: what its axis is.
        legend: what the names of the lines are.
        limits: of its axis.
    """

    lines: Sequence[Line]
    y: str
    legend: str = ""
    limits: tuple[float, float] | None = None


def draw(
    path: str | Path,
    lines: Sequence[Line],
    *,
    title: str,
    x: str,
    y: str,
    legend: str = "",
    x_limits: tuple[float, float] | None = None,
    y_limits: tuple[float, float] | None = None,
) -> Path:
    """Draws lines over one pair of axes, the legend beside them, into a PNG file.

    Args:
        title: what is seen.
        x, y: what the axes are, with units.
        legend: what the names of the lines are.

    Raises:
        ConfigError: matplotlib is missing.
        InputError: the file cannot be written.
    """
    figure = _figure()
    axes = figure.add_subplot()
    _plot(axes, lines, cycle(_styles()))
    axes.set(title=title, xlabel=x, ylabel=y)
    if x_limits is not None:
        axes.set_xlim(*x_limits)
    if y_limits is not None:
        axes.set_ylim(*y_limits)
    _finish(axes, legend)
    return _saved(figure, Path(path))


def stack(
    path: str | Path, panels: Sequence[Panel], *, title: str, x: str, marked: float, mark: str
) -> Path:
    """Draws panels one below the other, the first the higher one, into a PNG file.

    Args:
        title: what is seen.
        x: what the axis is that they share.
        marked: where an upright line is drawn through all of them.
        mark: what the legend of the first panel calls it.

    Raises:
        ConfigError: matplotlib is missing.
        InputError: the file cannot be written.
    """
    figure = _figure()
    heights = [2, *(1 for _ in panels[1:])]
    column = figure.subplots(
        len(panels), sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    styles = cycle(_styles())  # lines of two panels are never alike
    for panel, axes in zip(panels, column, strict=True):
        _plot(axes, panel.lines, styles)
        label = mark if axes is column[0] else None
        axes.axvline(marked, color="#777777", linewidth=1.0, linestyle=":", label=label)
        axes.set_ylabel(panel.y)
        if panel.limits is not None:
            axes.set_ylim(*panel.limits)
        _finish(axes, panel.legend)
    column[0].set_title(title)
    column[-1].set_xlabel(x)
    figure.align_ylabels(column)
    return _saved(figure, Path(path))


def figure_2(folder: str | Path) -> Path:
    """Figure 2: ``tau`` against ``alpha``, a line for each gamma (Equation 1)."""
    alphas = np.linspace(0, 1, 401)
    lines = [_tokens_line(gamma, alphas) for gamma in reversed(FIGURE_2_GAMMAS)]
    return draw(
        Path(folder) / "figure2.png", lines, legend="drafted per round", title="Tokens per round",
        x="acceptance rate alpha", y="expected tokens per round, tau",
        x_limits=(0, 1), y_limits=(1, TOP_2),
    )  # fmt: skip


def figure_3(folder: str | Path) -> Path:
    """Figure 3: the best gamma against ``alpha``, a line for each cost (section 3.5)."""
    alphas = np.linspace(0, 0.999, 1000)
    lines = [
        Line(f"c = {cost:g}", alphas, theory.best_gamma(alphas, cost)[0], steps=True)
        for cost in FIGURE_3_COSTS
    ]
    return draw(
        Path(folder) / "figure3.png", lines, legend="draft step over\ntarget step",
        title="The gamma with the largest speed-up; 0: do not speculate",
        x="acceptance rate alpha", y="best gamma, drafted tokens per round",
        x_limits=(0, 1), y_limits=(-0.5, TOP_3),
    )  # fmt: skip


def _tokens_line(gamma: float, alphas: ArrayLike) -> Line:
    if np.isfinite(gamma):
        return Line(f"gamma = {gamma:.0f}", alphas, theory.expected_tokens(alphas, gamma))
    below_one = np.asarray(alphas)[:-1]  # at 1 it is infinite
    return Line("gamma = ∞", below_one, theory.oracle_tokens(below_one))


def _plot(axes: Axes, lines: Sequence[Line], styles: Iterator[tuple[str, str]]) -> None:
    for line in lines:
        colour, dash = next(styles)
        style = "steps-mid" if line.steps else "default"
        axes.plot(
            np.asarray(line.x), np.asarray(line.y), dash, label=line.name, color=colour,
            drawstyle=style, linewidth=1.8, marker="o" if line.marked else "", markersize=4,
        )  # fmt: skip


def _styles() -> list[tuple[str, str]]:
    return [(colour, dash) for dash in DASHES for colour in COLOURS]


def _figure() -> Figure:
    """A figure of its own: pyplot would keep it, and pick a window system."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        cause = " ".join(str(error).split()).rstrip(".")
        raise ConfigError(
            f"figures need matplotlib, which cannot be imported ({cause}); "
            "pip install 'foredraft[figures]' brings it."
        ) from error
    return Figure(figsize=(7.2, 4.4), dpi=150, facecolor="white", layout="constrained")


def _finish(axes: Axes, legend: str) -> None:
    axes.set_facecolor("white")
    axes.grid(True, color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        title=legend or None, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False,
        alignment="left", handlelength=2.8,
    )  # fmt: skip


def _saved(figure: Figure, path: Path) -> Path:
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None
    with written_whole(path) as partial:
        figure.savefig(partial, format="png")
    return path
