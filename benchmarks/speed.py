"""Speed on SmolLM2-135M-Instruct, float32, greedy, batch 1: each figure a ratio within one run.

    python benchmarks/speed.py plain    [--questions FILE]  # plain loop against generate
    python benchmarks/speed.py lookup   [--questions FILE]  # plain and prompt lookup, both sides'
    python benchmarks/speed.py copying                      # prompt lookup where answers copy
    python benchmarks/speed.py quantized                    # the int8 copy, several gammas
    python benchmarks/speed.py assistant                    # a small model, both sides'

``--questions`` is a Spec-Bench file: the 8 shortest of its summarization group and the first of each of
8 other categories are used. Without
it, the prompts in ``benchmarks/prompts`` are. ``--kernels tuned`` runs our side with
``target.kernels=tuned``; transformers always runs the model as it loads it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from common import (
    HERE,
    Side,
    alternate,
    plain_engine,
    ratio,
    read_prompts,
    same_answers,
    save,
    with_drafter,
)

from foredraft.framework import Engine
from foredraft.framework.bench.measure import Sample, run_engine, run_generate
from foredraft.framework.bench.small import save_first_layers
from foredraft.framework.metrics import total

OTHERS = (
    "writing",
    "qa",
    "math_reasoning",
    "humanities",
    "translation",
    "coding",
    "reasoning",
    "stem",
)


class Bench:
    """Our target and transformers' model, loaded apart, and the prompts as ids."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.plain = plain_engine(options.kernels)
        self.model: Any = plain_engine().parts.target.model  # type: ignore[attr-defined]

    def ids(self, texts: list[str]) -> list[list[int]]:
        return [self.plain.request(text).prompt for text in texts]

    def mixed(self) -> list[list[int]]:
        """16 prompts: 8 summaries and 8 others, or our own open and copying ones."""
        path = self.options.questions
        if path is None:
            names = ("copying.jsonl", "open.jsonl")
            return self.ids([t for n in names for t in read_prompts(HERE / "prompts" / n)])
        texts = sorted(read_prompts(path, ["summarization"]), key=len)[
            :8
        ]  # long prefills say little
        for group in OTHERS:
            texts += read_prompts(path, [group], 1)
        return self.ids(texts)

    def open(self) -> list[list[int]]:
        return self.ids(read_prompts(HERE / "prompts" / "open.jsonl"))

    def copying(self) -> list[list[int]]:
        return self.ids(read_prompts(HERE / "prompts" / "copying.jsonl"))

    def ours(self, engine: Engine) -> Side:
        return lambda prompt: run_engine(engine, [prompt], max_new_tokens=self.options.tokens)

    def theirs(self, **options: Any) -> Side:
        return lambda prompt: run_generate(self.model, [prompt], self.options.tokens, **options)

    def compare(
        self, sides: dict[str, Side], prompts: list[list[int]], pairs: list[tuple[str, str]]
    ) -> None:
        samples = alternate(sides, prompts, self.options.repeats)
        figures = {f"{a} / {b}": ratio(samples, a, b) for a, b in pairs}
        save(
            f"speed-{self.options.what}-{self.options.kernels}",
            {
                "x": figures,
                "prompts": len(prompts),
                "tokens": self.options.tokens,
                "same ids": same_answers(samples, next(iter(sides))),
                "sides": {name: describe(runs) for name, runs in samples.items()},
            },
        )


def describe(runs: list[list[Sample]]) -> dict[str, Any]:
    """Tokens per second, and for our sides tau, accept rate and time by phase."""
    flat = [sample for prompt in runs for sample in prompt]
    found: dict[str, Any] = {"tokens/s": sum(s.count for s in flat) / sum(s.seconds for s in flat)}
    metrics = [s.metrics for s in flat if s.metrics]
    if metrics:
        whole = total(metrics)
        spent = sum(whole.seconds.values())
        found |= {"tau": whole.tau, "accept_rate": whole.accept_rate, "alpha": whole.alpha}
        found |= {"share": {phase: value / spent for phase, value in whole.seconds.items()}}
        found |= {"ms per round": 1e3 * (spent - whole.seconds["prefill"]) / whole.rounds}
    return found


def plain(bench: Bench) -> None:
    sides = {"generate": bench.theirs(), "plain": bench.ours(bench.plain)}
    bench.compare(sides, bench.mixed(), [("plain", "generate")])


def lookup(bench: Bench) -> None:
    gamma, size = bench.options.gamma, bench.options.ngram
    ours = with_drafter(
        bench.plain, "drafter=prompt_lookup", f"drafter.max_ngram={size}", f"policy.gamma={gamma}"
    )
    theirs = bench.theirs(prompt_lookup_num_tokens=gamma, max_matching_ngram_size=size)
    sides = {
        "generate": bench.theirs(),
        "plain": bench.ours(bench.plain),
        "generate lookup": theirs,
        "prompt_lookup": bench.ours(ours),
    }
    pairs = [
        ("plain", "generate"),
        ("prompt_lookup", "generate lookup"),
        ("prompt_lookup", "plain"),
        ("generate lookup", "generate"),
    ]
    if bench.options.what == "copying":  # generate against plain is the other command's matter
        sides.pop("generate")
        bench.compare(sides, bench.copying(), [pairs[1], pairs[2]])
    else:
        bench.compare(sides, bench.mixed(), pairs)


def quantized(bench: Bench) -> None:
    sides = {"plain": bench.ours(bench.plain)}
    built = with_drafter(bench.plain, "drafter=quantized")
    for gamma in bench.options.gammas:
        policy = with_drafter(bench.plain, "drafter=none", f"policy.gamma={gamma}").parts.policy
        parts = type(built.parts)(
            built.parts.target, built.parts.drafter, built.parts.verifier, policy, built.parts.names
        )
        sides[f"gamma {gamma}"] = bench.ours(Engine(parts, built.defaults))
    pairs = [(name, "plain") for name in sides if name != "plain"]
    bench.compare(sides, bench.open(), pairs)


def assistant(bench: Bench) -> None:
    from transformers import AutoModelForCausalLM

    gamma = bench.options.gamma
    with tempfile.TemporaryDirectory() as name:
        save_first_layers(bench.plain.parts.target, bench.options.layers, Path(name))
        small = AutoModelForCausalLM.from_pretrained(name)
        small.generation_config.num_assistant_tokens = gamma
        small.generation_config.num_assistant_tokens_schedule = "constant"
        small.generation_config.assistant_confidence_threshold = 0.0
        kernels = f"drafter.kernels={bench.options.kernels}"
        ours = with_drafter(
            bench.plain,
            "drafter=causal_lm",
            f"drafter.model={name}",
            kernels,
            f"policy.gamma={gamma}",
        )
        sides = {
            "generate assisted": bench.theirs(assistant_model=small),
            "causal_lm": bench.ours(ours),
        }
        bench.compare(
            sides,
            bench.mixed() if bench.options.questions else bench.open(),
            [("causal_lm", "generate assisted")],
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = {
        "plain": plain,
        "lookup": lookup,
        "copying": lookup,
        "quantized": quantized,
        "assistant": assistant,
    }
    parser.add_argument("what", choices=commands)
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--kernels", choices=("library", "tuned"), default="library")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gamma", type=int, default=5)
    parser.add_argument("--gammas", type=int, nargs="+", default=[2, 4, 6])
    parser.add_argument("--ngram", type=int, default=2)
    parser.add_argument("--layers", type=int, default=8)
    options = parser.parse_args()
    commands[options.what](Bench(options))


if __name__ == "__main__":
    main()
