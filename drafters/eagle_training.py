"""Training EAGLE's layer: each step guesses from the states of the one before, as it will when it drafts.

Steps are unrolled as HASS (Zhang et al. 2024, arXiv:2408.15766) and EAGLE-3 (training-time test,
arXiv:2503.01840) do. Draft number k behind place t stands at place t + k; it attends the places up to t,
which are made of the target's features, and the drafts between, which are made of the layer's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from ..framework.checks import check_range, check_whole
from ..framework.errors import ConfigError
from ..framework.heads import LMHead
from ..framework.interfaces import Target
from ..framework.trained import Trained
from ..framework.training.trainee import Guess, Texts, Trainee
from .eagle import embedding_of
from .eagle_net import EagleForm, EagleNet
from .rotary import rotations, theta_of

if TYPE_CHECKING:
    from .builtin_trained import EagleConfig

MOST_LAYERS, MOST_HEADS, MOST_INNER = 8, 1024, 1 << 18
NORMS = ("embedding", "input")


@dataclass
class EagleShape:
    """A new layer.

    Args:
        layers_read: the target's layers whose hidden states it reads, the last one among them; empty: the
            last one alone.
        heads, inner: of the layer; 0: as many and as wide as in the target.
        steps: how many drafts behind each place are trained, each on the states of the one before.
        features: weight of the distance between its states and the target's features.
    """

    layers_read: list[int] = field(default_factory=list)
    heads: int = 0
    inner: int = 0
    steps: int = 4
    features: float = 0.1

    def __post_init__(self) -> None:
        check_whole("train.shape.heads", self.heads, 0, MOST_HEADS)
        check_whole("train.shape.inner", self.inner, 0, MOST_INNER)
        check_whole("train.shape.steps", self.steps, 1, 16)
        check_range("train.shape.features", self.features, 0.0, 1e6)
        for layer in self.layers_read:
            check_whole("train.shape.layers_read", layer, 0, 10**4)


class EagleTrainee(Trainee):
    """A new layer that begins as the identity: a guess of the token that is there already."""

    Shape = EagleShape
    module: EagleNet

    def __init__(
        self, config: EagleConfig, target: Target, shape: EagleShape, ids: Tensor | None = None
    ) -> None:
        super().__init__(config, target, shape, ids)
        self.head = LMHead.of(target, "eagle").reduced(ids)
        self.embed, self.layers = embedding_of(target), _layers(shape, target)
        self.form = new_form(target, shape.heads, shape.inner, len(self.layers))
        self.module = EagleNet(self.form, rotations_of(target, self.form))
        self.module.begin_as_identity()
        self.module.to(self.head.weight.device)
        self._made: tuple[Texts, list[Tensor]] | None = None  # of the batch at hand

    def guesses(self, texts: Texts) -> Sequence[Guess]:
        """Draft k, from 0, at place t knows the ids up to t + 1 + k, and is of id t + 2 + k."""
        states = self.unrolled(texts)
        self._made = texts, states
        return [Guess(self.module.last(s), ahead=k + 2, position=k) for k, s in enumerate(states)]

    def logits(self, states: Tensor) -> Tensor:
        return self.head.narrow(states)

    def extra(self, texts: Texts) -> Tensor | None:
        """EAGLE's loss on features: smooth L1 from the state of draft k at t to the feature at t + 1 + k,
        where that is behind an answered id."""
        if not self.shape.features:
            return None
        made = self._made[1] if self._made and self._made[0] is texts else self.unrolled(texts)
        true, losses, self._made = texts.hidden[self.target.depth], [], None
        for k, states in enumerate(made):
            asked = texts.answered[:, k + 1 :]
            found = states[:, : asked.shape[1]][asked].float()
            if len(found):
                losses.append(functional.smooth_l1_loss(found, true[:, k + 1 :][asked]))
        return self.shape.features * torch.stack(losses).mean() if losses else None

    def described(self) -> dict[str, Any]:
        """The shape, with the sizes that it came to."""
        sizes = {"heads": self.form.heads, "inner": self.form.inner}
        return {**super().described(), **sizes, "layers_read": list(self.layers)}

    def unrolled(self, texts: Texts) -> list[Tensor]:
        """States of each draft, ``[rows, width, size]``."""
        features = torch.cat([texts.hidden[layer] for layer in self.layers], -1)
        with torch.no_grad():
            embedded: Tensor = self.embed(texts.ids).to(features)
        return unroll(self.module, embedded, features, self.shape.steps)


def unroll(net: EagleNet, embedded: Tensor, features: Tensor, steps: int) -> list[Tensor]:
    """States of the first ``steps`` drafts behind every place.

    Args:
        embedded: ``[rows, width, size]`` of each id.
        features: ``[rows, width, feature]``, the target's, behind each id.

    Returns:
        ``[rows, width, size]`` each. Those of draft k at the last k + 1 places are of no text.
    """
    at = torch.arange(embedded.shape[1], device=embedded.device).expand(embedded.shape[:2])
    attention, states = Unrolled(), [net.committed(features)]
    for k in range(steps):
        following = functional.pad(embedded[:, k + 1 :], (0, 0, 0, min(k + 1, embedded.shape[1])))
        states.append(net(following, states[-1], at + k, attention))
    return states[1:]


class Unrolled:
    """Attention of the drafts behind every place at once; a call for each draft, in their order.

    The query of draft k behind place t sees the first call's keys at places up to t, and of each later
    call, its own included, the one key that stands behind t too.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Tensor, Tensor]] = []

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        shared = queries.shape[1] // keys.shape[1]  # queries that share a key
        self.calls.append((keys.repeat_interleave(shared, 1), values.repeat_interleave(shared, 1)))
        (places, found_there), drafts = self.calls[0], self.calls[1:]
        queries = queries * queries.shape[-1] ** -0.5
        scores = queries @ places.transpose(-1, -2)
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        own = [(queries * one).sum(-1, keepdim=True) for one, _ in drafts]
        scores = torch.cat([scores.masked_fill(later, -torch.inf), *own], -1)
        weights = scores.float().softmax(-1).to(scores.dtype)
        found = weights[..., : keys.shape[2]] @ found_there
        for j, (_, one) in enumerate(drafts):
            found = found + weights[..., keys.shape[2] + j, None] * one
        return found


