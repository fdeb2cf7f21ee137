"""Layer skip: what drafts, that the law stays the target's, the search, its file and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_helpers import Cli, make_cli, refused
from helpers import PerRow, cycle, make_engine, plain, random_prompts, target_of
from test_early_exit import LEAN, RAGGED, counting, layered
from test_kit_drafters import shown
from test_law_engine import FLOOR, p_values
from torch import Tensor

from foredraft.drafters.builtin import EarlyExitConfig
from foredraft.drafters.builtin_trained import LayerSkipConfig
from foredraft.drafters.early_exit import EarlyExit
from foredraft.drafters.first_of import FirstOf
from foredraft.drafters.layer_skip import LayerSkip, read_skip, without, write_skip
from foredraft.drafters.layer_skip_search import Measure, Search
from foredraft.drafters.members import Member
from foredraft.framework.bases import SessionPolicy
from foredraft.framework.cache import RaggedModel
from foredraft.framework.errors import ConfigError, InputError
from foredraft.framework.interfaces import PolicySession
from foredraft.framework.records import DraftStep
from foredraft.framework.requests import Answer
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing import check_drafter
from foredraft.framework.testing.tiny import tiny_model
from foredraft.framework.testing.tiny_tokenizer import save_tiny
from foredraft.framework.training.answers import Answered

KINDS = ("llama", "qwen3", "gpt2", "mistral", "gemma2")


def skipping(of: CausalLM, *skip: int) -> LayerSkip:
    return LayerSkip(LayerSkipConfig(list(skip)), of)


# --- drafts --------------------------------------------------------------------------------------


def test_it_conforms() -> None:
    shown(check_drafter("layer_skip", {"skip": [1]}), "causal_stopping")


@pytest.mark.parametrize("draws", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_draws_follow_the_joint_law(draws: int) -> None:
    of = CausalLM(tiny_model("qwen3", vocab=6, layers=4, seed=0, dtype=torch.float32))
    assert min(p_values(of, skipping(of, 2, 3), 2, draws, batch=2000)) > FLOOR


@pytest.mark.parametrize("kind", LEAN)
@pytest.mark.parametrize("skip", [(1,), (2, 4), (1, 2, 3)], ids=str)
def test_greedy_ids_are_plain_ones_in_a_ragged_batch(kind: str, skip: tuple[int, ...]) -> None:
    of = layered(kind, 4)
    prompts = random_prompts((1, 4, 9, 2))
    found = make_engine(of, skipping(of, *skip), RAGGED, max_new_tokens=16).generate_many(prompts)
    for prompt, answer in zip(prompts, found, strict=True):
        assert answer.token_ids == plain(of.model, prompt, 16)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_are_left_out_do_not_run(kind: str) -> None:
    """All run each verified token; those that are left, each drafted one once more."""
    of = target_of(kind, layers=4)
    engine = make_engine(of, skipping(of, 2, 3), PerRow(lambda row, number: number % 4))
    rounds = engine.run([Answer(engine.request([3, 1, 4, 1, 5], max_new_tokens=24))])
    with counting(of.model) as seen:
        next(rounds)
        seen.clear()
        drafted = [len(outcome.rows[0].drafted) for outcome in rounds]
    verified = sum(drafted) + len(drafted)
    assert seen == {
        0: verified + sum(drafted),
        1: verified,
        2: verified,
        3: verified + sum(drafted),
    }


class Never(PolicySession):
    """Looks at the first token's law, and drafts it in every other row only."""

    def gammas(self) -> list[int]:
        return [3] * self.context.rows

    def go_on(self, step: DraftStep) -> Tensor:
        odd = torch.arange(self.context.rows) % 2 == 1
        return odd & (step.law.max(-1).values > 0)


def test_what_it_wrote_is_not_taken_for_an_exits() -> None:
    """An early exit looked at rows that layer skip then wrote into, without drafting for them."""
    of = target_of("llama", layers=4)
    early = EarlyExit(EarlyExitConfig(3), of)
    both = FirstOf([Member("early_exit", early), Member("layer_skip", skipping(of, 1))])
    prompts = random_prompts((5, 3, 4, 7))
    engine = make_engine(of, both, SessionPolicy(Never, None, stops=True), max_new_tokens=16)
    for prompt, answer in zip(prompts, engine.generate_many(prompts), strict=True):
        assert answer.token_ids == plain(of.model, prompt, 16)


