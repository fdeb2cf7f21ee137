"""The report's page: what it says, and that text from a run stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import pytest
from report_helpers import GROUPS, HOSTILE, fake_page, filled

from foredraft.framework.bench.report.data import (
    Answer,
    Cell,
    Interval,
    Page,
    Round,
    Stretch,
    Token,
)
from foredraft.framework.bench.report.filters import filtering
from foredraft.framework.bench.report.headline import headline
from foredraft.framework.bench.report.html import render
from foredraft.framework.bench.report.tidying import tidied
from foredraft.framework.bench.report.writing import write_report
from foredraft.framework.errors import InputError

VOID = {"meta", "input", "br", "img"}
Tag = tuple[str, tuple[str, ...]]


class Outline(HTMLParser):
    """Tags with the names of their attributes, ids, links and the texts of script and style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[Tag] = []
        self.open: list[str] = []
        self.values: list[tuple[str, str]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.values += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.values += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.raw:
            self.raw[self.open[-1]].append(data)
        else:
            self.words.append(data)


@pytest.fixture(scope="module")
def page() -> str:
    return render([fake_page()])


@pytest.fixture(scope="module")
def benign() -> list[Tag]:
    return Outline(render([filled("word")])).tags


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_changes_the_page(text: str, benign: list[Tag]) -> None:
    found = render([filled(text)])
    outline = Outline(found)
    assert outline.tags == benign and not outline.open
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]", found)
    found.encode("utf-8")  # no half of a surrogate pair
    assert not any(name.startswith("on") or name in ("style", "src") for name, _ in outline.values)


def test_the_text_is_there_to_read() -> None:
    outline = Outline(render([filled(HOSTILE[0])]))
    assert sum(HOSTILE[0] in words for words in outline.words) > 300


def test_the_policy_lets_nothing_run_but_this_script_and_style(page: str) -> None:
    outline = Outline(page)
    policy = next(value for name, value in outline.values if value.startswith("default-src"))
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    (style,), (data, script) = outline.raw["style"], outline.raw["script"]
    for source in (style, script):
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert digest and "http" not in style + script and "innerHTML" not in script
    links = [value for name, value in outline.values if name in ("href", "action", "src")]
    assert links and all(link.startswith("#") for link in links)
    assert json.loads(data) == {"r1": filtering(fake_page())}


def test_the_page_is_whole(page: str) -> None:
    outline = Outline(page)
    ids = [value for name, value in outline.values if name == "id"]
    assert len(ids) == len(set(ids))
    assert {link[1:] for name, link in outline.values if name == "href"} <= set(ids)
    tags = [tag for tag, _ in outline.tags]
    assert tags.count("table") == tags.count("caption") == tags.count("thead") == 3
    assert tags.count("h1") == 1 and tags.count("figure") == 6
    words = " ".join(outline.words)
    for cell in fake_page().cells:
        assert cell.cause in words
    assert page.startswith("<!doctype html>") and "{{" not in page and "{%" not in page


def test_numbers_that_are_none_are_shown_as_unknown() -> None:
    bad = Interval(float("nan"), float("-inf"), float("inf"))
    half = Interval(1.1, float("nan"), 1.2)
    cell = Cell(
        "x", {"drafter": "x", "policy.gamma": float("inf")}, drafter="x", gamma=float("inf"),
        speedup=bad, totals=half, groups={"math": bad, "qa": half}, tau=half, alpha=bad,
        noise=bad, by_position=[0.5, float("nan"), 0.2], c=float("nan"), predicted=float("inf"),
        phases={"draft": float("nan"), "verify": 0.1},
        course=[Stretch(1, 2, bad), Stretch(3, 4, half)],
    )  # fmt: skip
    found = Outline(render([Page("t", [cell])]))
    shown = [value for name, value in found.values if name in ("aria-label", "data-value", "d")]
    text = " ".join([*found.words, *shown]).lower()
    assert not re.search(r"\b(nan|none)\b", text)
    assert "1.10x" in text and tidied(Page("t", [cell])).groups == ["qa"]


