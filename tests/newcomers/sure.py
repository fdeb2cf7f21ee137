"""Drafts on while the drafter is sure of what comes next."""

from dataclasses import dataclass

from foredraft.framework import PolicySession, PolicySpec, hookimpl


@dataclass
class Config:
    most: int = 8
    sure: float = 0.4


class Sure(PolicySession):
    def gammas(self):
        return [self.config.most] * self.context.rows

    def go_on(self, step):
        return step.law.amax(-1) > self.config.sure  # maths


@hookimpl
def foredraft_policies():
    return [PolicySpec("sure", Sure, Config, "stops where the drafter is unsure", contract=1)]
