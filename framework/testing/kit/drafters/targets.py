"""The kit's targets, from the cheapest on, and the first of some that a drafter accepts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....errors import ConfigError, InputError
from ....interfaces import Drafter, Target
from ....targets.builtin import TableConfig
from ....targets.table import TableTarget, random_table
from ..subject import Subject

VOCAB = 8


def table_target(
    vocab: int = VOCAB, context: int = 4096, eos: bool = False, seed: int = 0
) -> TableTarget:
    """A law over the last two tokens; some tokens are impossible."""
    config = TableConfig(vocab_size=vocab, order=2, sharpness=1.2, zeros=0.15, seed=seed)
    return TableTarget(random_table(config), 2, vocab - 1 if eos else None, context)


def model_target(
    layers: int,
    vocab: int = VOCAB,
    context: int = 512,
    eos: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> Target:
    """A tiny transformer in float64, so that batches of other shapes agree to the last digits."""
    from ....targets.causal_lm import CausalLM
    from ...tiny import tiny_model

    end: dict[str, Any] = {"eos_token_id": vocab - 1} if eos else {}
    model = tiny_model("llama", vocab=vocab, layers=layers, context=context, seed=seed, **end)
    return CausalLM(model.to(device))


def text_target(context: int = 512, eos: bool = False, seed: int = 0) -> Target:
    """A tiny transformer with a tokenizer, one token per byte, for drafters that read text."""
    from ....targets.causal_lm import CausalLM
    from ...tiny import tiny_model
    from ...tiny_tokenizer import VOCAB as BYTES
    from ...tiny_tokenizer import tiny_tokenizer

    end: dict[str, Any] = {"eos_token_id": BYTES - 1} if eos else {}
    model = tiny_model("llama", vocab=BYTES, layers=2, context=context, seed=seed, **end)
    return CausalLM(model, tiny_tokenizer())


def kit_targets(
    vocab: int = VOCAB, context: int | None = None, eos: bool = False, seed: int = 0
) -> Iterator[Target]:
    """From the cheapest on; some drafters need a transformer, some one of several layers, and some a
    tokenizer. The vocabulary is never smaller than asked, but may be larger where a drafter needs that."""
    for size in sorted({vocab, max(vocab, VOCAB)}):
        yield table_target(size, context or 4096, eos, seed)
    for layers in (2, 5):
        for size in sorted({vocab, max(vocab, VOCAB)}):
            yield model_target(layers, size, context or 512, eos, seed)
    yield text_target(context or 512, eos, seed)


def exact_targets(vocab: int, seed: int, models: bool) -> Iterator[Target]:
    """Targets of this very vocabulary; transformers only on demand, as they are slow to import."""
    yield table_target(vocab, seed=seed)
    if models:
        yield from (model_target(layers, vocab, seed=seed) for layers in (2, 5))


def first_built(subject: Subject, targets: Iterator[Target]) -> tuple[Target, Drafter]:
    """The first target that the drafter accepts, and the drafter.

    Raises:
        ConfigError, InputError: the last refusal, if there is no such target.
    """
    refusal: Exception | None = None
    for target in targets:
        try:
            built: Drafter = subject.build(target)
            return target, built
        except (ConfigError, InputError) as error:
            refusal = error
    assert refusal is not None
    raise refusal
