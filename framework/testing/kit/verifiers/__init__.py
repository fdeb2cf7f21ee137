"""The checks of verifiers, in the order in which they run."""

# isort: off
from . import verdicts
from . import rows
from . import numerics
from . import reads
from . import joint
from . import draws

__all__ = ["draws", "joint", "numerics", "reads", "rows", "verdicts"]
