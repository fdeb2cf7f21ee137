"""The border between the loop and plugins: faults are named after the plugin that made them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from .context import Context
from .device import upload
from .errors import ForedraftError, PluginFault
from .interfaces import Drafter, Verifier
from .law import DenseLaw, DraftLaw, PointMass
from .readback import RowRead, path_of
from .records import Draft, Trial, Verdict
from .specs import WITHOUT_REPLACEMENT
from .tree import Tree

BAD_ID, BAD_LAW, BAD_TARGET, BAD_TREE, BAD_RULE = 1, 2, 4, 8, 16


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


def check_go_on(part: str, answers: object, rows: int) -> list[bool]:
    """A policy's second answer is one truth value per row."""
    ok = isinstance(answers, Tensor) and answers.dtype == torch.bool
    if not ok or tuple(answers.shape) != (rows,):  # type: ignore[attr-defined]
        shown = (
            f"{answers.dtype} {tuple(answers.shape)}"
            if isinstance(answers, Tensor)
            else f"{answers!r}"
        )
        raise PluginFault(f"{part} answered go_on with {shown}; a bool tensor ({rows},) is due.")
    return [bool(answer) for answer in answers.tolist()]  # type: ignore[attr-defined]


def check_draft(
    part: str, draft: object, gammas: list[int], context: Context, drafter: Drafter, rule: Verifier
) -> Draft:
    """Checks what the host can see: type, shape, dtype, device, lengths, and that the rule can
    judge it. Values ride the one read."""
    if not isinstance(draft, Draft):
        raise PluginFault(f"{part} returned {type(draft).__name__}; propose must return a Draft.")
    wrong = (
        _wrong_lengths(draft, gammas, drafter.max_nodes)
        or _wrong_tensor(draft, context)
        or _wrong_law(draft, context)
    )
    if not wrong and draft.width and not rule.judges(draft.kind):
        wrong = f"{draft.kind}, which {type(rule).__name__} does not judge rightly"
    if wrong:
        raise PluginFault(f"{part} returned {wrong}.")
    return draft


def _wrong_lengths(draft: Draft, gammas: list[int], max_nodes: int) -> str:
    if len(draft.lengths) != len(gammas):
        return f"{len(draft.lengths)} draft lengths for {len(gammas)} rows"
    for row, (length, gamma) in enumerate(zip(draft.lengths, gammas, strict=True)):
        most = gamma if draft.tree is None or gamma == 0 else max_nodes
        if type(length) is not int or not 0 <= length <= most:
            return f"{length!r} drafted tokens in row {row}, where 0 to {most} were asked for"
    return ""


def _wrong_tensor(draft: Draft, context: Context) -> str:
    expected = (context.rows, max(draft.lengths))
    if tuple(draft.tokens.shape) != expected:
        return f"tokens of shape {tuple(draft.tokens.shape)} where {expected} was due"
    if draft.tokens.dtype != torch.int64:
        return f"tokens of dtype {draft.tokens.dtype}; int64 is due"
    if draft.tokens.device != context.device:
        return f"tokens on {draft.tokens.device}; {context.device} is due"
    parents = draft.tokens if draft.tree is None else draft.tree.parents
    if tuple(parents.shape) != expected or parents.dtype != torch.int64:
        return f"parents {parents.dtype} of shape {tuple(parents.shape)}; int64 {expected} is due"
    return ""


def _wrong_law(draft: Draft, context: Context) -> str:
    expected: tuple[int, ...] = tuple(draft.tokens.shape)
    if isinstance(draft.law, DenseLaw):
        shape = tuple(draft.law.probs.shape)
        laws = expected[1] if draft.law.index is None else shape[1]
        expected = (expected[0], laws, context.vocab_size)
        if draft.law.index is not None and draft.law.index.shape != draft.tokens.shape:
            return f"a law index of shape {tuple(draft.law.index.shape)}; one per node is due"
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
    if verdict.path is not None:
        shapes["path"] = (verdict.path, (context.rows, draft.depth))
    elif draft.tree is not None:
        raise PluginFault(f"{part} gave no path through a tree.")
    if verdict.token is not None:
        shapes["token"] = (verdict.token, (context.rows,))
    for name, (tensor, expected) in shapes.items():
        if not isinstance(tensor, Tensor):
            raise PluginFault(
                f"{part} returned a {type(tensor).__name__} as {name}; a tensor is due."
            )
        if tuple(tensor.shape) != expected:
            raise PluginFault(
                f"{part} returned {name} of shape {tuple(tensor.shape)}; {expected} is due."
            )
        if name in ("accepted", "path", "token") and tensor.dtype != torch.int64:
            raise PluginFault(f"{part} returned {name} of dtype {tensor.dtype}; int64 is due.")
    return verdict


def flag_laws(trial: Trial, verdict: Verdict) -> Tensor:
    """Flags ``[batch]`` of rows whose next token cannot be drawn: the target's fault where its own
    law at that place allows nothing, else the rule's."""
    path = path_of(trial.draft, verdict)
    ends = torch.nn.functional.pad(path + 1, (1, 0))  # the target's row behind each accepted node
    last = verdict.accepted.clamp(0, path.shape[1]).unsqueeze(1)
    row = ends.gather(1, last).clamp(0, trial.draft.width)
    rows = torch.arange(len(row), device=row.device)
    mass = trial.target_probs[rows, row.squeeze(1)].sum(-1)
    wrong = ~((verdict.next_law.sum(-1) - 1).abs() < 1e-3)  # also true for NaN
    allowed = mass > 0.5
    return wrong.double() * torch.where(allowed, BAD_RULE, BAD_TARGET)


