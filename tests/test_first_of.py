"""Drafters made of drafters: configs, which member serves which row, laws, rounds heard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from helpers import (
    SAMPLED,
    PerRow,
    assert_same,
    check_cache,
    cycle,
    make_batch,
    model_of,
    noisy_copy,
    plain,
    random_prompts,
    target_of,
)
from law_cases import MIXED, PROMPT, TOKENS, table
from torch import Tensor

from foredraft.drafters.builtin import NgramConfig, PromptLookupConfig
from foredraft.drafters.builtin_nested import FirstOfConfig, OneOfConfig
from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.drafters.first_of import FirstOf
from foredraft.drafters.members import Certain, Member
from foredraft.drafters.ngram import Ngram
from foredraft.drafters.one_of import OneOf
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.framework import load
from foredraft.framework.bases import TokenSession, point_mass_draft
from foredraft.framework.config import as_dict, compose, to_objects
from foredraft.framework.config.build import build
from foredraft.framework.context import Context
from foredraft.framework.decoding import Batch, Parts
from foredraft.framework.engine import Defaults, Engine
from foredraft.framework.errors import ConfigError, PluginFault
from foredraft.framework.interfaces import Drafter, DraftSession, GammaPolicy, PolicySession, Target
from foredraft.framework.law import DenseLaw, PointMass
from foredraft.framework.params import SamplingParams
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.records import Draft, Round
from foredraft.framework.specs import DETERMINISTIC, INDEPENDENT, DraftKind
from foredraft.framework.testing.draws import law_p_values
from foredraft.framework.testing.laws import (
    enumerated_joints,
    law_of,
    make_trial,
    plain_joint,
    random_table,
)
from foredraft.framework.testing.tables import TableDrafter
from foredraft.verifiers.block import BlockVerifier
from foredraft.verifiers.coupled import CoupledVerifier
from foredraft.verifiers.greedy import GreedyVerifier
from foredraft.verifiers.recursive import RecursiveVerifier
from foredraft.verifiers.token import TokenVerifier
from foredraft.verifiers.traversal import TraversalVerifier

FLOOR = 1e-6
RULES: dict[str, Any] = {
    "token": TokenVerifier,
    "block": BlockVerifier,
    "recursive": RecursiveVerifier,
    "traversal": TraversalVerifier,
}


def engine_of(
    target: Target, drafter: Drafter, rule: Any = None, gamma: int | GammaPolicy = 3, **rest: Any
) -> Engine:
    policy = Fixed(FixedConfig(gamma)) if isinstance(gamma, int) else gamma
    parts = Parts(target, drafter, rule or TokenVerifier(), policy, {"drafter": "first_of"})
    return Engine(parts, Defaults(**{"batch_size": 8, **rest}))


def lookup(**values: Any) -> Member:
    return Member("prompt_lookup", PromptLookup(PromptLookupConfig(**values)))


def ngram(target: Target, order: int = 2) -> Member:
    return Member("ngram", Ngram(NgramConfig(order=order), target))


# --- configs ------------------------------------------------------------------------------------


def chosen(*overrides: str) -> Any:
    return to_objects(compose(["target=table", *overrides])).drafter.config


def test_members_are_names_or_groups_of_values() -> None:
    config = chosen("drafter=first_of")
    assert [one["name"] for one in config.drafters] == ["prompt_lookup", "ngram"]
    given = "drafter.drafters=[{name:prompt_lookup,max_ngram:4},{name:ngram,order:2}]"
    config = chosen("drafter=first_of", given)
    assert config.drafters[0] == {
        "name": "prompt_lookup", "max_ngram": 4, "min_ngram": 1, "branches": 1, "nodes": 32,
    }  # fmt: skip
    assert config.members[1].config == NgramConfig(order=2)
    config = chosen("drafter=one_of", "drafter.drafters=[ngram,none]", "drafter.start_with=1")
    assert (config.start_with, config.members[1].spec.name) == (1, "none")


def test_a_config_with_members_is_read_back_from_results(tmp_path: Any) -> None:
    folder = tmp_path / "drafter"
    folder.mkdir()
    (folder / "mine.yaml").write_text(
        "defaults: [first_of, _self_]\ndrafters: [{name: ngram, order: 1}, prompt_lookup]\n"
    )
    config = compose(["target=table", "drafter=mine"], tmp_path)
    assert as_dict(as_dict(config)) == as_dict(config)
    assert [one["name"] for one in as_dict(config)["drafter"]["drafters"]] == [
        "ngram",
        "prompt_lookup",
    ]
    assert FirstOfConfig(["ngram"]) == FirstOfConfig([{"name": "ngram", "order": 3}])


REFUSED = {
    "[{name:prompt_lookup},{name:ngram,order:9}]": "drafter.drafters[1].order=9 is not possible",
    "[{name:ngram,ordr:2}]": "drafter.drafters[0].ordr is not a key of drafter 'ngram'; did you",
    "[{name:ngram,order:'2'}]": "drafter.drafters[0].order='2' is not possible",
    "[prompt_lookup,{name:prompt_lookup,branches:3}]": "drafter.drafters[1]=prompt_lookup drafts",
    "[token_recycling]": "drafter.drafters[0]=token_recycling drafts trees",
    "[ngrm]": "drafter.drafters[0] is an unknown drafter 'ngrm'; did you mean 'ngram'?",
    "[3]": "drafter.drafters[0]=3 is not possible; it must be the name of a drafter",
    "[{order:3}]": "drafter.drafters[0]={'order': 3} is not possible",
    "[]": "drafter.drafters=[] is not possible; it must be a list of drafters",
    "ngram": "drafter.drafters='ngram' is not possible; it must be a list of drafters",
    "[one_of]": "drafter.drafters[0]=one_of is not possible",
    "[none,{name:first_of,drafters:[none,{name:ngram,order:true}]}]": (
        "drafter.drafters[1].drafters[1].order=True is not possible"
    ),
    "[none,{name:first_of,drafters:[{name:ngram,order:0}]}]": (
        "drafter.drafters[1].drafters[0].order=0 is not possible"
    ),
}


@pytest.mark.parametrize("given", REFUSED)
def test_what_cannot_be_a_member_is_refused_by_its_place(given: str) -> None:
    with pytest.raises(ConfigError) as error:
        compose(["target=table", "drafter=first_of", f"drafter.drafters={given}"])
    assert str(error.value).startswith(REFUSED[given])
    assert "\n" not in str(error.value)


def test_what_a_member_refuses_when_it_is_built_names_its_place() -> None:
    given = "drafter.drafters=[none,{name:early_exit,layers:9}]"
    with pytest.raises(ConfigError, match=r"^drafter\.drafters\[1\]\.layers=9 is not possible"):
        build(compose(["drafter=first_of", given]), target_of("llama"))
    with pytest.raises(ConfigError, match="start_with=2 is not possible"):
        OneOfConfig(start_with=2)


@pytest.mark.parametrize(
    ("drafters", "drawn"),
    [
        (["prompt_lookup", "jacobi"], DETERMINISTIC),
        (["prompt_lookup", "ngram"], INDEPENDENT),
        (["prompt_lookup", {"name": "first_of"}], INDEPENDENT),
        (["prompt_lookup", {"name": "first_of", "drafters": ["none"]}], DETERMINISTIC),
    ],
)
def test_drafts_are_drawn_if_any_member_draws(drafters: list[Any], drawn: str) -> None:
    config = FirstOfConfig(drafters)
    parts = compose(["target=table", "drafter=first_of"])
    assert config.kind == DraftKind(drawn)
    built = build({**as_dict(parts), "drafter": {"name": "first_of", "drafters": drafters}})
    assert built.drafter.kind == config.kind


def test_bytes_add_up() -> None:
    target = target_of("llama")
    model = Member("causal_lm", CausalLMDrafter(model_of("llama", seed=5), target))
    whole = FirstOf([model, lookup(), model])
    assert whole.session_bytes(3, 40) == 2 * model.drafter.session_bytes(3, 40) > 0
    assert whole.weight_bytes() == 2 * model.drafter.weight_bytes() > 0
    assert whole.max_nodes == 0


# --- who drafts -----------------------------------------------------------------------------------


class Scripted(Drafter):
    """Drafts ``length(row)`` tokens ``token``, and writes down what it was asked and told."""

    def __init__(self, token: int, length: Callable[[int], int]) -> None:
        self.token, self.length, self.kind = token, length, DraftKind(DETERMINISTIC)
        self.asked: list[list[int]] = []
        self.heard: list[Round] = []

    def start(self, context: Context) -> DraftSession:
        return ScriptedSession(context, self)


class ScriptedSession(TokenSession):
    def propose(self, gammas: list[int]) -> Draft:
        self.config.asked.append(gammas)
        return super().propose(gammas)

    def continuation(self, row: int, gamma: int) -> Sequence[int]:
        return [self.config.token] * min(gamma, self.config.length(row))

    def observe(self, outcome: Round) -> None:
        self.config.heard.append(outcome)


def stepped(drafter: Drafter, target: Target, prompts: list[list[int]], **rest: Any) -> Batch:
    batch = make_batch(engine_of(target, drafter, **rest), prompts, max_new_tokens=12)
    with torch.inference_mode():
        batch.step()
    return batch


def test_later_members_are_asked_for_the_rows_that_are_left() -> None:
    first, second = Scripted(1, lambda row: row % 2), Scripted(2, lambda row: 2)
    third = Scripted(3, lambda row: 3)
    members = [Member(str(n), one) for n, one in enumerate((first, second, third))]
    stepped(FirstOf(members), cycle(4), [[0], [1], [2], [3]])
    assert first.asked == [[3, 3, 3, 3]]
    assert second.asked == [[3, 0, 3, 0]]
    assert third.asked == []
    assert [row.drafted for row in second.heard[0].rows] == [[2, 2], [], [2, 2], []]
    assert [row.drafted for row in first.heard[0].rows] == [[], [1], [], [1]]
    for one in (first, second, third):
        assert [row.emitted for row in one.heard[0].rows] == [[1], [2], [3], [0]]


def test_members_that_learn_hear_the_whole_truth() -> None:
    first, second = Scripted(1, lambda row: 2), Scripted(2, lambda row: 2)
    members = [Member("a", first), Member("b", second, learns=True)]
    stepped(FirstOf(members), cycle(4), [[0], [1]])
    told = first.heard[0]
    assert [row.drafted for row in told.rows] == [[1, 1], [1, 1]]
    assert [(row.accepted, row.rejected) for row in told.rows] == [(1, [1]), (0, [1])]
    assert second.heard[0].rows == told.rows
    members = [Member("a", first), Member("b", second)]
    stepped(FirstOf(members), cycle(4), [[0], [1]])
    for row in second.heard[1].rows:
        assert (row.drafted, row.path, row.accepted, row.rejected) == ([], [], 0, [])


def drafts_of(drafter: Drafter, target: Target, prompts: list[list[int]]) -> Draft:
    engine = engine_of(target, drafter, sampling=SAMPLED)
    batch = make_batch(engine, prompts, max_new_tokens=12)
    with torch.inference_mode():
        return batch.drafter.propose([3] * len(prompts))


def test_rows_of_one_round_are_served_by_different_members() -> None:
    """What each drafts is, token by token and law by law, what it drafts alone."""
    target, prompts = table(1, 0.0), [[0, 1, 0], [0, 2, 1], [2, 2, 1, 2]]
    own = lookup(min_ngram=2)
    whole = drafts_of(FirstOf([own, lookup(), ngram(target)]), target, prompts)
    copied = drafts_of(lookup().drafter, target, prompts)
    drawn = drafts_of(ngram(target).drafter, target, prompts)
    assert copied.lengths == [3, 0, 3] and whole.lengths == [3, 3, 3]
    for row, part in enumerate((copied, drawn, copied)):
        assert whole.tokens[row].tolist() == part.tokens[row].tolist()
    assert isinstance(whole.law, DenseLaw) and whole.drawn == INDEPENDENT
    assert torch.equal(whole.law.rows()[1], drawn.law.rows()[1])
    one_hot = torch.nn.functional.one_hot(whole.tokens, 3).double()
    assert torch.equal(whole.law.rows()[[0, 2]], one_hot[[0, 2]])


def test_a_round_of_copies_alone_is_not_written_out() -> None:
    target, prompts = table(1, 0.0), [[0, 1, 0], [2, 2, 1, 2]]
    draft = drafts_of(FirstOf([lookup(), ngram(target)]), target, prompts)
    assert isinstance(draft.law, Certain) and draft.kind == DraftKind(INDEPENDENT)
    draft = drafts_of(FirstOf([lookup(), lookup(min_ngram=2)]), target, prompts)
    assert isinstance(draft.law, PointMass) and draft.kind == DraftKind(DETERMINISTIC)
    draft = drafts_of(FirstOf([lookup()]), target, [[0], [1, 2]])
    assert draft.lengths == [0, 0] and draft.width == 0


# --- faults ----------------------------------------------------------------------------------------


class Bad(Scripted):
    """A member whose drafts are not what they should be."""

    def __init__(self, change: Callable[[Draft], Any]) -> None:
        super().__init__(1, lambda row: 2)
        self.change = change

    def start(self, context: Context) -> DraftSession:
        return BadSession(context, self)


class BadSession(ScriptedSession):
    def propose(self, gammas: list[int]) -> Draft:
        changed: Draft = self.config.change(super().propose(gammas))
        return changed


def drawn_instead(draft: Draft) -> Draft:
    return Draft(draft.tokens, draft.lengths, Certain(draft.tokens, 4))


FAULTS: dict[str, tuple[Callable[[Draft], Any], str]] = {
    "raises": (lambda draft: 1 // 0, "drafter 'bad' raised ZeroDivisionError"),
    "no draft": (lambda draft: draft.tokens, "drafter 'bad' returned Tensor"),
    "an id that is none": (
        lambda draft: point_mass_draft([[1, 9]], torch.device("cpu")),
        "drafted id 9 in row 0; ids go from 0 to 3",
    ),
    "a negative id": (
        lambda draft: point_mass_draft([[-1]], torch.device("cpu")),
        "drafted id -1 in row 0",
    ),
    "too many": (
        lambda draft: point_mass_draft([[1] * 9], torch.device("cpu")),
        "drafter 'bad' returned 9 drafted tokens",
    ),
    "drawn after all": (drawn_instead, "drafter 'bad' drafted chains of tokens drawn from a law"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("beside_drawn", [False, True])
def test_faults_name_the_member(fault: str, beside_drawn: bool) -> None:
    change, says = FAULTS[fault]
    members = [Member("bad", Bad(change))]
    members += [ngram(cycle(4))] if beside_drawn else []
    with pytest.raises(PluginFault, match=says):
        stepped(FirstOf(members), cycle(4), [[0, 1, 0]])


# --- one of ---------------------------------------------------------------------------------------


class Turns(GammaPolicy):
    """Gamma 2; the members as listed, one a round."""

    def __init__(self, members: list[Any]) -> None:
        self.members = members

    def start(self, context: Context) -> PolicySession:
        return TurnsSession(context, self)


class TurnsSession(PolicySession):
    def gammas(self) -> list[int]:
        return [2] * self.context.rows

    def member(self) -> int | None:
        index = self.context.round_index
        found: int | None = self.config.members[index % len(self.config.members)]
        return found


def test_the_policy_chooses_the_member() -> None:
    first, second = Scripted(1, lambda row: 2), Scripted(2, lambda row: 2)
    drafter = OneOf([Member("a", first), Member("b", second)], start_with=1)
    engine = engine_of(cycle(4), drafter, gamma=Turns([0, None, 1, 0]))
    batch = make_batch(engine, [[3], [3]], max_new_tokens=20)
    with torch.inference_mode():
        told = [[row.drafted[0] for row in batch.step().rows] for _ in range(4)]
    assert told == [[1, 1], [2, 2], [2, 2], [1, 1]]
    assert len(first.asked) == len(second.asked) == 2
    assert len(first.heard) == len(second.heard) == 4


@pytest.mark.parametrize("wrong", [2, -1, "b", True])
def test_a_member_that_is_none_is_refused(wrong: Any) -> None:
    drafter = OneOf([lookup(), lookup()])
    with pytest.raises(PluginFault, match="they go from 0 to 1"):
        stepped(drafter, cycle(4), [[0]], gamma=Turns([wrong]))


# --- losslessness ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(("gamma", "vocab"), [(1, 4), (2, 3), (3, 2)])
def test_a_chosen_token_may_be_judged_as_drawn(name: str, gamma: int, vocab: int) -> None:
    """By enumeration: the law that allows no other token is a draft law like any other."""
    pairs = []
    for seed in range(20):
        likeliest = random_table(seed + 900, vocab).argmax(1)
        sure = torch.nn.functional.one_hot(likeliest, vocab).double()
        pairs.append((law_of(random_table(seed, vocab)), law_of(sure)))
    got = enumerated_joints(RULES[name](), pairs, gamma, gamma + 2, INDEPENDENT)
    wanted = torch.stack([plain_joint(target, gamma + 2) for target, _ in pairs])
    assert (got - wanted).abs().max() < 1e-12


@pytest.mark.parametrize("rule", [*RULES.values(), CoupledVerifier, GreedyVerifier])
def test_rules_see_one_law_however_it_is_held(rule: Any) -> None:
    """Unwritten, as a point mass, and over the whole vocabulary: the same verdict."""
    laws = random_table(3, 5, laws=64 * 4).view(64, 4, 5)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, (64, 3), generator=generator)
    uniforms = torch.rand(64, 3, generator=generator, dtype=torch.float64)
    gumbel = -torch.rand(64, 4, 5, generator=generator, dtype=torch.float64).log().neg().log()
    lengths = [row % 4 for row in range(64)]
    held = [
        PointMass(tokens), Certain(tokens, 5),
        DenseLaw(torch.nn.functional.one_hot(tokens, 5).double()),
    ]  # fmt: skip
    verdicts = [
        rule().verify(make_trial(Draft(tokens, lengths, law), laws, uniforms, gumbel=gumbel))
        for law in held
    ]
    for other in verdicts[1:]:
        assert torch.equal(other.accepted, verdicts[0].accepted)
        torch.testing.assert_close(other.next_law, verdicts[0].next_law, atol=1e-12, rtol=0)
    certain = held[1]
    assert torch.equal(certain.rows(), held[2].rows())
    assert torch.equal(certain.entropy(), held[2].entropy())
    assert torch.equal(certain.prob(tokens.roll(1, 0)), held[2].prob(tokens.roll(1, 0)))


def mixed_drafter(target: Target, kind: type[Any]) -> Drafter:
    """Short texts find no copy, so that both members serve rows of nearly every round."""
    model = Member("table", TableDrafter(table(2, 0.0)))
    return kind([lookup(min_ngram=2, max_ngram=2), model])  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "name", ["token", "block", pytest.param("recursive", marks=pytest.mark.slow)]
)
def test_engine_draws_follow_the_joint_law(name: str) -> None:
    """Four settings, with penalties, in each batch."""
    target = table(1, 0.0)
    parts = Parts(target, mixed_drafter(target, FirstOf), RULES[name](), Fixed(FixedConfig(3)), {})
    assert min(law_p_values(parts, MIXED, PROMPT, TOKENS, 6000)) > FLOOR


def test_draws_follow_the_joint_law_when_members_take_turns() -> None:
    target = table(1, 0.0)
    parts = Parts(target, mixed_drafter(target, OneOf), TokenVerifier(), Turns([1, 0, None]), {})
    assert min(law_p_values(parts, MIXED, PROMPT, TOKENS, 6000)) > FLOOR


def test_a_law_of_another_member_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same draws fail if copied tokens are passed off as drawn from the other member's law."""

    def passed_off(self: Any, drafts: dict[int, Draft], tokens: Tensor) -> Any:
        if 1 not in drafts:
            return Certain(tokens, 3)
        laws = drafts[1].law.rows()
        uniform = torch.full((*tokens.shape, 3), 1 / 3, dtype=laws.dtype)
        return DenseLaw(torch.cat([laws, uniform[:, laws.shape[1] :]], 1))

    monkeypatch.setattr("foredraft.drafters.members.SeveralSession._law", passed_off)
    target = table(1, 0.0)
    drafter = mixed_drafter(target, FirstOf)
    parts = Parts(target, drafter, TokenVerifier(), Fixed(FixedConfig(3)), {})
    assert min(law_p_values(parts, MIXED[:1], PROMPT, 5, 4000)) < FLOOR


