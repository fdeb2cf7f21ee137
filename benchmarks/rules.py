"""Every rule with every kind of drafter on SmolLM2: tau, accept rate, speed-up over the plain loop.

    python benchmarks/rules.py table [--tokens 24] [--prompts 8]   # the README's table
    python benchmarks/rules.py block [--tokens 48] [--prompts 12]  # block against token, paired
    python benchmarks/rules.py coupled [--tokens 64]               # one text for every drafter
    python benchmarks/rules.py audit [--tokens 200]                # every decision derived again

Temperatures 0 and 1. A rule is left out where it cannot judge a drafter (the config refuses the
pair). At temperature 1 the texts differ between cells, but for ``coupled``: ratios are of tokens per
second. ``table`` runs each cell beside the plain loop, prompt by prompt.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from typing import Any

import numpy as np
import torch
from common import (
    HERE,
    RESULTS,
    alternate,
    plain_engine,
    ratio,
    read_prompts,
    save,
    with_drafter,
)
from scipy.stats import bootstrap

from foredraft.framework import ConfigError, Engine
from foredraft.framework.audit import audit
from foredraft.framework.bench.measure import run_engine
from foredraft.framework.metrics import total
from foredraft.framework.requests import Answer

DRAFTERS = {
    "prompt_lookup": ["drafter=prompt_lookup", "policy.gamma=4"],
    "ngram": ["drafter=ngram", "policy.gamma=3"],
    "jacobi": ["drafter=jacobi", "policy.gamma=4"],
    "quantized": ["drafter=quantized", "policy.gamma=4"],
    "prompt_lookup, 4 branches": ["drafter=prompt_lookup", "drafter.branches=4", "policy.gamma=4"],
    "token_recycling": ["drafter=token_recycling", "policy.gamma=4"],
    "ngram, tree 2-2-1": ["drafter=ngram", "drafter.widths=[2,2,1]", "policy.gamma=3"],
    "ngram, tree 2-2-1, independent": [
        "drafter=ngram", "drafter.widths=[2,2,1]", "drafter.children=independent", "policy.gamma=3",
    ],
}  # fmt: skip
RULES = (
    "token", "greedy", "block", "coupled", "recursive", "kseq", "traversal", "lenient", "typical",
)  # fmt: skip


def cells(
    plain: Engine, temperature: int, chosen: list[str], rules: list[str]
) -> dict[tuple[str, str], Engine]:
    """Engines by drafter and rule, for the pairs that are possible and say something new."""
    found = {}
    for drafter in chosen:
        for rule in rules:
            texts = [*DRAFTERS[drafter], f"verifier={rule}", f"sampling.temperature={temperature}"]
            try:
                engine = with_drafter(plain, *texts)
            except ConfigError:
                continue
            chain = not engine.parts.drafter.kind.tree
            if chain and rule in ("recursive", "kseq", "traversal"):
                continue  # on a chain these are token (the first two) and block
            found[drafter, rule] = engine
    return found


def table(options: argparse.Namespace, plain: Engine, prompts: list[list[int]]) -> dict[str, Any]:
    rows = kept_rows() if options.more else []
    for temperature in options.temperatures:
        base = with_drafter(
            plain, "drafter=none", "policy.gamma=0", f"sampling.temperature={temperature}"
        )
        for (drafter, rule), engine in cells(
            plain, temperature, options.drafters, options.rules
        ).items():
            sides = {
                "plain": lambda p, e=base: run_engine(e, [p], max_new_tokens=options.tokens),
                "cell": lambda p, e=engine: run_engine(e, [p], max_new_tokens=options.tokens),
            }
            samples = alternate(sides, prompts, options.repeats)
            metrics = total(s.metrics for runs in samples["cell"] for s in runs if s.metrics)
            row = {
                "temperature": temperature,
                "drafter": drafter,
                "verifier": rule,
                "lossless": engine.parts.verifier.lossless,
                "prompts": len(prompts),
                "tokens": options.tokens,
                "tau": metrics.tau,
                "accept_rate": metrics.accept_rate,
                "x plain": ratio(samples, "cell", "plain"),
            }
            rows = [old for old in rows if _cell(old) != _cell(row)] + [row]
            print(row, file=sys.stderr)
            save("rules-table", {"rows": rows, "markdown": _markdown(rows)}, show=False)  # if cut
    return {"rows": rows, "markdown": _markdown(rows)}


def kept_rows() -> list[dict[str, Any]]:
    """The cells of the last run."""
    file = RESULTS / "rules-table.json"
    return json.loads(file.read_text())["rows"] if file.exists() else []


def _cell(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["temperature"], row["drafter"], row["verifier"]


def _markdown(rows: list[dict[str, Any]]) -> list[str]:
    """One line per drafter and rule, both temperatures side by side."""
    lines = [
        "| drafter | verifier | T 0: tau, accept, speed | T 1: tau, accept, speed |",
        "|---|---|---|---|",
    ]
    for drafter, rule in dict.fromkeys((row["drafter"], row["verifier"]) for row in rows):
        shown = [_shown(rows, drafter, rule, temperature) for temperature in (0, 1)]
        lossy = any(r["verifier"] == rule and not r["lossless"] for r in rows)
        lines.append(f"| {drafter} | `{rule}`{' (lossy)' if lossy else ''} | {' | '.join(shown)} |")
    return lines


def _shown(rows: list[dict[str, Any]], drafter: str, rule: str, temperature: int) -> str:
    for row in rows:
        if (row["drafter"], row["verifier"], row["temperature"]) == (drafter, rule, temperature):
            rate = "-" if row["accept_rate"] is None else f"{row['accept_rate']:.2f}"
            return f"{row['tau']:.2f}, {rate}, {row['x plain']['decoding']['median']:.2f}x"
    return "-"


def block(options: argparse.Namespace, plain: Engine, prompts: list[list[int]]) -> dict[str, Any]:
    """Tokens per round of block over token, by prompt and seed; a bootstrapped 95 % interval."""
    found = {}
    for gamma in options.gammas:
        taus: dict[str, list[float]] = {"token": [], "block": []}
        for rule in taus:
            texts = ["drafter=quantized", f"policy.gamma={gamma}", "sampling.temperature=1"]
            engine = with_drafter(plain, *texts, f"verifier={rule}")
            for seed in range(options.repeats):
                for prompt in prompts:
                    run = run_engine(engine, [prompt], max_new_tokens=options.tokens, seed=seed)
                    taus[rule].append(run.metrics.tau if run.metrics and run.metrics.tau else 1.0)
        differences = np.array(taus["block"]) - np.array(taus["token"])
        interval = bootstrap((differences,), np.mean, random_state=0).confidence_interval
        found[f"gamma {gamma}"] = {
            "tau": {rule: statistics.mean(values) for rule, values in taus.items()},
            "block - token": float(differences.mean()),
            "95 %": [float(interval.low), float(interval.high)],
            "runs": len(differences),
        }
        print(found, file=sys.stderr)
    return {"quantized": found}


def coupled(options: argparse.Namespace, plain: Engine, prompts: list[list[int]]) -> dict[str, Any]:
    """First differences from the plain loop's text, and how near the two best scores were there."""
    found: dict[str, Any] = {}
    for temperature in (0.7, 1.0):
        common = ["verifier=coupled", f"sampling.temperature={temperature}"]
        base = with_drafter(plain, "drafter=none", "policy.gamma=0", *common)
        due = run_engine(base, prompts, max_new_tokens=options.tokens).tokens
        for drafter in ("prompt_lookup", "ngram", "jacobi", "quantized"):
            run = run_engine(
                with_drafter(plain, *DRAFTERS[drafter], *common),
                prompts,
                max_new_tokens=options.tokens,
            )
            pairs = enumerate(zip(due, run.tokens, strict=True))
            different = [_difference(base, prompts[i], i, a, b) for i, (a, b) in pairs if a != b]
            found[f"{drafter} T {temperature}"] = {"prompts": len(prompts), "different": different}
    return found


