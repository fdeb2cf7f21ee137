"""Chain rules: edge cases, the rules that change the law against their definitions, coupling."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from foredraft.framework.errors import ConfigError
from foredraft.framework.interfaces import Verifier
from foredraft.framework.law import DenseLaw, DraftLaw, PointMass
from foredraft.framework.noise import Noise, Stream
from foredraft.framework.params import SamplingParams
from foredraft.framework.records import Draft, Trial, Verdict
from foredraft.framework.sampling import Sampler
from foredraft.framework.specs import DETERMINISTIC
from foredraft.framework.testing.laws import (
    LawOf,
    chi_square,
    enumerated_joint,
    enumerated_joints,
    law_of,
    make_trial,
    mean_accepted,
    means_accepted,
    plain_joint,
    random_table,
)
from foredraft.framework.tree import Tree
from foredraft.verifiers.block import BlockVerifier
from foredraft.verifiers.coupled import CoupledVerifier
from foredraft.verifiers.greedy import GreedyVerifier
from foredraft.verifiers.lenient import LenientVerifier
from foredraft.verifiers.token import TokenVerifier
from foredraft.verifiers.typical import TypicalVerifier

LARGEST = 1 - 2.0**-53
RULES: dict[str, Verifier] = {
    "token": TokenVerifier(),
    "block": BlockVerifier(),
    "coupled": CoupledVerifier(),
    "lenient": LenientVerifier(0.5),
    "typical": TypicalVerifier(),
    "greedy": GreedyVerifier(),
}
RATIO_RULES = ["token", "block", "lenient"]
every_rule = pytest.mark.parametrize("name", RULES)
ratio_rule = pytest.mark.parametrize("name", RATIO_RULES)


def law(*probs: float) -> Tensor:
    return torch.tensor(probs, dtype=torch.float64)


def trial_of(
    tokens: Tensor,
    target: Tensor,
    drafted: Tensor | None,
    uniforms: Tensor | float = LARGEST,
    lengths: list[int] | None = None,
    greedy: bool = False,
) -> Trial:
    """A chain before its verifier; ``drafted`` None makes it a point mass."""
    rows, width = tokens.shape
    drafts: DraftLaw = PointMass(tokens) if drafted is None else DenseLaw(drafted)
    draft = Draft(tokens, [width] * rows if lengths is None else lengths, drafts)
    if isinstance(uniforms, float):
        uniforms = torch.full((rows, width), uniforms, dtype=torch.float64)
    noise = Noise(list(range(rows)), [0] * rows, "cpu")
    gumbel = noise.gumbel(torch.arange(width + 1).expand(rows, -1), target.shape[-1])
    return make_trial(draft, target, uniforms, greedy, gumbel=gumbel)


def random_trial(rows: int, width: int, vocab: int, seed: int = 0) -> Trial:
    """Random laws with zeros, and tokens that were drawn from the draft's."""
    target = random_table(seed, vocab, laws=rows * (width + 1)).view(rows, width + 1, vocab)
    drafted = random_table(seed + 1, vocab, laws=rows * width).view(rows, width, vocab)
    tokens = drafted.flatten(0, 1).multinomial(1).view(rows, width)
    return trial_of(tokens, target, drafted, torch.rand(rows, width, dtype=torch.float64))


def is_law(probs: Tensor) -> bool:
    return bool((probs >= 0).all()) and torch.allclose(
        probs.double().sum(-1), torch.ones(len(probs), dtype=torch.float64), atol=1e-5
    )


# --- edge cases --------------------------------------------------------------------------------


@every_rule
def test_nothing_drafted_is_a_plain_step(name: str) -> None:
    target = random_table(3, 4, laws=2).view(2, 1, 4)
    empty = torch.zeros(2, 0, dtype=torch.int64)
    for drafted in (None, torch.zeros(2, 0, 4, dtype=torch.float64)):
        verdict = RULES[name].verify(trial_of(empty, target, drafted))
        assert verdict.accepted.tolist() == [0, 0]
        assert verdict.accepted.dtype == torch.int64
        assert verdict.accept_probs.shape == (2, 0)
        torch.testing.assert_close(verdict.next_law, target[:, 0])


