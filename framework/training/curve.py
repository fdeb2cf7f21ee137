"""The learning curve of a training: as events for TensorBoard, and as a figure.

Events are written record by record into a plain file, not through TensorBoard's own writer: that one
writes in a thread, where a full disk would end in a traceback of its own.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..bench.disk import NO_LINK, PLAIN, unwritable, write_all
from ..errors import ConfigError
from ..figures import Line, Panel, stack
from .loop import Progress
from .options import LoopOptions
from .schedule import rate

FIGURE = "training.png"
PREFIX = "events.out.tfevents"  # by which its readers know a file of events
Look = Mapping[str, float]


class Events:
    """Loss, learning rate and what is held out, a point each per look.

    Args:
        folder: of the event files; made with the first look.
        options: of the loop, for the learning rate.

    Raises:
        ConfigError: the library is missing.
    """

    def __init__(self, folder: Path, options: LoopOptions) -> None:
        self.folder, self.options = folder, options
        self._file: Path | None = None
        try:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError as error:
            cause = " ".join(str(error).split()).rstrip(".")
            raise ConfigError(
                f"train.tensorboard=true needs a library that cannot be imported ({cause}); "
                "pip install 'foredraft[tensorboard]' brings it."
            ) from None
        self._event, self._session, self._summary = Event, SessionLog, Summary
        self._records: Callable[[Any], Any] = RecordWriter

    def look(self, progress: Progress) -> None:
        """Writes the newest look; the first time in a new folder, all of them.

        Raises:
            InputError: the disk takes no more.
        """
        fresh = self._file is None
        path, older = self._place()
        looks = progress.looks if fresh and not older else progress.looks[-1:]
        begin = self._begin(int(looks[0]["step"])) if fresh else []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._append(path, [*begin, *(self._point(look) for look in looks)])
        except OSError as error:
            if fresh:  # an empty file would say that points before are written
                with suppress(OSError):
                    path.unlink()
            raise unwritable(path, error) from None
        self._file = path

    def _place(self) -> tuple[Path, bool]:
        """The file of this run, and whether an earlier one left any."""
        older = [path.name.split(".")[3] for path in self.folder.glob(f"{PREFIX}.*.*")]
        number = 1 + max((int(one) for one in older if one.isdecimal()), default=0)
        return self._file or self.folder / f"{PREFIX}.{number:010d}.train", bool(older)

    def _begin(self, step: int) -> list[Any]:
        """What a file begins with. Of what was written before, points from this step on are void: a
        killed run made them, and they are made again."""
        started = self._session(status=self._session.START)
        return [
            self._event(wall_time=time.time(), step=step, file_version="brain.Event:2"),
            self._event(wall_time=time.time(), step=step, session_log=started),
        ]

    def _point(self, look: Look) -> Any:
        step = int(look["step"])
        figures = {"lr": rate(max(0, step - 1), self.options), **look}
        values = [
            self._summary.Value(tag=_tag(name), simple_value=value)
            for name, value in figures.items()
            if name != "step"
        ]
        return self._event(wall_time=time.time(), step=step, summary=self._summary(value=values))

    def _append(self, path: Path, events: Sequence[Any]) -> None:
        """All or nothing: half a record would end the file for every reader."""
        data = io.BytesIO()
        for event in events:
            self._records(data).write(event.SerializeToString())
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | PLAIN | NO_LINK, 0o666)
        end = os.fstat(file).st_size
        try:
            write_all(file, data.getvalue())
        except BaseException:
            os.ftruncate(file, end)
            raise
        finally:
            os.close(file)


def _tag(name: str) -> str:
    """``train/loss``, ``held_out/alpha_1``."""
    group = "train" if name in ("lr", "loss") else "held_out"
    return f"{group}/{name.replace(' ', '_')}"


def draw_curve(path: Path, looks: Sequence[Look], best: int) -> Path | None:
    """Held-out alpha by position over the steps, and the loss below, as PNG; None without matplotlib.

    Args:
        best: the step whose weights are written; it gets an upright line.

    Raises:
        InputError: it cannot be written.
    """
    if find_spec("matplotlib") is None:
        return None
    names = [name for name in looks[0] if name.startswith("alpha")]
    alphas = [_line(name.removeprefix("alpha "), looks, name) for name in names]
    panels = (
        Panel(alphas, "held-out alpha", "position in\nthe draft", limits=(0, 1)),
        Panel([_line("mean since the\nlook before", looks, "loss")], "loss"),
    )
    return stack(path, panels, title="Training", x="step", marked=best, mark="weights written")


def _line(name: str, looks: Sequence[Look], key: str) -> Line:
    found = [look for look in looks if key in look]
    return Line(name, [look["step"] for look in found], [look[key] for look in found], marked=True)
