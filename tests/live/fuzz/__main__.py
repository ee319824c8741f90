"""`python -m tests.live.fuzz --who tenant --seed 7`: attacks on a control plane of its own; exits 1 where any shows.

`--who churn`: nobody attacks, but objects of all kinds come and go with new names; memory is judged.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys

from tests.live.fuzz import churn
from tests.live.fuzz.attacker import WHO
from tests.live.fuzz.parts import audited
from tests.live.fuzz.run import Plan, run
from tools.controlplane.binaries import Binaries, Missing, find
from tools.controlplane.plane import ControlPlane

CHURN = "churn"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="the same seed, the same attacks")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each")
    parser.add_argument(
        "--who", choices=(*WHO, CHURN, ""), default="", help="one of these; both attackers, if not said"
    )
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--compiled", action="store_true", help="policies are compiled, as in the shipped scheduler")
    parser.add_argument("--keep-log", metavar="FILE", default="", help="copy the scheduler's log there")
    parser.add_argument("--without", default="", help="twists and acts to leave out, to narrow a finding down")
    given = parser.parse_args()
    try:
        binaries = find()
    except Missing as error:
        parser.error(f"no control plane: {error}")
    if given.who == CHURN:
        return _churn(binaries, given.seed, given.seconds, not given.compiled)
    wrong = 0
    for who in [given.who] if given.who else WHO:
        with audited(binaries) as plane:
            without = tuple(given.without.replace(",", " ").split())
            plan = Plan(who, given.seed, given.seconds, given.rate, interpreted=not given.compiled, without=without)
            wrong += len(run(plane, plan, say).found)
            if given.keep_log:
                for log in sorted(plane.path.glob("dovetail-*.log")):
                    shutil.copy(log, f"{given.keep_log}.{who}")
    return 1 if wrong else 0


def _churn(binaries: Binaries, seed: int, seconds: float, interpreted: bool) -> int:
    with ControlPlane(binaries) as plane:
        outcome = churn.run(plane, seed, seconds, interpreted, say)
    if grown := churn.grown(outcome):
        say(f"  WRONG: memory: {grown}")
    return 1 if outcome.found or grown else 0


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
