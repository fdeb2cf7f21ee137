"""Gamma, policy and the off switch of single requests: from Python, from lines of prompts, in a batch
with others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_helpers import Cli, make_cli, refused
from helpers import SAMPLED, make_engine, markov
from torch import Tensor

from foredraft.drafters.builtin import PromptLookupConfig
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.framework import DraftStep, Engine, ForedraftError, GammaPolicy, PolicySession
from foredraft.framework.bases import SessionPolicy
from foredraft.framework.config import part
from foredraft.framework.decoding import Batch
from foredraft.framework.factories import make_part
from foredraft.framework.policies.fixed import FixedSession
from foredraft.framework.policies.mixed import MixedSession
from foredraft.framework.records import Round, RowOutcome
from foredraft.framework.requests import Answer, Request
from foredraft.framework.testing.tables import TableDrafter

pytestmark = pytest.mark.usefixtures("only_builtins")

TARGET = markov([[0.1, 0.8, 0.1], [0.05, 0.05, 0.9], [0.4, 0.3, 0.3]])
DRAFT = markov([[0.2, 0.6, 0.2], [0.3, 0.1, 0.6], [0.6, 0.2, 0.2]])
HEURISTIC: dict[str, Any] = {"name": "heuristic", "start": 2, "max_gamma": 6}
CONFIDENCE: dict[str, Any] = {
    "name": "confidence", "threshold": 0.5, "step": 0.2, "smoothing": 0.0, "max_gamma": 5,
}  # fmt: skip
ENTROPY: dict[str, Any] = {**CONFIDENCE, "name": "entropy"}


def engine(policy: GammaPolicy | int = 3) -> Engine:
    return make_engine(TARGET, TableDrafter(DRAFT), policy, seed=3, sampling=SAMPLED)


def made(values: dict[str, Any]) -> GammaPolicy:
    chosen = part("policy", values)
    one: GammaPolicy = make_part(chosen.spec, chosen.config)
    return one


def run(
    one: Engine, *options: dict[str, Any], first: int = 0, tokens: int = 30
) -> tuple[dict[int, list[int]], dict[int, list[tuple[int, int]]]]:
    """The ids and the ``(gamma, drafted)`` of every round of a batch, by request."""
    answers = [
        Answer(one.request([0], first + n, max_new_tokens=tokens + 5 * (first + n), **given))
        for n, given in enumerate(options)
    ]
    choices: dict[int, list[tuple[int, int]]] = {}
    for outcome in one.run(answers):
        for row in outcome.rows:
            choices.setdefault(row.request, []).append((row.gamma, len(row.drafted)))
    return {a.request.index: a.token_ids for a in answers}, choices


# --- gamma -------------------------------------------------------------------------------------


def test_a_request_turns_speculation_off_and_the_others_go_on() -> None:
    _, choices = run(engine(), {}, {"gamma": 0}, {"gamma": 5})
    assert choices[0][0] == (3, 3) and choices[2][0] == (5, 5)
    assert set(choices[1]) == {(0, 0)} and len(choices[1]) == 35


def test_one_call_is_enough() -> None:
    answer = engine().generate([0], gamma=0, max_new_tokens=7)
    assert answer.metrics.drafted == 0 and len(answer.token_ids) == 7
    assert engine().generate([0], gamma=2, max_new_tokens=7).metrics.drafted > 0


def test_only_such_requests_pay_for_it() -> None:
    one = engine()
    batch = Batch(one.parts, [Answer(one.request([0]))])
    assert isinstance(batch.policy, FixedSession)
    batch = Batch(one.parts, [Answer(one.request([0])), Answer(one.request([0], gamma=3))])
    assert isinstance(batch.policy, MixedSession)


# --- policies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [3, HEURISTIC, CONFIDENCE], ids=["fixed", "heuristic", "stops"])
def test_each_row_is_as_it_would_be_alone(base: int | dict[str, Any]) -> None:
    """Policies whose rows do not depend on each other: ids and drafts are those of a batch of one
    whose run has that policy; rows leave at different times."""
    every: list[dict[str, Any] | int] = [HEURISTIC, CONFIDENCE, ENTROPY, 0, base, HEURISTIC]
    options = [{"gamma": v} if isinstance(v, int) else {"policy": v} for v in every]
    options[4] = {}
    one = engine(base if isinstance(base, int) else made(base))
    ids, choices = run(one, *options)
    for n, values in enumerate(every):
        alone = engine(values if isinstance(values, int) else made(values))
        ids_alone, choices_alone = run(alone, {}, first=n)
        assert ids[n] == ids_alone[n], n
        assert choices[n] == choices_alone[n], n
    assert len({tuple(c) for c in choices.values()}) > 3


def test_a_name_a_group_and_an_object_are_the_same() -> None:
    values = {"name": "heuristic"}
    every = [run(engine(), {"policy": p}) for p in ("heuristic", values, made(values))]
    assert every[0] == every[1] == every[2]
    assert every[0] != run(engine(), {})


def test_the_same_value_is_the_same_policy() -> None:
    shared: dict[str, Any] = {**HEURISTIC, "scope": "batch"}
    _, choices = run(engine(), {"policy": shared}, {}, {"policy": dict(shared)})
    gammas = [[gamma for gamma, _ in choices[n]][:8] for n in (0, 2)]
    assert gammas[0] == gammas[1] and len(set(gammas[0])) > 1
    apart = {**shared, "start": 3}
    _, choices = run(engine(), {"policy": shared}, {"policy": apart})
    assert choices[0][0] == (2, 2) and choices[1][0] == (3, 3)


class Spy(PolicySession):
    """Notes what it hears; ``config`` is (gamma, member, list of rounds)."""

    def gammas(self) -> list[int]:
        return [self.config[0]] * self.context.rows

    def member(self) -> int | None:
        return None if self.config[1] is None else int(self.config[1])

    def observe(self, outcome: Round) -> None:
        self.config[2].append(outcome.rows)


def spy(gamma: int, member: int | None = None) -> tuple[SessionPolicy, list[list[RowOutcome]]]:
    heard: list[list[RowOutcome]] = []
    return SessionPolicy(Spy, (gamma, member, heard)), heard


def test_a_policy_learns_from_its_own_rows_alone() -> None:
    base, heard_by_base = spy(2)
    other, heard = spy(4)
    run(engine(base), {}, {"policy": other}, {"gamma": 1}, tokens=12)
    assert heard and heard_by_base
    for mine, all_rows in ((0, heard_by_base), (1, heard)):
        for rows in all_rows:
            for row in rows:
                assert row.emitted
                if row.request != mine:
                    assert not row.drafted and row.gamma == row.accepted == 0
        assert any(row.drafted for rows in all_rows for row in rows if row.request == mine)


@pytest.mark.parametrize(("base", "own", "said"), [(1, 2, 1), (None, 2, 2), (None, None, None)])
def test_the_runs_policy_has_the_first_say_on_members(
    base: int | None, own: int | None, said: int | None
) -> None:
    parts = engine(spy(2, base)[0]).parts
    answers = [Answer(Request([0], policy=spy(2, own)[0])), Answer(Request([0], index=1))]
    with torch.inference_mode():
        batch = Batch(parts, answers)
        batch.step()
    assert batch.context.member == said


def test_a_policy_that_is_gone_is_not_asked_again() -> None:
    other, heard = spy(1)
    one = engine(2)
    short = Answer(one.request([0], 0, max_new_tokens=3, policy=other))
    long = Answer(one.request([0], 1, max_new_tokens=30))
    rounds = list(one.run([short, long]))
    assert 0 < len(heard) < len(rounds)


class Faulty(PolicySession):
    def gammas(self) -> list[int]:
        return [2] * self.context.rows

    def go_on(self, step: DraftStep) -> Tensor:
        raise RuntimeError("no idea")


def test_faults_are_named_after_the_policy_of_the_request() -> None:
    bad = SessionPolicy(Faulty, None)
    with pytest.raises(ForedraftError, match="policy 'Faulty' of a request raised .*no idea"):
        run(engine(), {}, {"policy": bad})
    negative = spy(-1)[0]
    with pytest.raises(ForedraftError, match="policy 'Spy' of a request returned gammas"):
        run(engine(), {}, {"policy": negative})


# --- refusals ----------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"gamma": -1}, "gamma=-1 is not possible; it must be a whole number from 0 to 64"),
    ({"gamma": 65}, "gamma=65 is not possible"),
    ({"gamma": True}, "gamma=True is not possible"),
    ({"gamma": 2.0}, "gamma=2.0 is not possible"),
    ({"policy": "heuristik"}, "heuristic"),
    ({"policy": {"name": "heuristic", "gamma": 3}}, "policy.gamma is not a key of policy 'heu"),
    ({"policy": {"name": "heuristic", "start": 0}}, "policy.start=0 is not possible"),
    ({"policy": {"start": 1}}, "it must be the name of a policy, or"),
    ({"policy": 3}, "policy=3 is not possible; it must be the name of a policy, or"),
    ({"policy": "oracle"}, "not possible in a live run"),
    ({"gamma": 3, "policy": "heuristic"}, "give one of them"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_what_cannot_be_is_refused_in_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ForedraftError, match=message) as caught:
        engine().generate([0], **options)
    assert "\n" not in str(caught.value)


def test_a_request_may_not_stop_drafts_that_cannot_be_stopped() -> None:
    chosen = make_engine(TARGET, PromptLookup(PromptLookupConfig()))
    for policy in ("confidence", made(CONFIDENCE)):
        with pytest.raises(ForedraftError, match="chosen tokens have no law"):
            chosen.generate([0], policy=policy)
    assert chosen.generate([0, 1, 0], policy="heuristic", max_new_tokens=3).token_ids


# --- lines of prompts --------------------------------------------------------------------------


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    words = ("target=table", "max_new_tokens=8", "prompts=p.jsonl", "output=json")
    return make_cli(capsys, "generate", *words)


def write_lines(*lines: dict[str, Any]) -> None:
    Path("p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_lines_choose_for_themselves(cli: Cli) -> None:
    write_lines(
        {"prompt": "0 1 2"},
        {"prompt": "0 1 2", "gamma": 0},
        {"turns": ["0 1", "2"], "policy": {"name": "confidence", "max_gamma": 2}},
        {"prompt": "0 1 2", "policy": "heuristic", "gamma": None},
    )
    done = cli("drafter=ngram", "runtime.batch_size=4")
    answers = sorted(done.objects, key=lambda value: (value["id"], value["turn"]))
    drafted = [value["metrics"]["drafted"] for value in answers]
    assert len(drafted) == 5 and drafted[1] == 0 and drafted[0] > 0
    assert "gamma" not in answers[0] and answers[1]["gamma"] == 0
    assert answers[3]["policy"] == {"name": "confidence", "max_gamma": 2}
    assert answers[4]["policy"] == "heuristic" and "gamma" not in answers[4]


@pytest.mark.parametrize(("options", "message"), WRONG[:9])
def test_a_wrong_line_is_refused_before_any_is_answered(
    options: dict[str, Any], message: str, cli: Cli
) -> None:
    write_lines({"prompt": "0 1 2"}, {"prompt": "3", **options})
    refused(cli("drafter=ngram"), "line 2 of p.jsonl: ", message.partition(" .*")[0])


def test_a_line_may_not_stop_drafts_that_cannot_be_stopped(cli: Cli) -> None:
    write_lines({"prompt": "0 1 2"}, {"prompt": "3", "policy": "entropy"})
    refused(cli("drafter=prompt_lookup"), "line 2 of p.jsonl: policy=entropy", "no law")


def test_answers_of_other_choices_are_not_taken_for_these(cli: Cli) -> None:
    write_lines({"prompt": "0 1 2", "gamma": 0})
    assert cli("drafter=ngram", "out=a.jsonl").code == 0
    assert "1 of 1 answers" in cli("drafter=ngram", "out=a.jsonl").err
    write_lines({"prompt": "0 1 2", "gamma": 3})
    refused(cli("drafter=ngram", "out=a.jsonl"), "a.jsonl")
