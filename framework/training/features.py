"""Hidden states of the target at every id of its answers, kept in shards on the disk.

They are made once, by one pass of the target over each text, and read batch by batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..bench.disk import unwritable
from ..errors import InputError
from ..files import write_tensors
from ..interfaces import Target
from .answers import Answered

PER_SHARD = 64  # texts
LARGEST = torch.finfo(torch.float16).max


class Features:
    """The texts of a run, with hidden states.

    Args:
        folder: of the shards.
        layers: of the target.
        width: ids of each text that are kept: the last ones, so that of a long prompt the begin is cut.
    """

    def __init__(self, folder: Path, layers: Sequence[int], width: int) -> None:
        self.folder, self.layers, self.width = folder, tuple(layers), width
        self._open: dict[int, Any] = {}
        self.count = 0

    def make(
        self, target: Target, texts: Sequence[Answered], most_bytes: int,
        told: Callable[[int], None] = lambda count: None,
    ) -> int:  # fmt: skip
        """Makes the shards that are missing, as long as all have no more than ``most_bytes``; gives the
        texts that there are.

        Raises:
            InputError: a shard cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.folder, error) from None
        spent = 0
        for number, begin in enumerate(range(0, len(texts), PER_SHARD)):
            part, path = texts[begin : begin + PER_SHARD], self._path(number)
            if not self._there(path, part):
                tensors = self._shard(target, part)
                if spent + sum(t.nbytes for t in tensors.values()) > most_bytes:
                    break
                write_tensors(path, tensors, self._about(part))
            spent += path.stat().st_size
            if spent > most_bytes:
                break
            self.count += len(part)
            told(len(part))
        return self.count

    def text(self, index: int) -> tuple[Tensor, int, dict[int, Tensor]]:
        """Ids ``[n]``, how many of them are the prompt, and hidden states ``[n, size]`` by layer."""
        number, place = divmod(index, PER_SHARD)
        if number not in self._open:
            self._open[number] = _opened(self._path(number))
        shard = self._open[number]
        ids = shard.get_tensor(f"{place}.ids")
        hidden = {layer: shard.get_tensor(f"{place}.{layer}") for layer in self.layers}
        return ids[1:], int(ids[0]), hidden

    def _shard(self, target: Target, texts: Sequence[Answered]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for place, one in enumerate(texts):
            ids = [*one.prompt, *one.answer]
            cut = max(0, len(ids) - self.width)
            found[f"{place}.ids"] = torch.tensor([max(0, len(one.prompt) - cut), *ids[cut:]])
            for layer, states in zip(self.layers, _states(target, ids, self.layers), strict=True):
                # Some models have single values between their layers that float16 has no room for.
                kept = states[cut:].clamp(-LARGEST, LARGEST)
                found[f"{place}.{layer}"] = kept.half().cpu().contiguous()
        return found

    def _there(self, path: Path, texts: Sequence[Answered]) -> bool:
        """Whether a whole shard of just these texts is there."""
        try:
            with safe_open(path, "pt") as shard:
                return dict(shard.metadata() or {}) == self._about(texts)
        except (OSError, SafetensorError):
            return False

    def _about(self, texts: Sequence[Answered]) -> dict[str, str]:
        which = [[one.index, len(one.prompt), len(one.answer)] for one in texts]
        return {"texts": json.dumps(which), "layers": json.dumps([self.width, *self.layers])}

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.safetensors"


@torch.inference_mode()
def _states(target: Target, ids: list[int], layers: Sequence[int]) -> Iterator[Tensor]:
    """Hidden states behind each of these ids, layer by layer, from a session of their own."""
    session = target.start(1, len(ids) + 1)
    session.watch(layers)
    session.prefill([[*ids]])
    for layer in layers:
        yield session.hidden(layer)[0, : len(ids)]


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, "pt")
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from None
