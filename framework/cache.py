"""The one module that knows transformers' cache and mask interfaces.

Rows of a batch accept different numbers of tokens, so the cache is one preallocated buffer per
layer and one length per row. A forward writes at each row's own positions behind its length; the
lengths move only in ``advance``. Rollback is therefore not an operation: what is not kept is
overwritten by the next forward and never attended, because every query's mask ends at its own
position. A tree's nodes lie behind the length in the order of their numbers, each masked to its
own ancestors; its accepted path is moved together in ``keep``. Buffers keep their addresses for
the whole run.

Supported: transformers 5.17 to 5.24 (``past_key_values`` and its new name ``cache``).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from .device import upload
from .errors import ConfigError
from .lean import lean_of

if TYPE_CHECKING:
    from .views import View

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class Branch:
    """Who follows whom among the tokens behind the length, for a forward that is not a chain.

    Args:
        depths: ``[rows, ahead + width]``, how many positions behind the length each slot is; below 0,
            a token that is kept is run once more, and attends what is before it.
        visible: ``[rows, width, ahead + width]`` bool: which of these slots each token of this
            forward attends, itself included.
    """

    depths: Tensor
    visible: Tensor


class _Positions:
    """Where the current forward writes and what it may attend; shared by all layers."""

    rows: int
    starts: list[int]
    index: Tensor  # [rows, width], the slot each token is written to
    bucket: int  # attended slots


class _Slots:
    """One buffer ``[rows, heads, capacity, size]`` of what the model says at each position."""

    def __init__(self, plan: _Positions, rows: int, capacity: int) -> None:
        self.plan, self.rows, self.capacity = plan, rows, capacity
        self.buffer: Tensor | None = None

    def write(self, states: Tensor) -> Tensor:
        """Puts ``states [rows, heads, width, size]`` where the forward is; the buffer."""
        buffer = self.room(states, states.shape[1], states.shape[3])
        if self.plan.rows == 1:  # a plain slice copy, several times cheaper than an indexed one
            start = self.plan.starts[0]
            buffer[0, :, start : start + states.shape[2]] = states[0]
        else:
            index = self.plan.index.to(buffer.device)
            rows = torch.arange(self.plan.rows, device=buffer.device).unsqueeze(1)
            buffer[rows, :, index] = states.transpose(1, 2)
        return buffer

    def room(self, like: Tensor, heads: int, size: int) -> Tensor:
        """The buffer, of the kind that ``like`` is."""
        if self.buffer is None:
            # Zeros, not empty: masked slots still enter the weighted sum, where 0 x NaN would be NaN.
            self.buffer = like.new_zeros(self.rows, heads, self.capacity, size)
        return self.buffer

    def gather(self, rows: Tensor, sources: Tensor, destinations: Tensor) -> None:
        """Copies slots within rows: ``rows [n, 1]``, ``sources`` and ``destinations [n, k]``."""
        if self.buffer is not None:
            index = [x.to(self.buffer.device) for x in (rows, sources, destinations)]
            self.buffer[index[0], :, index[2]] = self.buffer[index[0], :, index[1]]

    def move(self, source: int, destination: int, length: int) -> None:
        """Copies one row over another, in place."""
        if self.buffer is not None:
            self.buffer[destination, :, :length] = self.buffer[source, :, :length]


class _RaggedLayer(CacheLayerMixin):
    """One layer's keys and values."""

    is_sliding = False
    is_compileable = False

    def __init__(self, plan: _Positions, rows: int, capacity: int) -> None:
        super().__init__()
        self.plan, self.capacity = plan, capacity
        self.slots = (_Slots(plan, rows, capacity), _Slots(plan, rows, capacity))

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        keys, values = self.slots[0].write(key_states), self.slots[1].write(value_states)
        attended, rows = slice(0, self.plan.bucket), slice(0, self.plan.rows)
        return keys[rows, :, attended], values[rows, :, attended]

    def room(self, like: Tensor, heads: int, size: int) -> tuple[Tensor, Tensor]:
        """Both buffers, for a forward that writes into them itself."""
        return self.slots[0].room(like, heads, size), self.slots[1].room(like, heads, size)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.plan.bucket, 0

    def get_seq_length(self) -> int:
        return 0  # positions are always passed explicitly

    def get_max_length(self) -> int:
        return self.capacity


