"""The built-in policies: each does what its paper says, refuses what cannot be, and keeps the law."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from broken_policies import PeeksAtDraw
from cli_helpers import Cli, make_cli, refused
from helpers import make_engine, markov, rounds_of

from foredraft.drafters.builtin import NgramConfig, PromptLookupConfig
from foredraft.drafters.ngram import Ngram
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.framework import ConfigError, DraftStep, GammaPolicy
from foredraft.framework.config import as_dict, compose, part, to_objects
from foredraft.framework.decoding import Parts, decode
from foredraft.framework.factories import make_part
from foredraft.framework.interfaces import PolicySession, Verifier
from foredraft.framework.params import SamplingParams
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.records import Round, RowOutcome
from foredraft.framework.requests import Answer, Request
from foredraft.framework.specs import PolicySpec
from foredraft.framework.testing.laws import chi_square, exact_joint, sequence_counts
from foredraft.framework.testing.tables import TableDrafter
from foredraft.verifiers.block import BlockVerifier
from foredraft.verifiers.token import TokenVerifier

pytestmark = pytest.mark.usefixtures("only_builtins")


def policy(name: str, **values: Any) -> GammaPolicy:
    chosen = part("policy", {"name": name, **values})
    made: GammaPolicy = make_part(chosen.spec, chosen.config)
    return made


class Rows:
    """As much of a context as policies of counts look at."""

    apart = False

    def __init__(self, rows: int, answered: Sequence[int] = ()) -> None:
        self.tokens = [[0] * (3 + n) for n in answered or [0] * rows]
        self.prompt_lengths = [3] * rows
        self.device = torch.device("cpu")

    @property
    def rows(self) -> int:
        return len(self.tokens)


def session(name: str, rows: int | Rows = 1, **values: Any) -> PolicySession:
    context = Rows(rows) if isinstance(rows, int) else rows
    return policy(name, **values).start(context)  # type: ignore[arg-type]


def outcome(*rows: tuple[int, int], gamma: int = 4) -> Round:
    """A round of ``(drafted, accepted)``."""
    made = []
    for at, (drafted, accepted) in enumerate(rows):
        reached = min(accepted + 1, drafted)
        emitted = [0] * (accepted + 1)
        made.append(RowOutcome(at, [0] * drafted, accepted, emitted, [0.5] * reached, gamma=gamma))
    return Round(0, made)


# --- heuristic ---------------------------------------------------------------------------------


def test_heuristic_is_the_schedule_of_transformers() -> None:
    one, seen = session("heuristic", start=3, max_gamma=8), []
    for drafted, accepted in [(3, 3), (5, 5), (7, 7), (8, 8), (8, 7), (7, 0), (6, 6)]:
        seen += one.gammas()
        assert seen[-1] == drafted
        one.observe(outcome((drafted, accepted)))
    assert [*seen, *one.gammas()] == [3, 5, 7, 8, 8, 7, 6, 8]


def test_heuristic_never_stops_drafting_and_ignores_rounds_without_a_draft() -> None:
    one = session("heuristic", start=2)
    for _ in range(4):
        one.observe(outcome((1, 0)))
    assert one.gammas() == [1]
    one.observe(outcome((0, 0)))
    assert one.gammas() == [1]


def test_rows_keep_their_own_state_when_others_leave() -> None:
    own = session("heuristic", 3, start=5)
    own.observe(outcome((5, 5), (5, 0), (0, 0)))
    assert own.gammas() == [7, 4, 5]
    own.context.tokens = own.context.tokens[1:]
    own.select([1, 2])
    assert own.gammas() == [4, 5]
    own.observe(outcome((4, 1), (5, 5)))
    assert own.gammas() == [3, 7]


def test_rows_that_share_succeed_together() -> None:
    shared = session("heuristic", 3, start=5, scope="batch")
    shared.observe(outcome((5, 5), (5, 5), (0, 0)))
    assert shared.gammas() == [7, 7, 7]
    shared.observe(outcome((7, 7), (7, 6), (7, 7)))
    assert shared.gammas() == [6, 6, 6]


# --- thresholds --------------------------------------------------------------------------------


def limits(one: PolicySession) -> list[float]:
    one.gammas()
    found: list[float] = one.limits.tolist()  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("name", ["confidence", "entropy"])
def test_the_threshold_holds_an_accept_rate(name: str) -> None:
    one = session(name, threshold=0.4, aim=0.9, step=0.01, smoothing=0.9, rate_smoothing=0.5)
    one.observe(outcome((4, 2)))  # rate .5 * .9 + .5 * .5 = .7
    assert limits(one) == pytest.approx([0.401])
    one.observe(outcome((2, 2)))  # .85
    assert limits(one) == pytest.approx([0.402])
    one.observe(outcome((4, 4)))  # .925
    assert limits(one) == pytest.approx([0.401])
    one.observe(outcome((8, 8)))  # as long as may be: not the threshold's doing
    assert limits(one) == pytest.approx([0.401])


@pytest.mark.parametrize("accepted", [0, 1])
def test_a_threshold_stays_a_probability_and_without_a_step_where_it_is(accepted: int) -> None:
    moving = session("confidence", step=1.0, smoothing=0.0)
    still = session("confidence", step=0.0)
    for _ in range(3):
        moving.observe(outcome((1, accepted)))
        still.observe(outcome((1, accepted)))
    assert limits(moving) == [1.0 - accepted] and limits(still) == [0.4]


def test_thresholds_are_the_rows_own_or_everybodys() -> None:
    own = session("confidence", 2, step=0.1, smoothing=0.0, rate_smoothing=0.0)
    own.observe(outcome((4, 4), (4, 0)))
    assert limits(own) == pytest.approx([0.3, 0.5])
    shared = session("confidence", 2, step=0.1, smoothing=0.0, rate_smoothing=0.0, scope="batch")
    shared.observe(outcome((8, 8), (4, 4)))  # one of the two drafts was ended by the threshold
    assert limits(shared) == pytest.approx([0.3, 0.3])
    shared.observe(outcome((8, 8), (8, 8)))
    assert limits(shared) == pytest.approx([0.3, 0.3])


def test_a_row_that_is_never_drafted_for_is_tried_again() -> None:
    one = session("entropy", 2, threshold=0.8, step=0.1, smoothing=0.0)
    for _ in range(3):
        one.observe(outcome((0, 0), (4, 0)))
    assert limits(one) == pytest.approx([0.5, 1.0])
    one.observe(outcome((0, 0), (0, 0), gamma=0))  # nobody was asked
    assert limits(one) == pytest.approx([0.5, 1.0])


def step(position: int, *probs: float, law: Sequence[float] = (0.5, 0.5)) -> DraftStep:
    drawn = [torch.tensor([prob]) for prob in probs]
    tokens = [torch.zeros(1, dtype=torch.int64) for _ in probs]
    return DraftStep(position, tokens, drawn, lambda: torch.tensor([law]))


def test_confidence_looks_at_the_token_that_stays() -> None:
    one = session("confidence", threshold=0.5)
    one.gammas()
    answers = [one.go_on(step(0)), one.go_on(step(1, 0.5)), one.go_on(step(2, 0.5, 0.4))]
    assert [bool(answer) for answer in answers] == [True, True, False]


def test_entropy_looks_at_the_law_of_the_token_to_come() -> None:
    one = session("entropy", threshold=0.5, weight=0.5)
    one.gammas()
    bound = 1 - math.sqrt(0.5 * math.log(2))  # .41
    assert not one.go_on(step(0))
    assert one.go_on(step(0, law=(0.99, 0.01))) and one.go_on(step(0, law=(1.0, 0.0)))
    near = session("entropy", threshold=bound - 1e-3, weight=0.5)
    near.gammas()
    assert near.go_on(step(3, 0.1, 0.1, 0.1))


# Behind 0 and 1 the drafter is sure, behind 2 it is not.
SURE = markov([[0.1, 0.8, 0.1], [0.05, 0.05, 0.9], [0.4, 0.3, 0.3]])


def drafts(one: GammaPolicy, drafter: Any = None) -> list[RowOutcome]:
    engine = make_engine(SURE, drafter or TableDrafter(SURE), one)
    prompts = [[n % 3] for n in range(8)]
    options = {"max_new_tokens": 40, "sampling": SamplingParams(temperature=1.0)}
    return [row for r in rounds_of(engine, prompts, **options) for row in r.rows]


def test_drafts_end_behind_the_first_unlikely_token() -> None:
    rows = drafts(policy("confidence", threshold=0.35, step=0.0, max_gamma=5))
    # The token before a draft is not in the row: what it starts with is free.
    full = 0
    for row in rows:
        probs = [
            float(SURE.logits[a, b].exp())
            for a, b in zip(row.drafted, row.drafted[1:], strict=False)
        ]
        assert all(prob >= 0.35 for prob in probs[:-1])
        ended = len(row.drafted) < row.gamma
        assert not ended or not probs or probs[-1] < 0.35
        full += not ended
    assert 0 < full < len(rows)


def test_drafts_end_before_the_first_undecided_token() -> None:
    rows = drafts(policy("entropy", threshold=0.6, step=0.0, max_gamma=5))
    for row in rows:
        assert 2 not in row.drafted[:-1]  # nothing is drafted behind a 2
        if row.drafted:
            assert row.drafted[-1] == 2 or len(row.drafted) == row.gamma
    assert any(not row.drafted and row.gamma for row in rows)
    assert any(len(row.drafted) > 1 for row in rows)


# --- schedule ----------------------------------------------------------------------------------


def test_a_schedule_by_live_rows() -> None:
    for rows, gamma in [(1, 8), (3, 8), (4, 4), (15, 4), (16, 0), (40, 0)]:
        assert session("schedule", rows).gammas() == [gamma] * rows


def test_a_schedule_follows_rows_that_leave() -> None:
    one = policy("schedule", gammas={1: 5, 3: 2})
    engine = make_engine(SURE, TableDrafter(SURE), one)
    answers = [Answer(engine.request([0], n, max_new_tokens=6 + 10 * n, seed=n)) for n in range(3)]
    seen = {(len(r.rows), row.gamma) for r in engine.run(answers) for row in r.rows[-1:]}
    assert {(3, 2), (2, 5), (1, 5)} <= seen


def test_a_schedule_by_position() -> None:
    rows = Rows(5, answered=[0, 9, 10, 11, 400])
    one = session("schedule", rows, by="position", gammas={0: 1, 10: 4, 50: 0})
    assert one.gammas() == [1, 1, 4, 4, 0]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return make_cli(capsys, "generate", "target=table", "prompt=0 1 2", "max_new_tokens=8")


def test_a_schedule_from_the_command_line_and_from_yaml(cli: Cli, tmp_path: Path) -> None:
    typed = ("policy=schedule", "policy.by=position", "policy.gammas={0: 2, 30: 0}")
    done = cli(*typed, "drafter=ngram", "output=json")
    assert done.objects[0]["config"]["policy"] == {
        "name": "schedule", "by": "position", "gammas": {"0": 2, "30": 0},
    }  # fmt: skip
    folder = tmp_path / "mine" / "policy"
    folder.mkdir(parents=True)
    lines = "defaults: [schedule, _self_]\ngammas:\n  1: 3\n  2: 0\n"
    (folder / "busy.yaml").write_text(lines)
    config = compose(["policy=busy"], tmp_path / "mine")
    assert to_objects(config).policy.config.gammas == {1: 3, 2: 0}
    again = json.loads(json.dumps(as_dict(config)))
    assert to_objects(again).policy.config.gammas == {1: 3, 2: 0}


# --- refusals ----------------------------------------------------------------------------------

NOT = "is not possible"
WRONG = [
    ("heuristic", {"start": 0}, f"policy.start=0 {NOT}; it must be a whole number from 1 to 20"),
    ("heuristic", {"start": 9, "max_gamma": 8}, f"policy.start=9 {NOT}; .* from 1 to 8"),
    ("heuristic", {"max_gamma": 65}, f"policy.max_gamma=65 {NOT}; .* from 1 to 64"),
    ("heuristic", {"start": 2.0}, f"policy.start=2.0 {NOT}"),
    ("heuristic", {"scope": "row"}, f"policy.scope='row' {NOT}; .*request, batch"),
    ("confidence", {"threshold": math.nan}, f"policy.threshold=nan {NOT}; .* from 0 to 1"),
    ("confidence", {"threshold": -0.1}, f"policy.threshold=-0.1 {NOT}"),
    ("confidence", {"aim": 1.1}, f"policy.aim=1.1 {NOT}"),
    ("confidence", {"step": math.inf}, f"policy.step=inf {NOT}"),
    ("confidence", {"smoothing": 2}, f"policy.smoothing=2.0 {NOT}"),
    ("confidence", {"rate_smoothing": -1}, f"policy.rate_smoothing=-1.0 {NOT}"),
    ("confidence", {"max_gamma": 0}, f"policy.max_gamma=0 {NOT}"),
    ("confidence", {"max_gamma": True}, f"policy.max_gamma=True {NOT}"),
    ("confidence", {"weight": 0.2}, "policy.weight is not a key .*'entropy'"),
    ("entropy", {"weight": math.nan}, f"policy.weight=nan {NOT}"),
    ("entropy", {"weight": -1}, f"policy.weight=-1.0 {NOT}"),
    ("entropy", {"scope": "all"}, f"policy.scope='all' {NOT}"),
    ("schedule", {"by": "rows"}, f"policy.by='rows' {NOT}; .*batch, position"),
    ("schedule", {"by": "position"}, f"policy.gammas=null {NOT}; it must be a group of gammas"),
    ("schedule", {"gammas": {}}, "policy.gammas={} .* policy.by=batch; its first key must be 1"),
    ("schedule", {"gammas": {2: 4}}, "policy.gammas={2: 4} .*; its first key must be 1"),
    ("schedule", {"gammas": {0: 4, 1: 2}}, "its first key must be 1"),
    ("schedule", {"by": "position", "gammas": {1: 4}}, "its first key must be 0"),
    ("schedule", {"gammas": {1: 65}}, f"policy.gammas.1=65 {NOT}; .* from 0 to 64"),
    ("schedule", {"gammas": {1: -1}}, f"policy.gammas.1=-1 {NOT}"),
    ("schedule", {"gammas": {1: 2.5}}, f"policy.gammas.*{NOT}"),
    ("schedule", {"gammas": {"one": 2}}, f"policy.gammas.*{NOT}; it must be a group of gammas"),
    ("schedule", {"gammas": [8, 4]}, f"policy.gammas.*{NOT}; it must be a group of gammas"),
]


@pytest.mark.parametrize(("name", "values", "message"), WRONG)
def test_what_cannot_be_is_refused_in_one_sentence(
    name: str, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        part("policy", {"name": name, **values})
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


@pytest.mark.parametrize("name", ["confidence", "entropy", "specdecpp"])
@pytest.mark.parametrize(
    ("drafter", "why"),
    [
        (["drafter=prompt_lookup"], "chosen tokens have no law"),
        (["drafter=none"], "chosen tokens have no law"),
        (["drafter=ngram", "drafter.widths=[2,1]", "verifier=recursive"], "tree's nodes are not"),
    ],
)
def test_drafters_without_a_law_or_an_order_are_refused(
    name: str, drafter: list[str], why: str, cli: Cli
) -> None:
    refused(cli(f"policy={name}", *drafter), f"policy={name}", drafter[0], why)


def test_objects_are_refused_by_the_same_rule() -> None:
    with pytest.raises(ConfigError, match="chosen tokens have no law"):
        make_engine(SURE, PromptLookup(PromptLookupConfig()), policy("confidence"))
    make_engine(SURE, PromptLookup(PromptLookupConfig()), policy("heuristic"))
    make_engine(SURE, Ngram(NgramConfig(), SURE), policy("confidence"))


@pytest.mark.parametrize("name", ["heuristic", "schedule"])
def test_policies_of_counts_serve_every_drafter(name: str, cli: Cli) -> None:
    assert cli(f"policy={name}", "drafter=prompt_lookup").code == 0
    trees = ("drafter=ngram", "drafter.widths=[2,1]", "verifier=recursive")
    assert cli(f"policy={name}", *trees).code == 0


@pytest.mark.parametrize(
    ("name", "values", "local"),
    [
        ("heuristic", {}, True), ("heuristic", {"scope": "batch"}, False),
        ("confidence", {}, True), ("entropy", {"scope": "batch"}, False),
        ("schedule", {}, False), ("schedule", {"by": "position", "gammas": {0: 4}}, True),
    ],
)  # fmt: skip
def test_whether_rows_depend_on_the_batch_is_said_by_the_config(
    name: str, values: dict[str, Any], local: bool
) -> None:
    chosen = part("policy", {"name": name, **values})
    assert isinstance(chosen.spec, PolicySpec)
    assert chosen.spec.ability("row_local", chosen.config) is local


# --- the law -----------------------------------------------------------------------------------

TOKENS, DRAWS = 4, 3000
SETTINGS = [SamplingParams(temperature=1.0), SamplingParams(temperature=0.6)]
MOVING = {"step": 0.2, "smoothing": 0.0, "max_gamma": 3}
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "heuristic": ("heuristic", {"start": 2, "max_gamma": 4}),
    "confidence": ("confidence", {"threshold": 0.45, **MOVING}),
    "confidence, shared": ("confidence", {"threshold": 0.45, "scope": "batch", **MOVING}),
    "entropy": ("entropy", {"threshold": 0.55, **MOVING}),
    "schedule": ("schedule", {"by": "position", "gammas": {0: 3, 2: 1, 3: 2}}),
}
OTHER = markov([[0.5, 0.2, 0.3], [0.3, 0.6, 0.1], [0.1, 0.2, 0.7]])


def p_value(one: GammaPolicy, verifier: Verifier) -> tuple[float, set[int]]:
    """Of answers in one batch, settings interleaved; and the draft lengths that there were."""
    parts, lengths = Parts(SURE, TableDrafter(OTHER), verifier, one, {}), set()
    answers = [Answer(Request([0], TOKENS, SETTINGS[n % 2], seed=5, index=n)) for n in range(DRAWS)]
    for r in decode(parts, answers):
        lengths |= {len(row.drafted) for row in r.rows}
    found = []
    for n, setting in enumerate(SETTINGS):
        counts = sequence_counts([a.token_ids for a in answers[n::2]], 3, TOKENS)
        found.append(chi_square(counts, exact_joint(SURE, [0], TOKENS, setting)))
    return min(found), lengths


@pytest.mark.parametrize(
    ("name", "verifier"),
    [*((name, "token") for name in POLICIES), ("confidence", "block"), ("entropy", "block")],
)
def test_every_policy_keeps_the_law(name: str, verifier: str) -> None:
    chosen, values = POLICIES[name]
    rule = BlockVerifier() if verifier == "block" else TokenVerifier()
    p, lengths = p_value(policy(chosen, **values), rule)
    assert p > 1e-5
    assert len(lengths) > 2 and max(lengths) > 1


def test_one_that_drops_an_unlikely_token_does_not() -> None:
    class Dropping(GammaPolicy):
        def start(self, context: Any) -> PolicySession:
            return PeeksAtDraw(context, FixedConfig(3))

    p, _ = p_value(Dropping(), TokenVerifier())
    assert p < 1e-9
