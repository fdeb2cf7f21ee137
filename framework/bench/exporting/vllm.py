"""vLLM's ``speculative_config``."""

from __future__ import annotations

import json
import shlex
from typing import Any

from .common import Config, Exported, chain_only, checked, gamma_of, refuse, shared

NAMES = "vllm_fields.json"
LAST = 1024  # end of a schedule's last range, which is open here
# Rules of ours with the law, and the acceptance of chains, of one of theirs.
STANDARD = ("token", "recursive", "kseq")


def export(config: Config, drafted: int | None = None) -> Exported:
    """A configuration as ``speculative_config``; see ``exporting.export``."""
    lost: list[str] = []
    drafter = config["drafter"]
    if drafter["name"] == "none" or config["policy"].get("gamma") == 0:
        return Exported(None, "null", "start vLLM without --speculative-config")
    if drafter["name"] == "prompt_lookup":
        values = _ngram(config, lost)
    elif drafter["name"] == "causal_lm":
        values = _draft_model(config, lost)
    else:
        raise refuse(config, "vLLM")
    values |= _lengths(config, drafted, lost) | _rule(config, lost)
    shared(config, "vLLM", lost)
    checked(values, NAMES)
    text = json.dumps(values)
    use = f"vllm serve MODEL --speculative-config {shlex.quote(text)}"
    return Exported(values, text, use, lost)


def _ngram(config: Config, lost: list[str]) -> dict[str, Any]:
    drafter = config["drafter"]
    chain_only(config, "vLLM", lost)
    return {
        "method": "ngram",
        "prompt_lookup_max": drafter["max_ngram"],
        "prompt_lookup_min": drafter["min_ngram"],
    }


def _draft_model(config: Config, lost: list[str]) -> dict[str, Any]:
    drafter = config["drafter"]
    chain_only(config, "vLLM", lost)
    found = {"method": "draft_model", "model": drafter["model"]}
    if drafter.get("revision"):
        found["revision"] = drafter["revision"]
    if config["sampling"]["temperature"] > 0:
        # Its default drafts the likeliest token, whatever the temperature.
        found["draft_sample_method"] = "probabilistic"
        if config["sampling"]["draft"] != "temperature":
            lost.append(
                f"sampling.draft={config['sampling']['draft']}: what filters do to the small model's "
                "law is vLLM's to say."
            )
    if drafter["dtype"] != "auto":
        lost.append(f"drafter.dtype={drafter['dtype']}: vLLM chooses it with the target's.")
    return found


def _lengths(config: Config, drafted: int | None, lost: list[str]) -> dict[str, Any]:
    policy = config["policy"]
    if policy["name"] != "schedule" or policy["by"] != "batch":
        return {"num_speculative_tokens": gamma_of(config, drafted, "vLLM", lost)}
    gammas = policy["gammas"] or {1: 8, 4: 4, 16: 0}
    table = sorted((int(begin), int(gamma)) for begin, gamma in gammas.items())
    ends = [begin - 1 for begin, _ in table[1:]] + [max(LAST, table[-1][0])]
    ranges = [[begin, end, gamma] for (begin, gamma), end in zip(table, ends, strict=True)]
    ranges[0][0] = 1
    lost.append(
        f"policy.gammas: the last range ends at {ends[-1]}, for vLLM wants an end; vLLM says that it "
        "has tried schedules with Eagle and DFlash only."
    )
    most = max(gamma for _, gamma in table)
    return {"num_speculative_tokens": most, "num_speculative_tokens_per_batch_size": ranges}


def _rule(config: Config, lost: list[str]) -> dict[str, Any]:
    name, greedy = config["verifier"]["name"], config["sampling"]["temperature"] == 0
    if name == "block":
        return {"rejection_sample_method": "block"}
    if name in STANDARD or (name == "greedy" and greedy):
        return {}
    why = {
        "coupled": "its text depends on the seed alone, and vLLM's will depend on the drafts too",
        "traversal": "fewer tokens of a draft will stand, under the same law",
        "lenient": "vLLM's rule is lossless, so fewer tokens will stand",
        "typical": "vLLM's rule is lossless, so fewer tokens will stand",
    }.get(name, "it is of a plugin")
    lost.append(f"verifier={name}: vLLM verifies by token-wise rejection instead; {why}.")
    return {}
