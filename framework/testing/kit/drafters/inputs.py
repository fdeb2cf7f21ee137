"""That a drafter only reads what it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ....context import Context
from ....records import Round, Scored
from ..checks import ascending, check
from ..subject import Subject
from .lab import SAMPLED, Lab
from .scripts import pattern
from .spies import Journal

SMALL = 1 << 20


@check(
    "drafter",
    "Committed ids, gammas, the target's logits, its weights and its state are only read.",
    "The loop, the verifier and other parts read them too: a change there changes the answer.",
)
def inputs_unchanged(subject: Subject) -> None:
    lab = Lab(subject)

    def run(rows: int, gamma: int) -> str | None:
        watcher = Watcher(lab.target)
        prompts = lab.prompts(*[4 + 3 * row for row in range(rows)])
        lab.run(prompts, gamma, pattern(0, 1, 2), 8, SAMPLED, watch=watcher)
        return None

    ascending([{"rows": rows, "gamma": gamma} for rows, gamma in ((1, 1), (3, 3))], run)


class Watcher:
    """Compares everything that a call might have changed with what it was before."""

    def __init__(self, target: object) -> None:
        self.target = target
        self.journal: Journal | None = None

    def __call__(
        self, journal: Journal, call: str, context: Context, argument: object
    ) -> Callable[[], None]:
        before = {name: frozen(value) for name, value in self._inputs(context, argument)}

        def behind() -> None:
            for name, value in self._inputs(context, argument):
                if name in before and not same(before[name], frozen(value)):
                    journal.complaints.append(f"{call} changed {name}")

        return behind

    def _inputs(self, context: Context, argument: object) -> Iterator[tuple[str, object]]:
        yield "context.tokens", [list(row) for row in context.tokens]
        yield "context.prompt_lengths", list(context.prompt_lengths)
        yield "context.round_index", context.round_index
        yield "the requests' noise", context.noise.keys
        yield "the requests' sampling", repr(context.sampler.params)
        if isinstance(argument, Round):
            yield "the round's outcome", repr(argument.rows)
            if argument.scored is not None:
                yield from _scored(argument.scored)
        else:
            yield "the gammas it was asked for", list(argument)  # type: ignore[call-overload]
        yield from ((f"the target's {name}", value) for name, value in tensors_of(self.target))
        # What lies behind the length of a cache is nobody's: drafters may draft there.
        yield from ((f"the target session's {n}", v) for n, v in lengths_of(context.target))


def _scored(scored: Scored) -> Iterator[tuple[str, object]]:
    yield "the round's logits", scored.logits
    yield "the draft's tokens", scored.draft.tokens
    yield "the draft's lengths", list(scored.draft.lengths)
    probs = getattr(scored.draft.law, "probs", None)
    if isinstance(probs, Tensor):
        yield "the draft's law", probs


def tensors_of(part: object) -> Iterator[tuple[str, Tensor]]:
    """Tensors, and parameters of modules, that are attributes of an object."""
    for name, value in vars(part).items():
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, nn.Module):
            yield from ((f"{name}.{key}", one) for key, one in value.state_dict().items())


def lengths_of(session: object) -> Iterator[tuple[str, object]]:
    """How much a target's session holds, of itself or of its cache."""
    for name, value in vars(session).items():
        if name in ("lengths", "history"):
            yield name, value
        elif hasattr(value, "lengths"):
            yield f"{name}.lengths", value.lengths


def frozen(value: Any) -> Any:
    """A copy; of a large tensor, what tells it from others."""
    if isinstance(value, list):
        return list(value)
    if not isinstance(value, Tensor):
        return value
    if value.numel() <= SMALL:
        return value.clone()
    return torch.stack([value.sum(dtype=torch.float64), value.abs().sum(dtype=torch.float64)])


def same(one: Any, other: Any) -> bool:
    """Equality that knows tensors and NaN."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        return bool(torch.equal(one.nan_to_num(), other.nan_to_num()))
    return bool(one == other)
