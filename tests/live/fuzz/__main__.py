"""`python -m tests.live.fuzz --who tenant --seed 7`: attacks on a control plane of its own; exits 1 where any shows."""

from __future__ import annotations

import argparse
import random
import shutil
import sys

from tests.live.fuzz.attacker import WHO
from tests.live.fuzz.run import Plan, run
from tools.controlplane.binaries import Missing, find
from tools.controlplane.plane import ControlPlane


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="the same seed, the same attacks")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each")
    parser.add_argument("--who", choices=(*WHO, ""), default="", help="one of the two; both, if not said")
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--compiled", action="store_true", help="policies are compiled, as in the shipped scheduler")
    parser.add_argument("--keep-log", metavar="FILE", default="", help="copy the scheduler's log there")
    parser.add_argument("--without", default="", help="twists and acts to leave out, to narrow a finding down")
    given = parser.parse_args()
    try:
        binaries = find()
    except Missing as error:
        parser.error(f"no control plane: {error}")
    wrong = 0
    for who in [given.who] if given.who else WHO:
        with ControlPlane(binaries) as plane:
            without = tuple(given.without.replace(",", " ").split())
            plan = Plan(who, given.seed, given.seconds, given.rate, interpreted=not given.compiled, without=without)
            wrong += len(run(plane, plan, lambda text: print(text, flush=True)).found)
            if given.keep_log:
                for log in sorted(plane.path.glob("dovetail-*.log")):
                    shutil.copy(log, f"{given.keep_log}.{who}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
