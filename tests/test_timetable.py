"""A table of step times: what it says between and beyond its lines, and on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foredraft.framework.errors import InputError
from foredraft.framework.times.table import BatchTimes, TimeTable


def size(batch: int = 1, scale: float = 1.0, **changes: Any) -> BatchTimes:
    lines = ((1.0, 2.0, 6.0), (3.0, 4.0, 8.0))
    values: dict[str, Any] = {
        "contexts": (100, 200),
        "widths": (1, 2, 4),
        "target": tuple(tuple(scale * x for x in line) for line in lines),
        "gammas": (2, 4),
        "draft": (scale * 0.2, scale * 0.8),
    }
    return BatchTimes(batch, **{**values, **changes})


def test_measured_points_are_given_as_they_are() -> None:
    table = TimeTable([size()])
    assert table.target(1, [1, 2, 4], 100).tolist() == [1, 2, 6]
    assert table.target(1, [4, 1], 200).tolist() == [8, 3]
    assert table.draft(1, [0, 2, 4]) == pytest.approx([0, 0.2, 0.8])


def test_it_is_linear_between_widths_contexts_gammas_and_batches() -> None:
    table = TimeTable([size(4, 10), size(2)])  # in any order
    assert table.target(2, [3], 100) == pytest.approx([4])
    assert table.target(2, [3], 150) == pytest.approx([5])
    assert table.target(3, [3], 150) == pytest.approx([27.5])
    assert table.draft(2, [1, 3]) == pytest.approx([0.1, 0.5])
    assert table.draft(3, [4]) == pytest.approx([(0.8 + 8) / 2])


def test_beyond_it_goes_on_and_elsewhere_stays_level() -> None:
    table = TimeTable([size(2), size(4, 10)])
    assert table.target(2, [6], 100) == pytest.approx([10])  # two more by 2 each
    assert table.draft(2, [6]) == pytest.approx([1.4])
    assert table.target(5, [1], 100) == pytest.approx([14.5])
    assert table.target(1, [1], 100) == pytest.approx([1])
    assert table.target(2, [1], 10) == pytest.approx([1])
    assert table.target(2, [1], 9999) == pytest.approx([3])


def test_noise_never_makes_wider_steps_cheaper_beyond_the_widest() -> None:
    falling = TimeTable([size(target=((1.0, 2.0, 1.5), (1.0, 2.0, 1.5)))])
    assert falling.target(1, [4, 5, 60], 100) == pytest.approx([1.5, 1.5, 1.5])


def test_a_table_of_one_point_is_flat() -> None:
    table = TimeTable([BatchTimes(1, (0,), (1,), ((0.5,),))])
    assert table.target(8, [1, 9], 4000).tolist() == [0.5, 0.5]
    assert table.draft(8, [0, 9]).tolist() == [0, 0]


def test_a_file_brings_back_the_table(tmp_path: Path) -> None:
    path, about = tmp_path / "times.json", {"device": "a chip", "threads": 2}
    table = TimeTable([size(), size(8, 3)], about)
    table.save(path)
    again = TimeTable.load(path)
    assert again.sizes == table.sizes
    assert again.about == about
    assert [p.name for p in tmp_path.iterdir()] == ["times.json"]
    for batch, context in ((1, 100), (3, 170), (9, 500)):
        one, other = (t.target(batch, range(1, 9), context) for t in (table, again))
        assert np.array_equal(one, other)


BROKEN = {
    "no text": lambda d: None,
    "no format": lambda d: d.pop("format"),
    "another format": lambda d: d.update(format="foredraft times 0"),
    "no sizes": lambda d: d.update(sizes=[]),
    "a size missing a key": lambda d: d["sizes"][0].pop("draft"),
    "batch 0": lambda d: d["sizes"][0].update(batch=0),
    "batch as text": lambda d: d["sizes"][0].update(batch="1"),
    "widths that fall": lambda d: d["sizes"][0].update(widths=[1, 4, 2]),
    "widths from 2": lambda d: d["sizes"][0].update(widths=[2, 3, 4]),
    "a true width": lambda d: d["sizes"][0].update(widths=[True, 2, 4]),
    "a line too short": lambda d: d["sizes"][0]["target"][0].pop(),
    "a line too few": lambda d: d["sizes"][0]["target"].pop(),
    "no seconds": lambda d: d["sizes"][0]["target"][0].__setitem__(0, 0.0),
    "seconds below 0": lambda d: d["sizes"][0]["draft"].__setitem__(0, -1.0),
    "seconds as text": lambda d: d["sizes"][0]["draft"].__setitem__(0, "1"),
    "too few drafts": lambda d: d["sizes"][0]["draft"].pop(),
    "about no group": lambda d: d.update(about=[]),
    "a batch twice": lambda d: d["sizes"].append(d["sizes"][0]),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_damaged_file_is_refused_in_a_sentence(how: str, tmp_path: Path) -> None:
    path, values = tmp_path / "times.json", json.loads(json.dumps(TimeTable([size()]).as_dict()))
    BROKEN[how](values)
    path.write_text("{" if how == "no text" else json.dumps(values), "utf-8")
    with pytest.raises(InputError) as caught:
        TimeTable.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path} is no table of step times")
    assert message.endswith(".") and "\n" not in message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str, tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    TimeTable([size()]).save(path)
    path.write_text(path.read_text("utf-8").replace("0.2", number, 1), "utf-8")
    with pytest.raises(InputError, match="must be seconds"):
        TimeTable.load(path)


def test_files_that_cannot_be_read_or_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere.json cannot be read: No such file"):
        TimeTable.load(tmp_path / "nowhere.json")
    with pytest.raises(InputError, match="cannot be written"):
        TimeTable([size()]).save(tmp_path / "no_folder" / "times.json")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read: it is not text"):
        TimeTable.load(tmp_path / "bytes")
