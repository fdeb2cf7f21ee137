"""Presets and experiments of this package."""
