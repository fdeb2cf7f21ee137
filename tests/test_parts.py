"""The parts around the loop: metrics, cancelling, text, guards, memory, noise, sampling, reads."""

from __future__ import annotations

import gc
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import (
    FALSE_ALARM,
    SAMPLED,
    TOY_DRAFT,
    TOY_TARGET,
    PerRow,
    cycle,
    make_batch,
    make_engine,
    noisy_copy,
    one_token_law,
    random_prompts,
    rounds_of,
    target_of,
)
from scipy.stats import chisquare
from torch import Tensor
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from foredraft.drafters.builtin import EarlyExitConfig
from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.drafters.early_exit import EarlyExit
from foredraft.framework import memory
from foredraft.framework.context import Context
from foredraft.framework.errors import ConfigError, PluginFault
from foredraft.framework.guard import blame, check_gammas
from foredraft.framework.interfaces import Drafter, GammaPolicy, PolicySession
from foredraft.framework.law import DenseLaw, PointMass
from foredraft.framework.metrics import Metrics, total
from foredraft.framework.noise import Noise, Stream, draw
from foredraft.framework.params import SamplingParams
from foredraft.framework.records import RowOutcome
from foredraft.framework.requests import Answer
from foredraft.framework.sampling import Sampler
from foredraft.framework.targets.table import TableTarget
from foredraft.framework.testing.scripted import (
    FAULTS,
    FaultyDrafter,
    OracleDrafter,
    ScriptedDrafter,
)
from foredraft.framework.text import TextStream

# --- metrics ----------------------------------------------------------------------------------


def test_metrics_by_hand() -> None:
    """A cycle of 8, drafts of 3 of which 2 are right: each round emits 3 and rejects one."""
    due = [(1 + at) % 8 for at in range(40)]
    engine = make_engine(cycle(8), OracleDrafter([[0]], [due], 8, right_for=2), 3)
    metrics = engine.generate([0], max_new_tokens=12).metrics
    # Rounds: 3 + 3 + 3 tokens with drafts of 3; then room for 3, so a draft of 2, both right.
    assert (metrics.rounds, metrics.emitted) == (4, 12)
    assert (metrics.drafted, metrics.accepted, metrics.reached) == (11, 8, 11)
    assert metrics.emitted == metrics.accepted + metrics.rounds
    assert metrics.tau == 3.0
    assert metrics.accept_rate == metrics.alpha == pytest.approx(8 / 11)
    assert (metrics.reached_at, metrics.accepted_at) == ([4, 4, 3], [4, 4])
    shown = metrics.as_dict()
    assert shown["accept_rate_at"] == [1.0, 1.0, 0.0]
    assert shown["reached_at"] == [4, 4, 3]
    assert shown["waste"] == 3


def test_positions_behind_a_rejection_are_not_reached() -> None:
    engine = make_engine(cycle(8), ScriptedDrafter(lambda row, turn: [0, 0, 0, 0]), 4)
    metrics = engine.generate([3], max_new_tokens=3).metrics
    assert metrics.drafted == 2 + 1 + 0
    assert (metrics.reached_at, metrics.accepted) == ([2], 0)
    assert metrics.accept_rate == 0.0


def test_a_stop_inside_the_draft_counts_what_was_emitted() -> None:
    due = [(1 + at) % 8 for at in range(40)]
    engine = make_engine(cycle(8, eos=2), OracleDrafter([[0]], [due], 8), 6)
    metrics = engine.generate([0]).metrics
    assert (metrics.rounds, metrics.drafted, metrics.accepted, metrics.emitted) == (1, 6, 2, 2)
    assert metrics.reached == 2


def test_counters_belong_to_a_request_and_a_run() -> None:
    """Cumulative counters mixed earlier traffic in (NVIDIA-NeMo/Automodel#2912)."""
    engine = make_engine(
        one_token_law(TOY_TARGET), ScriptedDrafter(law=TOY_DRAFT), 3, sampling=SAMPLED
    )
    runs = []
    for _ in range(2):
        answers = engine.generate_many([[0], [1]], max_new_tokens=30)
        shown = [answer.metrics.as_dict() for answer in answers]
        for one in shown:
            one.pop("time")
        runs.append(shown)
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]


