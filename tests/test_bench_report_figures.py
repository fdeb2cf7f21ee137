"""The report's figures and its flat files: they show the numbers that they were given."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from report_helpers import HOSTILE, fake_page, filled

from foredraft.framework import theory
from foredraft.framework.bench.report.bars import phases
from foredraft.framework.bench.report.curves import by_gamma, predictions
from foredraft.framework.bench.report.data import Interval, Page, Stretch
from foredraft.framework.bench.report.flat import csv_text, markdown
from foredraft.framework.bench.report.forest import forest, side_by_side
from foredraft.framework.bench.report.headline import overall
from foredraft.framework.bench.report.html import FIGURES
from foredraft.framework.bench.report.positions import acceptance, course
from foredraft.framework.bench.report.series import Figure
from foredraft.framework.bench.report.svg import Scale, Style, nice, ratio_scale
from foredraft.framework.bench.report.tidying import tidied
from foredraft.framework.bench.report.words import bounds, label, number, spoken

PAGE = tidied(fake_page())
Element = ElementTree.Element


def drawings(figure: Figure | None) -> list[Element]:
    assert figure is not None
    return [ElementTree.fromstring(str(panel)) for panel in figure.panels]


def labels(figure: Figure | None) -> list[str]:
    marks = [mark for panel in drawings(figure) for mark in panel.iterfind(".//*[@role='img']")]
    return [mark.attrib["aria-label"] for mark in marks]


def of_class(panel: Element, name: str) -> list[Element]:
    return [found for found in panel.iter() if name in found.get("class", "").split()]


@pytest.mark.parametrize("draw", FIGURES)
def test_everything_is_drawn_inside(draw: object) -> None:
    assert callable(draw)
    for panel in drawings(draw(PAGE)):
        width, height = map(float, panel.attrib["viewBox"].split()[2:])
        for found in panel.iter():
            for name in ("x", "x1", "x2", "cx"):
                assert 0 <= float(found.get(name, 1)) <= width
            for name in ("y", "y1", "y2", "cy"):
                assert 0 <= float(found.get(name, 1)) <= height
        assert "nan" not in str(ElementTree.tostring(panel))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_figures_are_sound_whatever_the_names(text: str) -> None:
    page = tidied(filled(text))
    assert all(len(labels(draw(page))) > 20 for draw in FIGURES)


@pytest.mark.parametrize("draw", FIGURES)
def test_a_page_without_numbers_has_no_figures(draw: object) -> None:
    assert callable(draw)
    bare = [
        replace(
            cell,
            speedup=None,
            groups={},
            tau=None,
            by_position=(),
            phases={},
            course=(),
            gamma=None,
        )
        for cell in PAGE.cells
    ]
    assert draw(Page("t", bare)) is None and draw(Page("t")) is None


def test_speedups_stand_with_their_intervals_around_the_line_at_one() -> None:
    found = labels(forest(PAGE))
    best = overall(PAGE)
    assert best and f"all prompts, {label(best)}: {spoken(best.speedup)}" in found
    assert len(found) == 2 * 4 * 7
    panel = drawings(forest(PAGE))[0]
    one = float(of_class(panel, "one")[0].attrib["x1"])
    for mark in of_class(panel, "mark"):
        value, low, high = map(float, re.findall(r"\d+\.\d+", mark.attrib["aria-label"])[-3:])
        at = float(mark[0].attrib["cx"])
        assert (at > one) == (value > 1) or value == 1
        whisker = next(w for w in of_class(panel, "whisker") if w.get("y1") == mark[0].get("cy"))
        left, right = float(whisker.attrib["x1"]), float(whisker.attrib["x2"])
        assert left < at < right and (left > one) == (low > 1) or low == 1
        assert (right > one) == (high > 1) or high == 1


def test_speedup_against_gamma_has_the_curve_of_theorem_3_8() -> None:
    figure = by_gamma(PAGE)
    panels = drawings(figure)
    assert len(panels) == 4 and len(labels(figure)) == 23
    cells = [c for c in PAGE.cells if c.drafter == "early_exit" and c.id.endswith("temperature=0")]
    assert cells[0].alpha and cells[0].c
    alpha, c = cells[0].alpha.value, cells[0].c
    ys = [float(y) for y in re.findall(r" (\d+\.\d)", of_class(panels[2], "theory")[0].attrib["d"])]
    expected = theory.speedup(alpha, [5.5 * at / 59 for at in range(60)], c)
    first, last = ys[0], ys[-1]
    slope = (expected[-1] - expected[0]) / (last - first)
    assert [expected[0] + slope * (y - first) for y in ys] == pytest.approx(expected, abs=0.003)
    assert first == float(of_class(panels[2], "one")[0].attrib["y1"])  # gamma 0 is plain decoding


def test_the_other_figures_hold_every_setting() -> None:
    assert len(labels(predictions(PAGE))) == 2 * 23
    assert len(labels(course(PAGE))) == 2 * 4 * 8
    assert sum("tau" in words for words in labels(acceptance(PAGE))) == 23
    plain = [words for words in labels(phases(PAGE)) if words.startswith("plain decoding")]
    assert plain[0] == "plain decoding, temperature 0: verify 21.20 of 22.20 ms per token"


def test_stretches_of_answers_lie_in_their_intervals() -> None:
    cell = next(
        c for c in PAGE.cells if c.id == "drafter=ngram,policy.gamma=1,sampling.temperature=0"
    )
    first = cell.course[0]
    says = f"tokens 1 to 16: {number(first.rate.value)} {bounds(first.rate)} accepted"
    assert any(words.endswith(says) for words in labels(course(tidied(Page("t", [cell])))))
    for panel in drawings(course(PAGE)):
        areas, lines = of_class(panel, "ribbon"), of_class(panel, "line")
        assert len(areas) == len(lines) == 4
        for area, line in zip(areas, lines, strict=True):
            edge = [float(y) for y in re.findall(r" (\d+\.\d)", area.attrib["d"])]
            ys = [float(y) for y in re.findall(r" (\d+\.\d)", line.attrib["d"])]
            assert len(edge) == 2 * len(ys)
            for high, y, low in zip(edge, ys, reversed(edge), strict=False):
                assert high < y < low  # downwards
    alone = replace(cell, course=[Stretch(1, 8, Interval(0.5))])
    assert not of_class(drawings(course(Page("t", [alone])))[0], "ribbon")


def test_bars_end_where_the_times_say() -> None:
    panel = drawings(phases(PAGE))[0]
    line = float(of_class(panel, "one")[0].attrib["x1"])
    bars = [b for b in of_class(panel, "phase") if b.attrib["aria-label"].startswith("plain dec")]
    end = max(float(b.attrib["x"]) + float(b.attrib["width"]) for b in bars)
    assert end == pytest.approx(line, abs=0.8)


def test_names_differ_without_colour() -> None:
    styles = [(Style(i).css, Style(i).shape, Style(i).dash) for i in range(28)]
    assert len(set(styles)) == 28
    for one, other in zip(styles, styles[1:], strict=False):
        assert one[1] != other[1]


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.93, 1.07), (1, 130), (0, 0.0004), (2, 2)])
def test_ticks_are_round_and_few(low: float, high: float) -> None:
    ticks = nice(low, high)
    assert 1 <= len(ticks) <= 6 and all(low <= tick <= high for tick in ticks)


def test_half_is_as_far_from_one_as_twice() -> None:
    scale = ratio_scale([0.4, 3.0, 1e9], 0, 300)
    assert scale(2) - scale(1) == pytest.approx(scale(1) - scale(0.5))
    assert scale(1e12) == 300 and Scale(0, 1, 0, 10)(-5) == 0
    ticks = scale.ticks()
    assert 1 in ticks and all(
        scale(b) - scale(a) >= 30 for a, b in zip(ticks, ticks[1:], strict=False)
    )


def test_runs_beside_each_other_share_their_settings() -> None:
    other = replace(PAGE, title="other", cells=PAGE.cells[:10])
    figure = side_by_side([PAGE, other])
    assert len(labels(figure)) == 2 * 6 and {"other"} < {key.name for key in figure.legend}  # type: ignore[union-attr]
    assert side_by_side([PAGE, Page("nothing")]) is None


def test_csv_holds_every_cell_in_full() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text([fake_page("one"), fake_page("two")]))))
    assert [row["run"] for row in rows] == ["one"] * 28 + ["two"] * 28
    for row, cell in zip(rows, fake_page().cells, strict=False):
        assert row["cell"] == cell.id and row["status"] == cell.status
        if cell.speedup is None:
            assert row["speedup"] == "" and row["cause"] == cell.cause
            continue
        assert float(row["speedup"]) == cell.speedup.value
        assert row["speedup low"] == ("" if cell.speedup.low is None else repr(cell.speedup.low))
        for group, interval in cell.groups.items():
            assert float(row[f"speedup {group}"]) == interval.value


@pytest.mark.parametrize("start", ["=", "+", "-", "@", " =", "\t=", "\r=", "\n@"])
def test_no_text_in_csv_is_a_formula(start: str) -> None:
    rows = list(csv.reader(io.StringIO(csv_text([filled(f"{start}1+1\"',\n")]))))
    assert len(rows) == 29 and len({len(row) for row in rows}) == 1
    for field in (field for row in rows for field in row):
        assert not field.lstrip().startswith(("=", "+", "@"))
        assert not field.startswith("-") or float(field)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_markdown_keeps_its_tables(text: str) -> None:
    found = markdown([filled(text)])
    tables = [block for block in found.split("\n\n") if block.startswith("|")]
    assert len(tables) == 4
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.split("\n")}) == 1
    assert not re.search(r"(?<!\\)[<>]", found) and "\u202e" not in found


def test_markdown_says_the_result() -> None:
    found = markdown([fake_page()])
    assert found.startswith(
        "# outputs/bench/smollm2\n\nprompt\\_lookup with gamma 3, temperature 0 is 1."
    )
    assert "on translation do not speculate." in found and "| do not speculate |" in found
    assert "plain decoding, temperature 1, against itself: 1.00x \\[0.97, 1.03\\]" in found
