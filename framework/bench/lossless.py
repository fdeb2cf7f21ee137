"""Whether a cell said what plain decoding says.

| sampling | what is compared |
|---|---|
| greedy | ids with plain decoding's; where they part, the two logits there: a near-tie or a fault |
| `verifier=coupled` | ids with plain decoding on the same noise, token by token |
| any other | every decision of some rounds, derived a second time (`framework/audit.py`) |

A test of the law itself would need 10,000 draws a cell. A verifier that says of itself that it
changes the law is named lossy and not tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..audit import Finding, audit
from ..engine import Engine
from ..policies.builtin import FixedConfig
from ..policies.fixed import Fixed
from ..requests import Answer
from .near_ties import first_difference
from .verdicts import AUDITED, DIFFERENT, FAULTY, LOSSY, NEAR_TIE, SAME, UNKNOWN

TOLERANCE = 1e-4  # of a logit gap, and of a law, in single precision
AUDIT_TOKENS = 12

Pair = tuple[int, Sequence[int], Sequence[int]]


def verdict(
    engine: Engine, contents: dict[int, Any], pairs: Sequence[Pair], rounds: int
) -> dict[str, Any]:
    """The verdict on a cell.

    Args:
        engine: the cell's.
        contents: prompts by index.
        pairs: of prompts that both have answered: index, the cell's ids, plain decoding's ids.
        rounds: how many rounds an audit looks at, if there are so many.
    """
    if not engine.parts.verifier.lossless:
        return {"verdict": LOSSY, "says": "the verifier changes the law by intent"}
    if engine.defaults.sampling.temperature == 0:
        return greedy(engine, contents, pairs)
    if engine.parts.verifier.shared_noise:
        return coupled(engine, contents, pairs)
    return audited(engine, contents, rounds)


def greedy(engine: Engine, contents: dict[int, Any], pairs: Sequence[Pair]) -> dict[str, Any]:
    """Equality with plain decoding, prompt by prompt."""
    if not pairs:
        return {"verdict": UNKNOWN, "says": "no prompt was answered by both"}
    parted = [pair for pair in pairs if list(pair[1]) != list(pair[2])]
    found = [
        first_difference(engine, engine.request(contents[index]).prompt, ours, theirs)
        for index, ours, theirs in parted
    ]
    worst = max((one.gap for one in found if one), default=0.0)
    said = f"{len(pairs) - len(parted)} of {len(pairs)} answers have plain decoding's ids"
    if not parted:
        return {"verdict": SAME, "says": said}
    kind = NEAR_TIE if worst < TOLERANCE else DIFFERENT
    return {"verdict": kind, "says": f"{said}; where others part, logits are {worst:.1e} apart"}


def coupled(engine: Engine, contents: dict[int, Any], pairs: Sequence[Pair]) -> dict[str, Any]:
    """Equality with plain decoding under the same verifier: noise by position, drafts or none."""
    plain = replace(engine.parts, policy=Fixed(FixedConfig(0)))
    bare = Engine(plain, engine.defaults)
    same = 0
    for index, ours, _ in pairs:
        answer = Answer(bare.request(contents[index], index))
        for _ in bare.run([answer]):
            pass
        same += answer.token_ids == list(ours)
    kind = SAME if same == len(pairs) else DIFFERENT
    says = f"{same} of {len(pairs)} answers have the ids of plain decoding on the same noise"
    return {"verdict": kind if pairs else UNKNOWN, "says": says}


def audited(engine: Engine, contents: dict[int, Any], rounds: int) -> dict[str, Any]:
    """Decisions derived again, prompt by prompt until there were enough rounds; the shortest first,
    because every round is derived from a prefill of its own."""
    findings: list[Finding] = []
    faults: list[Finding] = []
    for index, content in sorted(contents.items(), key=lambda one: len(str(one[1]))):
        if len(findings) >= rounds:
            break
        request = engine.request(content, index, max_new_tokens=AUDIT_TOKENS)
        found = audit(engine.parts, [Answer(request)], most=rounds - len(findings))
        findings += found.findings
        faults += found.faults(TOLERANCE)
    if not findings:
        return {"verdict": UNKNOWN, "says": "no round was audited"}
    says = f"{len(findings) - len(faults)} of {len(findings)} rounds came out again"
    return {"verdict": FAULTY if faults else AUDITED, "says": says}