def test_total_adds_up() -> None:
    one, two = Metrics(), Metrics()
    one.count(RowOutcome(0, [1, 2], 1, [1, 5], [0.5, 0.25]), {"draft": 1.0})
    two.count(RowOutcome(1, [], 0, [7], []), {"verify": 2.0})
    whole = total([one, two])
    assert (whole.rounds, whole.drafted, whole.accepted, whole.emitted) == (2, 2, 1, 3)
    assert (whole.reached, whole.alpha, whole.accept_rate) == (2, 0.375, 0.5)
    assert (whole.seconds["draft"], whole.seconds["verify"]) == (1.0, 2.0)


def test_time_is_split_and_nothing_is_lost() -> None:
    target = target_of("llama")
    engine = make_engine(target, CausalLMDrafter(target.model, target), 3)
    seconds = engine.generate([1, 2, 3], max_new_tokens=20).metrics.seconds
    assert set(seconds) == {"prefill", "draft", "verify", "sampling", "other"}
    assert all(value > 0 for value in seconds.values())


def test_no_round_took_the_prefill() -> None:
    target = target_of("llama")
    engine = make_engine(target, CausalLMDrafter(target.model, target), 3)
    answer = Answer(engine.request([1, 2, 3], max_new_tokens=20))
    rounds = [outcome.seconds for outcome in engine.run([answer])]
    spent = answer.metrics.seconds
    for phase in ("draft", "verify", "sampling"):
        assert sum(one[phase] for one in rounds) == pytest.approx(spent[phase])
    assert all("prefill" not in one for one in rounds)


# --- cancelling -------------------------------------------------------------------------------


def test_a_cancelled_row_leaves_and_the_others_go_on() -> None:
    engine = make_engine(cycle(8), None, 0, max_new_tokens=10)
    answers = [Answer(engine.request([token], index)) for index, token in enumerate((0, 3, 5))]
    for outcome in engine.run(answers):
        if outcome.index == 3:
            answers[1].cancel()
    assert [len(answer.token_ids) for answer in answers] == [10, 4, 10]
    assert [answer.finish_reason for answer in answers] == ["length", "cancelled", "length"]
    assert answers[2].token_ids == [(6 + at) % 8 for at in range(10)]
    assert answers[1].text == "4 5 6 7"


def test_all_cancelled_ends_the_run() -> None:
    engine = make_engine(cycle(8), None, 0, max_new_tokens=10)
    answer = Answer(engine.request([0]))
    answer.cancel()
    assert list(engine.run([answer])) == []
    assert (answer.token_ids, answer.finish_reason) == ([], "cancelled")


def test_a_closed_stream_ends_the_request() -> None:
    rounds: list[int] = []

    def count(row: int, turn: int) -> list[int]:
        rounds.append(turn)
        return [0]

    stream = make_engine(cycle(8), ScriptedDrafter(count), 1, max_new_tokens=50).stream("0")
    assert next(stream) == "1"
    stream.close()  # type: ignore[attr-defined]
    assert rounds == [0]


# --- text that arrives in pieces --------------------------------------------------------------


class Bytes:
    """One token per byte of UTF-8."""

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")


TEXT = "aé€😀 b\u0301ü漢字🇩🇪!"


@pytest.mark.parametrize("width", range(1, 8))
def test_characters_split_over_tokens(width: int) -> None:
    stream, ids = TextStream(Bytes()), list(TEXT.encode())
    blocks = [ids[at : at + width] for at in range(0, len(ids), width)]
    pieces = [stream.feed(block, last=block is blocks[-1]) for block in blocks]
    assert "".join(pieces) == TEXT
    assert "\ufffd" not in "".join(pieces)


def test_an_answer_cut_inside_a_character_is_streamed_whole() -> None:
    ids = list("a😀".encode())[:3]
    stream = TextStream(Bytes())
    assert stream.feed(ids[:2]) + stream.feed(ids[2:], last=True) == Bytes().decode(ids)


def test_nothing_is_streamed_twice_when_the_last_block_is_empty() -> None:
    stream = TextStream(Bytes())
    assert stream.feed(list(b"ab")) + stream.feed([], last=True) == "ab"


