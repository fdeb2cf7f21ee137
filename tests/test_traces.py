"""Files of dense traces: what is written is read, and what is wrong is said in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foredraft.framework import InputError
from foredraft.framework.traces import DenseTrace, read_traces, write_traces
from foredraft.framework.traces.dense import ARRAYS

Arrays = dict[str, Any]


def arrays(places: int = 5, most: int = 3) -> Arrays:
    noise = np.random.default_rng(places)
    shape = (places, most)
    numbers = {n: noise.random(shape).astype(np.float32) for n in ("overlaps", "confidences")}
    entropies = (3 * noise.random(shape)).astype(np.float32)
    lengths = noise.integers(0, most + 1, places)
    return {
        "accepts": noise.random(shape) < 0.6,
        **numbers,
        "entropies": entropies,
        "lengths": lengths,
    }


def trace(places: int = 5, most: int = 3, **about: Any) -> DenseTrace:
    return DenseTrace(**arrays(places, most), about=about)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "some.npz"
    written = [
        trace(5, 3, drafter="ngram", temperature=0.5, prompt_tokens=9),
        trace(7, 1),
        trace(1, 4),
    ]
    write_traces(path, written)
    read = read_traces(path)
    assert len(read) == 3
    for one, other in zip(written, read, strict=True):
        for name in ARRAYS:
            ours, theirs = getattr(one, name), getattr(other, name)
            assert np.array_equal(ours, theirs) and ours.dtype == theirs.dtype
        assert one.about == other.about
    assert read[0].prompt_tokens == 9 and read[1].prompt_tokens == 1 and read[1].room == 7
    assert list(tmp_path.iterdir()) == [path]  # nothing half-written beside it


def test_runs_end_at_the_first_rejection_the_draft_and_the_text() -> None:
    one = arrays(4, 3)
    one["accepts"] = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1], [1, 1, 1]], dtype=bool)
    one["lengths"] = np.array([3, 2, 3, 3])
    assert DenseTrace(**one).runs.tolist() == [2, 2, 0, 1]


def test_a_trace_cannot_be_changed() -> None:
    one = trace()
    with pytest.raises(ValueError, match="read-only"):
        one.accepts[0, 0] = True
    with pytest.raises(AttributeError):
        one.lengths = np.zeros(5, dtype=np.int64)  # type: ignore[misc]


def with_nan(one: Arrays) -> None:
    one["overlaps"][1, 1] = np.nan


WRONG: dict[str, tuple[Callable[[Arrays], object], str]] = {
    "no places": (
        lambda a: a.update(accepts=np.zeros((0, 3), dtype=bool)),
        "accepts have the shape",
    ),
    "one axis": (lambda a: a.update(accepts=np.zeros(5, dtype=bool)), "accepts have the shape"),
    "other shape": (lambda a: a.update(entropies=a["entropies"][:4]), "entropies have the shape"),
    "few lengths": (lambda a: a.update(lengths=a["lengths"][:4]), "lengths have the shape"),
    "long": (lambda a: a.update(lengths=a["lengths"] + 4), "lengths hold"),
    "negative": (lambda a: a.update(lengths=a["lengths"] - 9), "lengths hold -"),
    "real lengths": (lambda a: a.update(lengths=a["lengths"] * 1.0), "whole numbers"),
    "real accepts": (lambda a: a.update(accepts=a["overlaps"]), "bool is due"),
    "nan": (with_nan, "overlaps must be numbers from 0"),
    "above one": (
        lambda a: a.update(confidences=a["confidences"] + 1),
        "confidences must be numbers",
    ),
    "below zero": (lambda a: a.update(entropies=-a["entropies"]), "entropies must be numbers"),
    "short room": (lambda a: a.update(about={"room": 4}), "room=4"),
    "no prompt": (lambda a: a.update(about={"prompt_tokens": "3"}), "prompt_tokens='3'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_arrays_that_make_no_sense_are_refused(case: str, tmp_path: Path) -> None:
    change, words = WRONG[case]
    wrong = arrays()
    change(wrong)
    with pytest.raises(InputError, match=words) as caught:
        DenseTrace(**wrong)
    assert "\n" not in str(caught.value)
    about = wrong.pop("about", {})
    path = tmp_path / "wrong.npz"
    save(path, {f"{name}_0": array for name, array in wrong.items()}, [about])
    with pytest.raises(InputError, match=f"trace 0 of .*wrong.npz is damaged: .*{words}"):
        read_traces(path)


def save(path: Path, found: Arrays, about: object, kind: str = "foredraft-traces-1") -> None:
    text = json.dumps({"format": kind, "traces": about})
    np.savez(path, about=np.frombuffer(text.encode(), dtype=np.uint8), **found)


def test_other_files_are_refused(tmp_path: Path) -> None:
    good = tmp_path / "good.npz"
    write_traces(good, [trace(50, 8)])
    whole = good.read_bytes()
    files = {
        "cut": whole[: len(whole) // 2],
        "short": whole[:10],
        "empty": b"",
        "text": b"no archive at all",
        "pickle": b"\x80\x04N.",
        "changed": whole[:200] + bytes(100) + whole[300:],
    }
    for name, data in files.items():
        path = tmp_path / f"{name}.npz"
        path.write_bytes(data)
        with pytest.raises(InputError, match=f"{name}.npz") as caught:
            read_traces(path)
        text = str(caught.value)
        assert "\n" not in text and "pickle" not in text.replace("pickle.npz", ""), name


def test_archives_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(InputError, match="other.npz is no whole file of dense traces"):
        read_traces(path)
    save(path, {}, [], "something-else")
    with pytest.raises(InputError, match="format"):
        read_traces(path)
    save(path, {}, [])
    with pytest.raises(InputError, match="holds no trace"):
        read_traces(path)
    save(path, {}, [{}])
    with pytest.raises(InputError, match="accepts_0"):
        read_traces(path)


def test_objects_in_a_file_are_not_run(tmp_path: Path) -> None:
    path = tmp_path / "evil.npz"
    found: Arrays = {f"{name}_0": array for name, array in arrays().items()}
    found["lengths_0"] = np.array([Bomb()] * 5, dtype=object)
    save(path, found, [{}])
    with pytest.raises(InputError, match="evil.npz"):
        read_traces(path)
    assert not Bomb.went_off


class Bomb:
    """Notes if it was ever unpickled."""

    went_off = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _go_off, ()


def _go_off() -> None:
    Bomb.went_off = True


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_traces(tmp_path / "missing.npz")
    with pytest.raises(InputError, match="cannot be read"):
        read_traces(tmp_path)
    with pytest.raises(InputError, match="cannot be written"):
        write_traces(tmp_path / "no" / "folder.npz", [trace()])
    with pytest.raises(InputError, match="no trace"):
        write_traces(tmp_path / "none.npz", [])
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.npz"
    write_traces(path, [trace()])
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        write_traces(path, [trace(more=float("nan"))])
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
