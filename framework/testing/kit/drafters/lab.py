"""Where drafters are tried: tiny targets, prompts, and runs of the real loop that can be read."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NoReturn

import torch

from .....drafters.none import NoDrafter
from .....verifiers.recursive import RecursiveVerifier
from .....verifiers.token import TokenVerifier
from ....context import Context
from ....decoding import Batch, Parts
from ....errors import ForedraftError
from ....interfaces import Drafter, Target, Verifier
from ....params import SamplingParams
from ....requests import Answer, Request
from ....specs import WITHOUT_REPLACEMENT
from ..checks import CheckFailed, NotApplicable, fail
from ..subject import Subject, declared
from .rounds import Run, stepped
from .scripts import Rule, ScriptedPolicy, ScriptedVerifier, constant
from .spies import Journal, Judge, Proposal, SpyDrafter, Watch
from .targets import VOCAB, first_built, kit_targets

GREEDY, SAMPLED = SamplingParams(), SamplingParams(temperature=1.0)
# Laws that lie this far apart in batches of other shapes are those of half precision.
HALF, HALF_ROUNDING = (3e-5, 0.02), 0.05
MANY = 99  # more than any draft holds in depth


class Lab:
    """A drafter built for the first target that it accepts.

    Args:
        vocab, context, eos: of the kit's targets; the caller's target stays as it is.
        target: in place of both.
    """

    def __init__(
        self,
        subject: Subject,
        vocab: int = VOCAB,
        context: int | None = None,
        eos: bool = False,
        target: Target | None = None,
    ) -> None:
        self.subject, self.seed, self.spec = subject, subject.seed, declared(subject)
        given = target or subject.target
        targets = iter([given]) if given else kit_targets(vocab, context, eos, subject.seed)
        self.target, self.drafter = first_built(subject, targets)
        self._plain: dict[str, list[list[int]]] = {}

    @property
    def kind_is_drawn(self) -> bool:
        """Whether drafts have a law at all."""
        return self.drafter.kind.drawn != "deterministic"

    @property
    def learns(self) -> bool:
        """Whether drafts depend on more than the committed ids."""
        return bool(self.spec.ability("learns", self.subject.config))

    @property
    def host_reads(self) -> int:
        """Declared device-to-host reads per token."""
        return int(self.spec.ability("host_reads", self.subject.config))

    @cached_property
    def rounding(self) -> float:
        """How far laws of one text may lie apart in batches of other shapes: 0, for the usual
        tolerance, unless the drafter turns out to calculate in half precision."""
        prompts = self.prompts(5, 8, 12, 15, 18, 21)
        # Nothing is accepted, so that the texts, and so the first laws of each draft, are the same.
        whole = self.run(prompts, 2, 0, 8)
        gaps = [0.0]
        for row, prompt in enumerate(prompts):
            alone = self.run([prompt], 2, 0, 8, places=[row]).drafts_of(row)
            pairs = [(sheet, alone.get(index)) for index, sheet in whole.drafts_of(row).items()]
            gaps += [a.gap(b, 0) for a, b in pairs if b is not None and a.tokens and b.tokens]
        return HALF_ROUNDING if HALF[0] < max(gaps) < HALF[1] else 0.0

    def differs(self, run: Run, other: Run, places: Sequence[int]) -> str:
        """How two runs differ by more than rounding, in words."""
        text = run.differs(other, places)
        return run.differs(other, places, self.rounding) if text and self.rounding else text

    def build(self) -> Drafter:
        """One more drafter for the same target."""
        built: Drafter = self.subject.build(self.target)
        return built

    def rule(self) -> Verifier:
        """A lossless rule that judges what the drafter drafts."""
        kind = self.drafter.kind
        recursive = kind.tree or kind.drawn == WITHOUT_REPLACEMENT
        return RecursiveVerifier() if recursive else TokenVerifier()

    def prompts(self, *lengths: int, seed: int = 0) -> list[list[int]]:
        """Random prompts over few ids, so that there is something to look up in them."""
        source = random.Random(f"{self.seed}/{seed}")
        ids = [token for token in range(self.target.vocab_size) if token not in self.target.eos_ids]
        ids = sorted(source.sample(ids, min(6, len(ids))))
        return [[source.choice(ids) for _ in range(length)] for length in lengths]

    def run(
        self,
        prompts: Sequence[Sequence[int]],
        gamma: Rule | int = 3,
        fate: Rule | int | None = None,
        tokens: Sequence[int] | int | None = 10,
        sampling: Sequence[SamplingParams] | SamplingParams = SAMPLED,
        *,
        places: Sequence[int] | None = None,
        rounds: int | None = None,
        seed: int | None = None,
        stop_ids: Sequence[int] = (),
        drafter: Drafter | None = None,
        watch: Watch | None = None,
        judge: Judge | None = None,
        keep: bool = True,
    ) -> Run:
        """Runs a batch through the loop.

        Args:
            gamma: of each row and round.
            fate: how many drafted tokens stand, whatever they are; None: a lossless rule decides.
            tokens: of the answers, one number or one per row; None: to the end of the context.
            sampling: one or one per row.
            places: the rows' numbers, and so their noise.
            rounds: how many rounds are run at most.

        Raises:
            CheckFailed: whatever goes wrong, with the prompts.
        """
        places = list(range(len(prompts)) if places is None else places)
        count = len(prompts)
        limits = [tokens] * count if tokens is None or isinstance(tokens, int) else list(tokens)
        params = [sampling] * count if isinstance(sampling, SamplingParams) else list(sampling)
        answers = [
            Answer(Request(list(prompt), limit, one, seed=self.seed if seed is None else seed,
                           index=place, stop_ids=tuple(stop_ids)))
            for prompt, limit, one, place in zip(prompts, limits, params, places, strict=True)
        ]  # fmt: skip
        journal = Journal(list(places), keep, watch=watch, judge=judge)
        parts = self.parts(drafter or self.drafter, journal, gamma, fate)
        with self.blamed(journal, prompts, gamma):
            outcomes = list(stepped(parts, answers, rounds))
        return Run(answers, journal.proposals, outcomes)

    def fresh(self, run: Run, proposal: Proposal) -> Proposal:
        """What a new session drafts where ``proposal`` was made: its prompts are the committed
        texts, and the noise is that of the same requests, round and positions."""

        def opening(context: Context) -> None:
            context.round_index = proposal.round
            context.prompt_lengths[:] = proposal.prompt_lengths

        requests = {answer.request.index: answer.request for answer in run.answers}
        answers = [
            Answer(replace(requests[place], prompt=text, max_new_tokens=MANY))
            for place, text in zip(proposal.places, proposal.texts, strict=True)
        ]
        journal = Journal(list(proposal.places), opening=opening)
        parts = self.parts(self.drafter, journal, 0, None)
        with self.blamed(journal, proposal.texts, None), torch.inference_mode():
            Batch(parts, answers).drafter.propose(list(proposal.asked))
        return journal.proposals[0]

    def parts(
        self, drafter: Drafter, journal: Journal, gamma: Rule | int, fate: Rule | int | None
    ) -> Parts:
        """The parts of a run, the drafter spied on."""
        policy = ScriptedPolicy(constant(gamma) if isinstance(gamma, int) else gamma, journal)
        rule = self.rule()
        if fate is not None:
            rule = ScriptedVerifier(constant(fate) if isinstance(fate, int) else fate, journal)
        names = {"drafter": self.subject.name}
        return Parts(self.target, SpyDrafter(drafter, journal), rule, policy, names)

    def plain(
        self,
        prompts: Sequence[Sequence[int]],
        tokens: Sequence[int] | int | None,
        stop_ids: Sequence[int] = (),
    ) -> list[list[int]]:
        """Greedy answers without a drafter."""
        key = repr((prompts, tokens, stop_ids))
        if key not in self._plain:
            run = self.run(prompts, 0, None, tokens, GREEDY, stop_ids=stop_ids, drafter=NoDrafter())
            self._plain[key] = run.ids
        return self._plain[key]

    @contextlib.contextmanager
    def blamed(
        self, journal: Journal, prompts: Sequence[Sequence[int]], gamma: object
    ) -> Iterator[None]:
        """What a run raises is the drafter's failure; what the spy saw before it comes first."""
        shown: dict[str, object] = {"prompts": list(prompts[:4])}
        if isinstance(gamma, int):
            shown["gamma"] = gamma
        elif callable(gamma):
            shown["gammas"] = [gamma(place, 0) for place in range(min(len(prompts), 4))]
        if len(prompts) > 4:
            shown["rows"] = len(prompts)
        try:
            yield
        except (CheckFailed, NotApplicable):
            raise
        except Exception as error:
            if journal.complaints:
                fail(journal.complaints[0], **shown)
            _raised(error, shown)
        if journal.complaints:
            fail(journal.complaints[0], **shown)
        if journal.unread is not None:
            _raised(journal.unread, shown)


def _raised(error: Exception, shown: dict[str, object]) -> NoReturn:
    known = isinstance(error, ForedraftError)
    fail(f"the run ended with: {error}" if known else f"the run raised {error!r}", **shown)
