"""The checks of policies, in the order in which they run."""

# isort: off
from . import rounds
from . import repeats
from . import rows
from . import laws
from . import memory

__all__ = ["laws", "memory", "repeats", "rounds", "rows"]
