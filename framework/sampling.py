"""Standardised sampling: the one function from logits to a law.

Leviathan et al. 2023, section 2.2: greedy, temperature, top-k and nucleus sampling are all "sample
from an adjusted law". The target and (by default) the drafter go through the same function, so
the verification rule only ever sees laws. Order and tie rules follow transformers: temperature,
top-k, top-p, min-p, typical-p.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .controls import Committed, Control
from .opinion import Opinion
from .params import SamplingParams
from .tree import Branches
from .truncation import min_p, top_k, top_p, typical_p


class Sampler:
    """Turns logits into laws for a batch whose rows may all sample differently."""

    def __init__(
        self,
        params: Sequence[SamplingParams],
        device: torch.device | str,
        controls: Sequence[Control] = (),
    ) -> None:
        self.params = list(params)
        self.device = torch.device(device)
        self.controls = list(controls)
        self._tensors()

    @property
    def reads_prefix(self) -> bool:
        """Whether any law depends on the text by more than the model's logits."""
        return bool(self.controls)

    def select(self, rows: list[int]) -> None:
        """Keeps the given rows, in that order."""
        self.params = [self.params[row] for row in rows]
        for control in self.controls:
            control.select(rows)
        self._tensors()

    def controlled(
        self, logits: Tensor, committed: Committed = (), branches: Branches | None = None
    ) -> Tensor:
        """Logits ``[batch, places, vocab]`` after every control, in float32 (float64 if given).

        Half-precision logits are widened first: laws are never computed in half precision.
        """
        logits = logits if logits.dtype == torch.float64 else logits.float()
        for control in self.controls:
            assert branches is not None
            logits = control.apply(logits, committed, branches)
        return logits

    def draft_law(
        self,
        logits: Tensor,
        committed: Committed = (),
        branches: Branches | None = None,
        full: Tensor | None = None,
    ) -> Tensor:
        """A drafter's logits through as many transforms as ``sampling.draft`` says.

        ``full`` are the controlled logits, where a caller has them already.
        """
        return (self._drafting or self).law(self._heard(logits, committed, branches, full))

    def thought(
        self, logits: Tensor, committed: Committed = (), branches: Branches | None = None
    ) -> tuple[Tensor, Opinion]:
        """A drafter's law ``[batch, vocab]`` of one place, and its opinion (see ``DraftStep``)."""
        heard = self._heard(logits, committed, branches)
        law, plain = (self._drafting or self).law(heard).squeeze(1), heard.squeeze(1)
        if not self.any_greedy:
            return law, Opinion(law)
        return law, Opinion(law, plain, None if self.all_greedy else self.greedy.view(-1))

    def _heard(
        self,
        logits: Tensor,
        committed: Committed,
        branches: Branches | None,
        full: Tensor | None = None,
    ) -> Tensor:
        """The logits that a draft's law is made of."""
        full = self.controlled(logits, committed, branches) if full is None else full
        plain = logits if logits.dtype == torch.float64 else logits.float()
        if self.controls:
            # Where bans leave a drafter nothing, any law will do: nothing it drafts there can stand.
            full = plain.where((full == -torch.inf).all(-1, keepdim=True), full)
        if self._drafting is None:
            return full
        return torch.where(self._mirrored.view(-1, 1, 1), full, plain)

    def law(self, logits: Tensor) -> Tensor:
        """Controlled logits ``[batch, ..., vocab]`` -> laws of the same shape and dtype."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.all_greedy:
            return one_hot_argmax(logits)
        rows = (len(self.params),) + (1,) * (logits.dim() - 1)
        probs = self._filtered(logits, rows).softmax(-1)
        if not self.any_greedy:
            return probs
        return torch.where(self.greedy.view(rows), one_hot_argmax(logits), probs)

    def _filtered(self, logits: Tensor, rows: tuple[int, ...]) -> Tensor:
        # Shifting by the maximum first keeps tiny temperatures finite.
        shifted = logits - logits.amax(-1, keepdim=True)
        # What a temperature rounds to in the logits' dtype must stay positive and finite.
        kind = torch.finfo(logits.dtype)
        temperature = self._temperature.to(logits.dtype).clamp(kind.tiny, kind.max)
        scores = shifted / temperature.view(rows)
        if self._widest:
            scores = top_k(scores, self._top_k.view(rows), self._widest)
        if self._use_top_p:
            scores = top_p(scores, self._top_p.view(rows), self._widest_top_p)
        if self._use_min_p:
            scores = min_p(scores, self._min_p.view(rows))
        if self._use_typical_p:
            scores = typical_p(scores, self._typical_p.view(rows))
        return scores

    def _tensors(self) -> None:
        """Host-known switches and per-row tensors, rebuilt only when the rows change."""
        params = self.params
        self.all_greedy = all(p.greedy for p in params)
        self.any_greedy = any(p.greedy for p in params)
        self._widest = max(p.top_k for p in params)  # on the host: no device read
        self._use_top_p = any(p.top_p < 1 for p in params)
        # 0 where a row with top-p has no top-k: any number of tokens may be left to it.
        nucleus = [p.top_k for p in params if p.top_p < 1]
        self._widest_top_p = max(nucleus) if nucleus and all(nucleus) else 0
        self._use_typical_p = any(p.typical_p < 1 for p in params)
        self._typical_p = self._column([p.typical_p for p in params])
        self._use_min_p = any(p.min_p > 0 for p in params)
        self.greedy = torch.tensor([p.greedy for p in params], device=self.device)
        self._temperature = self._column([p.temperature or 1.0 for p in params])
        self._top_k = torch.tensor([p.top_k for p in params], device=self.device)
        self._top_p = self._column([p.top_p for p in params])
        self._min_p = self._column([p.min_p for p in params])
        self._mirrored = torch.tensor([p.draft == "full" for p in params], device=self.device)
        mirrored = all(p.draft == "full" for p in params)
        drafting = [p.for_draft() for p in params]
        self._drafting = None if mirrored else Sampler(drafting, self.device)

    def _column(self, values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self.device)


def one_hot_argmax(logits: Tensor) -> Tensor:
    """All mass on the largest logit, the first one on a tie; NaN where the logits allow none."""
    best = logits.max(-1, keepdim=True)
    one = best.values * 0 + 1  # NaN, and so noticed, for NaN and for rows of -inf
    return torch.zeros_like(logits).scatter_(-1, best.indices, one)
