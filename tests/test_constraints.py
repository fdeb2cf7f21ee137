"""Constraints over drafts: the masks of plain decoding, an exact rollback, and an exact end."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from helpers import make_engine, markov
from torch import Tensor

from foredraft.framework.constraints import (
    Constraint,
    Constraints,
    ConstraintState,
    Progress,
    constraints_for,
)
from foredraft.framework.errors import InputError, PluginFault
from foredraft.framework.growth import Growth
from foredraft.framework.hosttree import PADDING
from foredraft.framework.interfaces import Drafter
from foredraft.framework.params import SamplingParams
from foredraft.framework.specs import INDEPENDENT
from foredraft.framework.targets.table import TableTarget
from foredraft.framework.testing.scripted import ScriptedDrafter
from foredraft.framework.testing.tables import TableDrafter, TableTreeDrafter
from foredraft.framework.tree import Branches, Tree

SIGNS = "()[]xy"
VOCAB = len(SIGNS)


class Balance(Constraint):
    """One bracketed group, nested at most ``depth`` deep; nothing may follow it."""

    def __init__(self, depth: int = 3) -> None:
        self.depth = depth

    def start(self) -> Balanced:
        return Balanced(self.depth)


class Balanced(ConstraintState):
    """The open brackets are the state; the text is kept to go back."""

    def __init__(self, depth: int) -> None:
        self.depth, self.text, self.open = depth, "", ""
        self.advanced = 0

    def allowed(self) -> Tensor:
        if self.text and not self.open:
            return torch.zeros(VOCAB, dtype=torch.bool)
        close = {"(": ")", "[": "]"}.get(self.open[-1:], "")
        signs = close + ("([" if len(self.open) < self.depth else "") + ("xy" if self.open else "")
        return torch.tensor([sign in signs for sign in SIGNS])

    def advance(self, token: int) -> bool:
        if not self.allowed()[token]:
            return False
        self._take(SIGNS[token])
        self.advanced += 1
        return True

    def rollback(self, count: int) -> None:
        text = self.text[: len(self.text) - count]
        self.text = self.open = ""
        for sign in text:
            self._take(sign)

    def fork(self) -> Balanced:
        copy = Balanced(self.depth)
        copy.text, copy.open = self.text, self.open
        return copy

    def _take(self, sign: str) -> None:
        self.text += sign
        if sign in "([":
            self.open += sign
        elif sign in ")]":
            self.open = self.open[:-1]


def replay(tokens: list[int]) -> Tensor | None:
    """The mask of a fresh state, or None where a token is not allowed or nothing may follow."""
    state = Balance().start()
    if not all(state.advance(token) for token in tokens) or state.finished:
        return None
    return state.allowed()


def ids(text: str) -> list[int]:
    return [SIGNS.index(sign) for sign in text]


class Drafts:
    """Random trees, half of whose tokens are drawn without an eye to the constraint."""

    def __init__(self, seed: int, rows: int, width: int) -> None:
        self.random, self.width = random.Random(seed), width
        self.prompts = [ids("])x(")[: row + 1] for row in range(rows)]  # says nothing
        self.answers: list[list[int]] = [[] for _ in range(rows)]

    @property
    def committed(self) -> list[list[int]]:
        return [p + a for p, a in zip(self.prompts, self.answers, strict=True)]

    def draw(self, chain: bool) -> Branches:
        self.tokens: list[list[int]] = []
        self.parents: list[list[int]] = []
        for row in range(len(self.answers)):
            self.tokens.append([])
            self.parents.append([])
            for node in range(self.width):
                before = node - 1 if chain else self.random.randrange(-1, node)
                self.parents[row].append(before)
                self.tokens[row].append(self._token(self.answers[row] + self.path(row, before)))
        at = [[-1, *range(self.width - 1), PADDING] for _ in self.answers]
        tree = Tree(torch.tensor(self.parents), self.width, self.width)
        return Branches(torch.tensor(self.tokens), tree, torch.tensor(at))

    def path(self, row: int, node: int) -> list[int]:
        found: list[int] = []
        while node >= 0:
            found.insert(0, self.tokens[row][node])
            node = self.parents[row][node]
        return found

    def _token(self, answer: list[int]) -> int:
        mask = replay(answer)
        if mask is None or self.random.random() < 0.5:
            return self.random.randrange(VOCAB)
        return self.random.choice([token for token in range(VOCAB) if mask[token]])

    def commit(self) -> None:
        """A path of allowed tokens and one more; a finished row stays as it is."""
        for row, answer in enumerate(self.answers):
            paths = [self.path(row, node) for node in range(-1, self.width)]
            legal = [(path, replay(answer + path)) for path in paths]
            path, mask = self.random.choice(
                [(p, m) for p, m in legal if m is not None] or [([], None)]
            )
            if mask is not None:
                following = [token for token in range(VOCAB) if mask[token]]
                answer.extend([*path, self.random.choice(following)])


@pytest.mark.parametrize("chain", [True, False])
def test_masks_equal_those_of_a_fresh_state_at_every_place(chain: bool) -> None:
    masked = untouched = 0
    for seed in range(12):
        drafts, constraint = Drafts(seed, rows=3, width=7), Balance()
        progress = [Progress(constraint, 1), None, Progress(constraint, 3)]
        control = Constraints(progress)
        for _ in range(5):
            branches = drafts.draw(chain)
            logits = torch.randn(3, 8, VOCAB)
            out = control.apply(logits, drafts.committed, branches)
            assert torch.equal(out[1], logits[1])
            for row in (0, 2):
                for place, node in enumerate(range(-1, 6)):
                    mask = replay(drafts.answers[row] + drafts.path(row, node))
                    expected = logits[row, place]
                    if mask is not None:
                        expected = expected.masked_fill(~mask, -math.inf)
                    assert torch.equal(out[row, place], expected)
                    masked, untouched = masked + (mask is not None), untouched + (mask is None)
            assert torch.equal(out[:, 7], logits[:, 7])  # padding
            assert torch.isfinite(out.softmax(-1)).all()
            drafts.commit()
    assert masked > 200 and untouched > 200


def test_a_committed_token_is_taken_in_once() -> None:
    class Counted(Balance):
        def start(self) -> Balanced:
            self.state = Balanced(self.depth)
            return self.state

    constraint = Counted()
    progress = Progress(constraint, prompt_length=2)
    control = Constraints([progress])
    nothing = Branches.chain(torch.zeros(1, 0, dtype=torch.int64), torch.tensor([[-1]]))
    text = ids("([x")
    assert not any(progress.completes(token) for token in text)
    for _ in range(3):
        control.apply(torch.zeros(1, 1, VOCAB), [[9, 9, *text]], nothing)
    assert constraint.state.text == "([x" and constraint.state.advanced == 3
    control.apply(torch.zeros(1, 1, VOCAB), [[9, 9, *text, *ids("])")]], nothing)
    assert constraint.state.advanced == 5 and control.finished(0)


def test_an_accepted_run_stops_at_the_token_behind_which_nothing_may_follow() -> None:
    """The draft ``] x y`` behind ``[``: no place fails, and the run is cut at ``]``."""
    progress = Progress(Balance(), prompt_length=0)
    control = Constraints([progress])
    drafted = ids("]xy")
    branches = Branches.chain(torch.tensor([drafted]), torch.tensor([[-1, 0, 1, 2]]))
    out = control.apply(torch.zeros(1, 4, VOCAB), [ids("[")], branches)
    assert out[0, 0].isfinite().tolist() == [True, False, True, True, True, True]
    assert torch.equal(out[0, 1:], torch.zeros(3, VOCAB))  # a law still, which nobody will use
    assert not control.finished(0)
    kept = []
    for token in drafted:
        kept.append(token)
        if progress.completes(token):
            break
    assert kept == ids("]") and control.finished(0)


def test_rows_do_not_share_a_state_and_can_go() -> None:
    constraint = Balance()
    one, other = Progress(constraint, 0), Progress(constraint, 0)
    control = constraints_for([one, None, other])
    assert control is not None and constraints_for([None, None]) is None
    nothing = Branches.chain(torch.zeros(3, 0, dtype=torch.int64), torch.full((3, 1), -1))
    out = control.apply(torch.zeros(3, 1, VOCAB), [ids("(("), [], ids("[")], nothing)
    assert out[0, 0].isfinite().tolist() == [True, True, True, False, True, True]
    assert out[2, 0].isfinite().tolist() == [True, False, True, True, True, True]
    control.select([1, 2])
    assert other.completes(SIGNS.index("]"))
    assert not control.finished(0) and control.finished(1)
    assert not one.finished and not one.completes(SIGNS.index(")"))  # the inner one


def test_a_fork_goes_its_own_way() -> None:
    state = Balance().start()
    assert all(state.advance(token) for token in ids("(["))
    fork = state.fork()
    assert fork.advance(SIGNS.index("]")) and fork.advance(SIGNS.index(")")) and fork.finished
    assert state.allowed().tolist() == [True, False, True, True, True, True]
    state.rollback(1)
    assert state.allowed().tolist() == [True, True, True, False, True, True]
    assert fork.finished and not state.finished


def test_one_read_per_call(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, plain = [], Tensor.tolist

    def tolist(tensor: Tensor) -> Any:
        reads.append(tensor.shape)
        return plain(tensor)

    monkeypatch.setattr(Tensor, "tolist", tolist)
    branches = Branches.chain(torch.tensor([[0, 1]] * 3), torch.tensor([[-1, 0, 1]] * 3))
    control = Constraints([Progress(Balance(), 0) for _ in range(3)])
    control.apply(torch.zeros(3, 3, VOCAB), [[], [], []], branches)
    assert reads == [(3, 7)] and control.host_reads == 1


# --- in the loop ----------------------------------------------------------------------------


def table(seed: int) -> TableTarget:
    generator = torch.Generator().manual_seed(seed)
    return TableTarget(torch.rand(VOCAB + 1, VOCAB, generator=generator).double(), order=1)


def drafters(target: TableTarget) -> dict[str, Drafter]:
    """Tokens without an eye to the constraint; chains and trees through the masks."""
    dice = random.Random(1)
    tree = Growth(widths=(2, 2, 1), children=INDEPENDENT)
    return {
        "blind": ScriptedDrafter(lambda row, index: [dice.randrange(VOCAB) for _ in range(4)]),
        "own": TableDrafter(target),
        "other": TableDrafter(table(99)),
        "tree": TableTreeDrafter(table(99), tree),
    }


@pytest.mark.parametrize("name", ["blind", "own", "other", "tree"])
def test_the_loop_writes_what_plain_decoding_writes(name: str) -> None:
    """Greedy, so that every token has to be the same; and every answer that ends is balanced."""
    ended = 0
    for seed in range(5):
        target = table(seed)
        prompts, options = [ids("x"), ids(")(["), ids("yy")], {"max_new_tokens": 12}
        plain = make_engine(target, gamma=0).generate_many(prompts, constraint=Balance(), **options)
        engine = make_engine(target, drafters(target)[name], gamma=4, verifier="greedy")
        answers = engine.generate_many(prompts, constraint=Balance(), **options)
        for answer, expected in zip(answers, plain, strict=True):
            assert answer.token_ids == expected.token_ids
            assert answer.finish_reason == expected.finish_reason
            assert after(answer.token_ids).finished == (answer.finish_reason == "constraint")
            ended += answer.finish_reason == "constraint"
    assert ended > 0


def after(tokens: list[int]) -> ConstraintState:
    state = Balance().start()
    assert all(state.advance(token) for token in tokens)
    return state


def test_sampled_answers_obey_too() -> None:
    target, ended = table(3), 0
    sampling = SamplingParams(temperature=1.0)
    for name, drafter in drafters(target).items():
        if name != "tree":
            engine = make_engine(target, drafter, gamma=4, sampling=sampling)
            answers = engine.generate_many([ids("x")] * 20, constraint=Balance(), max_new_tokens=12)
            for answer in answers:
                whole = after(answer.token_ids).finished
                assert whole == (answer.finish_reason == "constraint")
                ended += whole
    assert ended > 20


def test_the_loop_cuts_an_accepted_run_where_the_constraint_ends() -> None:
    """The whole draft ``[ ] x y`` would be accepted: behind ``]`` nothing is masked."""
    rows = torch.full((VOCAB, VOCAB), 0.01)
    for before, following in ("y[", "[]", "]x", "xy"):
        rows[SIGNS.index(before), SIGNS.index(following)] = 1.0
    target = markov((rows / rows.sum(1, keepdim=True)).tolist())
    drafter = ScriptedDrafter(lambda row, index: ids("[]xy"))
    engine = make_engine(target, drafter, gamma=4)
    free = engine.generate(ids("y"), max_new_tokens=9)
    assert free.token_ids[:4] == ids("[]xy")
    answer = engine.generate(ids("y"), constraint=Balance(), max_new_tokens=9)
    assert answer.token_ids == ids("[]") and answer.finish_reason == "constraint"
    assert answer.metrics.accepted == 2


# --- faults ---------------------------------------------------------------------------------


def test_a_committed_token_that_is_not_allowed_is_an_error() -> None:
    progress = Progress(Balance(), 1)
    with pytest.raises(PluginFault, match="'Balance' does not allow token 4, .* position 1"):
        progress.catch_up([0, SIGNS.index("x")])


def test_a_constraint_that_allows_nothing_is_refused() -> None:
    class Nothing(Balance):
        def start(self) -> Balanced:
            state = super().start()
            assert all(state.advance(token) for token in ids("()"))
            return state

    with pytest.raises(InputError, match="'Nothing' allows no token"):
        Progress(Nothing(), 0)


def test_faults_name_the_constraint() -> None:
    class Short(Balanced):
        def allowed(self) -> Tensor:
            return super().allowed()[:-1]

    class Breaks(Balanced):
        def rollback(self, count: int) -> None:
            raise RuntimeError("cannot go back")

    class Given(Constraint):
        def __init__(self, state: ConstraintState) -> None:
            self.state = state

        def start(self) -> ConstraintState:
            return self.state

    branches = Branches.chain(torch.tensor([ids("(")]), torch.tensor([[-1, 0]]))
    for state, message in (
        (Short(3), r"'Given' gave a mask of shape \(5,\) .* \(6,\) and torch.bool are due"),
        (Breaks(3), "'Given' raised RuntimeError: cannot go back"),
    ):
        control = Constraints([Progress(Given(state), 0)])
        with pytest.raises(PluginFault, match=message):
            control.apply(torch.zeros(1, 2, VOCAB), [[]], branches)
