"""Checks that every kind of part goes through: its config and its import."""

from __future__ import annotations