# --- guards -----------------------------------------------------------------------------------

REASONS = {
    "raises": "raised ZeroDivisionError",
    "id_too_high": "drafted id 4 in row 0; ids go from 0 to 3",
    "id_negative": "drafted id -1 in row 0",
    "law_nan": "not a law",
    "law_sum": "not a law",
    "law_negative": "not a law",
    "law_zero_at_token": "not a law",
    "law_shape": r"a draft law of shape \(2, 3, 3\) where \(2, 3, 4\)",
    "dtype": "dtype torch.int32; int64 is due",
    "shape": r"tokens of shape \(2, 2\) where \(2, 3\)",
    "too_long": "4 drafted tokens in row 0, where 0 to 3",
    "negative_length": "-1 drafted tokens in row 0",
    "row_count": "1 draft lengths for 2 rows",
    "not_a_draft": "returned Tensor; propose must return a Draft",
}


@pytest.mark.parametrize("sampling", [SamplingParams(), SAMPLED])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_drafter_is_named_and_the_target_stays_usable(
    fault: str, sampling: SamplingParams
) -> None:
    target = one_token_law(TOY_TARGET)
    engine = make_engine(target, FaultyDrafter(fault), 3, names={"drafter": "broken"})
    with pytest.raises(PluginFault, match=f"drafter 'broken' .*{REASONS[fault]}"):
        engine.generate_many([[0], [1]], sampling=sampling)
    fine = make_engine(target, None).generate([0], max_new_tokens=3)
    assert len(fine.token_ids) == 3


def test_an_engine_is_usable_after_a_fault() -> None:
    def once(row: int, turn: int) -> list[int]:
        faults.append(turn)
        return [99] if len(faults) == 1 else [1]

    faults: list[int] = []
    engine = make_engine(cycle(8), ScriptedDrafter(once), 2)
    with pytest.raises(PluginFault, match="id 99"):
        engine.generate([0])
    assert engine.generate([0], max_new_tokens=4).token_ids == [1, 2, 3, 4]


def test_a_target_without_a_law_is_named() -> None:
    for bad in (torch.nan, -torch.inf):
        target = TableTarget(torch.full((1, 4), 0.25), order=0)
        target.logits = torch.full((1, 4), bad, dtype=torch.float64)
        for sampling in (SamplingParams(), SAMPLED):
            engine = make_engine(target, None, names={"target": "broken"})
            with pytest.raises(PluginFault, match="target 'broken' gave logits in row 0"):
                engine.generate([0], sampling=sampling)


class BadPolicy(GammaPolicy):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def start(self, context: Context) -> PolicySession:
        session: Any = SimpleNamespace(gammas=lambda: self.answer)
        return session


@pytest.mark.parametrize("answer", [None, [1], [1, -1], [1, 1.0], [1, True], [1, "2"], (1, 2)])
def test_a_policy_has_to_give_whole_numbers(answer: Any) -> None:
    engine = make_engine(cycle(8), None, BadPolicy(answer), names={"policy": "broken"})
    with pytest.raises(PluginFault, match="policy 'broken' returned gammas"):
        engine.generate_many([[0], [1]])
    assert check_gammas("policy", [0, 3], 2) == [0, 3]


def test_blame_chains_the_cause_and_leaves_our_own_errors() -> None:
    with pytest.raises(PluginFault, match="verifier 'x' raised KeyError") as error:
        with blame("verifier 'x'"):
            raise KeyError("y")
    assert isinstance(error.value.__cause__, KeyError)
    with pytest.raises(ConfigError, match="^own$"):
        with blame("verifier 'x'"):
            raise ConfigError("own")
    with pytest.raises(KeyboardInterrupt):
        with blame("verifier 'x'"):
            raise KeyboardInterrupt


# --- memory -----------------------------------------------------------------------------------


def test_a_run_that_cannot_fit_is_refused_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_of("llama")
    engine = make_engine(target, CausalLMDrafter(target.model, target), 3, max_new_tokens=400)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2**20)
    with pytest.raises(ConfigError, match=r"8 rows of up to 408 tokens .*1 MiB is free on cpu"):
        engine.generate_many([[1] * 8] * 8)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 2**30)
    assert len(engine.generate_many([[1] * 8] * 2, max_new_tokens=3)) == 2


