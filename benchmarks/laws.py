"""100,000 draws of the whole engine for every rule and every control, against plain decoding's law.

    python benchmarks/laws.py [--draws 100000] [--only block recursive/independent controls]

The cases are those of ``tests/law_cases.py``; the settings alternate within each batch of 2,000 rows.
``controls`` draws that many answers of every control, with the rule ``block``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from common import save

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from law_cases import CONTROLS, MIXED, PROMPT, RULES, TOKENS, parts

from foredraft.framework.testing.draws import law_p_values

FLOOR = 1e-6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=100_000)
    parser.add_argument("--only", nargs="+", default=[*RULES, "controls"])
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for rule in options.only:
        if rule == "controls":
            settings = list(CONTROLS.values())
            draws = options.draws * len(settings)
            values = law_p_values(parts("block", 0.0), settings, PROMPT, TOKENS, draws)
            found["controls"] = dict(zip(CONTROLS, values, strict=True))
        else:
            found[rule] = law_p_values(parts(rule), MIXED, PROMPT, TOKENS, options.draws)
        print(rule, found[rule], file=sys.stderr, flush=True)
    least = min(p for v in found.values() for p in (v.values() if isinstance(v, dict) else v))
    save("laws", {"draws": options.draws, "p-values": found, "least": least})
    if least < FLOOR:
        sys.exit("a law is not the target's")


if __name__ == "__main__":
    main()