@every_rule
@pytest.mark.parametrize("padding", [torch.nan, 0.2])
def test_rows_of_other_lengths_change_nothing(name: str, padding: float) -> None:
    rows, width, vocab = 60, 4, 5
    whole = random_trial(rows, width, vocab)
    lengths = [row % (width + 1) for row in range(rows)]
    real = torch.arange(width) < torch.tensor(lengths).unsqueeze(1)
    drafted = whole.draft.law.rows().masked_fill(~real.unsqueeze(-1), padding / 2)
    target = whole.target_probs.clone()  # what lies behind a row's own end is arbitrary
    target[:, 1:] = target[:, 1:].masked_fill(~real.unsqueeze(-1), padding)
    draft = Draft(whole.draft.tokens, lengths, DenseLaw(drafted))
    together = RULES[name].verify(
        dataclasses.replace(whole, draft=draft, target_probs=target, logits=target.log())
    )
    for row, length in enumerate(lengths):
        cut = Draft(
            whole.draft.tokens[row : row + 1, :length],
            [length],
            DenseLaw(drafted[row : row + 1, :length]),
        )
        gumbel = whole.gumbel()[row : row + 1, : length + 1]
        laws = whole.target_probs[row : row + 1, : length + 1]
        alone = RULES[name].verify(
            make_trial(cut, laws, whole.uniforms[row : row + 1, :length], gumbel=gumbel)
        )
        assert int(together.accepted[row]) == int(alone.accepted)
        torch.testing.assert_close(together.next_law[row], alone.next_law[0])
        torch.testing.assert_close(together.accept_probs[row, :length], alone.accept_probs[0])
        if alone.token is not None and together.token is not None:
            assert int(together.token[row]) == int(alone.token)


@ratio_rule
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_laws_are_accepted(name: str, dtype: torch.dtype) -> None:
    same = random_table(5, 50, laws=400).view(100, 4, 50).to(dtype)
    tokens = same[:, :3].flatten(0, 1).multinomial(1).view(100, 3)
    verdict = RULES[name].verify(trial_of(tokens, same, same[:, :3]))
    assert (verdict.accepted == 3).all()
    torch.testing.assert_close(verdict.next_law, same[:, 3])
    assert (verdict.accept_probs == 1).all()


@ratio_rule
def test_laws_equal_up_to_rounding_are_hardly_ever_rejected(name: str) -> None:
    logits = torch.randn(200, 4, 1000, generator=torch.Generator().manual_seed(1))
    target = logits.softmax(-1)
    drafted = (logits[:, :3] + 3).softmax(-1)
    assert not torch.equal(target[:, :3], drafted)
    tokens = drafted.flatten(0, 1).multinomial(1).view(200, 3)
    verdict = RULES[name].verify(trial_of(tokens, target, drafted, 1 - 1e-5))
    assert (verdict.accepted == 3).all()
    forced = RULES[name].verify(trial_of(tokens, target, drafted, LARGEST))
    assert is_law(forced.next_law)


@ratio_rule
def test_a_residual_that_rounds_to_nothing_is_the_targets_law(name: str) -> None:
    drafted = torch.tensor([0.5, 0.5], dtype=torch.float32).expand(1, 1, 2)
    target = torch.tensor([0.5 - 2.0**-25, 0.5 - 2.0**-25]).expand(1, 2, 2)  # below it everywhere
    rule = LenientVerifier(1.0) if name == "lenient" else RULES[name]
    verdict = rule.verify(trial_of(torch.tensor([[0]]), target, drafted))
    assert verdict.accepted.tolist() == [0]
    torch.testing.assert_close(verdict.next_law, target[:, 0])


@ratio_rule
def test_laws_without_a_common_token(name: str) -> None:
    target = law(0.25, 0.75, 0.0, 0.0).expand(1, 4, 4)
    drafted = law(0.0, 0.0, 0.5, 0.5).expand(1, 3, 4)
    verdict = RULES[name].verify(trial_of(torch.tensor([[2, 3, 2]]), target, drafted, 0.0))
    assert verdict.accepted.tolist() == [0]  # a uniform of 0 accepts nothing impossible
    torch.testing.assert_close(verdict.next_law, target[:, 0])


