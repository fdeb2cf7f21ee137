"""Resident memory over a long answer: it may grow by the cache's own bytes plus 5 %.

    python benchmarks/memory.py [--tokens 2000] [--drafter prompt_lookup]

The cache is allocated before the first round and touched as the answer grows, so the growth over
the run is compared with the cache's bytes for the tokens that were generated.
"""

from __future__ import annotations

import argparse
import gc

import psutil
from common import plain_engine, save, with_drafter

from foredraft.framework.requests import Answer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--drafter", default="prompt_lookup")
    options = parser.parse_args()
    plain = plain_engine("tuned")
    engine = with_drafter(plain, f"drafter={options.drafter}", "policy.gamma=4")
    target = plain.parts.target
    prompt = engine.request("Write a very long story about a lighthouse and its keeper.").prompt
    target.eos_ids = frozenset()  # runs to the end, whatever the model says
    for _ in engine.run([Answer(engine.request(prompt, max_new_tokens=64))]):
        pass
    gc.collect()
    process = psutil.Process()
    answer = Answer(engine.request(prompt, max_new_tokens=options.tokens))
    before, peak = process.memory_info().rss, 0
    for _ in engine.run([answer]):
        peak = max(peak, process.memory_info().rss)
    cache = target.session_bytes(1, len(prompt) + options.tokens)
    save(
        f"memory-{options.drafter}",
        {
            "tokens": len(answer.token_ids),
            "cache MB": cache / 1e6,
            "growth MB": (peak - before) / 1e6,
            "growth / cache": (peak - before) / cache,
            "weights MB": sum(p.numel() * 4 for p in target.model.parameters()) / 1e6,  # type: ignore[attr-defined]
        },
    )


if __name__ == "__main__":
    main()
