"""What a guess is judged by, against values worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from foredraft.framework.training.objectives import LOSSES, mixed, overlap
from foredraft.framework.training.options import OBJECTIVES

TARGET = torch.tensor([0.5, 0.25, 0.25])
DRAFT = torch.tensor([0.25, 0.25, 0.5])
# sum p log(p / q) = .5 log 2 + 0 + .25 log .5; the reverse is the same by symmetry.
KL = 0.25 * math.log(2)
# Of these, sum p log(p / q) = log(1 / .75), and sum q log(q / p) has no end: q where p is 0.
SURE = torch.tensor([1.0, 0.0, 0.0])
SPREAD = torch.tensor([0.75, 0.125, 0.125])


def one(name: str, target: Tensor, draft: Tensor, chosen: int = 0) -> float:
    return float(LOSSES[name](target[None], draft[None].log(), torch.tensor([chosen]))[0])


def test_every_name_of_the_options_is_a_loss_and_no_other() -> None:
    assert set(LOSSES) == set(OBJECTIVES)


def test_overlap_is_the_sum_of_the_smaller_ones_place_by_place() -> None:
    targets = torch.stack([TARGET, SURE, TARGET])
    drafts = torch.stack([DRAFT, SPREAD, TARGET])
    assert overlap(targets, drafts.log()).tolist() == pytest.approx([0.75, 0.75, 1.0])


def test_tv_is_half_the_absolute_difference_of_whole_laws() -> None:
    assert one("tv", TARGET, DRAFT) == pytest.approx(0.25)
    assert one("tv", TARGET, DRAFT) == pytest.approx(float((TARGET - DRAFT).abs().sum()) / 2)
    laws = torch.randn(2, 50, 17, generator=torch.Generator().manual_seed(1)).softmax(-1)
    chosen = torch.zeros(50, dtype=torch.int64)
    found = LOSSES["tv"](laws[0], laws[1].log(), chosen)
    assert torch.allclose(found, (laws[0] - laws[1]).abs().sum(-1) / 2, atol=1e-6)
    assert torch.allclose(found, 1 - overlap(laws[0], laws[1].log()))


@pytest.mark.parametrize("name", ["kl", "reverse_kl"])
def test_divergences_have_their_known_values(name: str) -> None:
    assert one(name, TARGET, TARGET) == pytest.approx(0.0, abs=1e-6)
    assert one(name, TARGET, DRAFT) == pytest.approx(KL, rel=1e-5)


def test_the_two_divergences_are_told_apart() -> None:
    target, draft = torch.tensor([0.9, 0.1]), torch.tensor([0.5, 0.5])
    forward = 0.9 * math.log(1.8) + 0.1 * math.log(0.2)
    backward = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(5.0)
    assert one("kl", target, draft) == pytest.approx(forward, rel=1e-5)
    assert one("reverse_kl", target, draft) == pytest.approx(backward, rel=1e-5)


def test_zeros_of_the_target_cost_nothing_forward_and_much_backward() -> None:
    assert one("kl", SURE, SPREAD) == pytest.approx(math.log(1 / 0.75), rel=1e-5)
    backward = one("reverse_kl", SURE, SPREAD)
    assert math.isfinite(backward) and backward > 0.25 * math.log(0.125 / 1e-6)


def test_cross_entropy_is_of_the_targets_id_and_passes_over_ids_that_the_drafter_lacks() -> None:
    for place in range(3):
        assert one("ce", TARGET, DRAFT, place) == pytest.approx(-math.log(DRAFT[place]), rel=1e-6)
    logits = DRAFT.log().expand(2, 3).clone().requires_grad_()
    losses = mixed({"ce": 1.0}, TARGET.expand(2, 3), logits, torch.tensor([-1, 2]))
    assert losses.tolist() == pytest.approx([0.0, -math.log(0.5)])
    losses.sum().backward()
    assert logits.grad is not None
    assert logits.grad[0].abs().max() == 0 and logits.grad[1].abs().max() > 0.1


def test_logits_need_not_be_log_laws() -> None:
    """A constant on all logits changes nothing, and half precision is judged in float32."""
    chosen = torch.tensor([1])
    weights = {"ce": 1.0, "kl": 1.0, "reverse_kl": 1.0, "tv": 1.0}
    plain = mixed(weights, TARGET[None], DRAFT.log()[None], chosen)
    moved = mixed(weights, TARGET[None], DRAFT.log()[None] + 300, chosen)
    assert float(moved) == pytest.approx(float(plain), rel=1e-4)
    assert mixed(weights, TARGET[None], DRAFT.log()[None].bfloat16(), chosen).dtype == torch.float32


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("size", [1.0, 60.0])
def test_gradients_are_finite_where_the_target_has_zeros(name: str, size: float) -> None:
    """Truncated laws have exact zeros, and drafts far off have probabilities that underflow."""
    logits = (
        size * torch.randn(5, 40, generator=torch.Generator().manual_seed(2))
    ).requires_grad_()
    target = torch.zeros(5, 40)
    target[:, 3], target[:, 11] = 0.75, 0.25
    losses = mixed({name: 1.0}, target, logits, torch.full((5,), 3))
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert logits.grad is not None and torch.isfinite(logits.grad).all()
    assert name == "tv" or logits.grad.abs().max() > 1e-4


@pytest.mark.parametrize("name", OBJECTIVES)
def test_each_objective_alone_leads_to_the_target(name: str) -> None:
    """200 steps from a uniform guess; ``ce`` sees ids in the shares of the target's law."""
    target = torch.tensor([0.5, 0.25, 0.25, 0.0]).expand(4, 4)
    logits = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        chosen = torch.tensor([0, 0, 1, 2])
        mixed({name: 1.0}, target, logits.expand(4, 4), chosen).mean().backward()
        optimizer.step()
    reached = overlap(target[0], logits.detach().log_softmax(-1))
    assert float(reached) > 0.93


def test_a_mixture_is_the_weighted_sum() -> None:
    chosen, target = torch.tensor([2]), TARGET[None]
    weights = {"kl": 0.5, "tv": 2.0, "ce": 0.1, "reverse_kl": 0.0}
    expected = 0.5 * KL + 2 * 0.25 + 0.1 * math.log(2)
    assert float(mixed(weights, target, DRAFT.log()[None], chosen)) == pytest.approx(expected)
    assert mixed({}, target, DRAFT.log()[None], chosen).tolist() == [0.0]


def test_with_a_reduced_vocabulary_what_cannot_be_drafted_is_lost() -> None:
    """The target gives .6 to the drafted ids; a draft in the same shares overlaps by just that."""
    kept, same = torch.tensor([[0.4, 0.2]]), torch.tensor([[2 / 3, 1 / 3]])
    lacking = torch.tensor([-1])
    assert float(overlap(kept, same.log())) == pytest.approx(0.6)
    assert float(mixed({"tv": 1.0}, kept, same.log(), lacking)) == pytest.approx(0.4)
    # sum p log(p / q) = .6 log .6, which no other draft beats.
    least = float(mixed({"kl": 1.0}, kept, same.log(), lacking))
    assert least == pytest.approx(0.6 * math.log(0.6), rel=1e-5)
    other = torch.tensor([[0.6, 0.4]])
    assert float(mixed({"kl": 1.0}, kept, other.log(), lacking)) > least
    assert float(mixed({"ce": 1.0}, kept, same.log(), lacking)) == 0.0
