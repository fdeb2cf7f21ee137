"""From what a sweep's folder holds to what its report shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..config.values import read_record
from .course import Stretch
from .gap import Gap
from .interval import Interval
from .kept import Kept
from .options import BenchOptions
from .report import data
from .summary import CellSummary, Summary, summarise
from .verdicts import AUDITED, BY_IDS, WRONG

# Which name a report gives to a loss, and in which words it shows its figure.
LOSSES: dict[str, tuple[str, Callable[[Gap], str]]] = {
    "acceptance": ("acceptance", lambda gap: f"alpha {gap.alpha:.2f}"),
    "draft": ("draft cost", lambda gap: f"c {gap.c:.2f}"),
    "verify": ("width cost", lambda gap: f"{gap.width:.2f} plain steps"),
    "sampling": ("sampling", lambda gap: _more(gap.extra["sampling"])),
    "other": ("overhead", lambda gap: _more(gap.extra["other"])),
}
PROVEN = dict.fromkeys((*BY_IDS, AUDITED), True) | dict.fromkeys(WRONG, False)


def page(store: Kept) -> data.Page:
    """The report of one sweep."""
    found = summary(store)
    manifest = store.manifest
    cells = {cell["id"]: cell for cell in manifest["cells"]}
    return data.Page(
        title=store.folder.name,
        cells=[_cell(one, cells[one.id], found) for one in found.cells],
        groups=list(dict.fromkeys(found.groups)),
        about=_about(manifest, len(store.prompts)),
        answers=_answers(store),
        notes=_notes(found),
    )


def summary(store: Kept) -> Summary:
    """What a sweep's folder says."""
    return summarise(store.manifest, store.records(), store.failures(), store.verdicts())


def _cell(one: CellSummary, cell: Mapping[str, Any], found: Summary) -> data.Cell:
    config, gap, verdict = cell["config"], one.gap, one.verdict or {}
    policy = config["policy"]
    return data.Cell(
        id=one.id,
        choices={key: _choice(value) for key, value in one.choices.items()},
        kind="again" if one.kind == "plain" and cell["baseline"] else one.kind,
        drafter=_drafter(cell),
        gamma=policy["gamma"] if policy["name"] == "fixed" else None,
        status=one.status if one.status in ("failed", "missing") else "ok",
        cause=one.cause,
        units=one.units,
        tokens=one.tokens,
        speedup=_interval(one.family),
        totals=_interval(one.totals),
        against_loop=_interval(one.against_loop),
        groups=_known(one.groups),
        tau=_interval(one.tau),
        alpha=_interval(one.alpha),
        by_position=[rate for rate in one.accept_at if rate is not None],
        c=gap.c if gap else None,
        predicted=gap.theory if gap else None,
        predicted_timed=gap.by_times if gap else None,
        phases=one.phases,
        course=_course(one.course),
        verdict=str(verdict.get("verdict", "")),
        verdict_ok=PROVEN.get(str(verdict.get("verdict"))),
        verdict_note=str(verdict.get("says", "")),
        lossy=not one.lossless,
        contended=one.status == "contended",
        noise=_interval(found.noise[one.id].factor) if one.id in found.noise else None,
        why=_why(gap) if gap else None,
    )


def _drafter(cell: Mapping[str, Any]) -> str:
    """As it was chosen: two presets of one drafter are two settings."""
    return str(cell["choices"].get("drafter", cell["config"]["drafter"]["name"]))


def _choice(value: Any) -> data.Choice:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _interval(found: Interval) -> data.Interval | None:
    if found.value is None:
        return None
    return data.Interval(found.value, found.low, found.high)


def _course(parts: Sequence[Stretch]) -> list[data.Stretch]:
    rates = [_interval(part.rate) for part in parts]
    return [
        data.Stretch(part.first, part.last, rate)
        for part, rate in zip(parts, rates, strict=True)
        if rate
    ]


def _known(groups: Mapping[str, Interval]) -> dict[str, data.Interval]:
    shown = {name: _interval(found) for name, found in groups.items()}
    return {name: one for name, one in shown.items() if one is not None}


def _why(gap: Gap) -> data.Why:
    known = {"acceptance": gap.alpha, "draft": gap.c}
    factors = [
        data.Factor(name, words(gap), gap.if_ideal.get(loss))
        for loss, (name, words) in LOSSES.items()
        if known.get(loss, 0.0) is not None
    ]
    return data.Why(gap.advice, factors)


def _more(share: float) -> str:
    whole = round(100 * share)  # -0.3 % is +0, not -0
    return f"{whole:+d}% of a plain round"


def _notes(found: Summary) -> list[str]:
    notes = []
    contended = [one.id for one in found.cells if one.contended]
    if contended:
        notes.append(
            f"{len(contended)} of {len(found.cells)} cells have runs that shared the machine with "
            "other work; such runs give no speed-ups."
        )
    missing = [one.id for one in found.cells if one.status == "missing"]
    if missing:
        notes.append(f"{len(missing)} cells have no runs yet.")
    for name, winner in found.winners.items():
        notes.append(
            f"Beside {name}: {winner.cell}, chosen on one half of the prompts, has "
            f"{winner.measured.text()} on the other half: {winner.advice}."
        )
    return notes


def _about(manifest: Mapping[str, Any], prompts: int) -> data.About:
    options, task = read_record(BenchOptions, manifest["options"], "bench"), manifest["task"]
    facts = {
        "task": str(task.get("file") or task.get("name") or task["source"]),
        "prompts": str(prompts),
        "repeats": str(options.repeats),
        "seed": str(options.seed),
    }
    return data.About(
        command=str(manifest["command"]),
        date=str(manifest["started"]),
        commit=str(manifest["commit"] or ""),
        versions={key: str(value) for key, value in manifest["versions"].items()},
        hardware={key: str(value) for key, value in manifest["hardware"].items()},
        facts=facts,
    )


def _answers(store: Kept) -> list[data.Answer]:
    found = []
    for cell, trace in store.traces().items():
        for answer in trace["answers"]:
            prompt = store.prompts[answer["prompt"]]
            rounds = [_round(one) for one in answer["rounds"]]
            found.append(data.Answer(cell, prompt["group"], _text(prompt["content"]), rounds))
    return found


def _text(content: Any) -> str:
    """A prompt to be read: a text, the last message, or ids."""
    if isinstance(content, str):
        return content
    last = content[-1] if content else ""
    return str(last["content"]) if isinstance(last, dict) else " ".join(map(str, content))


def _round(one: Mapping[str, Sequence[Mapping[str, Any]]]) -> data.Round:
    accepted, rejected, own = (
        [data.Token(t["text"], t["draft_prob"], t["accept_prob"]) for t in one[kind]]
        for kind in ("accepted", "rejected", "own")
    )
    return data.Round(accepted, rejected, own)
