"""The checks of policies, in the order in which they run."""
