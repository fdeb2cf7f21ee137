"""One thread, one seed, and the shared helpers importable however pytest was started."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Of commands that tests start: two of them with two threads each on two cores wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

# `python -m pytest` finds tests/ as a namespace package and leaves it off the path.
sys.path.insert(0, str(Path(__file__).parent))

torch.set_num_threads(1)

# Thousands of answers make the collector walk through all of torch and transformers again and again:
# half of the time of a test by draws, if it may.
gc.set_threshold(50_000, 20, 100)


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests may use the global generator, each from the same start."""
    torch.manual_seed(0)
    yield
    if request.node.get_closest_marker("model"):
        gc.collect()  # a model that is left in a cycle is half a gigabyte


@pytest.fixture
def only_builtins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What ships, whatever else is installed, and nothing that another test registered."""
    from foredraft.framework import plugins

    monkeypatch.setenv("FOREDRAFT_PLUGINS", "")
    plugins.reset()
    yield
    plugins.reset()


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings draw no curve, which takes longer than a tiny training itself."""
    monkeypatch.setattr("foredraft.framework.training.curve.find_spec", lambda name: None)
