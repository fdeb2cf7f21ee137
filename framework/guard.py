"""The border between the loop and plugins: faults are named after the plugin that made them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .errors import ForedraftError, PluginFault
from .interfaces import Context, Draft, Verdict
from .law import DenseLaw, DraftLaw, PointMass

BAD_ID, BAD_LAW, BAD_TARGET = 1, 2, 4


@contextmanager
def blame(part: str) -> Iterator[None]:
    """Turns whatever a plugin raises into a ``PluginFault`` that names it; the cause is chained."""
    try:
        yield
    except (ForedraftError, KeyboardInterrupt, GeneratorExit):
        raise
    except Exception as error:
        raise PluginFault(f"{part} raised {type(error).__name__}: {error}") from error


def check_gammas(part: str, gammas: object, rows: int) -> list[int]:
    """A policy has to give one whole number from 0 per row."""
    ok = isinstance(gammas, list) and len(gammas) == rows
    if not ok or not all(type(gamma) is int and gamma >= 0 for gamma in gammas):  # type: ignore[attr-defined]
        raise PluginFault(
            f"{part} returned gammas {gammas!r}; it must be {rows} whole numbers from 0."
        )
    return gammas  # type: ignore[return-value]


def check_draft(part: str, draft: object, gammas: list[int], context: Context) -> Draft:
    """Checks what the host can see: type, shape, dtype, device, lengths. Values ride the one read."""
    if not isinstance(draft, Draft):
        raise PluginFault(f"{part} returned {type(draft).__name__}; propose must return a Draft.")
    wrong = (
        _wrong_lengths(draft, gammas) or _wrong_tensor(draft, context) or _wrong_law(draft, context)
    )
    if wrong:
        raise PluginFault(f"{part} returned {wrong}.")
    return draft


def _wrong_lengths(draft: Draft, gammas: list[int]) -> str:
    if len(draft.lengths) != len(gammas):
        return f"{len(draft.lengths)} draft lengths for {len(gammas)} rows"
    for row, (length, gamma) in enumerate(zip(draft.lengths, gammas, strict=True)):
        if type(length) is not int or not 0 <= length <= gamma:
            return f"{length!r} drafted tokens in row {row}, where 0 to {gamma} were asked for"
    return ""


def _wrong_tensor(draft: Draft, context: Context) -> str:
    expected = (context.rows, max(draft.lengths))
    if tuple(draft.tokens.shape) != expected:
        return f"tokens of shape {tuple(draft.tokens.shape)} where {expected} was due"
    if draft.tokens.dtype != torch.int64:
        return f"tokens of dtype {draft.tokens.dtype}; int64 is due"
    if draft.tokens.device != context.device:
        return f"tokens on {draft.tokens.device}; {context.device} is due"
    return ""


def _wrong_law(draft: Draft, context: Context) -> str:
    expected: tuple[int, ...] = tuple(draft.tokens.shape)
    if isinstance(draft.law, DenseLaw):
        expected, shape = (*expected, context.vocab_size), tuple(draft.law.probs.shape)
    elif isinstance(draft.law, PointMass):
        shape = tuple(draft.law.tokens.shape)
    elif isinstance(draft.law, DraftLaw):
        return ""
    else:
        return f"a {type(draft.law).__name__} as draft law; a DraftLaw is due"
    device = draft.law.probs.device if isinstance(draft.law, DenseLaw) else draft.law.tokens.device
    if device != context.device:
        return f"a draft law on {device}; {context.device} is due"
    return "" if shape == expected else f"a draft law of shape {shape} where {expected} was due"


def check_verdict(part: str, verdict: object, draft: Draft, context: Context) -> Verdict:
    """Checks a verdict's type and shapes; its counts are checked after the one read."""
    if not isinstance(verdict, Verdict):
        raise PluginFault(
            f"{part} returned {type(verdict).__name__}; verify must return a Verdict."
        )
    shapes = {
        "accepted": (verdict.accepted, (context.rows,)),
        "next_law": (verdict.next_law, (context.rows, context.vocab_size)),
        "accept_probs": (verdict.accept_probs, (context.rows, draft.width)),
    }
    for name, (tensor, expected) in shapes.items():
        if tuple(tensor.shape) != expected:
            raise PluginFault(
                f"{part} returned {name} of shape {tuple(tensor.shape)}; {expected} is due."
            )
    return verdict


def check_accepted(part: str, accepted: list[int], lengths: list[int]) -> None:
    """No rule may accept more than was drafted."""
    for row, (count, length) in enumerate(zip(accepted, lengths, strict=True)):
        if not 0 <= count <= length:
            raise PluginFault(f"{part} accepted {count} of {length} drafted tokens in row {row}.")


def clamp_and_flag(draft: Draft, vocab_size: int) -> tuple[Draft, torch.Tensor]:
    """Keeps wrong values from reaching an index, and says on the device which rows had some.

    Returns the draft with ids clamped into the vocabulary and flags ``[batch]`` (float64), which
    ride the round's one device-to-host read.
    """
    real = draft.mask
    safe = draft.tokens.clamp(0, vocab_size - 1)
    bad_id = ((safe != draft.tokens) & real).any(1)
    # A point mass on a wrong id is reported as the wrong id that it is, not as a wrong law.
    bad_law = (~draft.law.valid(safe) & (safe == draft.tokens) & real).any(1)
    flags = bad_id.double() * BAD_ID + bad_law.double() * BAD_LAW
    law = PointMass(safe) if isinstance(draft.law, PointMass) else draft.law  # it indexes by them
    return Draft(safe.where(real, 0), draft.lengths, law), flags


def raise_flags(drafter: str, target: str, draft: Draft, flags: list[int], vocab_size: int) -> None:
    """Raises for the first flagged row. Reads the device again, which is fine on the way out."""
    for row, flag in enumerate(flags):
        ids = draft.tokens[row, : draft.lengths[row]].tolist() if flag else []
        if flag & BAD_ID:
            wrong = next(token for token in ids if not 0 <= token < vocab_size)
            raise PluginFault(
                f"{drafter} drafted id {wrong} in row {row}; ids go from 0 to {vocab_size - 1}."
            )
        if flag & BAD_LAW:
            raise PluginFault(
                f"{drafter} reported a draft law in row {row} that is not a law its tokens {ids} could be "
                "drawn from (NaN, negative, not summing to 1, or zero at a drafted token)."
            )
        if flag & BAD_TARGET:
            raise PluginFault(f"{target} gave logits in row {row} that are NaN or allow no token.")
