"""Logits processors over drafts: each sees what plain decoding would have shown it, and no more."""

from __future__ import annotations

import copy
import math
import random
from typing import Any

import pytest
import torch
from helpers import make_engine
from torch import Tensor

from foredraft.framework.errors import ConfigError, PluginFault
from foredraft.framework.growth import Growth
from foredraft.framework.hosttree import PADDING, HostTree
from foredraft.framework.interfaces import Drafter
from foredraft.framework.params import SamplingParams
from foredraft.framework.processor_checks import check_processor, prepare
from foredraft.framework.processors import HostProcessors, host_processors
from foredraft.framework.specs import INDEPENDENT
from foredraft.framework.targets.table import TableTarget
from foredraft.framework.testing.scripted import ScriptedDrafter
from foredraft.framework.testing.tables import TableDrafter, TableTreeDrafter
from foredraft.framework.tree import Branches, Tree

VOCAB = 11


def law_of(prefix: list[int], model: int = 0) -> Tensor:
    """Logits that depend on the whole prefix; ``model`` 0 is the target, 1 a drafter."""
    place = sum((i + 1) * token for i, token in enumerate(prefix)) + 5 * model
    return (torch.arange(VOCAB, dtype=torch.float64) * (place % 97 + 1)).sin()


class Recorder:
    """Keeps every prefix that it is shown; its scores depend on nothing else."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        assert input_ids.shape[0] == 1 and input_ids.dtype == torch.int64
        assert scores.shape == (1, VOCAB)
        self.seen.append(input_ids[0].tolist())
        return scores + 0.01 * float(input_ids.sum())


class Ledger:
    """Its state depends on every prefix and every score it was shown, and on their order."""

    def __init__(self) -> None:
        self.state = 1.0
        self.lengths: list[int] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        assert not self.lengths or input_ids.shape[1] == self.lengths[-1] + 1
        self.lengths.append(input_ids.shape[1])
        self.state = 0.7 * self.state + 0.1 * float(scores.max()) + 0.01 * float(input_ids[0, -1])
        return scores * self.state

    def fork(self) -> Ledger:
        return copy.deepcopy(self)


class Game:
    """Rounds of drafts with random trees and outcomes; holds what plain decoding would know."""

    def __init__(self, seed: int, rows: int) -> None:
        self.random = random.Random(seed)
        self.committed = [self._tokens(3 + row) for row in range(rows)]

    def _tokens(self, count: int) -> list[int]:
        return [self.random.randrange(VOCAB) for _ in range(count)]

    def draw(self, chain: bool) -> None:
        """Draws a tree per row; rows have different lengths, and anything may stand beyond."""
        rows = len(self.committed)
        self.lengths = [self.random.randrange(6) for _ in range(rows)]
        width = max(self.lengths)
        self.tokens = [self._tokens(width) for _ in range(rows)]
        self.parents = [
            [i - 1 if chain else self.random.randrange(-1, i) for i in range(width)]
            for _ in range(rows)
        ]
        for row, length in enumerate(self.lengths):
            self.parents[row][length:] = [99] * (width - length)
            self.tokens[row][length:] = [10**6] * (width - length)
        # Places may come in any order.
        self.at = [self.random.sample(range(-1, n), n + 1) for n in self.lengths]

    def branches(self) -> Branches:
        width, rows = len(self.tokens[0]), len(self.tokens)
        at = [[*row, *[PADDING] * (width + 1 - len(row))] for row in self.at]
        tokens = torch.tensor(self.tokens, dtype=torch.int64).reshape(rows, width)
        parents = torch.tensor(self.parents, dtype=torch.int64).reshape(rows, width)
        return Branches(tokens, Tree(parents, width, width), torch.tensor(at))

    def path(self, row: int, node: int) -> list[int]:
        """Drafted tokens up to a node."""
        found: list[int] = []
        while node >= 0:
            found.insert(0, self.tokens[row][node])
            node = self.parents[row][node]
        return found

    def prefixes(self, row: int) -> list[list[int]]:
        return [self.committed[row] + self.path(row, node) for node in self.at[row]]

    def logits(self, model: int = 0) -> Tensor:
        rows = []
        for row, length in enumerate(self.lengths):
            laws = [law_of(prefix, model) for prefix in self.prefixes(row)]
            padding = [torch.full((VOCAB,), 7.0)] * (len(self.tokens[row]) - length)
            rows.append(torch.stack([*laws, *padding]).double())
        return torch.stack(rows)

    def commit(self) -> list[list[int]]:
        """Accepts a path per row and a next token; returns what was committed."""
        news = []
        for row, length in enumerate(self.lengths):
            node = self.random.randrange(-1, length)
            news.append([*self.path(row, node), *self._tokens(1)])
            self.committed[row].extend(news[-1])
        return news


@pytest.mark.parametrize("chain", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_a_processor_sees_committed_ids_and_the_path_and_nothing_else(
    chain: bool, seed: int
) -> None:
    recorders = [Recorder(), Recorder()]
    game = Game(seed, rows=3)
    control = HostProcessors([(recorders[0],), (), (recorders[1],)])
    for _ in range(8):
        game.draw(chain)
        given = game.logits()
        out = control.apply(given, game.committed, game.branches())
        assert torch.equal(given, game.logits())  # not in place
        for row, recorder in ((0, recorders[0]), (2, recorders[1])):
            expected = game.prefixes(row)
            assert sorted(recorder.seen) == sorted(expected)
            recorder.seen.clear()
            for place, prefix in enumerate(expected):
                assert torch.equal(out[row, place], law_of(prefix) + 0.01 * float(sum(prefix)))
            assert torch.equal(out[row, len(expected) :], given[row, len(expected) :])
        assert torch.equal(out[1], given[1])
        game.commit()


def test_a_rejected_token_never_comes_back() -> None:
    recorder = Recorder()
    control = HostProcessors([(recorder,)])
    chain = Branches.chain(torch.tensor([[7, 8, 9]]), torch.tensor([[-1, 0, 1, 2]]))
    control.apply(torch.zeros(1, 4, VOCAB), [[1, 2]], chain)
    assert recorder.seen == [[1, 2], [1, 2, 7], [1, 2, 7, 8], [1, 2, 7, 8, 9]]
    recorder.seen.clear()
    chain = Branches.chain(torch.tensor([[5, 6]]), torch.tensor([[-1, 0, 1]]))
    control.apply(torch.zeros(1, 3, VOCAB), [[1, 2, 7, 3]], chain)  # 8 and 9 were rejected
    assert recorder.seen == [[1, 2, 7, 3], [1, 2, 7, 3, 5], [1, 2, 7, 3, 5, 6]]


@pytest.mark.parametrize("drafting", ["none", "levels", "whole", "deep"])
@pytest.mark.parametrize("chain", [True, False])
def test_a_state_is_what_plain_decoding_would_have_made_it(chain: bool, drafting: str) -> None:
    """Outputs at every place equal those of fresh processors called step by step."""
    given = [(Ledger(), Recorder()), (), (Recorder(), Ledger())]
    for seed in range(4):
        game, control = Game(seed, rows=3), HostProcessors(given)
        plain = [[copy.deepcopy(p) for p in row] for row in given]  # the committed states
        for _ in range(6):
            game.draw(chain)
            draft(control, game, drafting)
            out = control.apply(game.logits(), game.committed, game.branches())
            for row in (0, 2):
                for place, prefix in enumerate(game.prefixes(row)):
                    behind = len(game.committed[row])
                    expected, _ = replay(plain[row], prefix, behind)
                    assert torch.equal(out[row, place], expected)
            before = [len(row) for row in game.committed]
            game.commit()
            for row in (0, 2):  # plain decoding has now shown every prefix but the newest
                _, plain[row] = replay(plain[row], game.committed[row][:-1], before[row])
    assert all(isinstance(p, Recorder) or p.lengths == [] for row in given for p in row)


def replay(processors: list[Any], prefix: list[int], begin: int) -> tuple[Tensor, list[Any]]:
    """Calls copies with every prefix from ``begin`` ids on: the last scores, and the copies."""
    copies = [copy.deepcopy(processor) for processor in processors]
    scores = torch.zeros(1, VOCAB)
    for length in range(begin, len(prefix) + 1):
        scores = law_of(prefix[:length]).unsqueeze(0)
        for processor in copies:
            scores = processor(torch.tensor([prefix[:length]]), scores)
    return scores[0], copies


def draft(control: HostProcessors, game: Game, how: str) -> None:
    """A drafter's own calls: place by place, all at once, or only behind the last node."""
    whole, logits = game.branches(), game.logits(model=1)
    width = whole.tokens.shape[1]
    single = [slice(place, place + 1) for place in range(width + 1)]
    asked = {"none": [], "levels": single, "whole": [slice(None)], "deep": single[-1:]}
    for places in asked[how]:
        branches = Branches(whole.tokens, whole.tree, whole.at[:, places])
        control.apply(logits[:, places], game.committed, branches)