# --- noise and draws ----------------------------------------------------------------------------


def uniforms(seed: int = 0, stream: Stream = Stream.DRAFT, turn: int = 0, rows: int = 4) -> Tensor:
    return Noise([seed] * rows, list(range(rows)), "cpu").uniform(stream, turn, 0, 50_000 // rows)


def test_noise_is_uniform_and_uncorrelated() -> None:
    values = uniforms()
    assert bool(((values >= 0) & (values < 1)).all())
    cells = torch.histc(values.flatten(), 100, 0, 1)
    assert chisquare(cells.numpy()).pvalue > FALSE_ALARM
    flat = values.flatten() - 0.5
    for lag in (1, 2, 7):
        correlation = (flat[lag:] * flat[:-lag]).mean() * 12
        assert abs(float(correlation)) < 4 / len(flat) ** 0.5


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"stream": Stream.ACCEPT}, {"stream": Stream.NEXT}, {"turn": 1}]
)
def test_every_part_of_the_key_matters(other: dict[str, Any]) -> None:
    first, second = uniforms(), uniforms(**other)
    assert not bool((first == second).any())
    product = ((first - 0.5) * (second - 0.5)).mean() * 12
    assert abs(float(product)) < 4 / first.numel() ** 0.5


def test_rows_have_their_own_noise_whoever_shares_the_batch() -> None:
    full = Noise([7, 7, 9, -3, 2**70], [0, 1, 2, 3, 4], "cpu")
    values = full.uniform(Stream.ACCEPT, 5, 2, 6)
    assert len(set(values.flatten().tolist())) == values.numel()
    full.select([1, 4])
    alone = Noise([2**70], [4], "cpu").uniform(Stream.ACCEPT, 5, 2, 6)
    assert torch.equal(full.uniform(Stream.ACCEPT, 5, 2, 6), values[[1, 4]])
    assert torch.equal(alone[0], values[4])
    assert torch.equal(full.uniform(Stream.ACCEPT, 5, 4, 4), values[[1, 4]][:, 2:])


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    target = target_of("llama")
    engine = make_engine(target, CausalLMDrafter(noisy_copy(target.model), target), 3)
    engine.generate_many(random_prompts((3, 5)), sampling=SAMPLED, max_new_tokens=20, seed=None)
    assert torch.equal(before, torch.get_rng_state())


def test_a_sampled_answer_does_not_depend_on_its_batch() -> None:
    target, prompts = target_of("llama"), random_prompts((3, 9, 5))
    drafter = CausalLMDrafter(noisy_copy(target.model), target)
    found = []
    for size in (1, 3):
        engine = make_engine(target, drafter, 3, sampling=SAMPLED, batch_size=size)
        answers = engine.generate_many(prompts, max_new_tokens=30)
        found.append([answer.token_ids for answer in answers])
    assert found[0] == found[1]


def test_draw_never_gives_a_token_of_probability_0() -> None:
    law = torch.tensor([[0.0, 0.0, 0.3, 0.0, 0.7, 0.0]])
    edges = [0.0, 5e-324, 0.3 - 1e-9, 0.3, 0.5, 1 - 2.0**-53]
    rows = law.expand(len(edges), -1)
    assert set(draw(rows, torch.tensor(edges, dtype=torch.float64)).tolist()) == {2, 4}
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        sparse = torch.rand(500, 50, generator=generator) * (
            torch.rand(500, 50, generator=generator) < 0.1
        )
        sparse[:, 7] += 1e-12
        points = torch.rand(500, generator=generator, dtype=torch.float64)
        points[:2] = torch.tensor([0.0, 1 - 2.0**-53])
        drawn = draw(sparse, points)
        assert bool((sparse.gather(1, drawn.unsqueeze(1)) > 0).all())


def test_draw_follows_the_law() -> None:
    points = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    counts = Counter(draw(TOY_TARGET.expand(1000, -1), points).tolist())
    assert [counts[token] for token in range(4)] == [450, 300, 200, 50]


