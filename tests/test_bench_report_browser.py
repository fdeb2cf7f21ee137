"""The report in a real browser: nothing is loaded, nothing fails, and it can be worked.

Needs playwright and a Chromium that is installed: ``pip install playwright``, and ``apt-get install
chromium`` or another way to have it on the path.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from report_helpers import HOSTILE, fake_page, filled

from foredraft.framework.bench.report.html import render

playwright = pytest.importorskip("playwright.sync_api")
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if BROWSER is None:
    pytest.skip("no Chromium is installed", allow_module_level=True)

SPEED = "#r1-settings thead th:nth-child(2)"
SLOW = 100_000  # milliseconds; a busy machine is no failure
FIRST_COLUMN = (
    "rows => rows.filter(row => !row.hidden).map(row => row.cells[0].innerText.split('\\n')[0])"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("report")
    (found / "one.html").write_text(render([fake_page()]), "utf-8")
    (found / "two.html").write_text(render([fake_page("a"), fake_page("b", 1, 3.0)]), "utf-8")
    return found


@contextmanager
def opened(browser: Any, path: Path, **options: Any) -> Iterator[Any]:
    """The page; afterwards nothing may have failed, asked or been loaded."""
    options.setdefault("viewport", {"width": 1200, "height": 900})
    context = browser.new_context(**options)
    context.set_default_timeout(SLOW)
    page, wrong = context.new_page(), []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))  # and the page would hang
    page.on("request", lambda request: wrong.append(request.url))
    page.goto(path.as_uri())
    yield page
    context.close()
    wrong = [found for found in wrong if found != path.as_uri()]
    assert wrong == []


def rows(page: Any, table: str = "#r1-settings") -> list[str]:
    found: list[str] = page.eval_on_selector_all(f"{table} tbody tr", FIRST_COLUMN)
    return found


def test_sorting_and_filters(browser: Any, folder: Path) -> None:
    with opened(browser, folder / "one.html") as page:
        start = rows(page)
        page.click(f"{SPEED} button")
        assert page.get_attribute(SPEED, "aria-sort") == "descending"
        assert rows(page)[0] == "prompt_lookup, gamma 3, temperature 0"
        values = page.eval_on_selector_all(
            "#r1-settings tbody tr", "all => all.map(row => row.cells[1].dataset.value)"
        )
        known = [float(value) for value in values if value is not None]
        assert known == sorted(known, reverse=True) and values[-1] is None
        page.focus(f"{SPEED} button")
        page.keyboard.press("Enter")
        assert page.get_attribute(SPEED, "aria-sort") == "ascending"
        assert rows(page)[-1] == "ngram, gamma 5, temperature 1"  # failed: the unknown stays last
        page.click("#r1-settings thead th:first-child button")
        assert rows(page) == start and page.locator("[aria-sort=ascending]").count() == 3
        page.select_option("select[data-key='drafter']", "=ngram")
        page.select_option("select[data-key='sampling.temperature']", "=1")
        names = [name for name in rows(page) if name.startswith("ngram")]
        assert len(names) == 3 and len(rows(page)) == 5  # with the baselines of that temperature
        assert page.inner_text("output") == "5 of 28"
        page.fill("input[type=search]", "GAMMA 3")
        assert rows(page) == rows(page, "#r1-why") == ["ngram, gamma 3, temperature 1"]
        page.click("button[type=reset]")
        page.wait_for_function("document.querySelector('output').value === '28 of 28'")
        assert len(rows(page)) == 28


def test_tokens_and_marks_say_what_they_stand_for(browser: Any, folder: Path) -> None:
    with opened(browser, folder / "one.html") as page:
        page.hover("#r1-answers .trace .token.accepted >> nth=0")
        assert page.inner_text("#tip").startswith("accepted draft; drafter 0.")
        page.keyboard.press("Escape")
        assert page.is_hidden("#tip")
        page.focus(".trace .token >> nth=0")
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#tip").startswith("accepted draft")
        page.keyboard.press("End")
        assert page.inner_text("#tip").startswith("the target's own token")
        assert page.locator(".trace[open] .answer [tabindex='0']").count() == 1
        page.check(".trace[open] .lines input")
        assert page.locator(".trace.by-round").count() == 1
        looks = {
            kind: page.eval_on_selector(
                f".trace .{kind}",
                "one => (s => [s.textDecorationLine, s.fontWeight])(getComputedStyle(one))",
            )
            for kind in ("accepted", "rejected", "own")
        }
        assert looks == {
            "accepted": ["underline", "400"],
            "rejected": ["line-through", "400"],
            "own": ["none", "700"],
        }
        mark = page.locator("#r1-speedup .panels .mark >> nth=0")
        mark.hover()
        assert page.inner_text("#tip") == mark.get_attribute("aria-label")
        assert "conversation, prompt_lookup" in page.inner_text("#tip")
        page.focus("#r1-phases [tabindex='0'] >> nth=0")
        page.keyboard.press("ArrowDown")
        assert "ms per token" in page.inner_text("#tip")


def test_the_light_switch(browser: Any, folder: Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, folder / "one.html", color_scheme="dark") as page:
        before = page.evaluate(paper)
        page.click("#theme")
        after = page.evaluate(paper)
        assert [before, after] == ["rgb(22, 24, 27)", "rgb(252, 251, 248)"]
        page.reload()
        assert page.evaluate(paper) == after


def test_a_phone(browser: Any, folder: Path) -> None:
    size = {"width": 360, "height": 740}
    with opened(browser, folder / "two.html", viewport=size, has_touch=True) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        page.tap("#r1-answers .token.rejected >> nth=1")  # the first is in the legend
        assert page.inner_text("#tip").startswith("rejected draft")
        box = page.locator("#tip").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 360


@pytest.mark.parametrize("text", ["".join(HOSTILE), "W" * 300], ids=["hostile", "long"])
def test_nothing_that_is_shown_runs(browser: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(render([filled(text)]), "utf-8")
    with opened(browser, path, viewport={"width": 360, "height": 740}) as page:
        assert page.locator("script").count() == 2 and page.locator("img").count() == 0
        page.click(f"{SPEED} button")
        page.hover(".token >> nth=3")
        assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_what_got_through_would_not_run(browser: Any, tmp_path: Path) -> None:
    """The policy alone holds against markup that was not escaped."""
    path = tmp_path / "broken.html"
    bad = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
    path.write_text(render([fake_page()]).replace("<main>", f"<main>{bad}"), "utf-8")
    page = browser.new_page()
    page.goto(path.as_uri(), timeout=SLOW)
    assert "measured" in page.title()
    page.close()


def test_without_its_script_the_page_is_whole(browser: Any, folder: Path) -> None:
    with opened(browser, folder / "one.html", java_script_enabled=False) as page:
        assert page.locator("#r1-settings tbody tr").count() == 28
        assert page.locator("form.filter").is_hidden() and page.locator("#theme").is_hidden()
        assert "drafter 0." in page.get_attribute(".trace .token.accepted", "title")
