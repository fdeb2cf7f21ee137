"""The page: one HTML file that needs nothing else, and that can load nothing else.

Whatever comes from a run is escaped where it is written, and the page's policy lets the browser run
its own script and style alone, each by its hash: text that got through would still stay text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from .bars import phases
from .curves import by_gamma, predictions
from .data import Page
from .filters import choices, filtering
from .forest import forest, side_by_side
from .headline import advise, facts, headline
from .positions import acceptance, course
from .series import Figure
from .table import Table
from .tables import groups_table, runs_table, settings_table
from .tidying import tidied
from .traces import MEANS, Trace, traces
from .why import why_table
from .words import clean, one_line, phrase, short, spoken, tied

FIGURES = (forest, by_gamma, predictions, phases, acceptance, course)


@dataclass(frozen=True)
class Run:
    """One run as the template shows it; ``mark`` makes its ids unique in a page of several."""

    mark: str
    page: Page
    tables: Mapping[str, Table]
    figures: Sequence[Figure]
    traces: Sequence[Trace]
    choices: Mapping[str, Sequence[str]]


def render(pages: Sequence[Page]) -> str:
    """The page of one run, or of several under each other with what they share beside each other
    first.

    Args:
        pages: what to show, at least one.
    """
    runs = [_run(index, tidied(page)) for index, page in enumerate(pages)]
    shown = [run.page for run in runs]
    several = len(runs) > 1
    script, style = _file("page.js"), _file("style.css")
    page = _environment().get_template("page.html.j2").render(
        runs=runs,
        title=" and ".join(one_line(page.title) for page in shown),
        shared_table=runs_table(shown) if several else None,
        shared_figure=side_by_side(shown) if several else None,
        data={run.mark: filtering(run.page) for run in runs},
        policy=_policy(script, style),
        script=Markup(script),
        style=Markup(style),
        kinds=MEANS,
    )  # fmt: skip
    return page.lstrip()


def _run(index: int, page: Page) -> Run:
    figures = [found for draw in FIGURES if (found := draw(page))]
    tables = {
        "settings": settings_table(page),
        "groups": groups_table(page),
        "why": why_table(page),
    }
    return Run(f"r{index + 1}", page, tables, figures, traces(page), choices(page))


def _policy(script: str, style: str) -> str:
    """Nothing may be loaded, sent or run but this script and this style."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _file(name: str) -> str:
    """A file of the template folder, with the line ends that a browser hashes."""
    text = (resources.files(__package__ or "") / "template" / name).read_text("utf-8")
    return "\n" + text.replace("\r\n", "\n")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FunctionLoader(_file),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    made.globals.update(headline=headline, facts=facts, advise=advise, spoken=spoken)
    made.globals.update(phrase=phrase, short=short, one_line=one_line, tied=tied)
    return made


def _finalize(value: Any) -> Any:
    """Every text that is written, before it is escaped: nothing in it may turn or hide the rest."""
    return clean(value) if type(value) is str else value
