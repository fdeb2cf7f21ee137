"""Dense traces of the real loop, and scores of given texts, against what they have to be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import SAMPLED
from law_cases import table

from foredraft.drafters.builtin import NgramConfig, PromptLookupConfig, TokenRecyclingConfig
from foredraft.drafters.ngram import Ngram
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.drafters.token_recycling import TokenRecycling
from foredraft.framework import ConfigError, SamplingParams
from foredraft.framework.decoding import Parts, decode
from foredraft.framework.interfaces import Drafter, Verifier
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.requests import Answer, Request
from foredraft.framework.targets.table import TableTarget
from foredraft.framework.testing.tables import TableDrafter
from foredraft.framework.traces.recording import record, walk
from foredraft.framework.traces.scoring import Text, score
from foredraft.verifiers.coupled import CoupledVerifier

TARGET, DRAFT = table(1, 0.2), table(2, 0.0)
LOOKUP = PromptLookup(PromptLookupConfig())


def parts(drafter: Drafter, gamma: int = 0, verifier: Verifier | None = None) -> Parts:
    return Parts(TARGET, drafter, verifier or CoupledVerifier(), Fixed(FixedConfig(gamma)), {})


def answers(count: int = 3, tokens: int = 24, temperature: float = 1.0) -> list[Answer]:
    sampling = SamplingParams(temperature=temperature)
    return [
        Answer(Request([row % 2, 1, 0], tokens - 5 * row, sampling, seed=4, index=row))
        for row in range(count)
    ]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("drafter", [TableDrafter(DRAFT), LOOKUP], ids=["table", "lookup"])
def test_the_texts_are_those_of_plain_decoding(drafter: Drafter, temperature: float) -> None:
    plain, walked = answers(temperature=temperature), answers(temperature=temperature)
    list(decode(parts(drafter), plain))
    record(parts(drafter), walked, 3)
    assert [a.token_ids for a in walked] == [a.token_ids for a in plain]


@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_live_round_is_in_the_trace(temperature: float, gamma: int) -> None:
    drafter = TableDrafter(DRAFT)
    traces = record(parts(drafter), answers(temperature=temperature), 3)
    live = answers(temperature=temperature)
    places = [0] * len(live)
    for outcome in decode(parts(drafter, gamma), live):
        for row in outcome.rows:
            trace, place = traces[row.request], places[row.request]
            asked = min(gamma, trace.room - place - 1)
            assert len(row.drafted) == min(asked, trace.lengths[place])
            assert row.accepted == min(trace.runs[place], asked)
            reached = len(row.overlaps)
            assert row.overlaps == pytest.approx(trace.overlaps[place, :reached].tolist())
            places[row.request] += len(row.emitted)
    assert places == [len(answer.token_ids) for answer in live]


def test_a_place_without_a_draft_is_one() -> None:
    (trace,) = record(parts(LOOKUP), answers(1), 4)
    assert set(trace.lengths.tolist()) > {0}
    assert (trace.confidences[trace.lengths == 0] == 0).all()
    assert (trace.confidences[:, 0] == (trace.lengths > 0)).all()
    assert trace.about["drawn"] == "deterministic" and trace.room == 24


def test_rows_do_not_depend_on_their_batch() -> None:
    together = record(parts(TableDrafter(DRAFT)), answers(), 3)
    for row, trace in enumerate(together):
        (alone,) = record(parts(TableDrafter(DRAFT)), [answers()[row]], 3)
        assert (alone.accepts == trace.accepts).all()
        assert np.allclose(alone.overlaps, trace.overlaps)


def test_trees_are_refused() -> None:
    with pytest.raises(ConfigError, match="drafts trees here"):
        walk(parts(TokenRecycling(TokenRecyclingConfig(successors=2), TARGET)), answers(), 2)


# --- scores ------------------------------------------------------------------------------------


def law(source: TableTarget, ids: list[int]) -> torch.Tensor:
    """The law behind ids, read off the table; ids are at least two."""
    row = ids[-2] * (source.vocab_size + 1) + ids[-1]
    return source.logits[row].exp()


def texts(count: int = 3) -> list[Text]:
    plain = answers(count)
    list(decode(parts(LOOKUP), plain))
    return [Text(a.request.prompt, a.token_ids, {"group": "x"}) for a in plain]


def test_a_score_is_the_overlap_of_the_two_laws() -> None:
    given = texts()
    for found in score(parts(TableDrafter(DRAFT)), given, [SAMPLED], rows=2):
        ids = [*found.text.prompt, *found.text.answer]
        begin = len(found.text.prompt)
        laws = [
            (law(TARGET, ids[: begin + place]), law(DRAFT, ids[: begin + place]))
            for place in range(len(found.text.answer))
        ]
        due = [float(torch.minimum(p, q).sum()) for p, q in laws]
        assert found.overlaps == pytest.approx(due)
        assert found.drafted.all()
        assert found.alpha == pytest.approx(sum(due) / len(due))


def test_all_temperatures_are_scored_on_the_same_text() -> None:
    cold, warm = score(
        parts(TableDrafter(DRAFT)), texts(1), [SamplingParams(temperature=t) for t in (0.0, 1.0)]
    )
    assert cold.text is warm.text and len(cold.overlaps) == len(warm.overlaps)
    assert set(cold.overlaps.tolist()) <= {0.0, 1.0}
    assert len(set(warm.overlaps.tolist())) > 2


def test_scores_do_not_depend_on_how_many_are_walked_together() -> None:
    one = score(parts(Ngram(NgramConfig(order=2), TARGET)), texts(), [SAMPLED], rows=1)
    all_ = score(parts(Ngram(NgramConfig(order=2), TARGET)), texts(), [SAMPLED], rows=8)
    for a, b in zip(one, all_, strict=True):
        assert a.overlaps == pytest.approx(b.overlaps)


def test_live_alpha_is_the_score_of_the_places_that_were_reached() -> None:
    given = texts()
    scores = score(parts(TableDrafter(DRAFT)), given, [SAMPLED])
    live = answers()
    places, reached = [0] * len(live), []
    for outcome in decode(parts(TableDrafter(DRAFT), 2), live):
        for row in outcome.rows:
            at = places[row.request]
            reached += [scores[row.request].overlaps[at + i] for i in range(len(row.overlaps))]
            places[row.request] += len(row.emitted)
    overlap = sum(answer.metrics.overlap for answer in live)
    assert sum(reached) == pytest.approx(overlap)
    # The very texts are the same: coupled runs do not depend on drafts.
    assert [a.token_ids for a in live] == [text.answer for text in given]


def test_a_scores_trace_stands_with_the_overlaps() -> None:
    scores = score(parts(TableDrafter(DRAFT)), texts(), [SAMPLED])
    found = scores[0].trace(3, seed=1)
    assert found.accepts.shape == (24, 3) and found.about["group"] == "x"
    stands = np.mean([s.trace(1, seed).accepts.mean() for s in scores[:1] for seed in range(400)])
    spread = 0.5 / np.sqrt(400 * 24)
    assert stands == pytest.approx(scores[0].alpha, abs=4 * spread)
    for place in range(23):  # one draw per place, whatever it was drafted from
        assert found.accepts[place, 1] == found.accepts[place + 1, 0]


def test_an_end_token_in_a_text_ends_it() -> None:
    target = TableTarget(TARGET.logits.exp(), TARGET.order, eos=1)
    (found,) = score(replace(parts(LOOKUP), target=target), [Text([0], [0, 1, 0, 0])], [SAMPLED])
    assert len(found.overlaps) == 2