@every_rule
@pytest.mark.parametrize("temperature", [0.0, 1e-8, 1e-3])
def test_hardly_any_temperature_is_exact_match(name: str, temperature: float) -> None:
    logits = torch.randn(200, 4, 6, generator=torch.Generator().manual_seed(2))
    sampler = Sampler([SamplingParams(temperature=temperature)] * 200, "cpu")
    target, best = sampler.law(logits), logits.argmax(-1)
    tokens = torch.where(torch.rand(200, 3) < 0.7, best[:, :3], 5 - best[:, :3])
    drafted = torch.nn.functional.one_hot(tokens, 6).float()
    wanted = (tokens == best[:, :3]).long().cumprod(1).sum(1)
    clear = (target.amax(-1) > 1 - 1e-6).all(1)
    assert clear.sum() > 100 and set(wanted[clear].tolist()) == {0, 1, 2, 3}
    for law_rows in (None, drafted):
        # Half-way, so that what is as good as impossible does not stand.
        trial = trial_of(tokens, target, law_rows, 0.5, greedy=temperature == 0)
        verdict = RULES[name].verify(dataclasses.replace(trial, logits=logits * 1e4))
        assert torch.equal(verdict.accepted[clear], wanted[clear])
        follows = best.gather(1, wanted.unsqueeze(1)).squeeze(1)
        assert torch.equal(verdict.next_law.argmax(1)[clear], follows[clear])
        assert is_law(verdict.next_law)


@every_rule
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("uniform", [0.0, 0.5, LARGEST])
def test_whatever_comes_out_is_a_law(name: str, dtype: torch.dtype, uniform: float) -> None:
    whole = random_trial(300, 3, 40, seed=11)
    drafted, tokens = whole.draft.law.rows().to(dtype), whole.draft.tokens
    for laws in (drafted, None):
        verdict = RULES[name].verify(trial_of(tokens, whole.target_probs.to(dtype), laws, uniform))
        assert is_law(verdict.next_law)
        assert verdict.next_law.dtype == dtype
        assert ((verdict.accept_probs >= 0) & (verdict.accept_probs <= 1)).all()
        assert ((verdict.accepted >= 0) & (verdict.accepted <= 3)).all()


@every_rule
def test_no_verdict_reads_the_device(name: str) -> None:
    """Tensors of the meta device have no values: whatever waits for one raises."""
    whole = random_trial(4, 3, 5)
    tokens, target, uniforms = (
        part.to("meta") for part in (whole.draft.tokens, whole.target_probs, whole.uniforms)
    )
    noise = whole.gumbel().to("meta")
    for laws in (DenseLaw(whole.draft.law.rows().to("meta")), PointMass(tokens)):
        trial = make_trial(Draft(tokens, [3, 0, 1, 2], laws), target, uniforms, gumbel=noise)
        trial = dataclasses.replace(trial, greedy=whole.greedy.to("meta"))
        verdict = RULES[name].verify(trial)
        assert verdict.next_law.shape == (4, 5) and verdict.accepted.shape == (4,)
        with pytest.raises((NotImplementedError, RuntimeError)):
            verdict.accepted.tolist()


# --- block: a longer prefix may stand although a shorter one does not --------------------------


def test_block_lets_a_later_token_rescue_an_earlier_one() -> None:
    target = law(1 / 3, 2 / 3).expand(1, 3, 2)
    drafted = law(2 / 3, 1 / 3).expand(1, 2, 2)
    uniforms = torch.tensor([[0.9, 0.9]], dtype=torch.float64)
    trial = trial_of(torch.tensor([[0, 1]]), target, drafted, uniforms)
    verdict = BlockVerifier().verify(trial)  # ratios .5 and 2: weights .5 and 1
    torch.testing.assert_close(verdict.accept_probs, torch.tensor([[0.0, 1.0]]).double())
    assert verdict.accepted.tolist() == [2]
    assert TokenVerifier().verify(trial).accepted.tolist() == [0]


def test_block_takes_the_last_token_of_each_row_for_the_end() -> None:
    target = law(1 / 3, 2 / 3).expand(2, 4, 2)
    drafted = law(2 / 3, 1 / 3).expand(2, 3, 2)
    tokens = torch.tensor([[0, 0, 0], [0, 0, 0]])
    verdict = BlockVerifier().verify(trial_of(tokens, target, drafted, lengths=[2, 3]))
    # Weights .5, .25, .125. S_1 = S_2 = max(.5 * 2/3 - 1/3, 0) = 0: only the whole draft may stand.
    wanted = torch.tensor([[0.0, 0.25, 0.0], [0.0, 0.0, 0.125]]).double()
    torch.testing.assert_close(verdict.accept_probs, wanted)


# --- lenient -----------------------------------------------------------------------------------


