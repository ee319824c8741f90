"""Compiled code gets addresses: what stands there must stay alive for as long as the call lasts."""

from __future__ import annotations

from dovetail.engine import native
from dovetail.engine.requests import Requests
from tests.builders import ask, cluster, node, pod


def test_the_tables_of_a_call_outlive_it_however_many_batches_came_before() -> None:
    scheduler = cluster(node("a", gpus=2))
    requests: Requests = scheduler.requests
    one = pod("p", ask(1, 1000))
    signature = requests.signature(one)
    state = scheduler.ledger.state()
    call = native.Caller()
    for _ in range(3 * native.Caller.REMEMBERED):
        batch = requests.batch([one], [signature], [(1, 1)])
        addresses = call(lambda *given: given, state, batch)
        alive = {address for _, address, _ in call._packed.values()} | {call._at}
        assert len(call._alive) > 0
        assert set(addresses) <= alive  # an evicted table is freed memory that compiled code would read
    assert len(call._packed) == native.Caller.REMEMBERED