class RaggedRows:
    """Buffers of rows of different lengths, of a model or of a single layer, and what moves them.

    Args:
        rows: rows of the batch.
        capacity: the most ids a row can come to hold.

    Attributes:
        lengths: kept entries of each row.
    """

    def __init__(self, rows: int, capacity: int) -> None:
        self._rows, self.capacity = rows, capacity
        self.lengths = [0] * rows
        self._plan = _Positions()
        self._slots: list[_Slots] = []

    @property
    def buffers(self) -> list[Tensor]:
        """All that is kept, each ``[rows, heads, capacity + 1, size]``; of a model keys and values layer by
        layer, then watched layers. Empty before the first forward."""
        return [slots.buffer for slots in self._slots if slots.buffer is not None]

    def _add(self) -> _Slots:
        """A further buffer, moved with the others."""
        self._slots.append(_Slots(self._plan, self._rows, self.capacity + 1))
        return self._slots[-1]

    def advance(self, counts: list[int]) -> None:
        """Keeps ``counts[r]`` of the tokens that were just run in row r."""
        self.lengths = [length + count for length, count in zip(self.lengths, counts, strict=True)]

    @torch.inference_mode()
    def keep(self, kept: list[list[int]]) -> None:
        """Keeps the tokens at these offsets behind each length (ascending), moved together."""
        moved = [row for row, slots in enumerate(kept) if slots != list(range(len(slots)))]
        if moved:
            width = max(len(kept[row]) for row in moved)
            offsets = [kept[row] + list(range(len(kept[row]), width)) for row in moved]
            starts = [self.lengths[row] for row in moved]
            plan = upload(
                [[row, start] for row, start in zip(moved, starts, strict=True)],
                self._plan.index.device,
            )
            sources = plan[:, 1:] + upload(offsets, plan.device)
            destinations = plan[:, 1:] + torch.arange(width, device=plan.device)
            for slots in self._slots:
                slots.gather(plan[:, :1], sources, destinations)
        self.advance([len(slots) for slots in kept])

    @torch.inference_mode()
    def select(self, rows: list[int]) -> None:
        """Keeps the given rows, in ascending order, moving them down in place."""
        for destination, source in enumerate(rows):
            if source != destination:
                for slots in self._slots:
                    slots.move(source, destination, self.lengths[source])
        self.lengths = [self.lengths[row] for row in rows]

    def _place(self, starts: list[int], counts: list[int], width: int, device: Any) -> Tensor:
        """Fills the plan; returns the position of every token, ``[rows, width]``."""
        self._plan.rows, self._plan.starts = len(starts), starts
        self._plan.bucket = min(_bucket(max(starts) + width, device), self.capacity + 1)
        if counts == [width] and starts[0] + width <= self.capacity:  # one row without padding
            self._plan.index = torch.arange(starts[0], starts[0] + width, device=device).unsqueeze(
                0
            )
            return self._plan.index
        column = torch.arange(width).unsqueeze(0)
        positions = torch.tensor(starts).unsqueeze(1) + column
        real = column < torch.tensor(counts).unsqueeze(1)
        slots = torch.where(real, positions, self.capacity)
        both = upload(torch.stack([slots, positions.clamp_(max=self.capacity - 1)]), device)
        self._plan.index = both[0]
        return both[1]


