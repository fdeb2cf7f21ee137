"""Randomness that belongs to the request: uniforms keyed by (request, stream, round, position).

A counter-based generator (SplitMix64's finaliser, Steele et al. 2014, applied to a mixed key) is
evaluated on the device for all rows at once. A row's numbers therefore do not depend on the rows
that share its batch, no global generator is touched, and a position that is drafted again in a
later round gets fresh noise: reusing it would let an earlier verdict leak into the law.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


class Stream(IntEnum):
    """What a uniform is used for; streams never share a number."""

    DRAFT = 1
    ACCEPT = 2
    NEXT = 3
    SHARED = 4


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical shift: torch's ``>>`` on int64 keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift_right(x, 30)) * _MIX_1
    x = (x ^ _shift_right(x, 27)) * _MIX_2
    return x ^ _shift_right(x, 31)


def _absorb(key: Tensor, word: int | Tensor) -> Tensor:
    return _mix((key ^ word) + _GOLDEN)


class Noise:
    """Uniforms for the rows of a batch.

    Args:
        seeds: one seed per row, any Python int.
        indices: one index per row (the prompt's place in its run), so that two prompts with the
            same seed do not share noise.
        samples: one number per row, which of its prompt's samples it is; None: the first.
    """

    def __init__(
        self,
        seeds: list[int],
        indices: list[int],
        device: torch.device | str,
        samples: list[int] | None = None,
    ) -> None:
        seed = torch.tensor([_signed(s) for s in seeds], dtype=torch.int64, device=device)
        index = torch.tensor([_signed(i) for i in indices], dtype=torch.int64, device=device)
        self.keys = _absorb(_absorb(seed, 0), index)
        if samples and any(samples):
            sample = torch.tensor(samples, dtype=torch.int64, device=device)
            # The first sample's noise is that of a request for a single one.
            self.keys = torch.where(sample > 0, _absorb(self.keys, sample), self.keys)
        self._rounds: dict[Stream, tuple[int, Tensor]] = {}  # the newest round's key of each stream

    def uniform(self, stream: Stream, round_index: int, start: int, count: int) -> Tensor:
        """Uniforms in [0, 1) for positions ``start .. start+count-1``: float64 ``[batch, count]``."""
        positions = torch.arange(start, start + count, dtype=torch.int64, device=self.keys.device)
        key = self._key(stream, round_index)
        bits = _absorb(key.unsqueeze(1), positions.unsqueeze(0))
        return _shift_right(bits, 11).double() * 2.0**-53

    def _key(self, stream: Stream, round_index: int) -> Tensor:
        """``[batch]``; a drafter asks for the same one at every position."""
        known = self._rounds.get(stream)
        if known is None or known[0] != round_index:
            known = round_index, _absorb(_absorb(self.keys, int(stream)), round_index)
            self._rounds[stream] = known
        return known[1]

    def gumbel(self, positions: Tensor, vocab: int) -> Tensor:
        """Standard Gumbel noise keyed by request and absolute position, whatever the round:
        ``positions [batch, places]`` -> float64 ``[batch, places, vocab]``."""
        key = _absorb(self.keys, int(Stream.SHARED)).unsqueeze(1)
        key = _absorb(key, positions).unsqueeze(-1)
        bits = _absorb(key, torch.arange(vocab, dtype=torch.int64, device=key.device))
        # Half a step away from 0 and from 1, so that both logarithms are finite.
        uniform = (_shift_right(bits, 12).double() + 0.5) * 2.0**-52
        return -(-uniform.log()).log()

    def select(self, rows: list[int]) -> None:
        """Keeps the given rows, in that order."""
        self.keys = self.keys[torch.tensor(rows, dtype=torch.int64, device=self.keys.device)]
        self._rounds.clear()


def _signed(value: int) -> int:
    """Folds any Python int into the signed 64-bit range."""
    return (value + 2**63) % 2**64 - 2**63


def draw(probs: Tensor, uniform: Tensor) -> Tensor:
    """Draws one token per law by inversion of the cumulative law.

    ``probs [..., vocab]`` need not be normalised; ``uniform [...]`` lies in [0, 1). A token of
    probability zero is never drawn. Returns ``[...]`` int64. One uniform per token keeps draws
    reproducible and enumerable.
    """
    cumulative = probs.double().cumsum(-1)
    total = cumulative[..., -1:]
    point = torch.minimum(uniform.unsqueeze(-1) * total, torch.nextafter(total, -total))
    found = torch.searchsorted(cumulative, point, right=True).squeeze(-1)
    return found.clamp_(max=probs.shape[-1] - 1)
