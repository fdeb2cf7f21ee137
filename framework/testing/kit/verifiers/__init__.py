"""The checks of verifiers, in the order in which they run."""