class RaggedModel(RaggedRows):
    """A transformers causal LM with a cache of rows of different lengths.

    Args:
        model: any causal LM whose attention takes a four-dimensional mask.
        rows: rows of the batch.
        capacity: the most ids a row can come to hold.
    """

    def __init__(self, model: Any, rows: int, capacity: int) -> None:
        super().__init__(rows, capacity)
        self.model = model
        slots = capacity + 1  # the last slot takes the writes of padding and is never attended
        self.depth = int(model.config.get_text_config().num_hidden_layers)
        self._layers = [_RaggedLayer(self._plan, rows, slots) for _ in range(self.depth)]
        self._slots = [one for layer in self._layers for one in layer.slots]
        self._watched: dict[int, _Slots] = {}
        self._cache = Cache(layers=list(self._layers))
        self._lean = lean_of(model)
        self._masks = MaskBuilder(model)

    def watch(self, layers: Iterable[int]) -> None:
        """Keeps the hidden states behind these layers beside keys and values, from the next forward on:
        0 are the embeddings, ``depth`` what the LM head reads (behind the final norm)."""
        for layer in layers:
            if layer not in self._watched:
                self._watched[layer] = self._add()

    def hidden(self, layer: int) -> Tensor:
        """What is kept of a watched layer: ``[rows, capacity + 1, size]``, of which row r's first
        ``lengths[r]`` slots are real."""
        if layer not in self._watched:
            raise ValueError(f"layer {layer} is not kept; a drafter's reads name those that are")
        buffer = self._watched[layer].buffer
        assert buffer is not None  # nothing is asked for before the first forward
        return buffer[: len(self.lengths), 0]

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor,
        counts: list[int],
        *,
        ahead: int | list[int] = 0,
        branch: Branch | None = None,
        view: View | None = None,
        logits: bool = True,
    ) -> Tensor:
        """Runs ``tokens [rows, width]`` behind each row's length, without moving the lengths.

        Args:
            counts: how many of each row's tokens are real; the rest is padding.
            ahead: tokens already run, but not yet kept, behind each length; a number per row only for
                chains.
            branch: their shape and that of ``tokens``, if they are not a chain.
            view: some of the model's layers (``views.py``); default: the model.
            logits: False skips the LM head and returns the hidden states (prefill).

        Returns:
            ``[rows, width, vocab]``.
        """
        offsets = ahead if isinstance(ahead, list) else [ahead] * len(self.lengths)
        starts = [length + offset for length, offset in zip(self.lengths, offsets, strict=True)]
        positions = self._place(starts, counts, tokens.shape[1], tokens.device)
        if branch is None:
            mask = self._mask(starts, positions)
        else:
            lengths = upload(self.lengths, tokens.device).unsqueeze(1)
            positions = (lengths + branch.depths[:, offsets[0] :]).clamp(max=self.capacity - 1)
            mask = self._masks.build(positions, self._plan.bucket, lengths, branch)
        shown = self._shown(view)
        out, states = self._run(view, tokens, positions, mask, shown, logits)
        for layer, slots in shown.items():
            slots.write(states[layer].unsqueeze(1))
        return out

    def _mask(self, starts: list[int], positions: Tensor) -> Any:
        """Of a chain; none for a single token that attends all there is."""
        if self._lean and positions.numel() == 1 and self._plan.bucket == starts[0] + 1:
            return None
        return self._masks.build(positions, self._plan.bucket)

    def _run(
        self,
        view: View | None,
        tokens: Tensor,
        positions: Tensor,
        mask: Any,
        shown: Iterable[int],
        logits: bool,
    ) -> tuple[Tensor, Mapping[int, Tensor]]:
        """What the model or a view of it says, and the hidden states of these layers."""
        places, model = self._masks.position_ids(positions), view.model if view else self.model
        if self._lean is not None:
            last = min(self.capacity, self._masks.last_position)
            found: tuple[Tensor, dict[int, Tensor]] = self._lean(
                tokens, places, mask, self._layers, last, shown, logits, view
            )
            return found
        out = (model if logits else model.base_model)(
            input_ids=tokens,
            position_ids=places,
            attention_mask=mask,
            use_cache=True,
            **({"output_hidden_states": True} if shown else {}),
            **{self._masks.cache_name: self._cache},
        )
        own = view.shows if view else range(self.depth + 1)
        return cast(Tensor, out[0]), {layer: out.hidden_states[own[layer]] for layer in shown}

    def _shown(self, view: View | None) -> dict[int, _Slots]:
        """The watched layers whose hidden states this forward makes."""
        known = range(self.depth + 1) if view is None else view.shows
        return {layer: slots for layer, slots in self._watched.items() if layer in known}

    def prefill(self, tokens: list[list[int]], chunk: int) -> None:
        """Takes in each row's ids in pieces of at most ``chunk`` tokens."""
        for start in range(0, max(map(len, tokens), default=0), chunk):
            pieces = [row[start : start + chunk] for row in tokens]
            counts = [len(piece) for piece in pieces]
            self.forward(pad(pieces, self.model.device), counts, logits=False)
            self.advance(counts)