@pytest.mark.parametrize(
    "cells", [[], [Cell("a", status="failed", cause="it broke."), Cell("b", status="missing")]]
)
def test_a_run_with_nothing_measured_has_a_page(cells: Sequence[Cell]) -> None:
    found = render([Page("empty", cells)])
    assert "Nothing was measured" in found and ("it broke." in found) == bool(cells)
    assert ("1 setting failed · 1 setting not measured yet" in found) == bool(cells)


def test_long_answers_are_cut_and_say_so() -> None:
    long = Answer("c", "math", "p" * 100_000, [Round([Token("t" * 100_000)])])
    many = Answer("c", "math", "p", [Round([Token("a")], [], [Token("b")])] * 50_000)
    found = render([Page("t", answers=[long, many])])
    assert len(found) < 400_000
    assert "96,000 more characters" in found and "99,880 more characters" in found
    assert "49,600 more rounds not shown" in found and "100,000 tokens in 50,000 rounds" in found


def made(name: str, low: float, value: float, high: float, **fields: object) -> Cell:
    cell = Cell(name, {"drafter": name}, drafter=name, speedup=Interval(value, low, high))
    return replace(cell, **fields)  # type: ignore[arg-type]


GOOD, WIDE = made("good", 1.2, 1.3, 1.4), made("wide", 0.5, 1.9, 4.0)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([GOOD, WIDE], "good is 1.30x [1.20, 1.40] plain decoding over all prompts."),
        ([WIDE], "faster than plain decoding over all prompts. The best is wide: 1.90x [0.50, 4.00]."),
        ([GOOD, made("lossy", 2, 3, 4, lossy=True)], "good is"),
        ([GOOD, made("wrong", 2, 3, 4, verdict_ok=False)], "good is"),
        ([GOOD, made("busy", 2, 3, 4, contended=True)], "good is"),
        ([GOOD, made("generate", 2, 3, 4, kind="generate")], "good is"),
        ([replace(GOOD, groups={"qa": Interval(1.1, 0.9, 1.2), "code": Interval(2, 1.9, 2.1)})],
         "; on qa do not speculate."),
        ([replace(WIDE, groups={"qa": Interval(1.1, 0.9, 1.2), "code": Interval(2, 1.9, 2.1)})],
         " On code alone, wide reaches 2.00x [1.90, 2.10]."),
    ],
)  # fmt: skip
def test_the_headline(cells: Sequence[Cell], said: str) -> None:
    assert said in headline(tidied(Page("t", cells)))


def test_a_headline_of_the_caller_is_taken() -> None:
    assert headline(Page("t", headline="So it\nis.")) == "So it⏎is."


def test_runs_side_by_side() -> None:
    pages = [fake_page("before"), fake_page("after", slow=3.0)]
    found = render(pages)
    outline = Outline(found)
    ids = [value for name, value in outline.values if name == "id"]
    assert len(ids) == len(set(ids)) and {"r1", "r2", "all-runs", "all-runs-table"} <= set(ids)
    assert [tag for tag, _ in outline.tags].count("h1") == 1
    for page in pages:
        assert headline(tidied(page)).replace("gamma ", "gamma\u00a0")[:30] in found


def test_the_files_are_written(tmp_path: Path) -> None:
    paths = write_report([filled(HOSTILE[5])], tmp_path)
    assert [path.name for path in paths] == ["report.html", "summary.md", "summary.csv"]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    assert all(len(path.read_text("utf-8")) > 1000 for path in paths)
    with pytest.raises(InputError, match="cannot be written"):
        write_report([fake_page()], tmp_path / "missing")


def test_colours_can_be_told_from_the_paper() -> None:
    """WCAG 2.2: 4.5 for text, 3 for marks."""
    style = resources.files("foredraft.framework.bench.report").joinpath("template/style.css")
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", style.read_text("utf-8"))
    for side in (1, 2):
        colours = {pair[0]: pair[side] for pair in pairs}
        for name in ("ink", "soft", "good", "bad", "accent"):
            assert contrast(colours[name], colours["paper"]) >= 4.5, (name, side)
            assert contrast(colours[name], colours["raised"]) >= 4.5, (name, side)
        for name in (f"s{index}" for index in range(7)):
            assert contrast(colours[name], colours["paper"]) >= 3, (name, side)


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_groups_are_in_the_order_of_the_page(page: str) -> None:
    at = [page.index(f"<dt>{group}</dt>") for group in GROUPS]
    assert at == sorted(at)
