"""Trained weights of a drafter: a folder with ``weights.safetensors`` and ``card.json``.

The card says which drafter they are for, and the fingerprint of the target that they were trained for:
another target would take them without a word, and draft badly.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .errors import ConfigError, InputError
from .files import write_json, write_tensors
from .interfaces import Target
from .shipped import place
from .strict_json import read_object

WEIGHTS, CARD, IDS = "weights.safetensors", "card.json", "ids.safetensors"
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
# What a model computes with; other keys of its config do not change what weights mean to it.
SHAPE = (
    "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "vocab_size", "hidden_act", "tie_word_embeddings",
)  # fmt: skip


@dataclass
class Trained:
    """What was read.

    Args:
        tensors: by name, on the CPU.
        card: as it is in the file.
        where: the folder, as a refusal calls it.
    """

    tensors: dict[str, Tensor]
    card: dict[str, Any]
    where: str

    @property
    def ids(self) -> Tensor | None:
        """The target's ids that it drafts, ascending; None: all of them."""
        return self.tensors.get("ids")

    def whole(self, key: str, low: int, high: int) -> int:
        """A number of the shape, in bounds that the size of a network can be trusted with."""
        value = self.card["shape"].get(key)
        if type(value) is not int or not low <= value <= high:
            raise InputError(
                f"{self.where} says {key}={value!r} in its card; it must be a whole number from {low} to "
                f"{high}."
            )
        return value

    def fill(self, net: torch.nn.Module) -> None:
        """Puts the weights into a network.

        Raises:
            InputError: they do not fit.
        """
        own = {name: value for name, value in self.tensors.items() if name != "ids"}
        try:
            net.load_state_dict(own)
        except RuntimeError as error:
            lines = [line.strip().rstrip(".") for line in str(error).splitlines()[1:3]]
            raise InputError(f"{self.where} does not fit its card: {'; '.join(lines)}.") from None


@dataclass
class Card:
    """What a trained drafter says of itself.

    Args:
        drafter: its name in a config.
        shape: the values that its network is made with.
        target: ``fingerprint`` of the target, and its name.
        training: data, steps, tokens, seed and command.
        held_out: alpha on answers that it was not trained on, of each guess.
        guesses: what these are called: positions in a draft, or what else tells them apart.
    """

    drafter: str
    shape: dict[str, Any]
    target: dict[str, Any]
    training: dict[str, Any] = field(default_factory=dict)
    held_out: dict[str, Any] = field(default_factory=dict)
    guesses: list[str] = field(default_factory=list)


def fingerprint(target: Target) -> dict[str, str]:
    """What marks a target: its model's shape, and its tokens."""
    model = getattr(target, "model", None)
    config = model.config.get_text_config().to_dict() if model is not None else {}
    shape = {key: config[key] for key in SHAPE if key in config}
    tokens = sorted(target.tokenizer.get_vocab().items()) if target.tokenizer is not None else None
    return {
        "config": _digest(shape or {"vocab_size": target.vocab_size}),
        "tokenizer": _digest(tokens) if tokens is not None else "",
    }


def write_trained(folder: Path, tensors: Mapping[str, Tensor], card: Card) -> None:
    """Writes both files.

    Raises:
        InputError: they cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror or error}.") from None
    write_tensors(folder / WEIGHTS, {name: value.contiguous() for name, value in tensors.items()})
    write_json(folder / CARD, vars(card))


def write_model(folder: Path, model: Any, tokenizer: Any, ids: Tensor | None, card: Card) -> None:
    """Writes a whole model as transformers does, and the card; with ``ids`` their map in the place of the
    tokenizer.

    Raises:
        InputError: they cannot be written.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(folder)
        if tokenizer is not None and ids is None:
            tokenizer.save_pretrained(folder)
    except Exception as error:  # a full disk is one of several kinds here
        raise InputError(f"{folder} cannot be written: {error}.") from None
    if ids is not None:
        write_tensors(folder / IDS, {"ids": ids})
    write_json(folder / CARD, vars(card))


