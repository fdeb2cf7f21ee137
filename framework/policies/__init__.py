"""Draft-length policies, one file each."""