def new_form(target: Any, heads: int, inner: int, layers: int) -> EagleForm:
    """The form of a layer that is trained here; 0 heads or width: the target's.

    Raises:
        ConfigError: the heads cannot share the hidden size evenly.
    """
    config, size = target.model.config.get_text_config(), LMHead.of(target, "eagle").weight.shape[1]
    own = int(config.num_attention_heads)
    heads, wide = heads or own, inner or int(getattr(config, "intermediate_size", None) or 4 * size)
    if size % (2 * heads):
        raise ConfigError(
            f"train.shape.heads={heads} is not possible with hidden states of size {size}; each head needs an "
            "even share of it."
        )
    shared = int(getattr(config, "num_key_value_heads", None) or own)
    kept = shared if heads == own and own % shared == 0 else heads
    return EagleForm(size, heads, kept, size // heads, wide, layers * size, norms=NORMS)


def rotations_of(target: Any, form: EagleForm) -> Tensor:
    """Angles by the base of the target's own positions."""
    return rotations(theta_of(target.model.config.get_text_config().to_dict()), form.head_size)


def net_of_card(found: Trained, target: Any) -> tuple[EagleNet, tuple[int, ...]]:
    """The network that a card describes, without its weights, and the layers that it reads."""
    layers = found.card["shape"].get("layers_read")
    if not isinstance(layers, list) or not 1 <= len(layers) <= MOST_LAYERS:
        layers = [None]
    good = all(type(layer) is int and 0 <= layer <= target.depth for layer in layers)
    if not good:
        said = found.card["shape"].get("layers_read")
        raise ConfigError(
            f"{found.where} says layers_read={said!r} in its card; it must be a list of 1 to {MOST_LAYERS} "
            f"layers from 0 to {target.depth}."
        )
    heads, inner = found.whole("heads", 1, MOST_HEADS), found.whole("inner", 1, MOST_INNER)
    form = new_form(target, heads, inner, len(layers))
    return EagleNet(form, rotations_of(target, form)), tuple(layers)


def _layers(shape: EagleShape, target: Target) -> tuple[int, ...]:
    """The layers, in their order; the last one is what it begins as."""
    layers = tuple(sorted({*shape.layers_read})) or (target.depth,)
    if layers[-1] != target.depth or len(layers) > MOST_LAYERS:
        raise ConfigError(
            f"train.shape.layers_read={shape.layers_read} is not possible; it must be at most {MOST_LAYERS} "
            f"layers with the target's last, {target.depth}, among them."
        )
    return layers