def test_coupled_text_is_that_of_plain_decoding() -> None:
    target, prompts = table(1, 0.0), [[0, 1, 0], [2], [1, 1, 2, 0]]
    texts = []
    for gamma in (0, 1, 3):
        engine = engine_of(
            target, mixed_drafter(target, FirstOf), CoupledVerifier(), gamma,
            sampling=SAMPLED, max_new_tokens=30,
        )  # fmt: skip
        texts.append([answer.token_ids for answer in engine.generate_many(prompts)])
    assert texts[0] == texts[1] == texts[2]


# --- models ----------------------------------------------------------------------------------------

GAMMAS = PerRow(lambda place, turn: (4, 1, 0, 3)[(place + turn) % 4])


def model_members(kind: type[Any], target: Any, **values: Any) -> Any:
    twin = Member("causal_lm", CausalLMDrafter(noisy_copy(target.model), target))
    return kind([lookup(**values), twin])


@pytest.mark.parametrize("params", [{}, {"repetition_penalty": 1.3, "frequency_penalty": 0.4}])
@pytest.mark.parametrize("gamma", [3, GAMMAS], ids=["three", "mixed"])
def test_greedy_text_is_that_of_plain_decoding(gamma: Any, params: dict[str, Any]) -> None:
    target = target_of("llama")
    prompts = [*random_prompts((5, 1, 9)), [7, 8, 9] * 4]
    given: dict[str, Any] = {"max_new_tokens": 40, "sampling": SamplingParams(**params)}
    engine = engine_of(target, model_members(FirstOf, target), gamma=gamma, **given)
    answers = engine.generate_many(prompts)
    due = [
        a.token_ids
        for a in engine_of(target, lookup().drafter, gamma=0, **given).generate_many(prompts)
    ]
    for prompt, expected, answer in zip(prompts, due, answers, strict=True):
        assert_same(target.model, prompt, expected, answer.token_ids)
        if not params:
            assert expected == plain(target.model, prompt, 40)
    assert sum(answer.metrics.accepted for answer in answers) > 20


