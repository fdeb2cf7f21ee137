"""What a drafter thinks of a token where its law says nothing: in greedy rows, whose law is certain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from helpers import make_engine, markov, rounds_of
from torch import Tensor

from foredraft.framework import DraftStep, PolicySession, load
from foredraft.framework.bases import SessionPolicy
from foredraft.framework.decoding import Parts, decode
from foredraft.framework.opinion import Opinion
from foredraft.framework.params import SamplingParams
from foredraft.framework.policies.builtin import ConfidenceConfig, EntropyConfig, FixedConfig
from foredraft.framework.policies.confidence import ConfidenceSession
from foredraft.framework.policies.entropy import EntropySession
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.records import RowOutcome
from foredraft.framework.requests import Answer, Request
from foredraft.framework.testing.tables import TableDrafter, TableDraftSession
from foredraft.verifiers.token import TokenVerifier

pytestmark = pytest.mark.usefixtures("only_builtins")

# Greedily 0 > 1 > 2 > 0; the drafter is sure of 1 and 2, not of what follows a 2.
CHAIN = markov([[0.1, 0.8, 0.1], [0.05, 0.05, 0.9], [0.4, 0.3, 0.3]])
GREEDY, SAMPLED = SamplingParams(temperature=0.0), SamplingParams(temperature=1.0)


class Watching(PolicySession):
    """Drafts three and keeps copies of what it is shown."""

    seen: list[dict[str, Tensor]]

    def gammas(self) -> list[int]:
        return [3] * self.context.rows

    def go_on(self, step: DraftStep) -> Tensor:
        names = (
            "opinion",
            "law",
            "entropy",
        )  # the opinion first: it must not run the drafter twice
        shown = {name: getattr(step, name).clone() for name in names}
        if step.probs:
            shown["prob"] = step.probs[-1].clone()
        self.config.append(shown)
        return torch.ones(self.context.rows, dtype=torch.bool)


def watched(
    *params: SamplingParams, prompt: Sequence[int] = (0,), tokens: int = 5
) -> list[dict[str, Tensor]]:
    seen: list[dict[str, Tensor]] = []
    policy = SessionPolicy(Watching, seen)
    parts = Parts(CHAIN, TableDrafter(CHAIN), TokenVerifier(), policy, {})
    answers = [Answer(Request(list(prompt), tokens, p, index=i)) for i, p in enumerate(params)]
    list(decode(parts, answers))
    return seen


def test_a_greedy_row_shows_what_its_drafter_thinks() -> None:
    first, second, third = watched(GREEDY)[:3]
    rows = CHAIN.logits.exp()
    for step, state in [(first, 0), (second, 1), (third, 2)]:
        assert step["law"].sort().values.tolist() == [[0, 0, 1]]
        assert step["opinion"].tolist()[0] == pytest.approx(rows[state].tolist())
        entropy = -(rows[state] * rows[state].log()).sum()
        assert float(step["entropy"]) == pytest.approx(float(entropy))
    assert float(second["prob"]) == pytest.approx(0.8)
    assert float(third["prob"]) == pytest.approx(0.9)


@pytest.mark.parametrize(
    "params",
    [SAMPLED, SamplingParams(temperature=0.7, top_k=2), SamplingParams(temperature=1.0, top_p=0.5)],
)
def test_a_sampled_row_thinks_what_it_is_drawn_from(params: SamplingParams) -> None:
    for step in watched(params):
        assert torch.equal(step["opinion"], step["law"])


def test_rows_of_both_kinds_side_by_side() -> None:
    both = watched(GREEDY, SAMPLED)[0]
    alone = [watched(GREEDY)[0], watched(SAMPLED)[0]]
    for name in ("law", "opinion", "entropy"):
        assert torch.equal(both[name], torch.cat([one[name] for one in alone]))


@pytest.mark.parametrize("draft", ["full", "temperature", "none"])
def test_filters_of_a_greedy_request_leave_the_opinion_alone(draft: str) -> None:
    params = SamplingParams(temperature=0.0, top_k=1, top_p=0.1, draft=draft)
    step = watched(params)[0]
    assert step["opinion"].tolist()[0] == pytest.approx([0.1, 0.8, 0.1])


def test_what_is_forbidden_is_not_thought_of_either() -> None:
    banned = SamplingParams(temperature=0.0, logit_bias={1: -torch.inf})
    step = watched(banned)[0]
    assert step["opinion"].tolist()[0] == pytest.approx([0.5, 0, 0.5])
    assert step["law"].tolist() == [[1, 0, 0]]


def test_an_opinion_costs_no_second_step(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    inner = TableDraftSession.next_logits

    def counted(self: TableDraftSession, drafted: list[Tensor]) -> Tensor:
        calls.append(len(drafted))
        return inner(self, drafted)

    monkeypatch.setattr(TableDraftSession, "next_logits", counted)
    assert len(watched(GREEDY)) == len(calls)


def test_nobody_computes_an_opinion_that_nobody_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*given: object) -> Tensor:
        raise AssertionError("nobody asked")

    for name in ("probs", "entropy", "prob"):
        monkeypatch.setattr(Opinion, name, property(asked))
    engine = make_engine(CHAIN, TableDrafter(CHAIN), 3)
    assert engine.generate([0], max_new_tokens=6).token_ids == [1, 2, 0, 1, 2, 0]


# --- policies at temperature 0 -----------------------------------------------------------------


def greedy_rows(policy: SessionPolicy) -> list[RowOutcome]:
    engine = make_engine(CHAIN, TableDrafter(CHAIN), policy)
    answers = [[0], [1], [2]]
    rounds = rounds_of(engine, answers, max_new_tokens=20, sampling=GREEDY)
    return [row for r in rounds for row in r.rows]


def test_confidence_stops_greedy_drafts() -> None:
    config = ConfidenceConfig(threshold=0.6, step=0.0, max_gamma=6)
    rows = greedy_rows(SessionPolicy(ConfidenceSession, config, stops=True))
    whole = [row.drafted for row in rows if row.gamma == 6]
    assert whole
    for drafted in whole:
        assert drafted[-1] == 0 and 0 not in drafted[:-1]  # 0 is what the drafter is unsure of


def test_entropy_stops_greedy_drafts() -> None:
    config = EntropyConfig(threshold=0.6, step=0.0, max_gamma=6)
    rows = greedy_rows(SessionPolicy(EntropySession, config, stops=True))
    whole = [row.drafted for row in rows if row.gamma == 6 and row.drafted]
    assert whole
    assert all(drafted[-1] == 2 and 0 not in drafted for drafted in whole)


# --- traces ------------------------------------------------------------------------------------


def test_details_of_greedy_rows_are_opinions() -> None:
    parts = Parts(CHAIN, TableDrafter(CHAIN), TokenVerifier(), Fixed(FixedConfig(3)), {})
    answers = [Answer(Request([0], 9, p, index=i)) for i, p in enumerate((GREEDY, SAMPLED))]
    rows = CHAIN.logits.exp()
    for r in decode(parts, answers, detailed=True):
        for row in r.rows:
            assert row.detail is not None
            assert len(row.detail.confidence) == len(row.detail.entropy) == len(row.drafted)
            states = row.drafted[:-1]
            pairs = list(zip(states, row.drafted[1:], strict=True))
            expected = [float(rows[a, b]) for a, b in pairs]
            assert row.detail.confidence[1:] == pytest.approx(expected)
            entropies = [float(-(rows[a] * rows[a].log()).sum()) for a in states]
            assert row.detail.entropy[1:] == pytest.approx(entropies)
            if row.request == 0:
                assert all(p in (0.0, 1.0) for p in row.detail.accept_probs)


def test_chosen_tokens_beside_drawn_ones_stay_certain() -> None:
    words = [
        "target=table",
        "drafter=first_of",
        "drafter.drafters=[prompt_lookup,ngram]",
        "policy.gamma=3",
        "sampling.temperature=0",
    ]
    seen: list[tuple[list[float], list[float]]] = []
    with load(*words) as engine:
        # The first prompt repeats itself, the second one never does.
        prompts: list[Any] = [[0, 1, 2, 0, 1, 2, 0, 1], [3, 5, 6, 7]]
        answers = [Answer(engine.request(p, i, max_new_tokens=4)) for i, p in enumerate(prompts)]
        first = next(iter(decode(engine.parts, answers, detailed=True)))
    for row in first.rows:
        assert row.detail is not None and row.drafted
        seen.append((row.detail.confidence, row.detail.entropy))
    assert set(seen[0][0]) == {1.0} and set(seen[0][1]) == {0.0}
    assert all(0 < p < 1 for p in seen[1][0]) and all(h > 0 for h in seen[1][1])