def _difference(
    base: Engine, prompt: list[int], index: int, due: list[int], got: list[int]
) -> dict[str, Any]:
    at = next(i for i, (a, b) in enumerate(zip(due, got, strict=False)) if a != b)
    again = Answer(base.request([*prompt, *due[:at]], index, max_new_tokens=1))
    law = _law(base, again)
    noise = base_noise(again, at, law.shape[-1])
    scores = law.double().log() + noise
    return {"prompt": index, "at": at, "gap": float((scores[due[at]] - scores[got[at]]).abs())}


def _law(base: Engine, answer: Answer) -> torch.Tensor:
    from foredraft.framework.opening import sampler_for

    text = answer.request.prompt
    session = base.parts.target.start(1, len(text) + 1)
    session.prefill([text[:-1]])
    logits = session.forward(torch.tensor([text[-1:]]), [1])
    law: torch.Tensor = sampler_for([answer.request], base.parts.target).law(logits)[0, 0]
    return law


def base_noise(answer: Answer, at: int, vocab: int) -> torch.Tensor:
    """The shared noise of an answer's place."""
    from foredraft.framework.opening import noise_for

    noise = noise_for([answer.request], torch.device("cpu"))
    return noise.gumbel(torch.tensor([[at]]), vocab)[0, 0]


def audited(options: argparse.Namespace, plain: Engine, prompts: list[list[int]]) -> dict[str, Any]:
    """200 sampled tokens of each rule, derived again; 1e-4 is float32 rounding of a probability."""
    found = {}
    for rule, drafter in (
        ("token", "quantized"),
        ("block", "quantized"),
        ("recursive", "ngram, tree 2-2-1"),
    ):
        texts = [*DRAFTERS[drafter], f"verifier={rule}", "sampling.temperature=1"]
        engine = with_drafter(plain, *texts)
        each = -(-options.tokens // len(prompts))
        answers = [Answer(engine.request(p, i, max_new_tokens=each)) for i, p in enumerate(prompts)]
        report = audit(engine.parts, answers)
        found[f"{rule}, {drafter}"] = {
            "tokens": sum(len(answer.token_ids) for answer in answers),
            "rounds": len(report.findings),
            "same decisions": sum(f.same for f in report.findings),
            "largest law error": max(f.law_error for f in report.findings),
            "faults at 1e-4": len(report.faults(1e-4)),
            "redrawn": sum(f.redrawn is True for f in report.findings),
        }
        print(found, file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("table", "block", "coupled", "audit"))
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--gammas", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--drafters", nargs="+", default=list(DRAFTERS), choices=list(DRAFTERS))
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=RULES)
    parser.add_argument("--temperatures", type=int, nargs="+", default=[0, 1], choices=(0, 1))
    parser.add_argument("--more", action="store_true", help="keep the cells of the last table")
    parser.add_argument("--kernels", choices=("library", "tuned"), default="tuned")
    options = parser.parse_args()
    plain = plain_engine(options.kernels)
    files = ("copying.jsonl", "open.jsonl")
    texts = [read_prompts(HERE / "prompts" / name) for name in files]
    mixed = [text for pair in zip(*texts, strict=False) for text in pair][: options.prompts]
    prompts = [plain.request(text).prompt for text in mixed]
    job = {"table": table, "block": block, "coupled": coupled, "audit": audited}[options.what]
    save(
        f"rules-{options.what}",
        {"prompts": len(prompts), "tokens": options.tokens, **job(options, plain, prompts)},
    )


if __name__ == "__main__":
    main()
