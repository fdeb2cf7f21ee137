"""Verification rules, one file each."""
