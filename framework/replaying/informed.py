"""A policy that knows the acceptance rate of each place, though not what will be accepted: what
adapting to the text can bring at most. Only synthetic traces have such a rate."""

from __future__ import annotations

import numpy as np

from ..context import Context
from ..errors import ConfigError
from ..interfaces import GammaPolicy, PolicySession
from ..theory import expected_tokens
from ..traces.synthetic import alphas_of
from .context import ReplayContext
from .stack import Costs, Counts, Stack


class Informed(GammaPolicy):
    """At each place, the gamma with the most expected tokens per second for the rate there
    (Leviathan et al. 2023, section 3.5, with the cost model's times).

    Args:
        stack: traces that have a rate at each place; all of a batch of size 1.
    """

    def __init__(self, stack: Stack, costs: Costs) -> None:
        self.gammas = np.zeros(stack.runs.shape, dtype=np.int64)
        for i, trace in enumerate(stack.traces):
            alphas = alphas_of(trace)
            if alphas is None:
                raise ConfigError(f"trace {i} is of a text whose acceptance rate nobody knows.")
            verify, draft = costs.table(1)
            first = trace.prompt_tokens - 1 - costs.first
            seconds = verify[first : first + trace.places] + draft
            tokens = expected_tokens(alphas[:, None], np.arange(stack.most + 1))
            self.gammas[i, : trace.places] = (tokens / seconds).argmax(1)

    def start(self, context: Context) -> InformedSession:
        if not isinstance(context, ReplayContext):
            raise ConfigError("a policy that knows the rate of each place is for replays only.")
        return InformedSession(context, self.gammas)


class InformedSession(PolicySession):
    """Looks it up. ``config`` is ``[n, T]``, the gamma of each trace and place."""

    context: ReplayContext
    config: Counts

    def gammas(self) -> list[int]:
        return [int(gamma) for gamma in self.config[self.context.traces, self.context.at]]