def test_padding_that_looks_like_a_node_leaves_its_state_alone() -> None:
    control, tree = HostProcessors([(Ledger(),)]), Tree(torch.tensor([[-1, -1]]), 1, 2)
    logits = torch.stack([law_of([1]), law_of([1, 5]), torch.full((VOCAB,), 9.0).double()])
    at = torch.tensor([[-1, 0, 1]])
    control.apply(logits[None], [[1]], Branches(torch.tensor([[5, 5]]), tree, at))
    nothing = Branches.chain(torch.zeros(1, 0, dtype=torch.int64), at[:, :1])
    out = control.apply(law_of([1, 5, 2]).view(1, 1, VOCAB), [[1, 5, 2]], nothing)
    assert torch.equal(out[0, 0], replay([Ledger()], [1, 5, 2], 1)[0])


def only(branches: Branches, rows: slice) -> Branches:
    tree = Tree(branches.tree.parents[rows], branches.tree.depth, branches.tree.children)
    return Branches(branches.tokens[rows], tree, branches.at[rows])


def test_states_do_not_leak_between_rows_and_rows_can_go() -> None:
    shared, game = Ledger(), Game(0, rows=3)
    together = HostProcessors([(shared,)] * 3)
    alone = [HostProcessors([(shared,)]) for _ in range(3)]
    rows = slice(0, 3)
    for step in range(6):
        game.draw(chain=False)
        if step == 3:
            together.select([2])
            rows = slice(2, 3)
        branches, logits = game.branches(), game.logits()
        out = together.apply(logits[rows], game.committed[rows], only(branches, rows))
        for place, row in enumerate(range(3)[rows]):
            one = slice(row, row + 1)
            expected = alone[row].apply(logits[one], game.committed[one], only(branches, one))
            assert torch.equal(out[place], expected[0])
        game.commit()
    assert shared.lengths == []