# --- laws -------------------------------------------------------------------------------------


def test_a_point_mass_is_the_dense_law_that_it_stands_for() -> None:
    tokens = torch.tensor([[1, 3], [0, 2]])
    target = torch.rand(2, 2, 4, dtype=torch.float64).softmax(-1)
    point, dense = PointMass(tokens), DenseLaw(torch.eye(4, dtype=torch.float64)[tokens])
    other = torch.tensor([[1, 0], [2, 2]])
    assert torch.equal(point.prob(other), dense.prob(other))
    torch.testing.assert_close(point.overlap(target), dense.overlap(target))
    for at in (0, 1):
        place = torch.tensor([[at], [1 - at]])
        row = target[:, :1]
        torch.testing.assert_close(point.residual(row, place), dense.residual(row, place))


# --- sampling as in transformers ----------------------------------------------------------------

SETTINGS = [
    SamplingParams(1.0), SamplingParams(0.7), SamplingParams(2.5), SamplingParams(1.0, top_k=5),
    SamplingParams(1.0, top_k=1), SamplingParams(1.0, top_k=500), SamplingParams(1.0, top_p=0.6),
    SamplingParams(1.0, top_p=0.05), SamplingParams(1.0, min_p=0.2), SamplingParams(1.3, min_p=1.0),
    SamplingParams(0.8, top_k=20, top_p=0.8, min_p=0.05), SamplingParams(0.0),
]  # fmt: skip


def as_transformers(logits: Tensor, params: SamplingParams) -> Tensor:
    """Warpers in transformers' order."""
    if params.greedy:
        return torch.eye(logits.shape[-1], dtype=logits.dtype)[logits.argmax(-1)]
    warpers: list[Any] = [TemperatureLogitsWarper(float(params.temperature))]
    if params.top_k:
        warpers.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        warpers.append(TopPLogitsWarper(params.top_p))
    if params.min_p:
        warpers.append(MinPLogitsWarper(params.min_p))
    for warper in warpers:
        logits = warper(None, logits)
    return logits.softmax(-1)


@pytest.mark.parametrize("params", SETTINGS, ids=str)
@pytest.mark.parametrize("spread", [0.5, 3.0, 20.0])
def test_laws_equal_transformers_warpers(params: SamplingParams, spread: float) -> None:
    logits = torch.randn(40, 100, dtype=torch.float64) * spread
    ours = Sampler([params] * 40, "cpu").law(logits)
    torch.testing.assert_close(ours, as_transformers(logits, params), atol=1e-12, rtol=1e-9)


def test_mixed_rows_equal_each_row_alone() -> None:
    logits = torch.randn(len(SETTINGS), 3, 100) * 3
    mixed = Sampler(SETTINGS, "cpu")
    together = mixed.law(logits)
    for row, params in enumerate(SETTINGS):
        alone = Sampler([params], "cpu").law(logits[row : row + 1])
        torch.testing.assert_close(together[row], alone[0], atol=1e-6, rtol=1e-5)
        assert torch.equal(together[row] > 0, alone[0] > 0)
    keep = [1, 6, 11]
    mixed.select(keep)
    torch.testing.assert_close(mixed.law(logits[keep]), together[keep], atol=1e-6, rtol=1e-5)


def test_greedy_takes_the_first_of_equal_logits() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0]])
    assert Sampler([SamplingParams()], "cpu").law(logits).tolist() == [[0, 1, 0, 0]]


def test_half_precision_logits_are_widened_first() -> None:
    law = Sampler([SAMPLED], "cpu").law(torch.randn(1, 1000).bfloat16())
    assert law.dtype == torch.float32
    assert abs(float(law.sum()) - 1) < 1e-5


@pytest.mark.parametrize(
    ("key", "value"),
    [("top_k", -1), ("top_k", 1.0), ("top_k", True), ("top_p", 0), ("top_p", 1.1),
     ("top_p", None), ("min_p", -0.1), ("min_p", 2), ("min_p", float("nan"))],
)  # fmt: skip
def test_impossible_sampling_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"sampling.{key}="):
        SamplingParams(**{key: value})


