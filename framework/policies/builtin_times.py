"""The configs of policies that aim at tokens per second. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from ..checks import check_choice, check_range, check_whole
from ..errors import ConfigError
from ..specs import CONTRACT_VERSION, PolicySpec

MAX_GAMMA = 64
REQUEST, BATCH = "request", "batch"
UCB, THOMPSON = "ucb", "thompson"
GAMMAS, DRAFTERS = "gammas", "drafters"


@dataclass
class TimedConfig:
    """The gamma with the most expected tokens per second.

    Args:
        max_gamma: the most tokens drafted per round.
        memory: tokens judged at a position after which an observation counts for ``1 / e``; an
            eighth of it is what follows changes of the text.
        prior: observations that what is presumed is worth.
        alpha: the rate of acceptance that is presumed before anything was seen.
        probe: the share of time that may be lost on gammas that look worse, to keep in touch.
        frozen: go by the table of step times alone; otherwise it is corrected by what rounds take.
    """

    max_gamma: int = 16
    memory: float = 64.0
    prior: float = 2.0
    alpha: float = 0.6
    probe: float = 0.01
    frozen: bool = False

    def __post_init__(self) -> None:
        check_whole("policy.max_gamma", self.max_gamma, 1, MAX_GAMMA)
        check_range("policy.memory", self.memory, 8, 1e9)
        check_range("policy.prior", self.prior, 0.1, 1e6)
        check_range("policy.alpha", self.alpha, 0, 1)
        check_range("policy.probe", self.probe, 0, 0.5)


@dataclass
class OptimalConfig(TimedConfig):
    """Each row's gamma with the most expected tokens per second.

    Args:
        scope: ``request`` learns from each row apart, ``batch`` from all rows together.
        batch: reckon with the step times of a batch of this size; null takes the running one's, on
            which a row's text then depends.
    """

    scope: str = REQUEST
    batch: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("policy.scope", self.scope, (REQUEST, BATCH))
        if self.batch is not None:
            check_whole("policy.batch", self.batch, 1, 4096)


@dataclass
class GoodputConfig(TimedConfig):
    """The batch's gamma with the most tokens per second; 0 where speculation does not pay."""

    @property
    def scope(self) -> str:
        """All rows share what is learnt."""
        return BATCH

    @property
    def batch(self) -> None:
        """The running batch's size is what counts."""
        return None


@dataclass
class BanditConfig:
    """Tries arms and plays the one that brings the most tokens per second.

    Args:
        algorithm: ``ucb`` plays the arm that may be best, ``thompson`` draws an arm by the chance
            that it is the best one.
        over: arms are ``gammas``, or members of ``drafter=one_of`` (``drafters``).
        arms: the gammas, for ``over=gammas``; 0 is plain decoding.
        members: how many members there are, for ``over=drafters``.
        gamma: tokens per round, for ``over=drafters``.
        explore: how wide the doubt about an arm is taken; 0 plays what looks best.
        memory: rounds after which one counts for ``1 / e``.
        seed: of ``thompson``, which draws from a generator of its own.
        frozen: reckon with the table of step times in place of the clock.
    """

    algorithm: str = UCB
    over: str = GAMMAS
    arms: list[int] = field(default_factory=lambda: [0, 1, 2, 4, 8])
    members: int = 2
    gamma: int = 4
    explore: float = 0.5
    memory: float = 256.0
    seed: int = 0
    frozen: bool = False

    def __post_init__(self) -> None:
        check_choice("policy.algorithm", self.algorithm, (UCB, THOMPSON))
        check_choice("policy.over", self.over, (GAMMAS, DRAFTERS))
        for arm in self.arms:
            check_whole("policy.arms", arm, 0, MAX_GAMMA)
        if len(set(self.arms)) < max(2, len(self.arms)):
            raise ConfigError(
                f"policy.arms={list(self.arms)} is not possible; it must list two gammas or more, each once."
            )
        check_whole("policy.members", self.members, 1, 16)
        check_whole("policy.gamma", self.gamma, 1, MAX_GAMMA)
        check_range("policy.explore", self.explore, 0, 100)
        check_range("policy.memory", self.memory, 8, 1e9)
        check_whole("policy.seed", self.seed, 0, (1 << 63) - 1)
        if self.frozen and self.over == DRAFTERS:
            raise ConfigError(
                "policy.frozen=true is not possible with policy.over=drafters, because a table of step "
                "times knows the whole drafter, not its members; use policy.frozen=false."
            )


def _frozen(config: TimedConfig | BanditConfig) -> bool:
    return config.frozen


def _alone(config: OptimalConfig) -> bool:
    """Whether nothing of the batch is in a row's gamma."""
    return config.frozen and config.scope == REQUEST and config.batch is not None


_spec = partial(PolicySpec, contract=CONTRACT_VERSION, repeatable=_frozen)
_HERE = "foredraft.framework.policies"
SPECS = (
    _spec(
        "optimal",
        f"{_HERE}.optimal:Optimal",
        OptimalConfig,
        "each row's best gamma by its acceptance so far and by measured step times",
        row_local=_alone,
    ),
    _spec(
        "goodput",
        f"{_HERE}.goodput:Goodput",
        GoodputConfig,
        "the batch's best gamma in tokens per second; 0 where speculation does not pay",
        row_local=False,
    ),
    _spec(
        "bandit",
        f"{_HERE}.bandit:Bandit",
        BanditConfig,
        "UCB or Thompson sampling over gammas, or over drafters (BanditSpec)",
        row_local=False,
    ),
)
