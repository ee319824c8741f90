"""/readyz: whether the view of the cluster is current, and which resource is not."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.kube.api.reflector import Health
from dovetail.kube.live.health import SILENT_AFTER, STALE_AFTER, checks, readiness
from dovetail.kube.live.service import LiveScheduler
from tests.kube.live.metric_service import metrics, service

WELL = Health(
    synced=True, served=True, connected=True, quiet=1, age=1, failures=0, lists=1, broken=0, error="refused once"
)


def _service(health: Health, ready: bool = True) -> LiveScheduler:
    state = "ready" if ready else "listing the cluster"
    return service(health=health, ready=ready, state=state, driver=None, signals=None)


def _health(**changes: Any) -> Health:
    return Health(**{name: changes.get(name, getattr(WELL, name)) for name in Health.__dataclass_fields__})


@pytest.mark.parametrize(
    ("health", "ready"),
    [
        (WELL, True),
        (_health(age=STALE_AFTER + 1), True),  # open, and a bookmark is not due yet
        (_health(age=SILENT_AFTER + 1), False),
        (_health(age=STALE_AFTER - 1, connected=False), True),  # between two watches
        (_health(age=STALE_AFTER + 1, connected=False), False),
        (_health(age=STALE_AFTER + 1, connected=False, served=False), True),
    ],
)
def test_ready_while_every_view_that_matters_is_current(health: Health, ready: bool) -> None:
    said, text = readiness(_service(health))
    assert said is ready
    assert (text == "ready") is ready
    assert f"dovetail_ready {int(ready)}\n" in metrics(_service(health))


def test_the_resource_its_age_and_the_error_are_named() -> None:
    health = _health(age=31.4, connected=False, broken=7)
    assert readiness(_service(health)) == (False, "/api/v1/pods: no current view for 31 s: refused once")
    assert 'dovetail_watch_age_seconds{resource="/api/v1/pods"} 31.4' in metrics(_service(health))
    assert 'dovetail_watch_failures_total{resource="/api/v1/pods"} 7' in metrics(_service(health))


def test_a_start_that_hangs_says_on_what() -> None:
    health = _health(age=99, connected=False, synced=False, error="lacks verb list")
    text = "listing the cluster; /api/v1/pods: no current view for 99 s: lacks verb list"
    assert readiness(_service(health, ready=False)) == (False, text)


def test_what_is_unknown_of_other_dovetails_is_said_and_stops_nothing() -> None:
    made = _service(WELL)
    made.peers.refused, made.peers.elsewhere = "lacks verb list", 2
    ready, text = readiness(made)
    assert ready
    assert "other Dovetails cannot be looked for: lacks verb list" in text
    assert "claim the same nodes: 2" in text
    assert "dovetail_peers_unknown 1" in metrics(made)
    assert "dovetail_peers_elsewhere 2" in metrics(made)


def test_each_check_is_named() -> None:
    made = _service(_health(age=31.4, connected=False))
    made.peers.refused = "lacks verb list"
    assert list(map(str, checks(made))) == [
        "[+]state ok: ready",
        "[+]lease ok",
        "[-]watch /api/v1/pods failed: /api/v1/pods: no current view for 31 s: refused once",
        "[+]kernels ok",
        "[!]peers warning: other Dovetails cannot be looked for: lacks verb list",
    ]


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("health", [WELL, _health(age=SILENT_AFTER + 1)])
def test_the_checks_that_decide_are_those_of_readyz(health: Health, ready: bool) -> None:
    made = _service(health, ready)
    assert all(check.passes for check in checks(made) if check.decides) is readiness(made)[0]
