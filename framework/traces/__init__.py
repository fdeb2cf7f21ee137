"""Dense traces: a draft at every place of fixed texts; recorded, scored, or synthetic."""

from .dense import DenseTrace, read_traces, write_traces

__all__ = ["DenseTrace", "read_traces", "write_traces"]
