"""Python source and documentation of installed packages under permissive licences, as token ids.

    python benchmarks/training/corpus.py FOLDER

Writes ``tokenizer/`` (byte-level BPE), ``train.npy`` and ``held.npy`` (ids, uint16, files end with the end
token), and ``files.jsonl`` (of each file: package, version, licence, path, sha256, part). Which files are held
out follows from their hash, so that it does not change when packages do.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

import numpy as np
from rich.progress import track

END = "<|end|>"
VOCABULARY = 4096
SUFFIXES = (".py", ".md", ".rst")
SMALLEST, LARGEST = 400, 60_000  # bytes of a file
LONGEST = 120  # letters of a line, on average: longer ones are data
HELD_OUT = 50  # one file in so many
PER_PACKAGE = 12 << 20  # bytes
TOKENIZER_BYTES = 12 << 20
PERMISSIVE = re.compile(
    r"\b(MIT|BSD|Apache|ISC|PSF|Python Software Foundation|Unlicense|0BSD)\b", re.I
)
COPYLEFT = re.compile(r"\b(L?GPL|AGPL|MPL|Mozilla|GNU|CC-BY-NC|proprietary)", re.I)


@dataclass(frozen=True)
class Source:
    """A file of the corpus."""

    package: str
    version: str
    license: str
    path: str
    sha256: str
    held_out: bool


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    found = list(texts())
    tokenizer = trained([text for source, text in found if not source.held_out])
    tokenizer.save_pretrained(folder / "tokenizer")
    for name, held in (("train", False), ("held", True)):
        own = [text for source, text in found if source.held_out == held]
        ids = encoded(tokenizer, own)
        np.save(folder / f"{name}.npy", ids)
        print(f"{name}: {len(own)} files, {len(ids)} tokens")
    lines = [json.dumps(asdict(source)) for source, _ in found]
    (folder / "files.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


def texts() -> Iterator[tuple[Source, str]]:
    """Every file that is taken, in the order of hashes, which mixes packages."""
    found: dict[str, tuple[Source, str]] = {}
    for package, version, license_, root, paths in packages():
        taken = 0
        for path in sorted(paths):
            text = text_of(path)
            if text is None or taken + len(text) > PER_PACKAGE:
                continue
            digest = hashlib.sha256(text.encode()).hexdigest()
            if digest not in found:
                place = path.relative_to(root).as_posix()
                held = int(digest[:8], 16) % HELD_OUT == 0
                found[digest] = Source(package, version, license_, place, digest, held), text
                taken += len(text)
    yield from (found[digest] for digest in sorted(found))


def packages() -> Iterator[tuple[str, str, str, Path, list[Path]]]:
    """Name, version, licence, folder and files: Python's own library, and what is installed."""
    root = Path(sysconfig.get_path("stdlib"))
    own = [p for p in root.rglob("*.py") if "site-packages" not in p.parts]
    yield "python", sysconfig.get_python_version(), "PSF-2.0", root, own
    for one in sorted(distributions(), key=lambda d: d.name.lower()):
        license_ = license_of(one)
        if one.name == "foredraft" or not license_:
            continue
        paths = [Path(str(one.locate_file(file))) for file in one.files or []]
        root = Path(str(one.locate_file(".")))
        inside = [p for p in paths if p.suffix in SUFFIXES and p.is_relative_to(root)]
        yield one.name, one.version, license_, root, inside


def license_of(package: Distribution) -> str:
    """Its licence, where that is a permissive one; else nothing."""
    meta = package.metadata
    classes = [c.rpartition(" :: ")[2] for c in meta.get_all("Classifier") or [] if "License" in c]
    said = meta.get("License-Expression") or "; ".join(classes) or (meta.get("License") or "")[:80]
    said = " ".join(said.split())
    return said if PERMISSIVE.search(said) and not COPYLEFT.search(said) else ""


def text_of(path: Path) -> str | None:
    """Its text, if it is a file that a person wrote."""
    try:
        if not SMALLEST <= path.stat().st_size <= LARGEST:
            return None
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    lines = text.count("\n") + 1
    digits = sum(text.count(digit) for digit in "0123456789") / len(text)
    plain = text.isascii() and len(text) / lines < LONGEST and digits < 0.12
    return text if plain else None


def trained(corpus: list[str]):  # type: ignore[no-untyped-def]
    """A byte-level BPE tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    some, size = [], 0
    for text in corpus:
        some.append(text)
        size += len(text)
        if size > TOKENIZER_BYTES:
            break
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        some,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[END],
            initial_alphabet=alphabet,
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, bos_token=END, clean_up_tokenization_spaces=False
    )


def encoded(tokenizer, corpus: list[str]) -> np.ndarray:  # type: ignore[no-untyped-def,type-arg]
    """The ids of all files, each with the end token behind it."""
    end = tokenizer.eos_token_id
    parts = [
        np.array([*tokenizer(text)["input_ids"], end], np.uint16)
        for text in track(corpus, description="tokens")
    ]
    return np.concatenate(parts)


if __name__ == "__main__":
    main()
