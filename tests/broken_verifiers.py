"""Broken acceptance rules, one fault each, of kinds that have been reported or that papers warn of.

Where nothing else is said, a rule is token-wise rejection (Leviathan et al. 2023) with the fault.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from planted import Planted
from torch import Tensor

from foredraft.framework.interfaces import Verifier
from foredraft.framework.law import DenseLaw, PointMass
from foredraft.framework.records import Trial, Verdict
from foredraft.framework.specs import INDEPENDENT, WITHOUT_REPLACEMENT, VerifierSpec
from foredraft.framework.tree import Tree
from foredraft.framework.verdicts import correction_law, law_at, leading, token_probs
from foredraft.verifiers.coupled import CoupledVerifier
from foredraft.verifiers.kseq import KSeqVerifier
from foredraft.verifiers.lenient import LenientVerifier
from foredraft.verifiers.recursive import RecursiveVerifier
from foredraft.verifiers.token import TokenVerifier
from foredraft.verifiers.traversal import TraversalVerifier

CHAINS, TREES = "joint_law_of_chains", "joint_law_of_trees"
PLANTED: list[Planted] = []


@dataclass
class Nothing:
    """Nothing to set."""


def plant(
    what: str, *caught_by: str, config: type = Nothing, **declared: Any
) -> Callable[[type[Verifier]], type[Verifier]]:
    """Adds a rule to ``PLANTED``; its spec declares what its class says, unless given."""

    def add(rule: type[Verifier]) -> type[Verifier]:
        names = ("lossless", "greedy_only", "chains", "trees", "shared_noise")
        abilities = {name: getattr(rule, name) for name in names} | declared
        name = "".join("_" + c.lower() if c.isupper() else c for c in rule.__name__).strip("_")
        spec = VerifierSpec(name, lambda config: rule(), config, contract=1, **abilities)
        PLANTED.append(Planted(name, what, spec, caught_by))
        return rule

    return add


def ratios(trial: Trial) -> tuple[Tensor, Tensor]:
    """Target and draft probability of each drafted token, float64 ``[batch, width]``."""
    draft = trial.draft
    target = token_probs(trial.target_probs, draft.tokens).double()
    return target, draft.law.prob(draft.tokens).double()


def rejected(trial: Trial, right: Verdict) -> Tensor:
    """Whether a token was rejected: ``[batch, 1]``."""
    return (right.accepted < trial.draft.mask.sum(1)).unsqueeze(1)


# --- acceptance ------------------------------------------------------------------------------------


@plant("every drafted token stands", CHAINS, "numerically_safe", "greedy_equality", "engine_law")
class AcceptsEverything(Verifier):
    def verify(self, trial: Trial) -> Verdict:
        every = trial.draft.mask.sum(1)
        return Verdict(every, law_at(trial.target_probs, every), trial.draft.mask.double())


@plant("the first drafted token is never judged", CHAINS, "numerically_safe", "greedy_equality")
class FirstTokenUnjudged(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        target, drafted = ratios(trial)
        probs = (target / drafted.clamp(min=1e-300)).clamp(max=1.0)
        probs[:, :1] = 1.0
        probs = probs.where(trial.draft.mask, 0.0)
        accepted = leading(trial.uniforms < probs)
        return Verdict(accepted, correction_law(trial.draft, trial.target_probs, accepted), probs)


@plant("a token stands if it is the target's likeliest, also when sampling", CHAINS, "engine_law")
class LikeliestStands(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        draft = trial.draft
        stands = (draft.tokens == trial.target_probs[:, : draft.width].argmax(-1)) & draft.mask
        accepted = leading(stands)
        return Verdict(accepted, law_at(trial.target_probs, accepted), stands.double())


@plant("products of ratios are compared with products of uniforms", CHAINS, "engine_law")
class CumulativeProducts(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        target, drafted = ratios(trial)
        joint = (target / drafted.clamp(min=1e-300)).cumprod(1)
        accepted = leading((trial.uniforms.cumprod(1) < joint) & trial.draft.mask)
        probs = joint.clamp(max=1).where(trial.draft.mask, 0.0)
        return Verdict(accepted, correction_law(trial.draft, trial.target_probs, accepted), probs)


@plant("one uniform decides about all positions", CHAINS, "engine_law")
class OneUniform(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        return super().verify(
            replace(trial, uniforms=trial.uniforms[:, :1].expand_as(trial.uniforms))
        )


@plant("a uniform of 0 lets an impossible token stand", "numerically_safe")
class NotStrict(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        target, drafted = ratios(trial)
        accepted = leading((trial.uniforms * drafted <= target) & trial.draft.mask)
        probs = (target / drafted.clamp(min=1e-300)).clamp(max=1.0).where(trial.draft.mask, 0.0)
        return Verdict(accepted, correction_law(trial.draft, trial.target_probs, accepted), probs)


@plant("tokens are judged by the laws of the place behind them", CHAINS, "greedy_equality")
class RowsShiftedByOne(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(replace(trial, target_probs=trial.target_probs.roll(-1, 1)))
        law = correction_law(trial.draft, trial.target_probs, right.accepted)
        return replace(right, next_law=law)


@plant("accept_probs are not what decides", CHAINS)
class OtherThresholds(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        return replace(right, accept_probs=right.accept_probs**2)


@plant("accepts as with lenience, and declares to be lossless", CHAINS, "engine_law")
class LenientInDisguise(LenientVerifier):
    lossless = True

    def __init__(self) -> None:
        super().__init__(0.5)


# --- what follows ----------------------------------------------------------------------------------


@plant("the residual goes through a softmax", CHAINS, "numerically_safe", "greedy_equality")
class SoftmaxOfResidual(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        return replace(
            right, next_law=right.next_law.softmax(-1).where(rejected(trial, right), right.next_law)
        )


@plant("the target's law follows a rejection", CHAINS, "engine_law")
class NoResidual(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        return replace(right, next_law=law_at(trial.target_probs, right.accepted))


@plant("the residual takes away the drafted token's probability alone", CHAINS, "engine_law")
class ResidualOfOneToken(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        if trial.draft.width == 0:
            return right
        at = right.accepted.clamp(max=trial.draft.width - 1).unsqueeze(1)
        law, drafted = law_at(trial.target_probs, right.accepted), ratios(trial)[1].gather(1, at)
        law = law.scatter_add(1, trial.draft.tokens.gather(1, at), -drafted.to(law.dtype)).clamp(
            min=0
        )
        law = (law / law.sum(1, keepdim=True)).nan_to_num(0.0)
        wrong = rejected(trial, right) & (law.sum(1, keepdim=True) > 0)
        return replace(right, next_law=law.where(wrong, right.next_law))


@plant("a rejected token that was chosen, not drawn, may follow all the same", CHAINS, "engine_law")
class PointMassComesAgain(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        if not isinstance(trial.draft.law, PointMass):
            return right
        return replace(right, next_law=law_at(trial.target_probs, right.accepted))


@plant("after a whole draft follows the law of the place before", "greedy_equality", CHAINS)
class BonusOffByOne(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        wrong = law_at(trial.target_probs, (right.accepted - 1).clamp(min=0))
        return replace(right, next_law=right.next_law.where(rejected(trial, right), wrong))


@plant("the residual is not normalised", "well_formed_verdicts")
class NotNormalised(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        return replace(
            right, next_law=torch.where(rejected(trial, right), 0.7, 1.0) * right.next_law
        )


@plant("an empty residual is divided by its sum", "numerically_safe")
class EmptyResidual(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right, draft = super().verify(trial), trial.draft
        if draft.width == 0:
            return right
        at = right.accepted.clamp(max=draft.width - 1).unsqueeze(1)
        law = draft.law.residual(
            law_at(trial.target_probs, right.accepted).unsqueeze(1), at
        ).squeeze(1)
        law = law / law.sum(1, keepdim=True)
        return replace(right, next_law=law.where(rejected(trial, right), right.next_law))


@plant("greedy rows are sampled at a small temperature", "numerically_safe")
class SmallTemperature(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        laws = (trial.logits / 1e-3).softmax(-1).nan_to_num(0.0)
        greedy = trial.greedy.view(-1, 1, 1)
        return super().verify(replace(trial, target_probs=laws.where(greedy, trial.target_probs)))


# --- rows of a batch, and what is left from call to call -------------------------------------------


@plant(
    "after a whole draft follows the law of the batch's last place",
    "padding_ignored",
    "rows_independent",
)
class BonusAtTheBatchsWidth(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        return replace(
            right, next_law=right.next_law.where(rejected(trial, right), trial.target_probs[:, -1])
        )


@plant("padding is judged like drafted tokens", "padding_ignored")
class JudgesPadding(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        target, drafted = ratios(trial)
        probs = (target / drafted.clamp(min=1e-300)).clamp(max=1.0).nan_to_num(0.0)
        accepted = leading(trial.uniforms < probs)
        law = correction_law(trial.draft, trial.target_probs, accepted)
        return Verdict(accepted, law, probs.where(trial.draft.mask, 0.0))


@plant("the first row's law follows in every row", "rows_independent", CHAINS)
class FirstRowsLaw(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        return replace(right, next_law=right.next_law[:1].expand_as(right.next_law))


@plant("no row keeps more than the least successful one", "rows_independent", CHAINS)
class LeastOfTheBatch(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        least = right.accepted.amin().expand_as(right.accepted)
        return replace(right, accepted=least, next_law=law_at(trial.target_probs, least))


@plant("one greedy row makes the whole batch greedy", "rows_independent")
class GreedyTogether(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        best = torch.zeros_like(trial.target_probs)
        best.scatter_(-1, trial.target_probs.argmax(-1, keepdim=True), 1.0)
        laws = torch.where(trial.greedy.any(), best, trial.target_probs)
        return super().verify(replace(trial, target_probs=laws))


@plant("accepts less while the last call accepted much", "repeatable")
class Remembers(TokenVerifier):
    def __init__(self) -> None:
        self.last: Tensor = torch.tensor(0.0)

    def verify(self, trial: Trial) -> Verdict:
        uniforms = (trial.uniforms + 0.3 * self.last).clamp(max=1 - 2.0**-53)
        right = super().verify(replace(trial, uniforms=uniforms))
        self.last = right.accepted.double().mean()
        return right


@plant("decides by Python's global random numbers", "repeatable", CHAINS)
class GlobalNoise(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        return super().verify(replace(trial, uniforms=trial.uniforms * 0 + random.random()))


@plant("the residual is computed in the target's own tensor", "inputs_unchanged")
class WritesInPlace(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right, draft = super().verify(trial), trial.draft
        if isinstance(draft.law, DenseLaw):
            trial.target_probs[:, : draft.width].sub_(draft.law.rows()).clamp_(min=0)
        return right


@plant("asks whether all stood with item()", "no_host_reads")
class ReadsOneValue(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        if (right.accepted == trial.draft.width).all().item():
            return replace(right, next_law=trial.target_probs[:, -1])
        return right


@plant("picks the rejected rows with a boolean mask", "no_host_reads")
class BooleanMask(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        at = rejected(trial, right).squeeze(1)
        law = law_at(trial.target_probs, right.accepted)
        law[at] = right.next_law[at]
        return replace(right, next_law=law)


# --- block rules, trees, shared noise --------------------------------------------------------------


class Block(Verifier):
    """Block verification (Sun et al. 2024), step by step, with the faults that it has been given."""

    capped, last, guarded = True, True, True

    def verify(self, trial: Trial) -> Verdict:
        draft = trial.draft
        target, drafted = ratios(trial)
        weights = [torch.ones(len(target), dtype=torch.float64)]
        for ratio in (target / drafted.clamp(min=1e-300)).unbind(1):
            weights.append((weights[-1] * ratio).clamp(max=1 if self.capped else torch.inf))
        weight = torch.stack(weights, 1)
        rows = weight[:, :-1, None].to(trial.target_probs.dtype) * trial.target_probs[:, :-1]
        left = torch.nn.functional.pad(draft.law.residual(rows), (0, 0, 0, 1))
        probs = self._probs(weight[:, 1:], left.sum(-1)[:, 1:].double(), draft.mask)
        stands = trial.uniforms < probs
        counts = torch.nn.functional.pad(stands * torch.arange(1, draft.width + 1), (1, 0))
        longest = counts.amax(1)
        accepted = longest if self.last else leading(stands)
        law = law_at(left, accepted)
        mass = law.sum(1, keepdim=True)
        whole = ~rejected(trial, Verdict(accepted, law, probs)) | (mass <= 0)
        law = law_at(trial.target_probs, accepted).where(whole, law / mass.clamp(min=1e-30))
        return Verdict(accepted, law, probs)

    def _probs(self, weight: Tensor, mass: Tensor, real: Tensor) -> Tensor:
        total = mass + 1 - weight
        partial = mass / total
        if self.guarded:
            partial = torch.where(total > 0, partial, 1.0)
        end = real & ~torch.nn.functional.pad(real[:, 1:], (0, 1))[:, : real.shape[1]]
        return torch.where(end, weight, partial).clamp(max=1).where(real, 0.0)


@plant("block rule: the joint ratio is not capped at 1", CHAINS)
class BlockUncapped(Block):
    capped = False


@plant("block rule: stops at the first position that does not stand", CHAINS)
class BlockStopsEarly(Block):
    last = False


@plant("block rule: 0 / 0 where target and draft are equal", "numerically_safe")
class BlockUnguarded(Block):
    guarded = False


class Misread(RecursiveVerifier):
    """Takes one way of drawing for the other."""

    read: str

    def verify(self, trial: Trial) -> Verdict:
        if isinstance(trial.draft.law, PointMass):
            return super().verify(trial)
        return super().verify(replace(trial, draft=replace(trial.draft, drawn=self.read)))


@plant("children drawn without replacement are judged as if drawn with it", TREES)
class WithForWithout(Misread):
    trees = (WITHOUT_REPLACEMENT,)  # type: ignore[assignment]
    read = INDEPENDENT


@plant("children drawn with replacement are judged as if drawn without it", TREES)
class WithoutForWith(Misread):
    trees = (INDEPENDENT,)  # type: ignore[assignment]
    read = WITHOUT_REPLACEMENT


@plant("children are judged from the likeliest on, not as drawn", TREES)
class SortedChildren(RecursiveVerifier):
    chains = trees = (INDEPENDENT,)  # type: ignore[assignment]

    def verify(self, trial: Trial) -> Verdict:
        draft = trial.draft
        if draft.tree is None or draft.depth != 1:
            return super().verify(trial)
        # Only in trees of one level, so that no child has to move with its parent.
        order = (
            draft.law.prob(draft.tokens)
            .where(draft.mask, -1.0)
            .argsort(dim=1, descending=True, stable=True)
        )
        rows = torch.nn.functional.pad(order + 1, (1, 0)).unsqueeze(-1)
        laws = trial.target_probs.gather(1, rows.expand_as(trial.target_probs))
        moved = replace(draft, tokens=draft.tokens.gather(1, order))
        uniforms = trial.uniforms.gather(1, order)
        right = super().verify(replace(trial, draft=moved, target_probs=laws, uniforms=uniforms))
        probs = torch.zeros_like(right.accept_probs).scatter(1, order, right.accept_probs)
        assert right.path is not None
        path = right.path if draft.width == 0 else order.gather(1, right.path.clamp(min=0))
        return replace(right, accept_probs=probs, path=path.where(right.path >= 0, -1))


@plant("each child is judged as if it were the only one", TREES)
class OnlyChildren(KSeqVerifier):
    def verify(self, trial: Trial) -> Verdict:
        tree = trial.draft.shape
        draft = replace(trial.draft, tree=Tree(tree.parents, tree.depth, 1))
        return super().verify(replace(trial, draft=draft))


@plant("the path names places of the tree's levels, not nodes", "well_formed_verdicts")
class LevelsForNodes(TraversalVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        assert right.path is not None
        levels = torch.arange(right.path.shape[1]).expand_as(right.path)
        return replace(right, path=levels.where(right.path >= 0, -1))


@plant("shared noise: the correction is drawn at the last place", "engine_law", "rows_independent")
class CorrectsAtTheEnd(CoupledVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        token = (trial.target_probs[:, -1].double().log() + trial.gumbel()[:, -1]).argmax(-1)
        return replace(right, token=token)


@plant(
    "shared noise: draws with noise, and does not declare it",
    "well_formed_verdicts",
    shared_noise=False,
)
class HiddenNoise(CoupledVerifier):
    shared_noise = False


# --- what is declared ------------------------------------------------------------------------------


@plant("the spec says lossless, the rule does not", "declared_abilities", lossless=True)
class SpecSaysLossless(LenientVerifier):
    def __init__(self) -> None:
        super().__init__(0.5)


@plant("counts are int32", "well_formed_verdicts")
class NarrowCounts(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        return replace(right, accepted=right.accepted.int())


@dataclass
class Percent:
    """A value that is changed when it is read."""

    lenience: float = 50.0

    def __post_init__(self) -> None:
        self.lenience = self.lenience / 100


@plant(
    "the config divides its own value by 100 each time it is read",
    "config_round_trip",
    config=Percent,
)
class RescaledConfig(TokenVerifier):
    pass