@pytest.mark.parametrize("kind", [FirstOf, OneOf])
def test_caches_hold_the_committed_ids_whoever_drafts(kind: type[Any]) -> None:
    """Rows leave on the way; each is drafted for by both members, in rounds of its own."""
    target = target_of("llama")
    drafter = model_members(kind, target, min_ngram=2)
    policy = GAMMAS if kind is FirstOf else Turns([0, 1, 1])
    engine = engine_of(target, drafter, gamma=policy, sampling=SAMPLED)
    batch = make_batch(engine, [*random_prompts((5, 1, 8)), [7, 8, 9] * 4], max_new_tokens=30)
    batch.stoppers[1].limit = batch.stoppers[1].max_new_tokens = 9
    session: Any = batch.drafter
    accepted, rows = 0, set()
    with torch.inference_mode():
        while batch.answers:
            accepted += sum(row.accepted for row in batch.step().rows)
            rows.add(batch.context.rows)
            if batch.answers:
                check_cache(session.sessions[1].ragged, batch.context)
    assert accepted > 5 and len(rows) > 1


def test_it_works_by_name() -> None:
    engine = load(
        "target=table", "drafter.drafters=[prompt_lookup,{name:ngram,order:1}]",
        "sampling.temperature=1", drafter="first_of",
    )  # fmt: skip
    assert len(engine.generate("0 1 0", max_new_tokens=9).token_ids) == 9
