"""The checks of drafters, in the order in which they run."""
