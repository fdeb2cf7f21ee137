"""Hidden states of the target, for drafters that read them: each committed id's in its place, and only those."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import cycle, make_engine, random_prompts, target_of
from test_cache import layout
from torch import Tensor

from foredraft.framework import memory
from foredraft.framework.bases import StepSession
from foredraft.framework.cache import Branch, RaggedModel
from foredraft.framework.context import Context
from foredraft.framework.errors import ConfigError
from foredraft.framework.interfaces import Drafter, DraftSession, Target
from foredraft.framework.pairing import check_reads
from foredraft.framework.records import Round
from foredraft.framework.requests import Answer

KINDS = ("llama", "gpt2", "gemma2", "qwen3", "lean")


@torch.inference_mode()
def due(model: Any, ids: list[int], layer: int) -> Tensor:
    """A separate forward of the whole text."""
    out = model(input_ids=torch.tensor([ids]), output_hidden_states=True, use_cache=False)
    hidden: Tensor = out.hidden_states[layer][0]
    return hidden


def check(model: Any, ragged: RaggedModel, texts: list[list[int]], layers: tuple[int, ...]) -> None:
    assert ragged.lengths == [len(text) for text in texts]
    for layer in layers:
        found = ragged.hidden(layer)
        assert found.shape[0] == len(texts)
        for row, text in enumerate(texts):
            torch.testing.assert_close(
                found[row, : len(text)], due(model, text, layer), rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize("name", KINDS)
@torch.inference_mode()
def test_they_are_those_of_a_forward_over_the_text_alone(name: str) -> None:
    """Over prefills, chains of other lengths by row, trees whose path is moved, and rows that leave."""
    model = layout(name)
    texts = random_prompts((7, 3, 12))
    ragged = RaggedModel(model, 3, 48)
    layers = (0, 1, ragged.depth)
    ragged.watch(layers)
    ragged.prefill(texts, 5)
    check(model, ragged, texts, layers)
    chain = [[5, 6, 7], [8, 9, 0], [3, 0, 0]]
    ragged.forward(torch.tensor(chain), [3, 2, 1])
    ragged.keep([[0, 1], [0, 1], [0]])
    texts = [[*t, *c[:n]] for t, c, n in zip(texts, chain, (2, 2, 1), strict=True)]
    check(model, ragged, texts, layers)
    # The newest token, and three children of it of which the second has one of its own.
    tree = torch.tensor([[2, 4, 6, 8, 9]] * 3)
    depths = torch.tensor([[0, 1, 1, 1, 2]] * 3)
    visible = torch.eye(5, dtype=torch.bool).repeat(3, 1, 1)
    visible[:, :, 0] = True
    visible[:, 4, 2] = True
    ragged.forward(tree, [5, 5, 5], branch=Branch(depths, visible))
    ragged.keep([[0, 2, 4], [0, 3], [0]])
    texts = [[*texts[0], 2, 6, 9], [*texts[1], 2, 8], [*texts[2], 2]]
    check(model, ragged, texts, layers)
    ragged.select([0, 2])
    check(model, ragged, [texts[0], texts[2]], layers)


@torch.inference_mode()
def test_the_last_layer_is_what_the_head_reads() -> None:
    model = layout("llama")
    ragged = RaggedModel(model, 1, 16)
    ragged.watch([ragged.depth])
    logits = ragged.forward(torch.tensor([[3, 1, 4]]), [3])
    ragged.advance([3])
    found = model.get_output_embeddings()(ragged.hidden(ragged.depth)[:, :3])
    torch.testing.assert_close(found, logits)


class Reader(Drafter):
    """Drafts nothing wise, and notes what it can read each time that it is asked."""

    reads = (1, 2)

    def __init__(self, target: Target) -> None:
        self.target = target
        self.seen: list[tuple[list[int], Tensor, Tensor]] = []

    def start(self, context: Context) -> DraftSession:
        return ReaderSession(context, self)


class ReaderSession(StepSession):
    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        if not drafted:
            self.note()
        guess = torch.zeros(self.context.rows, self.context.vocab_size)
        guess[:, 3] = 1.0
        return guess

    def observe(self, outcome: Round) -> None:
        self.note()

    def note(self) -> None:
        target = self.context.target
        for row, ids in enumerate(self.context.tokens):
            one, two = (target.hidden(layer)[row, : len(ids) - 1].clone() for layer in (1, 2))
            self.config.seen.append((list(ids), one, two))


def test_a_drafter_reads_them_while_a_batch_runs() -> None:
    target = target_of("llama")
    reader = Reader(target)
    engine = make_engine(target, reader, 3)
    prompts = random_prompts((4, 9, 2))
    answers = [
        Answer(engine.request(ids, row, max_new_tokens=6)) for row, ids in enumerate(prompts)
    ]
    for _ in engine.run(answers):
        pass
    assert [len(answer.token_ids) for answer in answers] == [6, 6, 6]
    assert len(reader.seen) > 12
    for ids, one, two in reader.seen:
        for layer, found in ((1, one), (2, two)):
            torch.testing.assert_close(
                found, due(target.model, ids[:-1], layer), rtol=1e-4, atol=1e-5
            )


def test_a_target_without_them_is_refused() -> None:
    target = cycle(4)
    with pytest.raises(ConfigError, match=r"hidden states, which target=\w+ does not show"):
        engine = make_engine(target, Reader(target), 2)
        engine.generate([1, 2], max_new_tokens=3)


@pytest.mark.parametrize("layer", [-1, 5])
def test_a_layer_that_the_target_lacks_is_refused(layer: int) -> None:
    with pytest.raises(ConfigError, match=rf"reads the target's layer {layer}.*layers 0 to 4"):
        check_reads([0, layer], 4, "causal_lm", "reader")


def test_their_memory_is_counted() -> None:
    target = target_of("llama")
    without = memory.check_fits(target, ReaderOfNone(target), 2, 30)
    size = target.model.config.hidden_size * target.model.dtype.itemsize
    assert memory.check_fits(target, Reader(target), 2, 30) - without == 2 * 2 * 31 * size


class ReaderOfNone(Reader):
    reads = ()
