"""Fitting weights: the loop, its schedule and its state on disk, whatever is trained."""
