"""Through the whole loop: the text and the law of plain decoding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ....interfaces import Target
from ....params import SamplingParams
from ....sampling import Sampler
from ....targets.table import TableTarget
from ...statistics import count_p_value
from ..checks import ascending, check, fail
from ..subject import Subject
from .edges import unlike_plain
from .lab import Lab

ALARM = 1e-8  # cells of a few draws are not quite chi-square
BATCH = 1500
JOINT = [SamplingParams(temperature=1.0), SamplingParams(temperature=0.7, top_k=3)]
TRUNCATED = [SamplingParams(temperature=1.0, top_k=3), SamplingParams(temperature=1.5, top_k=2)]


@check(
    "drafter",
    "At temperature 0 the answer is, id by id, the one of plain decoding.",
    "It is the promise that users can test themselves.",
)
def greedy_equality(subject: Subject) -> None:
    lab = Lab(subject)
    lengths = (9, 1, 4, 17, 2)
    # An id from the middle of the longest answer ends it, and some others at other places.
    answer = lab.plain(lab.prompts(*lengths), 24)[0]
    stop = answer[min(11, len(answer) - 1)]

    def run(rows: int, gamma: int, stop_ids: Sequence[int]) -> str | None:
        return unlike_plain(lab, lab.prompts(*lengths[:rows]), gamma, 24, stop_ids)

    cases: list[dict[str, object]] = [{"rows": 1, "gamma": 1, "stop_ids": []}]
    cases += [{"rows": 5, "gamma": gamma, "stop_ids": []} for gamma in (2, 4)]
    cases += [{"rows": 5, "gamma": gamma, "stop_ids": [stop]} for gamma in range(1, 6)]
    ascending(cases, run)


@check(
    "drafter",
    "Answers follow the joint law of plain decoding, drawn by thousands through the real loop.",
    "It is what lossless means.",
)
def joint_law(subject: Subject) -> None:
    lab = Lab(subject, vocab=4, eos=True)
    table = isinstance(lab.target, TableTarget)
    settings = JOINT if lab.target.vocab_size <= 8 else TRUNCATED
    tokens, draws = (4, 6000) if table else (3, 4500)  # a table is cheap
    prompt = lab.prompts(7)[0]
    ids: list[list[list[int]]] = [[] for _ in settings]
    for begin in range(0, draws, BATCH):
        places = list(range(begin, begin + BATCH))
        params = [settings[place % len(settings)] for place in places]
        run = lab.run([prompt] * BATCH, 2, None, tokens, params, places=places, keep=False)
        for place, answer in zip(places, run.ids, strict=True):
            ids[place % len(settings)].append(answer)
    for setting, answers in zip(settings, ids, strict=True):
        p_value = fit(answers, joint(lab.target, prompt, tokens, setting))
        if p_value < ALARM:
            fail(
                f"answers do not follow the law of plain decoding: p={p_value:.1g}",
                prompt=prompt, tokens=tokens, gamma=2, temperature=setting.temperature,
                top_k=setting.top_k, draws=len(answers),
            )  # fmt: skip


@torch.inference_mode()
def joint(
    target: Target, prompt: list[int], tokens: int, params: SamplingParams
) -> dict[tuple[int, ...], float]:
    """The law of answers of at most ``tokens`` ids, by plain forwards over all that can be reached."""
    found: dict[tuple[int, ...], float] = {}
    level: dict[tuple[int, ...], float] = {(): 1.0}
    for length in range(1, tokens + 1):
        heads = list(level)
        laws = _laws(target, [[*prompt, *head] for head in heads], params)
        following: dict[tuple[int, ...], float] = {}
        for head, law in zip(heads, laws, strict=True):
            for token in law.nonzero().flatten().tolist():
                answer, chance = (*head, token), level[head] * float(law[token])
                ended = length == tokens or token in target.eos_ids
                (found if ended else following)[answer] = chance
        level = following
        if not level:
            break
    return found


def _laws(target: Target, texts: list[list[int]], params: SamplingParams) -> Tensor:
    session = target.start(len(texts), len(texts[0]) + 1)
    session.prefill([text[:-1] for text in texts])
    newest = torch.tensor([[text[-1]] for text in texts], device=target.device)
    logits = session.forward(newest, [1] * len(texts))
    return Sampler([params] * len(texts), target.device).law(logits)[:, 0].double().cpu()


def fit(answers: Sequence[Sequence[int]], law: dict[tuple[int, ...], float]) -> float:
    """Chi-square p-value of answers under a law; 0 for one that cannot be."""
    cells = {answer: cell for cell, answer in enumerate(law)}
    counts = torch.zeros(len(cells), dtype=torch.float64)
    for answer in answers:
        if tuple(answer) not in cells:
            return 0.0
        counts[cells[tuple(answer)]] += 1
    return count_p_value(counts, torch.tensor(list(law.values())).double() * len(answers))