# --- the search ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2", "mistral", "lean"])
@torch.inference_mode()
def test_alpha_is_that_of_drafts_at_every_place(kind: str) -> None:
    """One forward over all places against a session of its own for each."""
    of = layered(kind, 3)
    texts = [
        Answered(at, "", ids[:3], ids[3:]) for at, ids in enumerate(random_prompts((14, 5, 11)))
    ]
    overlaps = []
    view = without(of.model, [2])
    for one in texts:
        ids = [*one.prompt, *one.answer]
        for place in range(len(one.prompt) - 1, len(ids) - 1):
            ragged = RaggedModel(of.model, 1, 32)
            if place:
                ragged.prefill([ids[:place]], 512)
            token = torch.tensor([[ids[place]]])
            ours = ragged.forward(token, [1], view=view)[0, 0].softmax(-1)
            due = ragged.forward(token, [1])[0, 0].softmax(-1)
            overlaps.append(float(torch.minimum(ours, due).sum()))
    found = Measure(of, texts, temperature=1.0, size=2).alpha((2,))
    assert 0.05 < found < 0.98 and abs(found - sum(overlaps) / len(overlaps)) < 1e-5
    assert Measure(of, texts, temperature=0.0).alpha((2,)) <= 1


def test_cost_is_the_share_of_parameters() -> None:
    of = CausalLM(tiny_model("llama", layers=4))
    layer = sum(p.numel() for p in of.model.model.layers[0].parameters())
    head = of.model.lm_head.weight.numel()
    measure = Measure(of, [Answered(0, "", [1], [2, 3])], 1.0)
    assert measure.cost((1, 3)) == pytest.approx((2 * layer + head) / (4 * layer + head))


# What a layer is worth that is left out: half of them do little.
WORTH = (0.5, 0.99, 0.6, 0.985, 0.98, 0.4, 0.97, 0.5)


def made_up(skip: tuple[int, ...]) -> float:
    found = 1.0
    for layer in skip:
        found *= WORTH[layer - 1]
    return found


def best_of_all() -> float:
    search = searching(tries=10_000)
    for number in range(1, 2**8 - 1):
        search._try(tuple(layer + 1 for layer in range(8) if number >> layer & 1))
    return search._leader().speed


def searching(tries: int, seed: int = 0, alpha: Callable[..., float] = made_up) -> Search:
    return Search(8, alpha, lambda skip: 1 - len(skip) / 9, tries, 8, seed)


def test_the_search_finds_the_best_choice() -> None:
    found = searching(tries=60).best()
    assert found.skip == (2, 4, 5, 7) and found.speed == best_of_all()


def test_single_changes_find_what_the_order_does_not() -> None:
    """Layers 2 and 4 are worth nothing without each other: the nested choices miss that."""

    def both(skip: tuple[int, ...]) -> float:
        return made_up(skip) * (0.5 if len({2, 4} & set(skip)) == 1 else 1)

    assert searching(60, alpha=both).best().skip == (2, 4, 5, 7)


@pytest.mark.parametrize("tries", [1, 5, 13, 40])
def test_it_keeps_to_its_number_of_tries_and_its_seed(tries: int) -> None:
    asked: list[tuple[int, ...]] = []

    def noted(skip: tuple[int, ...]) -> float:
        asked.append(skip)
        return made_up(skip)

    first = searching(tries, seed=7, alpha=noted).best()
    assert len(asked) == len(set(asked)) == tries
    assert all(0 < len(skip) < 8 for skip in asked)
    assert searching(tries, seed=7).best() == first


# --- its file ------------------------------------------------------------------------------------