def _bucket(length: int, device: Any) -> int:
    """Attended slots: exact on CPU; on a GPU a multiple of 128, so that few shapes occur."""
    return length if torch.device(device).type == "cpu" else -(-length // 128) * 128


def attended(
    positions: Tensor,
    bucket: int,
    lengths: Tensor | None = None,
    branch: Branch | None = None,
) -> tuple[Tensor, Tensor]:
    """The position that each of ``bucket`` slots stands for, and which slots each token attends: of those
    that are kept, all before its own position.

    Arguments as for ``MaskBuilder.build``; both are four-dimensional, as a mask is.
    """
    keys = torch.arange(bucket, device=positions.device).view(1, 1, 1, bucket)
    queries = positions[:, None, :, None]
    if branch is None or lengths is None:
        return keys, keys <= queries
    rows, width, slots = branch.visible.shape
    offsets = keys - lengths.view(rows, 1, 1, 1)
    behind = (offsets >= 0) & (offsets < slots)
    at = offsets.clamp(0, slots - 1)
    depths = branch.depths.view(rows, 1, 1, slots).gather(3, at)
    places = torch.where(behind, lengths.view(rows, 1, 1, 1) + depths, keys)
    seen = branch.visible.unsqueeze(1).gather(3, at.expand(rows, 1, width, -1))
    return places, torch.where(behind, seen, (offsets < 0) & (keys < queries))


class MaskBuilder:
    """Masks and argument names for one model, decided once."""

    def __init__(self, model: Any) -> None:
        config = model.config.get_text_config()
        parameters = inspect.signature(model.forward).parameters
        self.cache_name = "cache" if "cache" in parameters else "past_key_values"
        self.kinds = layer_kinds(config)
        self.window = int(getattr(config, "sliding_window", None) or 0)
        self.additive = config._attn_implementation == "eager"
        self.dtype = model.dtype
        self.last_position = (getattr(config, "max_position_embeddings", None) or 2**31) - 1

    def position_ids(self, positions: Tensor) -> Tensor:
        """Padding may lie beyond a learned position table; what it reads there is never used."""
        return positions.clamp(max=self.last_position)

    def build(
        self,
        positions: Tensor,
        bucket: int,
        lengths: Tensor | None = None,
        branch: Branch | None = None,
    ) -> Any:
        """One mask, or one per layer type where the model mixes them.

        ``positions [rows, width]`` of the tokens; ``lengths [rows, 1]`` go with ``branch``.
        """
        queries = positions[:, None, :, None]
        places, allowed = attended(positions, bucket, lengths, branch)
        masks = {k: self._mask(places, queries, allowed, k) for k in sorted(set(self.kinds))}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _mask(self, places: Tensor, queries: Tensor, allowed: Tensor, kind: str) -> Tensor:
        if kind == SLIDING:
            allowed = allowed & (places > queries - self.window)
        if not self.additive:
            return allowed
        blocked = torch.finfo(self.dtype).min
        return torch.zeros_like(allowed, dtype=self.dtype).masked_fill_(~allowed, blocked)


def layer_kinds(config: Any) -> list[str]:
    """The attention kind of each layer; anything but full and sliding attention is refused."""
    if "local" in getattr(config, "attention_layers", ()):
        raise ConfigError(
            f"model type {config.model_type!r} has local attention built into its layers, which ignores "
            f"a per-row mask; only {FULL} and {SLIDING} layers are possible."
        )
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        uniform = SLIDING if getattr(config, "sliding_window", None) else FULL
        kinds = [uniform] * config.num_hidden_layers
    for kind in kinds:
        if kind not in (FULL, SLIDING):
            raise ConfigError(
                f"model type {config.model_type!r} has layers of kind {kind!r}, whose state "
                f"cannot be rolled back per row; only {FULL} and {SLIDING} layers are possible."
            )
    return list(kinds)


def cache_bytes(model: Any, rows: int, capacity: int) -> int:
    """Bytes of the buffers that ``RaggedModel(model, rows, capacity)`` allocates."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    width = torch.finfo(model.dtype).bits // 8
    per_slot = int(heads) * int(head_dim) * width
    return 2 * int(config.num_hidden_layers) * rows * (capacity + 1) * per_slot


def pad(rows: list[list[int]], device: Any) -> Tensor:
    """Right-pads id lists with 0 into ``[rows, width]`` on the device."""
    width = max(map(len, rows), default=0)
    padded = [[*row, *([0] * (width - len(row)))] for row in rows]
    return upload(torch.tensor(padded, dtype=torch.int64).reshape(len(rows), width), device)
