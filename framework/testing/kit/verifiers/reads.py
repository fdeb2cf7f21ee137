"""Checks that a rule leaves its tensors on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ....interfaces import Verifier
from ....law import DenseLaw, PointMass
from ....records import Trial
from ....specs import DraftKind
from ....tree import Tree
from ..checks import ascending, check
from ..subject import Subject
from .asking import cases_of, judge, spec_of
from .trials import rows_of, trial_of
from .verdicts import empty_trial

# Operations whose result, or its size, has to be known on the host.
READS = {
    "_local_scalar_dense", "item", "is_nonzero", "equal", "allclose", "nonzero", "nonzero_numpy",
    "argwhere", "masked_select", "unique_consecutive", "_unique", "_unique2", "unique_dim",
    "bincount",
}  # fmt: skip
METHODS = (
    "tolist",
    "numpy",
    "cpu",
    "__array__",
    "item",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
)


@check(
    "verifier",
    "Verify waits for no value on the host: no item(), tolist(), bool(), nonzero(), boolean mask.",
    "The loop reads from the device once per round; each further read makes the device idle.",
)
def no_host_reads(subject: Subject) -> None:
    rule = subject.build()

    def run(rows: int, width: int, drawn: str, tree: bool) -> str | None:
        kind = DraftKind(drawn, tree)
        made = rows_of(subject, kind, rows, width)
        trial = trial_of(made, kind, spec_of(subject).shared_noise)
        return _read(rule, trial if width else empty_trial(subject, rows))

    ascending(cases_of(subject, [(1, 0), (1, 1), (5, 3)]), run)


def _read(rule: Verifier, trial: Trial) -> str | None:
    """What the rule read, or None."""
    try:
        with watched():
            judge(rule, trial)
    except HostRead as read:
        return str(read)
    return _read_on_cuda(rule, trial) if torch.cuda.is_available() else None


class HostRead(Exception):
    """Something read from the device to the host."""


@contextmanager
def watched() -> Iterator[None]:
    """Raises ``HostRead`` where a CUDA device would be waited for, although all is on the CPU."""
    with ExitStack() as stack:
        for name in METHODS:
            stack.enter_context(mock.patch.object(Tensor, name, _refuses(f"Tensor.{name}()")))
        stack.enter_context(mock.patch.object(Tensor, "to", _to(Tensor.to)))
        stack.enter_context(_Watch())  # type: ignore[no-untyped-call]
        yield


def _refuses(name: str) -> Callable[..., Any]:
    def refuse(*given: object, **options: object) -> Any:
        raise HostRead(f"verify reads from the device: {name}")

    return refuse


def _to(to: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A move to "cpu", written out, is a read; one to another tensor's device is not."""

    def checked(self: Tensor, *given: object, **options: object) -> Tensor:
        if "cpu" in [one for one in (*given, *options.values()) if isinstance(one, str)]:
            raise HostRead('verify reads from the device: Tensor.to("cpu")')
        return to(self, *given, **options)

    return checked


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at every operation that is run, also at those within others."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.__name__.split(".")[0], kwargs or {}
        if name in READS or _masked(name, args) or _sized(name, args, kwargs):
            raise HostRead(f"verify reads from the device: {name}")
        return func(*args, **kwargs)


def _sized(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether values decide how large the result is: places that are true, counts of repeats."""
    if name == "where":
        return len(args) == 1
    repeats = name == "repeat_interleave" and isinstance(args[-1], Tensor)
    return repeats and options.get("output_size") is None


def _masked(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a boolean mask picks elements; to fill them with one value needs no read."""
    if name not in ("index", "index_put", "index_put_", "_index_put_impl_"):
        return False
    masks = [i for i in args[1] if i is not None and i.dtype in (torch.bool, torch.uint8)]
    return bool(masks) and (name == "index" or args[2].numel() > 1)


def _read_on_cuda(rule: Verifier, trial: Trial) -> str | None:
    moved = _on(trial, torch.device("cuda"))
    judge(rule, moved)  # libraries may wait when they are first used
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        judge(rule, moved)
    except RuntimeError as error:
        return f"on CUDA: {str(error).splitlines()[0]}"
    finally:
        torch.cuda.set_sync_debug_mode(mode)
    return None


def _on(trial: Trial, device: torch.device) -> Trial:
    """The same trial on another device."""
    draft, law = trial.draft, trial.draft.law
    tokens, tree = draft.tokens.to(device), draft.tree
    if tree is not None:
        tree = Tree(tree.parents.to(device), tree.depth, tree.children)
    if isinstance(law, DenseLaw):
        law = DenseLaw(law.probs.to(device), None if tree is None else tree.contexts)
    elif isinstance(law, PointMass):
        law = PointMass(tokens)
    moved = replace(draft, tokens=tokens, law=law, tree=tree)
    names = ("target_probs", "uniforms", "logits", "greedy")
    parts = {name: getattr(trial, name).to(device) for name in names}
    noise = trial.gumbel
    return replace(trial, draft=moved, gumbel=lambda: noise().to(device), **parts)