def test_a_file_is_read_back(tmp_path: Path) -> None:
    of = target_of("llama", layers=4)
    write_skip(tmp_path / "s.json", [2, 3], of, "tiny", {"alpha": 0.5})
    path = str(tmp_path / "s.json")
    assert read_skip(path, of) == [2, 3] == LayerSkip(LayerSkipConfig(path=path), of).skip
    with pytest.raises(
        ConfigError, match=r"drafter.path=.* was trained for another model \(tiny\)"
    ):
        read_skip(path, target_of("llama", layers=3))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"skip": [2, 2]}, r"says skip=\[2, 2\]; it must be a list of layers from 1 to 4"),
        ({"skip": [5]}, r"says skip=\[5\]"),
        ({"skip": [1, 2, 3, 4]}, "leave one of them in"),
        ({"skip": None}, "says skip=None"),
        ({"skip": [True]}, r"says skip=\[True\]"),
        ({"drafter": "medusa"}, "is no file that foredraft fit drafter=layer_skip has written"),
        ({"target": 3}, "is no file that"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    change: dict[str, Any], says: str, tmp_path: Path
) -> None:
    of, path = target_of("llama", layers=4), tmp_path / "s.json"
    write_skip(path, [2, 3], of, "tiny", {})
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=says):
        LayerSkip(LayerSkipConfig(path=str(path)), of)


@pytest.mark.parametrize("skip", [[], [0], [5], [2, 1], [1, 2, 3, 4]])
def test_layers_that_there_are_not_are_refused(skip: list[int]) -> None:
    with pytest.raises(ConfigError, match=r"drafter.skip=.* from 1 to 4, ascending"):
        LayerSkip(LayerSkipConfig(skip), target_of("llama", layers=4))


def test_other_impossible_values_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"drafter.skip=\[1\] is not possible beside drafter.path=x"
    ):
        LayerSkipConfig([1], "x")
    with pytest.raises(ConfigError, match="layer_skip is not possible with target TableTarget"):
        LayerSkip(LayerSkipConfig([1]), cycle(4))
    with pytest.raises(InputError, match="drafter.path=x cannot be read"):
        LayerSkip(LayerSkipConfig(path="x"), target_of("llama", layers=4))


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path / "model", context=128, layers=4, dtype=torch.float32)
    lines = [json.dumps({"prompt": f"add {number}"}) for number in range(8)]
    (tmp_path / "p.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return make_cli(capsys)


WORDS = (
    "fit", "drafter=layer_skip", "out=s.json", "target=causal_lm", "target.model=model", "task=file",
    "task.file=p.jsonl", "max_new_tokens=12", "sampling.temperature=1",
)  # fmt: skip


def test_the_command_writes_what_drafts(cli: Cli, tmp_path: Path) -> None:
    done = cli(*WORDS, "evaluations=9", "runtime.batch_size=4", "texts=7")
    assert done.code == 0 and "layers left out" in done.out, done.err
    record = json.loads((tmp_path / "s.json").read_text())
    found = record["found"]
    assert found["evaluations"] == 9 and found["texts"] == 7 and 1 <= found["gamma"] <= 8
    assert found["command"].startswith("foredraft fit drafter=layer_skip out=s.json ")
    again = cli(*WORDS, "evaluations=9", "runtime.batch_size=4", "texts=7")
    assert again.out == done.out and json.loads((tmp_path / "s.json").read_text()) == record
    words = ("target=causal_lm", "target.model=model", "prompt=add 3", "max_new_tokens=8")
    drafted = cli("generate", *words, "drafter=layer_skip", "drafter.path=s.json")
    assert drafted.code == 0 and drafted.out == cli("generate", *words, "drafter=none").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("evaluations=0",), "evaluations=0 is not possible"),
        (("max_gamma=x",), "max_gamma='x' is not possible"),
        (("texts=1",), "texts=1 is not possible"),
        (("evaluations=2", "evaluations=3"), "evaluations= needs one value"),
        (("verifier=block",), "does not take 'verifier=block'"),
        (("drafter.skip=[1]",), "does not take 'drafter.skip=[1]'"),
        (("drafter=medusa",), "drafter=medusa has no layers to search"),
        (("evalutions=3",), "did you mean"),
        (("out=no/s.json",), "out= needs one value"),
    ],
)
def test_words_without_a_use_are_refused(cli: Cli, words: tuple[str, ...], says: str) -> None:
    refused(cli(*WORDS, *words), says)


def test_a_target_without_layers_is_refused(cli: Cli) -> None:
    refused(cli("fit", "drafter=layer_skip", "out=s.json", "target=table", "max_new_tokens=4"),
            "layer_skip is not possible with target TableTarget")  # fmt: skip
    refused(cli("fit", "drafter=layer_skip"), "needs out=FILE")
