"""``foredraft fit``: counts n-grams of texts for ``drafter=ngram``, trains a policy (``fit_policy``), or
searches layers to draft without (``fit_skip``)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import compose, to_objects
from ..errors import ConfigError, near_match
from ..files import file_to_write
from .documents import read_documents

if TYPE_CHECKING:
    from ...drafters.ngram_table import NgramTable

HELP = """\
usage: foredraft fit text=FILE... out=FILE [order=3] [target=...] [target.*=...]
       foredraft fit policy=specdecpp traces=FILE... out=FILE [hidden=8] [reject_weight=1] [seed=0]
       foredraft fit drafter=layer_skip out=FILE [target=...] [task=...] [evaluations=120] [...]

Counts n-grams of your texts, in the target's tokens, for: drafter=ngram drafter.path=FILE

  text=FILE     a text (one document), or .jsonl with a text, prompt or turns in every line (a
                document each); may be repeated, and - is standard input
  out=FILE      where the counts go
  order=N       longest n-gram, 1 to 6 (default 3)
  target=NAME   whose tokens to use, as for foredraft generate; its weights are not loaded
  --config-dir DIR  a folder with presets of your own

Trains the head of a policy from dense traces, for: policy=specdecpp policy.path=FILE

  traces=FILE   dense traces (.npz); may be repeated
  hidden=N      units of its hidden layer; 0 is a logistic regression (default 8)
  reject_weight=W  how many times a rejected token counts in training, an accepted one counting
                once; 1 predicts chances, more errs towards stopping (default 1)
  seed=N        of the first weights (default 0)

Searches which layers of the target to draft without, for: drafter=layer_skip drafter.path=FILE

  evaluations=N choices of layers that are tried (default 120)
  max_gamma=N   longest draft that is thought of (default 8)
  texts=N       prompts that the target answers (default 24), of task=own|file|hub, as for foredraft
                bench; max_new_tokens=, sampling.KEY=, seed= and so on as for foredraft generate"""
KEYS = ("text", "out", "order", "target")


def fit(argv: list[str]) -> int:
    """Runs the command."""
    if "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    if any(word.startswith("policy=") for word in argv):
        from .fit_policy import fit_policy

        return fit_policy(argv)
    if any(word.startswith("drafter=") and word != "drafter=ngram" for word in argv):
        from .fit_skip import fit_skip

        return fit_skip(argv)
    texts, out, order, overrides, config_dir = _parse(argv)
    documents = read_documents(texts)

    from ...drafters.ngram_table import NgramTable
    from .vocabulary import vocabulary_of

    vocabulary = vocabulary_of(to_objects(compose(overrides, config_dir)))
    ids = [vocabulary.encode(document) for document in documents]
    table = NgramTable.fit(ids, order, vocabulary.vocab_size)
    table.save(out, vocabulary)
    _report(table, out, ids, overrides)
    return 0


def _parse(argv: Sequence[str]) -> tuple[list[str], str, int, list[str], str | None]:
    texts: list[str] = []
    overrides: list[str] = []
    single: dict[str, str] = {}
    words = iter(argv)
    for word in words:
        key, equals, value = word.partition("=")
        if key == "--config-dir" and not equals:
            equals, value = "=", next(words, "")
        if not equals or key.split(".")[0] not in (*KEYS, "--config-dir"):
            hint = near_match(key, KEYS)
            raise ConfigError(f"foredraft fit does not take {word!r}; {hint}it takes text=FILE, "
                              "out=FILE, order=N and target=NAME.")  # fmt: skip
        if key == "text":
            texts.append(value)
        elif key in ("out", "order", "--config-dir"):
            if not value or key in single:
                raise ConfigError(f"{key}= needs one value; it is given once.")
            single[key] = value
        else:
            overrides.append(word)
    return texts, *_checked(texts, single), overrides, single.get("--config-dir")


def _checked(texts: list[str], single: dict[str, str]) -> tuple[str, int]:
    if not texts or "out" not in single:
        raise ConfigError("foredraft fit needs text=FILE and out=FILE.")
    out, order = file_to_write(single["out"]), single.get("order", "3")
    if not re.fullmatch(r"[1-6]", order):
        raise ConfigError(f"order={order} is not possible; it must be a whole number from 1 to 6.")
    return str(out), int(order)


def _report(table: NgramTable, out: str, ids: list[list[int]], overrides: list[str]) -> None:
    sizes = [len(table.arrays[f"keys_{length}"]) for length in range(table.order)]
    contexts = ", ".join(f"{size:,} for order {n}" for n, size in enumerate(sizes, 1))
    size = Path(out).stat().st_size / 1024
    print(f"{sum(map(len, ids)):,} tokens of {len(ids):,} documents")
    print(f"contexts: {contexts}")
    print(f"{out}: {size:,.0f} KiB")
    path = out if re.fullmatch(r"[\w./-]+", out) else "'" + re.sub(r"(['\\])", r"\\\1", out) + "'"
    use = [*overrides, "drafter=ngram", f"drafter.order={table.order}", f"drafter.path={path}"]
    print(f"use it: foredraft generate {shlex.join(use)} prompt=...")
