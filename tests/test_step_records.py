"""What a round tells beyond its counts: the budget, the detail for traces, and the policy's choice of
a member."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from helpers import SAMPLED, TOY_DRAFT, TOY_TARGET

from foredraft.framework import ConfigError, DraftKind, Engine, PolicySession, load
from foredraft.framework.bases import SessionPolicy
from foredraft.framework.decoding import Parts, decode
from foredraft.framework.interfaces import GammaPolicy
from foredraft.framework.pairing import check_policy
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.requests import Answer, Request
from foredraft.framework.specs import DETERMINISTIC, INDEPENDENT
from foredraft.framework.targets.table import TableTarget
from foredraft.framework.testing.tables import TableDrafter
from foredraft.framework.times.steps import FLAT, Constant, StepTimes
from foredraft.verifiers.token import TokenVerifier

pytestmark = pytest.mark.usefixtures("only_builtins")


class Chooser(PolicySession):
    """Names members in turn, and notes what the context shows of them and of the times."""

    seen: list[tuple[int | None, StepTimes]] = []

    def gammas(self) -> list[int]:
        type(self).seen.append((self.context.member, self.context.times()))
        return [2] * self.context.rows

    def member(self) -> int | None:
        return self.context.round_index % 3


def toy(policy: GammaPolicy, times: StepTimes | None = None) -> Parts:
    target, draft = TableTarget(TOY_TARGET.repeat(5, 1), 1), TableTarget(TOY_DRAFT.repeat(5, 1), 1)
    source = None if times is None else lambda rows: times
    return Parts(target, TableDrafter(draft), TokenVerifier(), policy, {}, source)


def test_details_are_the_laws_own_numbers() -> None:
    answers = [Answer(Request([0], 9, SAMPLED, index=n)) for n in range(4)]
    rows = [row for r in decode(toy(Fixed(FixedConfig(3))), answers, True) for row in r.rows]
    entropy = float(-(TOY_DRAFT * TOY_DRAFT.log()).sum())
    for row in rows:
        assert row.detail is not None
        assert row.detail.confidence == pytest.approx(TOY_DRAFT[row.drafted].tolist())
        assert row.detail.entropy == pytest.approx([entropy] * len(row.drafted))
        ratios = [min(1.0, float(TOY_TARGET[t] / TOY_DRAFT[t])) for t in row.drafted]
        assert row.detail.accept_probs == pytest.approx(ratios)
    assert any(0 < len(row.drafted) < 3 for row in rows)  # the last rounds have less room
    assert all(len(row.drafted) == row.gamma for row in rows)


def test_without_a_listener_there_are_no_details() -> None:
    answers = [Answer(Request([0], 5))]
    rounds = list(decode(toy(Fixed(FixedConfig(3))), answers))
    assert all(row.detail is None for r in rounds for row in r.rows)
    assert rounds[0].rows[0].gamma == 3


def test_a_trace_holds_the_details(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    words = ("target=table", "drafter=ngram", "observers=[jsonl]", f"observer.jsonl.path={path}")
    with load(*words, "sampling.temperature=1", "seed=3") as engine:
        engine.generate([0, 1, 2, 0, 1], max_new_tokens=8)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row for r in records if r["record"] == "round_done" for row in r["rows"]]
    assert any(row["drafted"] for row in rows)
    for row in rows:
        assert "detail" not in row and row["gamma"] >= len(row["drafted"])
        assert len(row["confidence"]) == len(row["entropy"]) == len(row["drafted"])
        assert all(0 < p <= 1 for p in row["confidence"])
        assert all(0 <= p <= 1 for p in row["accept_probs"])
        assert all(0 <= h <= math.log(64) for h in row["entropy"])


def test_the_policy_names_a_member_and_sees_the_times() -> None:
    Chooser.seen.clear()
    list(
        decode(toy(SessionPolicy(Chooser, None), times := Constant(0.3)), [Answer(Request([0], 9))])
    )
    members = [member for member, _ in Chooser.seen]
    assert members[:4] == [None, 0, 1, 2]
    assert all(seen is times for _, seen in Chooser.seen)


def test_without_measured_times_they_are_the_papers() -> None:
    Chooser.seen.clear()
    list(decode(toy(SessionPolicy(Chooser, None)), [Answer(Request([0], 2))]))
    assert Chooser.seen[0][1] is FLAT
    assert FLAT.target(4, [1, 5], 100).tolist() == [1, 1]
    assert FLAT.draft(4, [0, 2]) == pytest.approx([0, 0.1])


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (DraftKind(DETERMINISTIC), "chosen tokens have no law"),
        (DraftKind(INDEPENDENT, tree=True), "a tree's nodes are not drafted one by one"),
    ],
)
def test_stopping_policies_are_refused_where_they_are_not_asked(kind: DraftKind, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_policy(True, "confidence", "some", kind)
    check_policy(False, "fixed", "some", kind)
    check_policy(True, "confidence", "some", DraftKind())


def test_objects_are_refused_by_the_same_rule() -> None:
    from foredraft.drafters.none import NoDrafter

    policy = SessionPolicy(Chooser, None, stops=True)
    parts = Parts(TableTarget(TOY_TARGET.repeat(5, 1), 1), NoDrafter(), TokenVerifier(), policy, {})
    with pytest.raises(ConfigError, match="policy=SessionPolicy ends a draft"):
        Engine(parts)
