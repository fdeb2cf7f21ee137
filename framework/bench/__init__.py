"""Measuring drafters side by side: the demo's and the benchmarks' common ground."""
