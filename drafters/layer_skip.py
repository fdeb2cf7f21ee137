"""Layer skip: the target without some of its layers drafts, on the target's own cache.

Draft & Verify (Zhang et al. 2023, arXiv:2309.08168). Nothing is copied and nothing is prefilled: of
committed tokens the layers that are left read the target's own entries. Entries that a draft writes are
not the target's, and lie behind its length, where verification writes its own over them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from ..framework.bases import StepSession
from ..framework.context import Context
from ..framework.errors import ConfigError, InputError
from ..framework.files import write_json
from ..framework.interfaces import Drafter, Target
from ..framework.strict_json import read_object
from ..framework.targets.causal_lm import CausalLMSession
from ..framework.trained import check_target, fingerprint
from ..framework.views import View, some_layers
from .early_exit import check_layered, newest_of

if TYPE_CHECKING:
    from .builtin_trained import LayerSkipConfig

KEY = "drafter=layer_skip"


class LayerSkip(Drafter):
    """Drafts with the target's layers but ``skip``, its final norm and its head."""

    def __init__(self, config: LayerSkipConfig, target: Target) -> None:
        checked = check_layered(target, KEY)
        if config.path is not None:
            self.skip = read_skip(config.path, target)
        else:
            self.skip = config.skip
            if problem := wrong_skip(self.skip, target.depth):
                raise ConfigError(f"drafter.skip={self.skip} is not possible; {problem}.")
        self.view = without(checked.model, self.skip)

    def start(self, context: Context) -> LayerSkipSession:
        return LayerSkipSession(self.view, context)


class LayerSkipSession(StepSession):
    """No state of its own: the target's session holds the cache."""

    def __init__(self, view: View, context: Context) -> None:
        super().__init__(context)
        self.view = view
        self.ragged = cast(CausalLMSession, context.target).ragged

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        newest = drafted[-1].unsqueeze(1) if drafted else newest_of(self.context)
        counts = self.drafting(len(drafted))
        logits = self.ragged.forward(newest, counts, ahead=len(drafted), view=self.view)
        return logits[:, -1].to(self.context.device)


def without(model: Any, skip: list[int]) -> View:
    """A model without these layers, counted from 1."""
    depth = int(model.config.get_text_config().num_hidden_layers)
    return some_layers(model, [at for at in range(depth) if at + 1 not in skip], KEY)


def wrong_skip(skip: Any, depth: int) -> str:
    """What is wrong with a choice of layers; empty where nothing is."""
    whole = isinstance(skip, list) and all(type(one) is int for one in skip)
    if not (
        whole and skip and skip == sorted(set(skip)) and 1 <= skip[0] and skip[-1] <= depth
        and len(skip) < depth
    ):  # fmt: skip
        return (
            f"it must be a list of layers from 1 to {depth}, ascending, such as [2,3], and leave one of "
            "them in"
        )
    return ""


def write_skip(path: str | Path, skip: list[int], target: Target, name: str, found: Any) -> None:
    """Writes a file for ``drafter.path``.

    Args:
        name: of the target, for people.
        found: what the search says of it.
    """
    about = {"name": name, **fingerprint(target)}
    write_json(path, {"drafter": "layer_skip", "skip": skip, "target": about, "found": found})


def read_skip(path: str, target: Target) -> list[int]:
    """The layers that a file leaves out.

    Raises:
        InputError: it is not there, or no such file.
        ConfigError: it is for another target.
    """
    where = f"drafter.path={path}"
    try:
        record = read_object(Path(path).expanduser().read_bytes(), where)
    except OSError as error:
        raise InputError(f"{where} cannot be read: {error.strerror or error}.") from None
    if record.get("drafter") != "layer_skip" or not isinstance(record.get("target"), dict):
        raise InputError(f"{where} is no file that foredraft fit drafter=layer_skip has written.")
    check_target(record["target"], target, where)
    if problem := wrong_skip(record.get("skip"), target.depth):
        raise InputError(f"{where} says skip={record.get('skip')!r}; {problem}.")
    return list(record["skip"])
