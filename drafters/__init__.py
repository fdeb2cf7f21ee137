"""Drafters, one file each, all alike: a class built from its config, and a session per batch."""
