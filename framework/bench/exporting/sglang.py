"""SGLang's flags."""

from __future__ import annotations

import shlex
from typing import Any

from .common import Config, Exported, chain_only, checked, gamma_of, refuse, shared

NAMES = "sglang_flags.json"


def export(config: Config, drafted: int | None = None) -> Exported:
    """A configuration as flags of ``sglang.launch_server``; see ``exporting.export``."""
    lost: list[str] = []
    drafter = config["drafter"]["name"]
    if drafter == "none" or config["policy"].get("gamma") == 0:
        return Exported(None, "", "start SGLang without --speculative-algorithm")
    if drafter == "prompt_lookup":
        values = _ngram(config, gamma_of(config, drafted, "SGLang", lost), lost)
    elif drafter == "causal_lm":
        values = _standalone(config, gamma_of(config, drafted, "SGLang", lost), lost)
    else:
        raise refuse(config, "SGLang")
    values |= _rule(config, lost)
    shared(config, "SGLang", lost)
    checked(values, NAMES)
    text = " ".join(word for key, value in values.items() for word in _flag(key, value))
    use = f"python3 -m sglang.launch_server --model-path MODEL {text}"
    return Exported(values, text, use, lost)


def _flag(key: str, value: Any) -> list[str]:
    name = f"--{key.replace('_', '-')}"
    return [name] if value is True else [name, shlex.quote(str(value))]


def _ngram(config: Config, gamma: int, lost: list[str]) -> dict[str, Any]:
    drafter = config["drafter"]
    lost += [
        f"drafter.max_ngram={drafter['max_ngram']} and drafter.min_ngram={drafter['min_ngram']}: SGLang "
        "looks for the longest match that its trie holds; it has no shortest and longest one.",
        "drafter=prompt_lookup: SGLang copies from the answers of all requests, not from a request's "
        "own text alone.",
    ]
    wide = drafter["branches"] > 1
    if wide:
        lost.append(
            f"drafter.branches={drafter['branches']}: SGLang grows its tree by breadth, not from the "
            "best matches; its shape will be another."
        )
    # It counts the token that a draft begins behind.
    tokens = (drafter["nodes"] if wide else gamma) + 1
    return {
        "speculative_algorithm": "NGRAM",
        "speculative_num_draft_tokens": tokens,
        "speculative_ngram_min_bfs_breadth": 1,
        "speculative_ngram_max_bfs_breadth": drafter["branches"],
    }


def _standalone(config: Config, gamma: int, lost: list[str]) -> dict[str, Any]:
    drafter = config["drafter"]
    chain_only(config, "SGLang", lost)
    found = {
        "speculative_algorithm": "STANDALONE",
        "speculative_draft_model_path": drafter["model"],
        "speculative_num_steps": gamma,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": gamma + 1,
    }
    if drafter.get("revision"):
        found["speculative_draft_model_revision"] = drafter["revision"]
    if drafter["dtype"] != "auto":
        lost.append(f"drafter.dtype={drafter['dtype']}: SGLang chooses it with the target's.")
    return found


def _rule(config: Config, lost: list[str]) -> dict[str, Any]:
    """At temperature 0 all rules of ours but the lossy ones keep the same tokens."""
    verifier, drafter = config["verifier"], config["drafter"]["name"]
    name, sampled = verifier["name"], config["sampling"]["temperature"] > 0
    if name == "lenient" and drafter == "prompt_lookup" and sampled and verifier["lenience"]:
        lost.append(
            "verifier=lenient: SGLang raises the chance to accept alike, but what follows a rejection "
            "may differ; both change the output's law."
        )
        return {"speculative_accept_threshold_acc": verifier["lenience"]}
    if name in ("lenient", "typical"):
        lost.append(f"verifier={name}: SGLang's rule is lossless, so fewer tokens will stand.")
    elif name == "coupled":
        lost.append(
            "verifier=coupled: its text depends on the seed alone, and SGLang's will depend on the "
            "drafts too."
        )
    elif name in ("block", "traversal") and sampled:
        lost.append(f"verifier={name}: SGLang rejects token by token, so fewer will stand.")
    elif name not in ("token", "recursive", "kseq", "greedy", "block", "traversal"):
        lost.append(f"verifier={name}: it is of a plugin; SGLang uses its own rule.")
    # Without it a drawn token stands with the target's probability, whatever the small model's was.
    own = drafter == "causal_lm" and sampled
    return {"speculative_use_rejection_sampling": True} if own else {}
