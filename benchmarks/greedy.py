"""Greedy equality on SmolLM2 in float32: every drafter and gamma against generate.

    python benchmarks/greedy.py [--tokens 64] [--gammas 1 2 3 4 5 6 7 8] [--batch 12]

Ours decodes ``--batch`` prompts together, of different lengths and fates; generate one by one. At
a divergence the two logits' gap under one plain forward is printed; a gap under 1e-4 is a near-tie
of rounding, anything else is a fault and the script ends with an error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import HERE, plain_engine, read_prompts, save, with_drafter

from foredraft.framework.bench.measure import (
    Sample,
    run_engine,
    run_generate,
    verdict,
    worst_difference,
)
from foredraft.framework.bench.small import save_first_layers

DRAFTERS = {
    "prompt_lookup": ["drafter=prompt_lookup"],
    "ngram": ["drafter=ngram"],
    "bigram": ["drafter=bigram"],
    "unigram": ["drafter=unigram"],
    "early_exit": ["drafter=early_exit", "drafter.layers=8"],
    "quantized": ["drafter=quantized"],
    "causal_lm": ["drafter=causal_lm", "drafter.model={small}"],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--gammas", type=int, nargs="+", default=list(range(1, 9)))
    parser.add_argument("--drafters", nargs="+", default=list(DRAFTERS), choices=list(DRAFTERS))
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--kernels", choices=("library", "tuned"), default="library")
    options = parser.parse_args()
    engine = plain_engine(options.kernels)
    model: Any = engine.parts.target.model  # type: ignore[attr-defined]
    files = ("open.jsonl", "copying.jsonl")
    texts = [t for name in files for t in read_prompts(HERE / "prompts" / name)][: options.prompts]
    prompts = [engine.request(text).prompt for text in texts]
    generate = run_generate(model, prompts, options.tokens)
    found = {
        "plain": verdict(
            worst_difference(
                model, prompts, run_engine(engine, prompts, max_new_tokens=options.tokens), generate
            )
        )
    }
    with tempfile.TemporaryDirectory() as folder:
        save_first_layers(engine.parts.target, 4, Path(folder))
        for name in options.drafters:
            for gamma in options.gammas:
                texts = [text.format(small=folder) for text in DRAFTERS[name]]
                texts += [f"policy.gamma={gamma}", f"runtime.batch_size={options.batch}"]
                answers = with_drafter(engine, *texts).generate_many(
                    prompts, max_new_tokens=options.tokens
                )
                sample = Sample(0.0, [answer.token_ids for answer in answers])
                found[f"{name} gamma {gamma}"] = verdict(
                    worst_difference(model, prompts, sample, generate)
                )
                print(name, gamma, found[f"{name} gamma {gamma}"], file=sys.stderr, flush=True)
    save(
        f"greedy-{options.kernels}",
        {
            "prompts": len(prompts),
            "tokens": options.tokens,
            "batch": options.batch,
            "against generate": found,
        },
    )
    if any(text.startswith("DIFFERENT") for text in found.values()):
        sys.exit("a drafter changed the output")


if __name__ == "__main__":
    main()
