"""Replay: any gamma policy over dense traces, without a model, in the loop's own protocol."""

from .compare import Comparison, compare
from .engine import replay
from .result import Replay

__all__ = ["Comparison", "Replay", "compare", "replay"]