def check_accepted(part: str, rows: list[RowRead], following: int) -> None:
    """No rule may accept more than was drafted, or anything but a path from the root, or emit
    an id of its own making that is none."""
    for row, read in enumerate(rows):
        if not 0 <= read.accepted <= len(read.drafted):
            raise PluginFault(
                f"{part} accepted {read.accepted} of {len(read.drafted)} drafted tokens in row {row}."
            )
        inside = all(0 <= node < len(read.drafted) for node in read.path)
        if (
            not inside
            or [read.parents[node] for node in read.path] != [-1, *read.path][: read.accepted]
        ):
            raise PluginFault(f"{part} accepted nodes {read.path} in row {row}, which are no path.")
        if not 0 <= read.following < following:
            raise PluginFault(f"{part} gave id {read.following} in row {row} as the next token.")


def clamp_and_flag(draft: Draft, vocab_size: int, gammas: list[int]) -> tuple[Draft, torch.Tensor]:
    """Keeps wrong values from reaching an index, and says on the device which rows had some.

    Returns the draft with ids clamped into the vocabulary and flags ``[batch]`` (float64), which
    ride the round's one device-to-host read.
    """
    tree, bad_tree = _sound_tree(draft, gammas)
    real = draft.mask
    safe = draft.tokens.clamp(0, vocab_size - 1)
    bad_id = ((safe != draft.tokens) & real).any(1)
    # A point mass on a wrong id is reported as the wrong id that it is, not as a wrong law.
    bad_law = (~draft.law.valid(safe) & (safe == draft.tokens) & _lawful(draft, tree)).any(1)
    flags = bad_id.double() * BAD_ID + bad_law.double() * BAD_LAW + bad_tree.double() * BAD_TREE
    law = PointMass(safe) if isinstance(draft.law, PointMass) else draft.law  # it indexes by them
    own = draft.ahead is not None and draft.ahead.tokens is draft.tokens  # nobody has changed them
    ahead = draft.ahead if own else None
    return Draft(safe.where(real, 0), draft.lengths, law, tree, draft.drawn, ahead), flags


def _lawful(draft: Draft, tree: Tree | None) -> torch.Tensor:
    """Nodes whose law has to give them a probability: without replacement, nothing may be left of
    it for a later sibling."""
    if tree is None or draft.drawn != WITHOUT_REPLACEMENT:
        return draft.mask
    eldest = tree.first_child(draft.mask).gather(1, tree.contexts)
    return draft.mask & (eldest == torch.arange(draft.width, device=eldest.device))


def _sound_tree(draft: Draft, gammas: list[int]) -> tuple[Tree | None, torch.Tensor]:
    """The tree with every parent before its child, and the rows where it or its bounds were wrong."""
    real = draft.mask
    if draft.tree is None:
        return None, torch.zeros(real.shape[0], dtype=torch.bool, device=real.device)
    nodes = torch.arange(draft.width, device=real.device)
    parents = draft.tree.parents
    sound = (parents >= -1) & (parents < nodes)
    clean = Tree(parents.where(sound & real, -1), draft.tree.depth, draft.tree.children)
    limits = upload(gammas, real.device).clamp(max=clean.depth).unsqueeze(1)
    families = torch.zeros(real.shape[0], draft.width + 1, device=real.device)
    families.scatter_add_(1, clean.contexts, real.float())
    wrong = (~sound | (clean.depths >= limits)) & real
    return clean, wrong.any(1) | (families > clean.children).any(1)


def raise_flags(
    parts: tuple[str, str, str], draft: Draft, flags: list[int], vocab_size: int
) -> None:
    """Raises for the first flagged row, which names target, drafter or verifier (``parts``). Reads
    the device again, which is fine on the way out."""
    target, drafter, verifier = parts
    for row, flag in enumerate(flags):
        ids = draft.tokens[row, : draft.lengths[row]].tolist() if flag else []
        if flag & BAD_ID:
            wrong = next(token for token in ids if not 0 <= token < vocab_size)
            raise PluginFault(
                f"{drafter} drafted id {wrong} in row {row}; ids go from 0 to {vocab_size - 1}."
            )
        if flag & BAD_TREE:
            raise PluginFault(
                f"{drafter} drafted a tree in row {row} whose parents do not come before their "
                "children, or that is deeper than gamma or wider than it says."
            )
        if flag & BAD_LAW:
            raise PluginFault(
                f"{drafter} reported a draft law in row {row} that is not a law its tokens {ids} could be "
                "drawn from (NaN, negative, not summing to 1, or zero at a drafted token)."
            )
        if flag & BAD_TARGET:
            raise PluginFault(
                f"{target} gave logits in row {row} that are NaN or allow no token, or the request's bans, "
                "processors and constraint together leave none."
            )
        if flag & BAD_RULE:
            raise PluginFault(
                f"{verifier} gave a law for the next token in row {row} that is none (NaN, or not summing to "
                "1), where the target's law is one."
            )