def read_map(path: str, drafter: str, target: Target) -> Tensor | None:
    """The map of a model's folder, as ``write_model`` wrote it; None where its ids are the target's, or
    somebody else trained it.

    Raises:
        InputError: it is damaged, or missing.
        ConfigError: it is for another drafter or another target.
    """
    where, folder = f"drafter.model={path}", Path(place(path))
    if not (folder / CARD).is_file():
        return None
    card = _checked(folder, where, drafter, target)
    tensors = load_tensors(folder / IDS, where) if (folder / IDS).is_file() else {}
    found = Trained(tensors, card, where)
    _check_ids(found, target)
    return found.ids


def read_trained(path: str, drafter: str, target: Target) -> Trained:
    """Reads what ``drafter.path`` names.

    Raises:
        InputError: it is not there, damaged, or no such folder.
        ConfigError: it is for another drafter or another target.
    """
    where, folder = f"drafter.path={path}", Path(place(path))
    _check_folder(folder, where)
    card = _checked(folder, where, drafter, target)
    found = Trained(load_tensors(folder / WEIGHTS, where), card, where)
    _check_ids(found, target)
    return found


def _checked(folder: Path, where: str, drafter: str, target: Target) -> dict[str, Any]:
    """The card, if it is of this drafter and this target."""
    card = _card(folder / CARD, where)
    if card["drafter"] != drafter:
        raise ConfigError(f"{where} holds drafter={card['drafter']}, not drafter={drafter}.")
    check_target(card["target"], target, where)
    return card


def _check_folder(folder: Path, where: str) -> None:
    if not folder.is_dir():
        raise InputError(f"{where} is no folder; it must hold {WEIGHTS} and {CARD}.")
    missing = [name for name in (WEIGHTS, CARD) if not (folder / name).is_file()]
    if missing:
        pickled = next((p.name for p in sorted(folder.iterdir()) if p.suffix in PICKLES), None)
        hint = f"; {pickled} is not read, because a pickle can run code" if pickled else ""
        raise InputError(f"{where} has no {' and no '.join(missing)}{hint}.")


def _card(path: Path, where: str) -> dict[str, Any]:
    try:
        card = read_object(path.read_bytes(), f"{where}/{CARD}")
    except OSError as error:
        raise InputError(f"{where}/{CARD} cannot be read: {error.strerror or error}.") from None
    kinds = {"drafter": str, "shape": dict, "target": dict}
    for key, kind in kinds.items():
        if not isinstance(card.get(key), kind):
            raise InputError(f"{where}/{CARD} has no {key}, or one of another kind.")
    return card


def check_target(said: Mapping[str, Any], target: Target, where: str) -> None:
    """Refuses what was made for another target; ``said`` is its fingerprint, with its name."""
    own = fingerprint(target)
    for key, what in (("config", "another model"), ("tokenizer", "another tokenizer")):
        if said.get(key) and own[key] and said[key] != own[key]:
            name = f" ({said['name']})" if said.get("name") else ""
            raise ConfigError(f"{where} was trained for {what}{name}, not for this target.")


def load_tensors(path: Path, where: str) -> dict[str, Tensor]:
    """What a safetensors file holds, on the CPU.

    Raises:
        InputError: it is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{where}/{path.name} is no whole safetensors file: {error}.") from None


def _check_ids(found: Trained, target: Target) -> None:
    """A map of a reduced vocabulary has to be ids of the target, each once, ascending."""
    ids, size = found.ids, found.card["shape"].get("vocabulary")
    if (ids is None) != (size is None):
        raise InputError(
            f"{found.where} says vocabulary={size}, and has {'no' if ids is None else 'a'} map of ids."
        )
    if ids is None:
        return
    good = ids.dim() == 1 and ids.dtype == torch.int64 and len(ids) == size and len(ids) > 0
    if not (
        good
        and bool((ids[1:] > ids[:-1]).all())
        and 0 <= int(ids[0])
        and int(ids[-1]) < target.vocab_size
    ):
        raise InputError(
            f"{found.where} has a map that is no {size} ascending ids from 0 to {target.vocab_size - 1}."
        )


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
