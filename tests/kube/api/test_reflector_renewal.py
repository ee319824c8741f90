"""Watches that are begun again on request, and resources that are looked for in a hurry."""

from __future__ import annotations

from dovetail.kube.api.watch import NotServed
from tests.kube.api.stub import Clock, added, drops, hangs, lists, pod, reflecting, refuses, serving, streams


async def test_a_renewed_watch_goes_on_from_where_it_was() -> None:
    clock, opened = Clock(), list[bool]()
    async with serving() as stub:
        stub.lists = [lists(pod("a"), version=10)]
        stub.watches = [streams(added(pod("b", 11)), hangs), streams(added(pod("c", 12)), hangs)]
        async with reflecting(stub, clock, on_watch=opened.append) as (reflector, consumer):
            await consumer.until(lambda: consumer.names == ["a", "b"])
            reflector.renew()
            await consumer.until(lambda: consumer.names == ["a", "b", "c"])
            assert opened == [True, True]  # that is no failure
            assert clock.slept == []
        assert [asked["resourceVersion"] for asked in stub.asked(watch=True)] == ["10", "11"]
        assert len(stub.asked(watch=False)) == 1


async def test_a_watch_that_breaks_is_told_before_the_next_one_opens() -> None:
    opened: list[bool] = []
    async with serving() as stub:
        stub.watches = [streams(drops), streams(added(pod("a", 5)), hangs)]
        async with reflecting(stub, on_watch=opened.append) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["a"])
            assert opened == [True, False, True]


async def test_every_list_and_watch_is_told_before_it_is_asked_for() -> None:
    begun: list[int] = []  # how many requests there were until then
    async with serving() as stub:
        stub.lists = [lists(pod("a"), version=10)]
        stub.watches = [streams(drops), streams(added(pod("b", 11)), hangs)]

        def begins() -> None:
            begun.append(len(stub.asked(watch=False)) + len(stub.asked(watch=True)))

        async with reflecting(stub, on_begin=begins) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["a", "b"])
        assert begun == [0, 1, 2]


async def test_a_watch_may_be_renewed_as_it_opens() -> None:
    opened: list[bool] = []
    async with serving() as stub:
        stub.lists = [lists(pod("a"), version=10)]
        stub.watches = [streams(hangs), streams(added(pod("b", 11)), hangs)]

        def opens(is_open: bool) -> None:
            opened.append(is_open)
            if len(opened) == 1:
                reflector.renew()
                reflector.renew()  # asked for twice, begun again once

        async with reflecting(stub, on_watch=opens) as (reflector, consumer):
            await consumer.until(lambda: consumer.names == ["a", "b"])
        assert opened == [True, True]


async def test_a_resource_that_is_wanted_is_looked_for_in_a_hurry() -> None:
    """Two looks at whether it is wanted, and at the third it is: after six seconds, not after a minute."""
    clock = Clock()
    async with serving() as stub:
        stub.lists = [refuses(404, "NotFound"), lists(pod("a"))]
        async with reflecting(stub, clock, wanted=lambda: len(clock.slept) >= 3) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["a"])
            assert clock.slept == [2.0, 2.0, 2.0]
            assert consumer.batches[0] == [NotServed()]


async def test_a_resource_that_is_not_wanted_is_looked_for_every_minute() -> None:
    clock = Clock()
    async with serving() as stub:
        stub.lists = [refuses(404, "NotFound"), lists(pod("a"))]
        async with reflecting(stub, clock, wanted=lambda: False) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["a"])
            assert sum(clock.slept) == 60.0