# --- what a round costs -------------------------------------------------------------------------


READS = (
    "tolist",
    "numpy",
    "cpu",
    "item",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "nonzero",
)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every call that brings values from a device to the host, by name."""
    found: list[str] = []
    for name in READS:
        real = getattr(Tensor, name)

        def counted(self: Tensor, *args: Any, _real: Any = real, _name: str = name) -> Any:
            found.append(_name)
            return _real(self, *args)

        monkeypatch.setattr(Tensor, name, counted)
    return found


def test_the_counter_of_reads_counts(reads: list[str]) -> None:
    one = torch.ones(1)
    with torch.inference_mode():
        assert one.sum().item() == 1
        assert one
        assert [0, 1][one.long()] == 1
        assert int(one) == float(one) == 1
    assert reads == ["item", "__bool__", "__index__", "__int__", "__float__"]


def model_drafter(name: str) -> tuple[Any, Drafter]:
    target = target_of("llama")
    if name == "early_exit":
        return target, EarlyExit(EarlyExitConfig(1), target)
    return target, CausalLMDrafter(noisy_copy(target.model), target)


@pytest.mark.parametrize("sampling", [SamplingParams(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", ["causal_lm", "early_exit"])
def test_one_device_read_per_round(name: str, sampling: SamplingParams, reads: list[str]) -> None:
    target, drafter = model_drafter(name)
    engine = make_engine(target, drafter, 3)
    batch = make_batch(engine, [[1, 2, 3], [4], [5, 6]], max_new_tokens=40, sampling=sampling)
    reads.clear()
    rounds = 0
    with torch.inference_mode():
        while len(batch.answers) == 3:
            batch.step()
            rounds += 1
    assert rounds > 3
    assert reads == ["tolist"] * rounds


def tracked_bytes() -> int:
    """Bytes of all live tensors, each storage once."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if type(thing) is Tensor:
            storages[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
    return sum(storages.values())


def test_memory_is_flat_over_500_rounds() -> None:
    """Slices that were kept pinned a whole (gamma, vocab) tensor per step (vllm#15506)."""
    law = torch.randn(1000, dtype=torch.float64).softmax(-1)
    engine = make_engine(
        TableTarget(law.unsqueeze(0), 0), ScriptedDrafter(law=law.roll(1)),
        PerRow(lambda place, turn: 0 if turn % 3 == 0 else 4), sampling=SAMPLED,
    )  # fmt: skip
    seen, kept = [], []
    answer = Answer(engine.request([0], max_new_tokens=4000))
    for outcome in engine.run([answer]):
        kept.append(outcome)  # what observers may keep holds no tensors
        if outcome.index in (50, 275, 500):
            seen.append(tracked_bytes())
        if outcome.index == 500:
            answer.cancel()
    assert len(seen) == 3
    assert max(seen) - min(seen) < 1000 * 8 * 5  # less than one round's draft laws


def test_drafts_of_the_same_script_line_up_after_rows_leave() -> None:
    """The helper itself: rows keep their own script when others have ended."""
    engine = make_engine(cycle(8), ScriptedDrafter(lambda row, turn: [row, row]), 2)
    rounds = []
    answers = [Answer(engine.request([7], i, max_new_tokens=n)) for i, n in enumerate((3, 9, 6))]
    for outcome in engine.run(answers):
        rounds.append({row.request: row.drafted for row in outcome.rows})
    for drafted in rounds:
        assert all(set(tokens) <= {row} for row, tokens in drafted.items())
    assert set(rounds[-1]) == {1}


def test_rounds_are_numbered_from_0() -> None:
    engine = make_engine(cycle(8), None)
    rounds = rounds_of(engine, [[0]], max_new_tokens=4)
    assert [outcome.index for outcome in rounds] == [0, 1, 2, 3]


def test_a_greedy_rule_refuses_a_request_that_samples() -> None:
    engine = make_engine(TableTarget(torch.full((5, 4), 0.25), 1), verifier="greedy")
    with pytest.raises(ConfigError, match="temperature=0 and it is 1.0"):
        engine.generate([0], sampling=SamplingParams(temperature=1.0))
