"""Questions that SmolLM2 asks itself, as prompts for ``foredraft train``.

    python benchmarks/training/questions.py [--count 1500] > questions.jsonl

The model is given the begin of a user's turn, of one of six kinds, and goes on with it by sampling, as Xu et al.
2024 (Magpie, arXiv:2406.08464) have instruction models write their own data. So drafters can be trained for what
Spec-Bench asks without any of its questions.
"""

from __future__ import annotations

import argparse
import json
import sys

from foredraft.framework import load
from foredraft.framework.requests import Answer

TURN, END = "<|im_start|>user\n", "<|im_end|>"
KINDS = {  # the begin of a turn, and how many tokens may follow
    "conversation": ("", 60),
    "translation": ("Translate German to English: ", 50),
    "summarization": ("Summarize: ", 260),
    "qa": ("Who ", 30),
    "math_reasoning": ("A farmer has ", 70),
    "rag": ("Answer the question by the text. Text: ", 260),
}
SHORTEST = 4  # words


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("words", nargs="*", default=["target.kernels=tuned"], help="of the target")
    given = parser.parse_args()
    engine = load(
        "drafter=none", "policy.gamma=0", "target=smollm2", *given.words,
        f"runtime.batch_size={given.batch_size}", f"seed={given.seed}", "chat=false",
        "sampling.temperature=1", "sampling.top_p=0.95",
    )  # fmt: skip
    for kind, (begin, length) in KINDS.items():
        asked = [TURN + begin] * (given.count // len(KINDS))
        answers: list[Answer] = engine.generate_many(asked, max_new_tokens=length, stop=END)
        for answer in answers:
            text = (begin + answer.text).strip()
            if len(text.split()) >= SHORTEST:
                print(json.dumps({"prompt": text, "group": kind}), flush=True)
        print(kind, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