def tables(count: int, vocab: int = 3) -> list[tuple[Tensor, Tensor]]:
    return [(random_table(s, vocab), random_table(s + 900, vocab)) for s in range(count)]


@pytest.mark.parametrize("lenience", [0.0, 0.2, 0.7, 1.0])
def test_lenient_is_its_definition(lenience: float) -> None:
    for target_table, draft_table in tables(30):
        target_law, draft_law = law_of(target_table), law_of(draft_table)
        target, drafted = target_law(()), draft_law(())
        # Without any bound, what is impossible is still no option: a ban would look the same.
        kept = torch.minimum(drafted, target / lenience) if lenience else drafted * (target > 0)
        left = (target - drafted).clamp(min=0)
        left = left / left.sum() if left.sum() > 0 else target
        rule = LenientVerifier(lenience)
        got = enumerated_joint(rule, target_law, draft_law, 1, 1)
        torch.testing.assert_close(got, kept + (1 - kept.sum()) * left, rtol=0, atol=1e-12)
        accepted = mean_accepted(rule, target_law, draft_law, 1)
        assert accepted == pytest.approx(float(kept.sum()), abs=1e-12)


@pytest.mark.parametrize("lenience", [0.2, 0.7])
@pytest.mark.parametrize("drawn", ["independent", DETERMINISTIC])
def test_lenience_bounds_every_token(lenience: float, drawn: str) -> None:
    over = 0.0
    for target_table, draft_table in tables(20):
        target, draft = law_of(target_table), law_of(draft_table)
        got = enumerated_joint(LenientVerifier(lenience), target, draft, 2, 2, drawn)
        plain = plain_joint(target, 2)
        assert (got <= plain / lenience**2 + 1e-12).all()
        assert (got.sum(1) <= target(()) / lenience + 1e-12).all()
        over = max(over, float((got - plain).max()))
    assert over > 0.05  # it is not the target's law


@pytest.mark.parametrize("drawn", ["independent", DETERMINISTIC])
def test_full_lenience_is_the_token_rule(drawn: str) -> None:
    pairs = [(law_of(target), law_of(draft)) for target, draft in tables(30)]
    joints = [
        enumerated_joints(rule, pairs, 2, 4, drawn)
        for rule in (LenientVerifier(1.0), TokenVerifier())
    ]
    torch.testing.assert_close(joints[0], joints[1], rtol=0, atol=1e-13)


def test_no_lenience_lost_accepts_everything_possible() -> None:
    for target_table, draft_table in tables(10):
        possible = (target_table + 0.01) / (target_table + 0.01).sum(-1, keepdim=True)
        target, draft = law_of(possible), law_of(draft_table)
        assert mean_accepted(LenientVerifier(0.0), target, draft, 3) == pytest.approx(3)
        got = enumerated_joint(LenientVerifier(0.0), target, draft, 2, 2)
        torch.testing.assert_close(got, plain_joint(draft, 2))


def test_less_lenience_accepts_less() -> None:
    pairs = [(law_of(target), law_of(draft)) for target, draft in tables(30)]
    means = [means_accepted(LenientVerifier(v), pairs, 2) for v in (0.0, 0.3, 0.6, 1.0)]
    for more, less in zip(means[:-1], means[1:], strict=True):
        assert (more >= less - 1e-12).all() and (more > less + 0.01).any()


@pytest.mark.parametrize(("lenience", "accepted"), [(0.9, 0), (0.7, 1), (0.1, 2), (0.0, 3)])
def test_lenient_greedy_rows_read_the_law_before_temperature(
    lenience: float, accepted: int
) -> None:
    """A.5 at temperature 0: a token stands if it has ``lenience`` times the largest probability."""
    likely = law(0.5, 0.4, 0.06, 0.04)
    tokens = torch.tensor([[1, 2, 3]])  # 80, 12 and 8 percent of the largest
    target = law(1, 0, 0, 0).expand(1, 4, 4)
    for drafted in (None, torch.nn.functional.one_hot(tokens, 4).double()):
        trial = trial_of(tokens, target, drafted, 0.0, greedy=True)
        trial = dataclasses.replace(trial, logits=(likely.log() + 5).expand(1, 4, 4))
        verdict = LenientVerifier(lenience).verify(trial)
        assert verdict.accepted.tolist() == [accepted]
        assert verdict.next_law.argmax(1).tolist() == [0]
        assert ((verdict.accept_probs == 0) | (verdict.accept_probs == 1)).all()


