"""The config of ``policy=specdecpp``. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import check_range, check_whole
from ..errors import ConfigError
from ..specs import CONTRACT_VERSION, PolicySpec

MAX_GAMMA = 64


@dataclass
class SpecDecPlusConfig:
    """Stop when the predicted chance that a drafted token will be rejected is too high.

    Args:
        path: a head that ``foredraft fit policy=specdecpp`` trained; without one, a token's own
            probability stands for the chance that it is accepted.
        threshold: a draft ends once the chance that any of its tokens is rejected is above this.
        min_gamma: tokens drafted whatever the prediction says.
        max_gamma: the most tokens drafted per round.
    """

    path: str | None = None
    threshold: float = 0.7
    min_gamma: int = 2
    max_gamma: int = 20

    def __post_init__(self) -> None:
        if self.path is not None and not self.path:
            raise ConfigError("policy.path='' is not possible; it must name a file, or be null.")
        check_range("policy.threshold", self.threshold, 0, 1)
        check_whole("policy.max_gamma", self.max_gamma, 0, MAX_GAMMA)
        check_whole("policy.min_gamma", self.min_gamma, 0, self.max_gamma)


SPEC = PolicySpec(
    "specdecpp",
    "foredraft.framework.policies.specdecpp:SpecDecPlus",
    SpecDecPlusConfig,
    "stop when a trained head predicts a rejection (SpecDec++)",
    stops=True,
    contract=CONTRACT_VERSION,
)
