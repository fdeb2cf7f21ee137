"""Checks of config values, used where the value is used. Imports no torch."""

from __future__ import annotations

from collections.abc import Collection

from .errors import ConfigError, near_match


def check_range(key: str, value: object, low: float, high: float) -> None:
    """Refuses a number outside [low, high], NaN and anything that is not a number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and low <= value <= high):  # type: ignore[operator]
        raise ConfigError(f"{key}={value!r} is not possible; it must be from {low} to {high}.")


def check_whole(key: str, value: object, low: int, high: int) -> None:
    """Refuses anything but a whole number in [low, high]: no bool, no 1.9, no '3'."""
    if type(value) is not int or not low <= value <= high:
        raise ConfigError(
            f"{key}={value!r} is not possible; it must be a whole number from {low} to {high}."
        )


def check_choice(key: str, value: str, choices: Collection[str]) -> None:
    """Refuses a word that is not one of the choices, naming the closest."""
    if value not in choices:
        hint = near_match(str(value), list(choices))
        raise ConfigError(
            f"{key}={value!r} is not possible; {hint}it must be one of {', '.join(choices)}."
        )