def test_processors_of_a_request_apply_in_order() -> None:
    branches = Branches.chain(torch.zeros(1, 0, dtype=torch.int64), torch.tensor([[-1]]))
    control = host_processors([(lambda ids, scores: scores + 1, lambda ids, scores: scores * 3)])
    assert control is not None
    out = control.apply(torch.ones(1, 1, VOCAB), [[1]], branches)
    assert torch.equal(out, torch.full((1, 1, VOCAB), 6.0))
    assert host_processors([(), ()]) is None


def test_a_place_without_a_path_is_padding() -> None:
    tree = HostTree([5, 6, 7], [-1, 0, 2], at=[-1, 0, 1, 2, 3, PADDING])
    assert [tree.path(place) for place in range(6)] == [[], [0], [0, 1], None, None, None]
    assert tree.places() == {-1: [0], 0: [1], 1: [2]} and tree.children() == {-1: [0], 0: [1]}
    wrong = HostTree([5, 6], [1, 0], at=[0, 1])  # a circle
    assert wrong.path(0) is None and wrong.path(1) is None


def test_one_read_per_call(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, plain = [], Tensor.tolist

    def tolist(tensor: Tensor) -> Any:
        reads.append(tensor.shape)
        return plain(tensor)

    monkeypatch.setattr(Tensor, "tolist", tolist)
    branches = Branches.chain(torch.tensor([[1, 2]] * 3), torch.tensor([[-1, 0, 1]] * 3))
    control = HostProcessors([(lambda ids, scores: scores,)] * 3)
    control.apply(torch.zeros(3, 3, VOCAB), [[1], [2], [3]], branches)
    assert reads == [(3, 7)] and control.host_reads == 1


# --- in the loop ----------------------------------------------------------------------------


def table(seed: int) -> TableTarget:
    generator = torch.Generator().manual_seed(seed)
    return TableTarget(torch.rand(VOCAB + 1, VOCAB, generator=generator).double(), order=1)


def drafters(target: TableTarget) -> list[Drafter]:
    dice = random.Random(1)
    return [
        ScriptedDrafter(lambda row, index: [dice.randrange(VOCAB) for _ in range(4)]),
        TableDrafter(target),
        TableDrafter(table(99)),
        TableTreeDrafter(table(99), Growth(widths=(2, 2, 1), children=INDEPENDENT)),
    ]


@pytest.mark.parametrize("kind", range(4))
def test_the_loop_writes_what_plain_decoding_writes(kind: int) -> None:
    """Greedy, with a processor whose state holds every prefix and score that it was shown."""
    for seed in range(3):
        target = table(seed)
        prompts: list[list[int]] = [[1, 2], [3], [4, 5, 6]]
        options: dict[str, Any] = {
            "processors": [Ledger(), Recorder(), swing],
            "max_new_tokens": 20,
        }
        plain = make_engine(target, gamma=0).generate_many(prompts, **options)
        engine = make_engine(target, drafters(target)[kind], gamma=4, verifier="greedy")
        answers = engine.generate_many(prompts, **options)
        assert [a.token_ids for a in answers] == [a.token_ids for a in plain]
        without = make_engine(target, gamma=0).generate_many(prompts, max_new_tokens=20)
        assert all(a.token_ids != b.token_ids for a, b in zip(answers, without, strict=True))


def swing(input_ids: Tensor, scores: Tensor) -> Tensor:
    """Turns the scores by a place that depends on the whole prefix."""
    return scores.roll(int(input_ids.sum()) % VOCAB, -1)


def test_a_token_that_is_banned_and_always_drafted_never_appears() -> None:
    def ban(input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores.index_fill(1, torch.tensor([7]), -math.inf)

    law = torch.full((1, VOCAB), 0.01)
    law[0, 7] = 1.0
    target = TableTarget(law.double(), order=0)
    for temperature in (0.0, 1.0):
        engine = make_engine(target, ScriptedDrafter(lambda row, index: [7, 7, 7]), gamma=3)
        sampling = SamplingParams(temperature=temperature)
        answer = engine.generate([1], processors=[ban], sampling=sampling, max_new_tokens=30)
        assert 7 not in answer.token_ids and answer.metrics.accepted == 0
        assert 7 in engine.generate([1], sampling=sampling, max_new_tokens=30).token_ids


# --- what is refused ------------------------------------------------------------------------


class Counting:
    """Bans a token after a number of calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.calls += 1
        return scores - self.calls


class SharedHistory:
    """A fork that is none: the list is the same."""

    def __init__(self, history: list[int] | None = None) -> None:
        self.history = [] if history is None else history

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.history.append(int(input_ids[0, -1]))
        return scores + sum(self.history)

    def fork(self) -> SharedHistory:
        return SharedHistory(self.history)


def test_a_state_without_a_fork_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'Counting' gives other scores .* fork\(\)"):
        check_processor(Counting(), VOCAB)
    with pytest.raises(ConfigError, match="'random' gives other scores"):

        def random(input_ids: Tensor, scores: Tensor) -> Tensor:
            return scores + torch.rand(1)

        check_processor(random, VOCAB)


class Forgetful(Counting):
    """A fork that begins anew."""

    def fork(self) -> Forgetful:
        return Forgetful()


@pytest.mark.parametrize("kind", [SharedHistory, Forgetful])
def test_a_fork_that_is_no_copy_is_refused(kind: type) -> None:
    with pytest.raises(ConfigError, match=f"'{kind.__name__}' has forks that are no independent"):
        check_processor(kind(), VOCAB)


def test_a_fork_that_is_a_copy_passes_and_the_original_is_not_called() -> None:
    ledger = Ledger()
    assert check_processor(ledger, VOCAB) is ledger and ledger.lengths == []


def test_ids_must_not_be_changed() -> None:
    def spoils(input_ids: Tensor, scores: Tensor) -> Tensor:
        input_ids[0, 0] = 0
        return scores

    with pytest.raises(ConfigError, match="'spoils' changes input_ids"):
        check_processor(spoils, VOCAB, prompt=[3, 4])


def test_what_reads_the_batch_is_refused_by_name() -> None:
    from transformers.generation import logits_process as hf

    with pytest.raises(ConfigError, match="PrefixConstrained.*place in the batch.*Constraint"):
        prepare([hf.PrefixConstrainedLogitsProcessor(lambda row, ids: [1], 1)], VOCAB)
    with pytest.raises(ConfigError, match="'ClassifierFree.* doubled batch.*drop it"):
        prepare([hf.ClassifierFreeGuidanceLogitsProcessor(2.0)], VOCAB)
    guided = hf.UnbatchedClassifierFreeGuidanceLogitsProcessor(2.0, model=None)
    with pytest.raises(ConfigError, match="'Unbatched.* cache of its own"):
        prepare(hf.LogitsProcessorList([guided]), VOCAB)

    class Mine(hf.PrefixConstrainedLogitsProcessor):
        pass

    with pytest.raises(ConfigError, match="'Mine' depends on the row's place"):
        prepare([Mine(lambda row, ids: [1], 1)], VOCAB)


def test_transformers_processors_pass_or_fail_by_their_state() -> None:
    from transformers.generation import logits_process as hf

    plain = hf.LogitsProcessorList(
        [
            hf.NoRepeatNGramLogitsProcessor(2),
            hf.RepetitionPenaltyLogitsProcessor(1.3),
            hf.SequenceBiasLogitsProcessor([[[3, 4], -2.0]]),
            hf.WatermarkLogitsProcessor(VOCAB, "cpu"),
        ]
    )
    assert prepare([plain], VOCAB) == tuple(plain)
    options: dict[str, Any] = {
        "ngram_len": 3, "keys": [1, 2, 3], "sampling_table_size": 64,
        "sampling_table_seed": 0, "context_history_size": 16, "device": torch.device("cpu"),
    }  # fmt: skip
    marked = hf.SynthIDTextWatermarkLogitsProcessor(**options)
    with pytest.raises(ConfigError, match="'SynthIDText.* gives other scores"):
        check_processor(marked, VOCAB)

    class Forking(hf.SynthIDTextWatermarkLogitsProcessor):
        def fork(self) -> Any:
            return copy.deepcopy(self)

    check_processor(Forking(**options), VOCAB)


@pytest.mark.parametrize("given", [3, "ban", Recorder])
def test_what_is_no_processor_is_refused(given: object) -> None:
    with pytest.raises(ConfigError, match="each must be a callable"):
        prepare([given], VOCAB)


def test_faults_name_the_processor() -> None:
    def breaks(input_ids: Tensor, scores: Tensor) -> Tensor:
        raise IndexError("no such token")

    branches = Branches.chain(torch.zeros(1, 0, dtype=torch.int64), torch.tensor([[-1]]))
    with pytest.raises(PluginFault, match="'breaks' raised IndexError: no such token"):
        HostProcessors([(breaks,)]).apply(torch.zeros(1, 1, VOCAB), [[1]], branches)
    with pytest.raises(PluginFault, match=r"returned \[1, 3\]; scores of shape \[1, 11\] are due"):
        check_processor(lambda ids, scores: scores[:, :3], VOCAB)
    with pytest.raises(PluginFault, match="returned NoneType"):
        check_processor(lambda ids, scores: None, VOCAB)
