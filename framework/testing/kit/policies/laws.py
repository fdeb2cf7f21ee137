"""Checks of the law: whatever a policy decides by, the text is the target's."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from .....verifiers.token import TokenVerifier
from ....params import SamplingParams
from ....records import Trial, Verdict
from ...draws import law_p_values
from ...statistics import count_p_value
from ..checks import NotApplicable, ascending, check
from ..subject import Subject
from .runs import never_drafts, play, refusals
from .stage import Stage, requests

FALSE_ALARM = 1e-7
BINS = 20


@check(
    "policy",
    "At temperature 0 the text is that of plain decoding, in ragged batches and with stop ids.",
    "It is what users compare first.",
)
def greedy_equality(subject: Subject) -> None:
    def run(rows: int, tokens: int, drafter: str, stops: tuple[int, ...]) -> str | None:
        stage = Stage(subject.seed, drafter)
        asked = requests(rows, tokens, (0.0,), stops, subject.seed)
        answers = play(subject, subject.build(), stage, asked).answers
        for one in asked:
            plain = _plain(stage.target_table(), one.prompt, tokens, stops)
            if answers[one.index] != plain:
                return f"request {one.index} gave {answers[one.index]}, plain decoding {plain}"
        return None

    cases = ((1, 1, "close"), (1, 12, "close"), (4, 24, "close"), (4, 24, "same"), (4, 24, "wrong"))
    ascending(
        [
            {"rows": r, "tokens": n, "drafter": d, "stops": stops}
            for r, n, d in cases
            for stops in ((), (3,), (0,))
        ],
        run,
    )


def _plain(table: Tensor, prompt: list[int], tokens: int, stops: tuple[int, ...]) -> list[int]:
    missing = table.shape[1]
    text = [missing, missing, *prompt]
    begin = len(text)
    while len(text) < begin + tokens and (len(text) == begin or text[-1] not in stops):
        text.append(int(table[text[-2] * (missing + 1) + text[-1]].argmax()))
    return text[begin:]


@check(
    "policy",
    "Whether a token is drafted does not depend on its value, on the noise that would draw it, nor "
    "on the noise that would accept it.",
    "Tokens that are dropped for being unlikely shift the law of the text (total variation up to .25).",
)
def causal_stopping(subject: Subject) -> None:
    rounds = _Judged()
    stage = Stage(subject.seed, verifier=rounds)
    trace = play(subject, subject.build(), stage, requests(500, 20, seed=subject.seed + 5))
    if never_drafts(trace):
        raise NotApplicable("it never drafted a token here")

    def run(noise: str, position: int) -> str | None:
        numbers = rounds.drawn(position) if noise == "drafting" else rounds.accepting(position)
        p_value = uniform(numbers)
        if p_value > FALSE_ALARM:
            return None
        return (
            f"tokens that were drafted are not a fair draw: their {noise} noise is not uniform "
            f"(p = {p_value:.1g}, {len(numbers)} tokens)"
        )

    places = range(min(4, rounds.longest))
    ascending([{"noise": n, "position": i} for i in places for n in ("drafting", "accepting")], run)


class _Judged(TokenVerifier):
    """Keeps what it judges."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []

    def verify(self, trial: Trial) -> Verdict:
        self.trials.append(trial)
        return super().verify(trial)

    @property
    def longest(self) -> int:
        """The most tokens of any draft."""
        return max(trial.draft.width for trial in self.trials)

    def accepting(self, position: int) -> Tensor:
        """The uniforms that drafted tokens at a position were accepted or rejected by."""
        return torch.cat([t.uniforms[_there(t, position), position] for t in self._at(position)])

    def drawn(self, position: int) -> Tensor:
        """Drafted tokens at a position as numbers that are uniform if the tokens follow the
        reported law: F(less likely ones) + V q(token), V uniform (randomised probability integral
        transform, Brockwell 2007)."""
        generator = torch.Generator().manual_seed(position)
        numbers = []
        for trial in self._at(position):
            there = _there(trial, position)
            law = trial.draft.law.probs[there, position]  # type: ignore[attr-defined]
            token = trial.draft.tokens[there, position].unsqueeze(1)
            own = law.gather(1, token)
            # Ties are broken by id, so that each token has an interval of its own.
            ids = torch.arange(law.shape[1])
            before = (law < own) | ((law == own) & (ids < token))
            spread = torch.rand(own.shape, generator=generator, dtype=torch.float64)
            numbers.append(((law * before).sum(1, keepdim=True) + spread * own).squeeze(1))
        return torch.cat(numbers)

    def _at(self, position: int) -> Iterable[Trial]:
        return (trial for trial in self.trials if trial.draft.width > position)


def _there(trial: Trial, position: int) -> Tensor:
    return trial.draft.mask[:, position]


def uniform(numbers: Tensor) -> float:
    """P-value of numbers in [0, 1] against the uniform law; 1 for too few to tell."""
    if len(numbers) < 10 * BINS:
        return 1.0
    counts = torch.histc(numbers.double(), BINS, 0.0, 1.0)
    return count_p_value(counts, torch.full((BINS,), len(numbers) / BINS))


@check(
    "policy",
    "The joint law of the first tokens of sampled answers is that of plain decoding.",
    "It is what lossless means, with all that the policy learnt in earlier rounds.",
)
def joint_law(subject: Subject) -> None:
    settings = [{"sampling": SamplingParams(temperature=t)} for t in (1.0, 0.6)]

    def run(vocab: int, tokens: int, draws: int) -> str | None:
        parts = Stage(subject.seed, vocab=vocab).parts(subject.build(), subject.name)
        with refusals():
            found = law_p_values(parts, settings, [0, 1], tokens, draws, seed=subject.seed + 11)
        if min(found) > FALSE_ALARM:
            return None
        return f"answers do not follow the target's law (p = {min(found):.1g})"

    ascending([{"vocab": v, "tokens": n, "draws": 6000} for v, n in ((3, 4), (4, 3))], run)