def test_lenient_rows_are_judged_each_in_its_own_way() -> None:
    tokens, target = torch.tensor([[1], [1]]), law(1, 0, 0).expand(2, 2, 3)
    trial = trial_of(tokens, target, None, 0.0)
    likely = law(0.5, 0.4, 0.1).log().expand(2, 2, 3)
    trial = dataclasses.replace(trial, logits=likely, greedy=torch.tensor([True, False]))
    assert LenientVerifier(0.5).verify(trial).accepted.tolist() == [1, 0]


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "0.5", True])
def test_impossible_lenience_is_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="verifier.lenience="):
        LenientVerifier(value)


# --- typical -----------------------------------------------------------------------------------


def typical_tokens(target: Tensor, epsilon: float, delta: float) -> list[bool]:
    """Cai et al. 2024: ``target > min(epsilon, delta exp(-entropy))``, one token at a time."""
    entropy = -sum(float(p) * float(p.log()) for p in target if p > 0)
    bound = min(epsilon, delta * float(torch.tensor(-entropy).double().exp()))
    return [float(p) > bound for p in target]


@pytest.mark.parametrize(("epsilon", "delta"), [(0.09, 0.3), (0.5, 0.9), (0.2, 0.1), (1.0, 1.0)])
def test_typical_is_its_definition(epsilon: float, delta: float) -> None:
    rule, seen = TypicalVerifier(epsilon, delta), set()
    for target_table, draft_table in tables(40, vocab=4):
        target, draft = law_of(target_table), law_of(draft_table)
        stands = torch.tensor(typical_tokens(target(()), epsilon, delta)).double()
        kept = draft(()) * stands
        got = enumerated_joint(rule, target, draft, 1, 1)
        wanted = kept + (1 - kept.sum()) * target(())
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)
        assert mean_accepted(rule, target, draft, 1) == pytest.approx(float(kept.sum()))
        seen.add(int(stands.sum()))
    assert len(seen) > 1


def test_typical_defaults_are_medusas() -> None:
    rule = TypicalVerifier()
    assert (rule.epsilon, rule.delta) == (0.09, 0.3)
    flat = law(*[0.05] * 20)  # entropy log 20: the bound is .3 / 20
    sharp = law(0.93, 0.07, *[0.0] * 18)  # hardly any entropy: the bound is .09
    for target, accepted in ((flat, 1), (sharp, 0)):
        trial = trial_of(torch.tensor([[1]]), target.expand(1, 2, 20), None)
        assert rule.verify(trial).accepted.tolist() == [accepted]


def test_typical_takes_the_longest_path_of_a_tree() -> None:
    # Nodes 0 and 1 follow the root, 2 follows 0, and 3 and 4 follow 1.
    tree = Tree(torch.tensor([[-1, -1, 0, 1, 1]]), depth=2, children=2)
    tokens = torch.tensor([[0, 1, 3, 0, 1]])
    laws = torch.zeros(1, 6, 4, dtype=torch.float64)
    laws[0, 0] = law(0.5, 0.5, 0.0, 0.0)
    laws[0, 1] = law(1.0, 0.0, 0.0, 0.0)  # behind node 0: its child 3 is impossible
    laws[0, 2] = law(0.02, 0.98, 0.0, 0.0)  # behind node 1: its second child stands alone
    laws[0, 3:] = torch.eye(4, dtype=torch.float64)[:3]
    draft = Draft(tokens, [5], PointMass(tokens), tree, DETERMINISTIC)
    verdict = TypicalVerifier().verify(make_trial(draft, laws, torch.zeros(1, 5).double()))
    assert verdict.accepted.tolist() == [2]
    assert verdict.path is not None and verdict.path.tolist() == [[1, 4]]
    assert verdict.accept_probs.tolist() == [[1, 1, 0, 0, 1]]
    torch.testing.assert_close(verdict.next_law, laws[:, 5])


@pytest.mark.parametrize("key", ["epsilon", "delta"])
@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_impossible_thresholds_are_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"verifier.{key}="):
        TypicalVerifier(**{key: value})


# --- coupled -----------------------------------------------------------------------------------


