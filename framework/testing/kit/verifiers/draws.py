"""Checks of the whole engine with the rule in it, on targets whose every law is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....decoding import Parts, decode
from ....params import SamplingParams
from ....requests import Answer, Request
from ....specs import WITHOUT_REPLACEMENT, DraftKind
from ...laws import chi_square, exact_joint, sequence_counts
from ...tables import TableDrafter
from ..checks import NotApplicable, ascending, check
from ..subject import Subject
from .asking import Case, kinds_of, spec_of
from .stand_ins import Uneven, drafter_of, greedy_text, near, table_of

if TYPE_CHECKING:
    from ....interfaces import Drafter, Verifier

FALSE_ALARM = 1e-7
PROMPT = [1, 0, 1]
TEXT = 12  # tokens of a greedy answer, and some more in each row
SETTINGS = [SamplingParams(temperature=1.0), SamplingParams(temperature=0.6, top_p=0.85)]
TOKENS = 4
DRAWS, LEAST = 4_000, 1_000  # answers for each setting, of all kinds of drafts and of one
# In a chain nothing is drawn twice from one law, so this is another name for independent draws.
_SAME_AS_ANOTHER = DraftKind(WITHOUT_REPLACEMENT)


@check(
    "verifier",
    "At temperature 0 the whole engine gives plain decoding's text, whatever the drafter and gamma.",
    "Speculation that changes a greedy answer is a fault that anyone can see.",
)
def greedy_equality(subject: Subject) -> None:
    if not spec_of(subject).lossless:
        raise NotApplicable("declared lossy")
    rule, target = subject.build(), table_of(subject.seed, 5, 0.0)
    drafts = near(target, subject.seed)
    prompts = [[(row + at) % 5 for at in range(1 + row)] for row in range(6)]
    plain = [greedy_text(target, prompt, TEXT + row) for row, prompt in enumerate(prompts)]

    def run(drawn: str, tree: bool, gamma: int) -> str | None:
        parts = Parts(
            target,
            drafter_of(DraftKind(drawn, tree), drafts),
            rule,
            Uneven(gamma),
            {"verifier": subject.name},
        )
        answers = [
            Answer(Request(list(prompt), TEXT + row, SamplingParams(temperature=0.0), index=row))
            for row, prompt in enumerate(prompts)
        ]
        for row, text in enumerate(_texts(parts, answers)):
            if text != plain[row]:
                at = next(i for i in range(len(text)) if text[: i + 1] != plain[row][: i + 1])
                return (
                    f"prompt {prompts[row]}: token {at} is {text[at]}, plain decoding's is "
                    f"{plain[row][at]}, behind {plain[row][:at]}"
                )
        return None

    ascending(
        [
            {"drawn": kind.drawn, "tree": kind.tree, "gamma": gamma}
            for gamma in range(1, 5)
            for kind in kinds_of(subject)
        ],
        run,
    )


@check(
    "verifier",
    "Thousands of answers of the whole engine follow the joint law of plain decoding; with shared "
    "noise the text depends on the seed alone, not on the drafter or gamma.",
    "The exact check drives the rule round by round; this one has the loop, its noise and its "
    "batches in it.",
)
def engine_law(subject: Subject) -> None:
    spec, rule = spec_of(subject), subject.build()
    if not spec.lossless:
        raise NotApplicable("declared lossy")
    if spec.greedy_only:
        raise NotApplicable("judges nothing but temperature 0: greedy_equality has its text")
    if spec.shared_noise:
        ascending(_invariance_cases(subject), _Invariance(subject, rule))
    target, drafts = table_of(subject.seed, 3, 0.2), table_of(subject.seed + 1, 3, 0.2)
    kinds = [kind for kind in kinds_of(subject) if kind != _SAME_AS_ANOTHER] or kinds_of(subject)
    each_of = max(DRAWS // max(len(kinds), 1), LEAST)

    def run(drawn: str, tree: bool, gamma: int) -> str | None:
        drafter = drafter_of(DraftKind(drawn, tree), drafts)
        parts = Parts(target, drafter, rule, Uneven(gamma), {"verifier": subject.name})
        for params, p_value in zip(SETTINGS, _p_values(parts, each_of, subject.seed), strict=True):
            if not p_value > FALSE_ALARM:
                return (
                    f"{each_of} answers at temperature={params.temperature}, top_p={params.top_p} do not "
                    f"follow the law (p={p_value:.2g})"
                )
        return None

    ascending(
        [
            {"drawn": kind.drawn, "tree": kind.tree, "gamma": 2 if kind.tree else 3}
            for kind in kinds
        ],
        run,
    )


def _p_values(parts: Parts, draws: int, seed: int) -> list[float]:
    """One for each of the settings, which alternate row by row in one batch."""
    target, count = parts.target, len(SETTINGS)
    requests = [
        Request(list(PROMPT), TOKENS, SETTINGS[i % count], seed=seed, index=i)
        for i in range(draws * count)
    ]
    texts = _texts(parts, [Answer(request) for request in requests])
    return [
        chi_square(
            sequence_counts(texts[at::count], target.vocab_size, TOKENS),
            exact_joint(target, PROMPT, TOKENS, params),
        )
        for at, params in enumerate(SETTINGS)
    ]


def _invariance_cases(subject: Subject) -> list[Case]:
    return [
        {"drawn": kind.drawn, "tree": kind.tree, "gamma": gamma}
        for gamma in (1, 2, 3)
        for kind in kinds_of(subject)
    ]


class _Invariance:
    """Texts of one seed with different drafters and gammas against those without a draft."""

    def __init__(self, subject: Subject, rule: Verifier) -> None:
        self.rule, self.seed = rule, subject.seed
        self.target = table_of(subject.seed, 4, 0.1)
        self.tables = [
            self.target,
            near(self.target, subject.seed),
            table_of(subject.seed + 1, 4, 0.1),
        ]
        self.plain = self._texts(TableDrafter(self.target), 0)

    def __call__(self, drawn: str, tree: bool, gamma: int) -> str | None:
        for table in self.tables:
            found = self._texts(drafter_of(DraftKind(drawn, tree), table), gamma)
            for row, (text, plain) in enumerate(zip(found, self.plain, strict=True)):
                if text != plain:
                    return f"prompt {row}: with drafts {text}, without {plain}"
        return None

    def _texts(self, drafter: Drafter, gamma: int) -> list[list[int]]:
        parts = Parts(self.target, drafter, self.rule, Uneven(gamma), {})
        rows = [Request(list(PROMPT), 12, SETTINGS[0], seed=self.seed, index=i) for i in range(100)]
        return _texts(parts, [Answer(row) for row in rows])


def _texts(parts: Parts, answers: list[Answer]) -> list[list[int]]:
    for _ in decode(parts, answers):
        pass
    return [answer.token_ids for answer in answers]
