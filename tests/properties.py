"""Settings of property tests: the same examples in every `make test`, new and more ones in `make soak`.

Import this before any test is made: `settings(…)` inherits from the profile that is loaded at that moment.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SOAK = os.environ.get("DOVETAIL_SOAK") == "1"
TIMES = 20 if SOAK else 1
USUAL = 200  # examples of a test that does not say how many

settings.register_profile(
    "dovetail",
    max_examples=USUAL * TIMES,
    deadline=None,  # the machine may be busy
    derandomize=not SOAK,
    database=None,
    print_blob=SOAK,  # how to repeat a failure; the seed is printed by pytest
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("dovetail")


def with_examples(number: int, steps: int | None = None) -> settings:
    """So many examples, more in a soak. `steps`: of a state machine."""
    if steps is None:
        return settings(max_examples=number * TIMES)
    return settings(max_examples=number * TIMES, stateful_step_count=steps)