@pytest.mark.parametrize("point_mass", [False, True])
def test_coupled_emits_the_targets_tokens_whatever_the_draft(point_mass: bool) -> None:
    rows, width, vocab = 1000, 4, 5
    whole = random_trial(rows, width, vocab)
    noise = whole.gumbel()
    best = (whole.target_probs.log() + noise).argmax(-1)
    copied = torch.rand(rows, width) < 0.6  # random drafts alone would hardly ever agree
    tokens = torch.where(copied, best[:, :width], whole.draft.tokens)
    lengths = [row % (width + 1) for row in range(rows)]
    laws: DraftLaw = PointMass(tokens) if point_mass else whole.draft.law
    verdict = CoupledVerifier().verify(
        dataclasses.replace(whole, draft=Draft(tokens, lengths, laws))
    )
    assert verdict.token is not None
    seen = set()
    for row, length in enumerate(lengths):
        accepted = int(verdict.accepted[row])
        emitted = [*tokens[row, :accepted].tolist(), int(verdict.token[row])]
        assert emitted == best[row, : accepted + 1].tolist()
        assert accepted == length or int(tokens[row, accepted]) != int(best[row, accepted])
        torch.testing.assert_close(verdict.next_law[row], whole.target_probs[row, accepted])
        seen.add(accepted)
    assert seen == set(range(width + 1))


def run(
    rule: Verifier, target: LawOf, propose: Callable[[tuple[int, ...], Tensor], int], seed: int
) -> tuple[int, ...]:
    """Ten tokens or more of one request, in rounds of 0 to 3 drafted tokens."""
    noise, vocab = Noise([seed], [0], "cpu"), len(target(()))
    text: tuple[int, ...] = ()
    for index in range(10):
        gamma = (seed + index) % 4
        gumbel = noise.gumbel(len(text) + torch.arange(gamma + 1)[None], vocab)
        drafted: tuple[int, ...] = ()
        for ahead in range(gamma):
            drafted += (propose((*text, *drafted), gumbel[0, ahead]),)
        laws = torch.stack([target((*text, *drafted[:i])) for i in range(gamma + 1)])
        tokens = torch.tensor([drafted], dtype=torch.int64)
        draft = Draft(tokens, [gamma], PointMass(tokens), drawn=DETERMINISTIC)
        uniforms = torch.zeros(1, gamma, dtype=torch.float64)
        verdict = rule.verify(make_trial(draft, laws[None], uniforms, gumbel=gumbel))
        assert verdict.token is not None
        text = (*text, *drafted[: int(verdict.accepted)], int(verdict.token))
    return text[:10]


def disagreements(rule: Verifier) -> int:
    """How many of 40 texts differ from the plain one for some drafter."""
    wrong = 0
    for seed in range(40):
        target, other = law_of(random_table(seed, 4)), law_of(random_table(seed + 70, 4))

        def coupled(prefix: tuple[int, ...], noise: Tensor, other: LawOf = other) -> int:
            return int((other(prefix).log() + noise).argmax())

        def perfect(prefix: tuple[int, ...], noise: Tensor, target: LawOf = target) -> int:
            return int((target(prefix).log() + noise).argmax())

        plain: tuple[int, ...] = ()
        for position in range(10):
            noise = Noise([seed], [0], "cpu").gumbel(torch.tensor([[position]]), 4)[0, 0]
            plain += (perfect(plain, noise),)
        drafters = (coupled, perfect, lambda prefix, noise: len(prefix) % 4)
        wrong += any(run(rule, target, drafter, seed) != plain for drafter in drafters)
    return wrong


