"""``foredraft train``: a drafter learns what its target says."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .arguments import folder_of
from .display import console, note, one_line

if TYPE_CHECKING:
    from ..trained import Card

HELP = """\
usage: foredraft train drafter=NAME out=FOLDER [target=...] [task=...] [train.KEY=VALUE] [...]

Samples answers of the target, keeps its hidden states at every token, and trains the drafter to say
what the target would say: for drafter=medusa drafter.path=FOLDER (eagle and early_exit
alike), or drafter=causal_lm drafter.model=FOLDER

  drafter=NAME          what is trained
  train.shape.KEY=VALUE what a new network is like (medusa: heads=4; eagle: steps=4
                        layers_read=[2,15,30]; early_exit: exits=[4,8] rank=64;
                        causal_lm: layers=2 hidden_size=128 heads=4, or
                        from_layers=[1,15,30] of the target)
  train.vocabulary=8192 draft only so many ids, the most frequent ones of the answers
  out=FOLDER            where weights and card go; killed, the same command goes on
  task=own|file|hub     the prompts, as for foredraft bench (task.file=FILE.jsonl)
  max_new_tokens=128 sampling.temperature=1 runtime.batch_size=8   how answers are sampled
  train.steps=1000 train.batch_size=8 train.lr=0.003 train.accumulate=1 train.patience=N
  train.objective={kl:1,tv:1}   weights of ce, kl, reverse_kl, tv (1 - alpha)
  train.temperature=1   at which the two laws are compared
  train.held_out=8      one prompt in so many is not trained on
  train.width=512 train.shards_mb=4096 train.seed=0 train.schedule=cosine|trapezoid
  --config-dir DIR      your own presets and experiments"""
INTERRUPTED = 130


def train(argv: list[str]) -> int:
    """Runs the command."""
    if not argv or "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    words, config_dir = _split(argv)

    from ..training.asked import asked

    what = asked(words, config_dir)
    _check_extra()

    from ..training.session import Training
    from .training_bar import stages

    command = shlex.join(["foredraft", "train", *argv])
    with stages() as told:
        try:
            card = Training(what, command, told).run()
        except KeyboardInterrupt:
            note(f"stopped; what was done is kept: {command}")
            return INTERRUPTED
    left_out = len(what.prompts) - card.training["texts"]
    if left_out:
        note(
            f"{left_out} of {len(what.prompts)} answers did not fit into train.shards_mb="
            f"{what.options.shards_mb}, or were empty, and were left out"
        )
    key = "path" if hasattr(what.drafter.config, "path") else "model"
    _report(card, f"drafter.{key}={shlex.quote(str(what.out))}")
    return 0


def _split(argv: Sequence[str]) -> tuple[list[str], str | None]:
    words, folder, left = [], None, iter(argv)
    for word in left:
        if word.partition("=")[0] == "--config-dir":
            folder = folder_of(word, left, folder)
        elif word.startswith("-"):
            raise ConfigError(f"foredraft train does not take {word}; see foredraft train --help.")
        else:
            words.append(word)
    return words, folder


def _check_extra() -> None:
    """The loop's library is an extra."""
    from importlib.util import find_spec

    if find_spec("accelerate") is None:
        raise ConfigError("foredraft train needs the extra train: pip install 'foredraft[train]'.")


def _report(card: Card, place: str) -> None:
    from rich.table import Table

    groups = card.held_out
    table = Table()
    table.add_column("group", no_wrap=True)
    for guess in card.guesses:
        table.add_column(guess, justify="right")
    for name, alphas in groups.items():
        table.add_row(one_line(name), *(f"{alpha:.3f}" for alpha in alphas))
    by = "by position in the draft" if card.guesses[:1] == ["1"] else "of each guess"
    print(f"alpha on answers held out, {by}")
    console().print(table)
    note(f"try: foredraft generate drafter={card.drafter} {place} prompt=...")
