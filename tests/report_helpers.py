"""A made-up run of a plausible kind: four drafters, three gammas, two temperatures, six groups."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from foredraft.framework import theory
from foredraft.framework.bench.report.data import (
    About,
    Answer,
    Cell,
    Choice,
    Factor,
    Interval,
    Page,
    Round,
    Stretch,
    Token,
    Why,
)

GROUPS = ("conversation", "translation", "summarization", "qa", "math", "code")
# Of each drafter: alpha, c, how much acceptance falls by position, and what each group adds to alpha.
DRAFTERS = {
    "prompt_lookup": (0.38, 0.002, 0.96, (-0.28, -0.34, 0.3, -0.2, -0.05, 0.22)),
    "ngram": (0.3, 0.004, 0.95, (-0.12, -0.2, 0.15, -0.16, 0.03, 0.16)),
    "early_exit": (0.56, 0.36, 0.93, (0.03, -0.05, 0.02, 0.0, 0.06, 0.04)),
    "quantized": (0.8, 0.68, 0.97, (0.02, 0.0, 0.01, 0.0, 0.01, 0.02)),
}
GAMMAS, TEMPERATURES = (1, 3, 5), (0, 1)
PLAIN = 0.0212  # seconds of a plain step
WIDTH = 0.035  # how much longer a step takes for each further token
OVERHEAD = 0.0011  # seconds of a round outside the models


def around(value: float, spread: float) -> Interval:
    return Interval(value, value / (1 + spread), value * (1 + spread))


def fake_page(title: str = "outputs/bench/smollm2", seed: int = 0, slow: float = 1.0) -> Page:
    """The run; ``slow`` multiplies the overhead of every round."""
    draw = random.Random(seed)
    cells = list(_baselines())
    for name in DRAFTERS:
        for gamma in GAMMAS:
            cells += [_cell(name, gamma, heat, draw, slow) for heat in TEMPERATURES]
    return Page(
        title=title,
        cells=cells,
        groups=GROUPS,
        about=_about(),
        answers=[_summary(), _code()],
        notes=(
            "The interval of a setting that was chosen for being fastest is a little too kind to it.",
        ),
    )


def _baselines() -> Iterator[Cell]:
    for heat in TEMPERATURES:
        choices: dict[str, Choice] = {"sampling.temperature": heat}
        phases = {"verify": PLAIN, "sampling": 0.0006, "other": 0.0004}
        yield Cell(
            f"plain,sampling.temperature={heat}", choices, "plain", units=48, tokens=6144,
            speedup=around(0.99, 0.01), phases=phases, verdict="identical", verdict_ok=True,
            noise=Interval(1.0, 0.985 - 0.01 * heat, 1.016 + 0.01 * heat),
        )  # fmt: skip
        yield Cell(
            f"generate,sampling.temperature={heat}", choices, "generate", units=48, tokens=6144,
            speedup=Interval(1.0), verdict="identical", verdict_ok=True, phases={"verify": 0.0219},
        )  # fmt: skip


def _cell(name: str, gamma: int, heat: int, draw: random.Random, slow: float) -> Cell:
    alpha, c, fall, groups = DRAFTERS[name]
    alpha -= 0.06 * heat
    choices: dict[str, Choice] = {
        "drafter": name,
        "policy.gamma": gamma,
        "sampling.temperature": heat,
    }
    word = ",".join(f"{key}={value}" for key, value in choices.items())
    if name == "ngram" and gamma == 5 and heat == 1:
        cause = "the worker was ended after 300 s without an answer; its other settings went on."
        return Cell(word, choices, drafter=name, gamma=gamma, status="failed", cause=cause)
    rates = [min(0.99, alpha * fall**at) for at in range(gamma)]
    tau = float(theory.tokens_by_position(rates)[-1])
    seconds = _phases(tau, gamma, c, slow)
    speed = PLAIN * 1.02 / sum(seconds.values())
    by_group = {
        group: around(max(0.3, speed * (1 + 1.1 * extra + draw.gauss(0, 0.02))), 0.08)
        for group, extra in zip(GROUPS, groups, strict=True)
    }
    return Cell(
        word, choices, drafter=name, gamma=gamma, units=48, tokens=6144,
        speedup=around(speed, 0.045), totals=around(speed * 1.01, 0.04),
        against_loop=around(speed * 1.01, 0.045), groups=by_group, tau=around(tau, 0.03),
        alpha=around(alpha, 0.03), by_position=rates, c=c,
        predicted=float(theory.speedup(alpha, gamma, c)), predicted_timed=speed * draw.uniform(0.98, 1.04),
        phases=seconds, course=_course(name, alpha, draw),
        verdict="identical" if heat == 0 else "law audited", verdict_ok=True,
        verdict_note="" if heat == 0 else "8 rounds, largest distance 1e-15",
        why=_why(name, gamma, alpha, c, speed, tau),
    )  # fmt: skip


def _phases(tau: float, gamma: int, c: float, slow: float) -> dict[str, float]:
    whole = {
        "draft": gamma * c * PLAIN,
        "verify": PLAIN * (1 + WIDTH * gamma),
        "sampling": 0.0004 + 0.0002 * gamma,
        "other": OVERHEAD * slow,
    }
    return {name: value / tau for name, value in whole.items()}


def _course(name: str, alpha: float, draw: random.Random) -> list[Stretch]:
    grows = 0.25 if name in ("prompt_lookup", "ngram") else 0.02
    rates = [min(0.98, alpha * (0.85 + grows * at / 4) + draw.gauss(0, 0.015)) for at in range(8)]
    return [
        Stretch(16 * at + 1, 16 * at + 16, around(rate, 0.05 + 0.02 * at))
        for at, rate in enumerate(rates)
    ]


def _why(name: str, gamma: int, alpha: float, c: float, speed: float, tau: float) -> Why:
    ideals = {
        "acceptance": speed * (gamma + 1) / tau,
        "draft cost": speed * (1 + gamma * c / (1 + WIDTH * gamma)),
        "width cost": speed * (1 + WIDTH * gamma),
        "overhead": speed * 1.05,
        "batch": speed,
    }
    values = (f"alpha {alpha:.2f}", f"c {c:.3f}", f"+{100 * WIDTH * gamma:.0f} %", "5 %", "1 row")
    factors = [Factor(key, value, ideals[key]) for key, value in zip(ideals, values, strict=True)]
    worst = max(ideals, key=lambda key: ideals[key])
    sentence = {
        "acceptance": f"Of {gamma} drafted tokens {tau - 1:.1f} stand, so most drafts are thrown away.",
        "draft cost": f"Drafting takes {gamma * c:.1f} target steps a round.",
    }.get(worst, "Little is left to gain.")
    return Why(sentence, factors, f"policy.gamma={max(1, gamma - 2)}" if worst != "batch" else "")


def _about() -> About:
    return About(
        command="foredraft bench 'grid.drafter=[prompt_lookup,ngram,early_exit,quantized]' "
        "'grid.policy.gamma=[1,3,5]' 'grid.sampling.temperature=[0,1]' bench.minutes=45",
        date="2026-11-30 09:12 UTC",
        commit="0f856a2",
        versions={
            "foredraft": "0.1.0",
            "torch": "2.13.0",
            "transformers": "5.24.0",
            "python": "3.11.9",
        },
        hardware={"processor": "x86-64, 2 cores", "memory": "24 GiB"},
        facts={
            "target": "SmolLM2-135M-Instruct",
            "repeats": "3",
            "seed": "0",
            "tokens": "at most 64",
        },
    )


def tokens(text: str, draw: random.Random, low: float = 0.4) -> list[Token]:
    """A token for each word between bars."""
    return [
        Token(piece, (p := draw.uniform(low, 1)), min(1.0, p * 1.2), min(1.0, p * 1.1))
        for piece in text.split("|")
        if piece
    ]


def rounds(*lines: tuple[str, str, str]) -> list[Round]:
    """Rounds from accepted, rejected and own words."""
    draw = random.Random(3)
    return [
        Round(tokens(kept, draw), tokens(refused, draw, 0.05), tokens(own, draw, 0.2))
        for kept, refused, own in lines
    ]


def _summary() -> Answer:
    return Answer(
        "drafter=prompt_lookup,policy.gamma=3,sampling.temperature=0",
        "summarization",
        "Summarize in two sentences: The lighthouse at Cape Arrow was built in 1871 after three ships "
        "were lost on the reef in one winter. Its lamp burned whale oil, then kerosene, and since 1932 "
        "electricity; the last keeper left in 1984.",
        rounds(
            ("", "", "The"), (" lighthouse| at| Cape", "", " Arrow"), (" was| built| in", "", " "),
            ("1871", " after", " because"), (" three| ships| were", "", " lost"),
            (" on| the| reef", "", " in"), (" one| winter", "", "."), ("", " Its", "\n"),
            ("", "", "Its"), (" lamp| burned", " whale", " oil"), ("", ",", " at"),
            ("", "", " first"), (",", "", " and"), (" since| 1932", "", " electricity"),
            ("; the| last| keeper", "", " left"), (" in| 198|4", "", "."),
        ),
    )  # fmt: skip


def _code() -> Answer:
    return Answer(
        "drafter=early_exit,policy.gamma=3,sampling.temperature=0",
        "code",
        "Write a Python function that returns the n-th Fibonacci number.",
        rounds(
            ("```|python", " code", "\n"), ("def| fib", "(", "onacci"), ("(n", ":", "):"),
            ("\n|    |a", "", ","), (" b| =| 0", "", ","), (" 1", "", "\n"),
            ("    |for| _| in", "", " range"), ("(n|):", "", "\n"), ("        |a", " =", ","),
            (" b| =| b", "", ","), (" a| +| b", "", "\n"), ("    |return", " b", " a"),
            ("\n", "", "```"),
        ),
    )  # fmt: skip


# What a program reads, and not a person: everything else may hold anything.
READ = {"kind", "status"}
NAMES = {"drafter", "policy.gamma"}


def changed(value: Any, change: Callable[[str], str]) -> Any:
    """The same page with every text in it changed; equal texts stay equal."""
    if isinstance(value, str):
        return change(value) if value else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        new = {k: v if k in READ else changed(v, change) for k, v in fields.items()}
        return type(value)(**new)
    if isinstance(value, Mapping):
        return {k if k in NAMES else change(k): changed(v, change) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [changed(item, change) for item in value]
    return value


def filled(text: str, **fields: Any) -> Page:
    """The fake page with ``text`` in every place where text can be, each place its own."""
    numbers: dict[str, int] = {}
    page: Page = changed(
        fake_page(), lambda word: f"{text}{numbers.setdefault(word, len(numbers))}"
    )
    return dataclasses.replace(page, **fields)


HOSTILE = (
    "</script><script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "--><!-- ]]> &lt;b&gt; &amp; `|*_ {{ 7*7 }} {% raw %}",
    "line\r\nfeed\ttab\u2028\u2029",
    "\u202eevil\u2066\u200f\ufeff",
    "\x00\x01\x08\x0b\x1b[31m\x7f\x85\ud800\uffff",
    "javascript:alert(1)//",
    '=HYPERLINK("//x")',
)
