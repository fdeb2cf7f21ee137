"""``foredraft theory``: what the paper's formulas say of given or of measured rates and costs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import theory as formulas
from ..checks import check_choice, check_whole
from ..errors import ConfigError, InputError, near_match
from .display import console
from .results import strict

HELP = """\
usage: foredraft theory alpha=.8 c=.05 [gamma=N] [limit=N] [c_hat=...]
       foredraft theory alpha_at=.9,.8,.7 c=.05
       foredraft theory run=FILE [plain=FILE] [gamma=N]
       foredraft theory figures=DIR

What speculation should bring, by the formulas of Leviathan et al. 2023 (arXiv:2211.17192).

  alpha=A       acceptance rate, 0 to 1
  alpha_at=LIST acceptance rate of the first, second, ... drafted token, given that it is reached
  c=C           time of a draft step over time of a target step
  c_hat=C       the same for operations (default: c)
  gamma=N       also this many drafted tokens per round
  limit=N       the most drafted tokens per round, 0 to 256 (default 64)
  run=FILE      what generate wrote with out= or output=json, or a trace of observers=[jsonl]:
                rates and costs are taken from it, and what was predicted stands beside what was
                measured
  plain=FILE    the same of a run with drafter=none, for the measured speed-up; not needed where
                FILE itself has such a run
  figures=DIR   draws Figure 2 (tau by alpha) and Figure 3 (best gamma by alpha) into DIR
  output=json   one JSON object in place of tables"""
NUMBERS, WHOLE, WORDS = ("alpha", "c", "c_hat"), ("gamma", "limit"), ("run", "plain", "figures")
KEYS = (*NUMBERS, "alpha_at", *WHOLE, *WORDS, "output")
LIMIT = 64


@dataclass(frozen=True)
class Asked:
    """A command line as numbers; what was not given is None."""

    alpha: float | None = None
    c: float | None = None
    c_hat: float | None = None
    alpha_at: tuple[float, ...] | None = None
    gamma: int | None = None
    limit: int = LIMIT
    run: str | None = None
    plain: str | None = None
    figures: str | None = None
    output: str = "text"


def theory(argv: list[str]) -> int:
    """Runs the command."""
    if "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    asked = parse(argv)
    found = _answers(asked)
    if asked.figures is not None:
        found["figures"] = _drawn(asked.figures)
    if asked.output == "json":
        print(json.dumps(strict(found), allow_nan=False))
    else:
        _show(found)
    return 0


def parse(argv: Sequence[str]) -> Asked:
    """Takes a command line apart; refuses what is missing, said twice or does not go together."""
    given: dict[str, Any] = {}
    for word in argv:
        key, equals, value = word.partition("=")
        if not equals or key not in KEYS:
            hint = near_match(key, KEYS)
            raise ConfigError(
                f"foredraft theory does not take {word!r}; {hint}it takes {'=, '.join(KEYS)}=."
            )
        if not value or key in given:
            raise ConfigError(f"{key}= needs one value; it is given once.")
        given[key] = _value(key, value)
    asked = Asked(**given)
    _check(asked)
    return asked


def _value(key: str, text: str) -> Any:
    if key in NUMBERS:
        return _number(key, text)
    if key == "alpha_at":
        return tuple(_number(key, part) for part in text.split(","))
    if key in WHOLE:
        value = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else text
        check_whole(key, value, 0, formulas.MOST_GAMMA)
        return value
    if key == "output":
        check_choice(key, text, ("text", "json"))
    return text


def _number(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{key}={text!r} is not possible; it must be a number.")
    return value


def _check(asked: Asked) -> None:
    sources = [key for key in ("alpha", "alpha_at", "run") if getattr(asked, key) is not None]
    if len(sources) > 1:
        raise ConfigError(f"{'= and '.join(sources)}= are given together; give one of them.")
    if not sources and (asked.figures is None or asked.c is not None):
        raise ConfigError(
            "foredraft theory needs alpha= (or alpha_at=) and c=, or run=FILE, or figures=DIR."
        )
    if sources == ["run"] and (asked.c, asked.c_hat) != (None, None):
        raise ConfigError("c= cannot be with run=FILE, from which it is taken; drop one.")
    if sources in (["alpha"], ["alpha_at"]) and asked.c is None:
        raise ConfigError(f"{sources[0]}= needs c=, the time of a draft step over a target step.")
    if asked.gamma is not None and sources not in (["alpha"], ["run"]):
        raise ConfigError("gamma= needs alpha= and c=, or run=FILE; drop it.")
    if asked.plain is not None and sources != ["run"]:
        raise ConfigError("plain=FILE needs run=FILE, which it is compared with.")


def _answers(asked: Asked) -> dict[str, Any]:
    """What there is to print, by what was asked."""
    from . import theory_tables as tables

    if asked.run is not None:
        from .theory_run import compared

        return {"runs": compared(asked.run, asked.plain, asked.gamma, asked.limit)}
    if asked.c is None:
        return {}
    if asked.alpha_at is not None:
        rates = asked.alpha_at[: asked.limit]
        return {"positions": tables.by_position(rates, asked.c)}
    assert asked.alpha is not None
    c_hat = asked.c if asked.c_hat is None else asked.c_hat
    return {"rates": tables.by_rate(asked.alpha, asked.c, c_hat, asked.gamma, asked.limit)}


def _show(found: dict[str, Any]) -> None:
    from . import theory_tables as tables

    out = console()
    if "rates" in found:
        out.print(tables.rate_table(found["rates"]))
    if "positions" in found:
        out.print(tables.position_table(found["positions"]))
    for run in found.get("runs", []):
        out.print(tables.run_table(run))
    for path in found.get("figures", []):
        out.print(path, soft_wrap=True)


def _drawn(folder: str) -> list[str]:
    from ..figures import figure_2, figure_3

    path = Path(folder).expanduser()
    if path.exists() and not path.is_dir():
        raise InputError(f"figures={folder} is not possible: it is a file.")
    return [str(figure_2(path)), str(figure_3(path))]
