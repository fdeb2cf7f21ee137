"""Synthetic texts follow their process, and nothing else."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from foredraft.framework import ConfigError
from foredraft.framework.traces import DenseTrace, read_traces, write_traces
from foredraft.framework.traces.synthetic import (
    TAIL,
    Drifting,
    Iid,
    Process,
    TwoState,
    alphas_of,
    process_of,
    spread_entropy,
    synthetic_traces,
)

PROCESSES = [Iid(0.6), Drifting(0.2, 0.8, 60), TwoState((0.9, 0.3), (40, 25))]


def known(trace: DenseTrace) -> np.ndarray:
    """Whether the drafter knows each of the text's tokens."""
    return np.asarray(trace.accepts[:, 0])


@pytest.mark.parametrize("process", PROCESSES, ids=lambda p: type(p).__name__)
def test_there_is_one_draw_per_place_of_the_text(process: Process) -> None:
    for trace in synthetic_traces(process, 3, 200, 5, seed=1):
        for name in ("accepts", "overlaps", "confidences", "entropies"):
            array = getattr(trace, name)
            for step in range(1, 5):
                assert np.array_equal(array[step:, 0], array[:-step, step])
        assert set(trace.lengths.tolist()) == {5}


@pytest.mark.parametrize("process", PROCESSES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("concentration", [0.5, 4.0, 1e6])
def test_acceptance_has_the_rate_of_its_place(process: Process, concentration: float) -> None:
    traces = synthetic_traces(process, 400, 100, 2, seed=3, concentration=concentration)
    hits = np.array([known(trace) for trace in traces])
    rates = np.array([alphas_of(trace) for trace in traces])
    for low, high in pairwise(np.quantile(rates, [0, 0.25, 0.5, 0.75, 1])):
        chosen = (rates >= low) & (rates <= high)
        error = (rates[chosen] * (1 - rates[chosen])).mean() ** 0.5 / chosen.sum() ** 0.5
        assert abs(hits[chosen].mean() - rates[chosen].mean()) < 4 * error


def test_places_are_independent_given_their_rates() -> None:
    hits = np.array([known(trace) for trace in synthetic_traces(Iid(0.6), 50, 2000, 1)])
    for lag in (1, 2, 5):
        correlation = np.corrcoef(hits[:, :-lag].ravel(), hits[:, lag:].ravel())[0, 1]
        assert abs(correlation) < 4 / hits[:, lag:].size ** 0.5


def test_texts_begin_anywhere_in_the_cycle() -> None:
    traces = synthetic_traces(TwoState((0.9, 0.3), (40, 25)), 200, 10, 2)
    firsts = [alphas_of(trace)[0] for trace in traces]  # type: ignore[index]
    assert np.mean([first == 0.9 for first in firsts]) == pytest.approx(40 / 65, abs=0.14)
    assert set(firsts) == {0.9, 0.3}


def test_states_last_as_long_as_was_said() -> None:
    rates = TwoState((0.9, 0.5, 0.3), (3, 1, 2)).rates(np.arange(-1, 13))
    assert rates.tolist() == [0.3, 0.9, 0.9, 0.9, 0.5, 0.3, 0.3, 0.9, 0.9, 0.9, 0.5, 0.3, 0.3, 0.9]


def test_a_drift_goes_from_low_to_high_and_back() -> None:
    rates = Drifting(0.2, 0.8, 400).rates(np.arange(400))
    assert rates.max() == pytest.approx(0.8) and rates.min() == pytest.approx(0.2)
    assert rates.argmax() == 100 and rates.argmin() == 300 and rates[0] == 0.5


@pytest.mark.parametrize(
    ("insight", "low", "high"), [(0.0, -0.02, 0.02), (0.5, 0.4, 0.6), (1.0, 0.99, 1)]
)
def test_insight_is_how_well_the_confidence_tells(insight: float, low: float, high: float) -> None:
    traces = synthetic_traces(Iid(0.6), 40, 1000, 1, insight=insight, greedy=False)
    own, said = (
        np.array([getattr(trace, name)[:, 0] for trace in traces]).ravel()
        for name in ("overlaps", "confidences")
    )
    assert low <= np.corrcoef(own, said)[0, 1] <= high + 1e-6
    assert said.mean() == pytest.approx(0.6, abs=0.01)


def test_confidence_at_full_insight_is_the_chance_to_stand() -> None:
    traces = synthetic_traces(Iid(0.5), 40, 1000, 1, insight=1.0, concentration=2.0)
    said = np.array([trace.confidences[:, 0] for trace in traces]).ravel()
    hits = np.array([known(trace) for trace in traces]).ravel()
    for low in np.arange(0, 1, 0.2):
        chosen = (said >= low) & (said < low + 0.2)
        assert hits[chosen].mean() == pytest.approx(said[chosen].mean(), abs=0.03)


def test_entropies_are_of_a_law_with_that_confidence() -> None:
    law = np.array([0.7, *[0.3 / TAIL] * TAIL])
    assert spread_entropy(0.7) == pytest.approx(-(law * np.log(law)).sum())
    assert spread_entropy([0.0, 1.0]) == pytest.approx([np.log(TAIL), 0.0], abs=1e-8)
    (trace,) = synthetic_traces(Iid(0.7), 1, 30, 2)
    assert trace.entropies == pytest.approx(spread_entropy(trace.confidences), abs=1e-4)


def test_overlaps_are_outcomes_under_greedy_decoding_and_rates_otherwise() -> None:
    greedy, sampled = (synthetic_traces(Iid(0.7), 2, 300, 2, greedy=g)[0] for g in (True, False))
    assert np.array_equal(greedy.overlaps, greedy.accepts)
    assert np.array_equal(greedy.accepts, sampled.accepts)
    assert len(np.unique(sampled.overlaps)) > 200
    assert sampled.overlaps.mean() == pytest.approx(0.7, abs=0.08)


def test_equal_arguments_give_equal_texts() -> None:
    one, same, other = (synthetic_traces(Iid(0.7), 2, 50, 3, seed=s)[1] for s in (4, 4, 5))
    assert np.array_equal(one.accepts, same.accepts)
    assert np.array_equal(one.confidences, same.confidences)
    assert not np.array_equal(one.accepts, other.accepts)


@pytest.mark.parametrize("process", PROCESSES, ids=lambda p: type(p).__name__)
def test_a_file_keeps_the_rates(process: Process, tmp_path: object) -> None:
    path = f"{tmp_path}/made.npz"
    made = synthetic_traces(process, 2, 30, 3)
    write_traces(path, made)
    for one, other in zip(made, read_traces(path), strict=True):
        assert process_of(other.about) == process
        assert np.array_equal(alphas_of(one), alphas_of(other))  # type: ignore[arg-type]


def test_a_real_text_has_no_known_rate() -> None:
    (trace,) = synthetic_traces(Iid(), 1, 5, 2)
    bare = DenseTrace(
        trace.accepts, trace.overlaps, trace.confidences, trace.entropies, trace.lengths
    )
    assert alphas_of(bare) is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Iid(1.5), "alpha=1.5"),
        (lambda: Drifting(0.9, 0.3), "high=0.3"),
        (lambda: Drifting(period=1), "period=1"),
        (lambda: TwoState((0.9,), (3, 4)), r"lengths=\[3, 4\]"),
        (lambda: TwoState((), ()), r"lengths=\[\]"),
        (lambda: TwoState((0.9, 0.3), (0, 4)), "lengths=0"),
        (lambda: synthetic_traces(Iid(), 0), "texts=0"),
        (lambda: synthetic_traces(Iid(), places=0), "places=0"),
        (lambda: synthetic_traces(Iid(), gamma_max=0), "gamma_max=0"),
        (lambda: synthetic_traces(Iid(), insight=2), "insight=2"),
        (lambda: synthetic_traces(Iid(), concentration=0), "concentration=0"),
    ],
)
def test_impossible_texts_are_refused(make: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()  # type: ignore[operator]
