"""Observers, one file each: what hears a run and shows it or writes it down."""