class _CorrectsFromTheBonusRow(CoupledVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        token = (trial.target_probs[:, -1].log() + trial.gumbel()[:, -1]).argmax(-1)
        return dataclasses.replace(right, token=token)


class _AcceptsOneMore(CoupledVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        return dataclasses.replace(
            right, accepted=(right.accepted + 1).clamp(max=trial.draft.width)
        )


def test_coupled_text_depends_on_seed_and_target_alone() -> None:
    assert disagreements(CoupledVerifier()) == 0


@pytest.mark.parametrize("broken", [_CorrectsFromTheBonusRow(), _AcceptsOneMore()])
def test_drafter_invariance_sees_planted_faults(broken: Verifier) -> None:
    assert disagreements(broken) > 20


@pytest.mark.parametrize("seed", range(6))
def test_coupled_accepts_as_often_as_the_paper_says(seed: int) -> None:
    """Between (1 - TV) / (1 + TV) and 1 - TV; exactly, the chance that both argmaxes agree."""
    rows, vocab = 40_000, 4
    target, drafted = random_table(seed, vocab, zeros=0.1)[0], random_table(seed + 30, vocab)[0]
    noise = Noise(list(range(rows)), [0] * rows, "cpu").gumbel(torch.tensor([[0, 1]]), vocab)
    tokens = (drafted.log() + noise[:, 0]).argmax(-1, keepdim=True)
    draft = Draft(tokens, [1] * rows, DenseLaw(drafted.expand(rows, 1, vocab)))
    uniforms = torch.zeros(rows, 1, dtype=torch.float64)
    laws = target.expand(rows, 2, vocab)
    verdict = CoupledVerifier().verify(make_trial(draft, laws, uniforms, gumbel=noise))
    rate = float(verdict.accepted.double().mean())
    apart = float((target - drafted).abs().sum() / 2)
    slack = 4 * (0.25 / rows) ** 0.5
    assert (1 - apart) / (1 + apart) - slack <= rate <= 1 - apart + slack
    both = [x for x in range(vocab) if target[x] > 0 and drafted[x] > 0]
    ratios = [torch.maximum(target / target[x], drafted / drafted[x]).sum() for x in both]
    assert rate == pytest.approx(sum(1 / float(r) for r in ratios), abs=slack)
    assert verdict.token is not None
    emitted = torch.where(verdict.accepted > 0, tokens[:, 0], verdict.token)
    assert chi_square(torch.bincount(emitted, minlength=vocab), target) > 1e-4


# --- the noise that drafter and target share ---------------------------------------------------


def test_shared_noise_is_standard_gumbel() -> None:
    from scipy.stats import gumbel_r, kstest

    noise = Noise(list(range(200)), [0] * 200, "cpu").gumbel(torch.arange(20)[None], 50)
    assert noise.shape == (200, 20, 50) and noise.dtype == torch.float64
    assert noise.isfinite().all()
    assert kstest(noise.flatten().numpy(), gumbel_r.cdf).pvalue > 1e-3


@pytest.mark.parametrize("axis", [0, 1, 2], ids=["rows", "positions", "ids"])
def test_shared_noise_is_independent(axis: int) -> None:
    noise = Noise(list(range(60)), [0] * 60, "cpu").gumbel(torch.arange(60)[None], 60)
    assert len(set(noise.flatten().tolist())) == noise.numel()
    for step in (1, 2, 7):
        one, other = noise, noise.roll(step, axis)
        related = torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]
        assert abs(float(related)) < 4 / noise.numel() ** 0.5
        higher = (one > 0.3665) & (other > 0.3665)  # both above the median: a quarter
        assert float(higher.double().mean()) == pytest.approx(0.25, abs=0.005)


def test_shared_noise_belongs_to_request_and_position() -> None:
    places = torch.arange(6)[None]
    noise = Noise([3, 4, 5], [0, 1, 2], "cpu", samples=[0, 1, 0])
    everything = noise.gumbel(places, 7)
    torch.testing.assert_close(noise.gumbel(places[:, 2:4], 7), everything[:, 2:4])
    torch.testing.assert_close(noise.gumbel(places, 5), everything[..., :5])
    mixed = torch.tensor([[0, 1], [4, 5], [2, 3]])
    rows = torch.arange(3).unsqueeze(1)
    torch.testing.assert_close(noise.gumbel(mixed, 7), everything[rows, mixed])
    noise.select([2, 0])
    torch.testing.assert_close(noise.gumbel(places, 7), everything[[2, 0]])
    uniform = torch.exp(-torch.exp(-everything[0, :, 0]))
    for stream in (Stream.DRAFT, Stream.ACCEPT, Stream.NEXT):
        others = Noise([3], [0], "cpu").uniform(stream, 0, 0, 6)[0]
        assert not torch.isclose(uniform, others, atol=1e-9).any()


@pytest.mark.parametrize("seed", range(4))
def test_argmax_of_noisy_logarithms_has_the_law(seed: int) -> None:
    rows, vocab = 50_000, 6
    target = random_table(seed, vocab)[seed]
    noise = Noise(list(range(rows)), [seed] * rows, "cpu").gumbel(torch.tensor([[seed]]), vocab)
    drawn = (target.log() + noise[:, 0]).argmax(-1)
    assert chi_square(torch.bincount(drawn, minlength=vocab), target) > 1e-4
