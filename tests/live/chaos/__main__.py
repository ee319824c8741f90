"""`python -m tests.live.chaos --seed 7 --minutes 3`: faults on a control plane of its own; exits 1 where any shows."""

from __future__ import annotations

import argparse
import random
import sys

from tests.live.chaos.run import FAULTS, run
from tools.controlplane.binaries import Missing, find
from tools.controlplane.plane import ControlPlane


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="the same seed, the same faults")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--families", default="", help=f"some of: {', '.join(FAULTS)}")
    parser.add_argument("--keep-log", metavar="FILE", default="", help="copy the scheduler's log there")
    given = parser.parse_args()
    families = [name for name in given.families.replace(",", " ").split() if name]
    if unknown := [name for name in families if name not in FAULTS]:
        parser.error(f"there is no family {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    try:
        binaries = find()
    except Missing as error:
        parser.error(f"no control plane: {error}")
    with ControlPlane(binaries) as plane:
        outcome = run(plane, given.seed, given.minutes * 60, families, lambda text: print(text, flush=True))
        if given.keep_log:
            with open(given.keep_log, "w", encoding="utf-8") as file:
                file.write(outcome.log.read_text(encoding="utf-8", errors="replace"))
    print("families:", ", ".join(f"{name} {count}" for name, count in sorted(outcome.faults.items())))
    caught = {name: len(found) for name, found in outcome.found.items() if found}
    print("findings:", ", ".join(f"{name} {count}" for name, count in sorted(caught.items())) or "none")
    return 1 if caught else 0


if __name__ == "__main__":
    sys.exit(main())
