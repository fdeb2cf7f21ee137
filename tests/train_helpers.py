"""What the tests of ``foredraft train`` share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_helpers import Cli

from foredraft.framework.testing.tiny_tokenizer import save_tiny

PROMPTS, STEPS, TOKENS = 12, 12, 12


def make_place(folder: Path) -> Path:
    """A tiny model and prompts in two groups, in a folder."""
    save_tiny(folder / "model", context=256, dtype=torch.float32)
    lines = [
        {"prompt": f"{word} {number}", "group": group}
        for number in range(PROMPTS // 2)
        for group, word in (("sums", "add"), ("tales", "once upon"))
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "p.jsonl").write_text(text, "utf-8")
    return folder


def words_for(place: Path, *more: str) -> list[str]:
    return [
        "train", "drafter=medusa", "train.shape.heads=2", "target=causal_lm",
        f"target.model={place / 'model'}", "task=file", f"task.file={place / 'p.jsonl'}",
        f"max_new_tokens={TOKENS}", "runtime.batch_size=3", f"train.steps={STEPS}",
        "train.warmup=2", "train.lr=0.02", "train.batch_size=4", "train.held_out=3",
        "train.keep_every=4", "train.evaluate_every=6", *more,
    ]  # fmt: skip


def card_of(folder: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((folder / "card.json").read_text("utf-8"))
    return card


def same_weights(one: Path, other: Path) -> bool:
    name = "weights.safetensors"
    return (one / name).read_bytes() == (other / name).read_bytes()


@contextmanager
def interrupted(
    owner: Any, name: str, call: int, error: type[BaseException] | OSError
) -> Iterator[None]:
    """What is so named raises in its so-manyth call, counted from 1, and in all later ones."""
    real, calls = getattr(owner, name), 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls >= call:
            raise error
        return real(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, counted)
        yield


def stopped(cli: Cli, words: list[str]) -> None:
    """130, and one sentence that says how to go on."""
    done = cli(*words)
    assert done.code == 130 and done.out == "", done
    (line,) = done.err.splitlines()
    assert line.startswith("stopped; ") and line.endswith(" ".join(["foredraft", *words]))
    assert not Path("o/weights.safetensors").exists() and not Path("o/card.json").exists()


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def one_sentence(cli: Cli, words: list[str], *parts: str) -> None:
    done = cli(*words)
    assert done.code == 2, done.err
    (line,) = done.err.splitlines()
    assert line.startswith("foredraft: ") and all(part in line for part in parts), line
