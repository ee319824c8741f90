"""List, then watch, for ever: whatever the server does, the consumer ends up knowing what is true."""

from __future__ import annotations

import asyncio

from dovetail.kube.api.reflector import Pace
from dovetail.kube.api.retry import Backoff
from dovetail.kube.api.typed import Unreadable
from dovetail.kube.api.watch import NotServed, Replaced
from tests.kube.api.stub import (
    Clock,
    added,
    bookmark,
    deleted,
    drops,
    event,
    failure,
    hangs,
    lists,
    modified,
    pod,
    reflecting,
    refuses,
    serving,
    streams,
)


async def test_what_is_there_and_then_what_changes() -> None:
    async with serving() as stub:
        stub.lists = [lists(pod("a", 3), pod("b", 4), version=10)]
        stub.watches = [
            streams(added(pod("c", 11)), modified(pod("a", 12, nodeName="n1")), deleted(pod("b", 13)), hangs)
        ]
        async with reflecting(stub) as (reflector, consumer):
            await consumer.until(lambda: consumer.names == ["a", "c"])
            assert consumer.pods["a"].spec.node_name == "n1"
            assert isinstance(consumer.batches[0][0], Replaced)
            assert reflector.health().connected
        assert stub.asked(watch=False) == [
            {"resourceVersion": "0", "resourceVersionMatch": "NotOlderThan", "limit": "500"}
        ]
        (asked,) = stub.asked(watch=True)
        assert asked["resourceVersion"] == "10"
        assert asked["allowWatchBookmarks"] == "true"
        assert asked["timeoutSeconds"] == "300"


async def test_what_comes_in_one_read_is_one_batch() -> None:
    async with serving() as stub:
        stub.watches = [streams(b"".join(added(pod(f"p{i}", i)) for i in range(2, 12)), hangs)]
        async with reflecting(stub) as (_, consumer):
            await consumer.until(lambda: len(consumer.pods) == 10)
            assert [len(batch) for batch in consumer.batches] == [1, 10]


async def test_synced_after_the_first_list_and_not_before() -> None:
    async with serving() as stub:
        stub.lists = [refuses(503), refuses(503), lists(pod("a"))]
        async with reflecting(stub) as (reflector, consumer):
            assert not reflector.health().synced
            await reflector.synced()
            assert reflector.health().synced
            assert consumer.names == ["a"]


async def test_a_dropped_connection_goes_on_from_the_last_version() -> None:
    async with serving() as stub:
        half = added(pod("c", 12))[:40]
        stub.lists = [lists(pod("a"), version=10)]
        stub.watches = [streams(added(pod("b", 11)), half, drops), streams(added(pod("c", 12)), hangs)]
        async with reflecting(stub) as (reflector, consumer):
            await consumer.until(lambda: consumer.names == ["a", "b", "c"])
            assert reflector.health().lists == 1
            assert "the connection broke" in reflector.health().error
        assert [asked["resourceVersion"] for asked in stub.asked(watch=True)] == ["10", "11"]


async def test_a_bookmark_is_where_to_go_on_from() -> None:
    async with serving() as stub:
        stub.watches = [streams(bookmark(500), drops), streams(added(pod("a", 501)), hangs)]
        async with reflecting(stub) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["a"])
        assert [asked["resourceVersion"] for asked in stub.asked(watch=True)] == ["1", "500"]


async def test_a_watch_that_ends_in_good_order_is_followed_by_the_next_one() -> None:
    clock = Clock()

    async def a_while(*_: object) -> None:
        clock.at += 300

    async with serving() as stub:
        stub.watches = [streams(a_while), streams(added(pod("a", 5)), hangs)]
        async with reflecting(stub, clock) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["a"])
            assert consumer.reports == []
        assert clock.slept == []


async def test_a_server_that_ends_every_watch_at_once_is_not_hammered() -> None:
    async with serving() as stub:
        stub.watches = [streams(), streams(bookmark(4)), streams(), streams(added(pod("a", 5)), hangs)]
        clock = Clock()
        async with reflecting(stub, clock, Pace(backoff=Backoff(first=0.2))) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["a"])
        assert clock.slept == [0.1, 0.2, 0.4]  # 0.2, 0.4, 0.8 with dice at 0: the lower end, half


async def test_a_server_that_is_back_is_not_waited_for_as_long_as_it_was_away() -> None:
    """It is away for some tries, then refuses once as it does not know its roles, and the old version next."""
    too_old = event("ERROR", failure(410, "Expired", "too old resource version"))
    async with serving() as stub:
        stub.lists = [lists(version=5), lists(pod("a", 9), version=9)]
        stub.watches = [*[drops] * 10, refuses(403, "Forbidden"), streams(too_old), streams(hangs)]
        clock = Clock()
        async with reflecting(stub, clock, Pace(backoff=Backoff(first=0.2, longest=2.0))) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["a"])
        # 0.2, 0.4, … while it is away (the client tries some of these twice), then 0.2, 0.4: half, with dice at 0
        away = clock.slept[:-2]
        assert len(away) >= 3
        assert away == [0.1, 0.2, 0.4, 0.8, *[1.0] * 9][: len(away)]
        assert clock.slept[-2:] == [0.1, 0.2]


async def test_troubles_are_forgotten_once_a_watch_lives() -> None:
    clock = Clock()

    async def a_while(*_: object) -> None:
        clock.at += 2

    async with serving() as stub:
        stub.watches = [streams(drops), streams(drops), streams(a_while, added(pod("a", 5)), hangs)]
        async with reflecting(stub, clock) as (reflector, consumer):
            await consumer.until(lambda: consumer.names == ["a"])
            await asyncio.sleep(0)
            assert reflector.health().failures == 0
            assert reflector.health().error  # but it is told


async def test_a_server_that_breaks_every_watch_after_an_event_is_not_hammered_with_lists() -> None:
    oops = event("ERROR", failure(500))
    async with serving() as stub:
        stub.lists = [lists(version=5)]
        stub.watches = [streams(added(pod("x", 5)), oops)] * 3 + [streams(added(pod("a", 5)), hangs)]
        clock = Clock()
        async with reflecting(stub, clock, Pace(backoff=Backoff(first=0.2))) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["a"])
        assert clock.slept == [0.1, 0.2, 0.4]


async def test_too_old_a_version_lists_again_and_what_is_gone_is_gone() -> None:
    gone = failure(410, "Expired", "too old resource version")
    for refusal in (refuses(410, "Expired"), streams(event("ERROR", gone))):
        async with serving() as stub:
            stub.lists = [lists(pod("a"), pod("b"), version=10), lists(pod("b"), pod("c"), version=90)]
            stub.watches = [refusal, streams(hangs)]
            async with reflecting(stub) as (reflector, consumer):
                await consumer.until(lambda: consumer.names == ["b", "c"])
                assert reflector.health().lists == 2
            # not older than what we have seen: another server's cache may lag behind
            assert [asked.get("resourceVersion") for asked in stub.asked(watch=False)] == ["0", "10"]


async def test_any_error_in_the_stream_lists_again() -> None:
    async with serving() as stub:
        stub.lists = [lists(pod("a"), version=10), lists(pod("z"), version=20)]
        oops = event("ERROR", failure(500, "InternalError", "etcdserver: no leader"))
        stub.watches = [streams(added(pod("b", 11)), oops), streams(hangs)]
        async with reflecting(stub) as (reflector, consumer):
            await consumer.until(lambda: consumer.names == ["z"])
            assert "no leader" in reflector.health().error


async def test_garbage_once_is_the_network_and_twice_is_a_reason_to_list() -> None:
    async with serving() as stub:
        stub.lists = [lists(pod("a"), version=10), lists(pod("z"), version=20)]
        stub.watches = [streams(b"<html>\n"), streams(b"<html>\n"), streams(hangs)]
        async with reflecting(stub) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["z"])
        assert [asked["resourceVersion"] for asked in stub.asked(watch=True)][:2] == ["10", "10"]


async def test_throttled_it_waits_as_long_as_the_server_asks() -> None:
    async with serving() as stub:
        stub.lists = [refuses(429, "TooManyRequests", Retry_After="7"), lists(pod("a"))]
        clock = Clock()
        async with reflecting(stub, clock) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["a"])
        assert clock.slept == [7.0]


async def test_a_list_whose_next_page_expired_starts_again_in_one_piece() -> None:
    async with serving() as stub:
        stub.lists = [
            lists(pod("a"), version=10, rest="more"),
            refuses(410, "Expired", "The provided continue parameter is too old"),
            lists(pod("b"), pod("c"), version=20),
        ]
        async with reflecting(stub) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["b", "c"])
            assert len(consumer.batches) == 1  # half a list is never delivered
        assert stub.asked(watch=False) == [
            {"resourceVersion": "0", "resourceVersionMatch": "NotOlderThan", "limit": "500"},
            {"limit": "500", "continue": "more"},
            {},
        ]


async def test_all_pages_are_one_replacement() -> None:
    async with serving() as stub:
        stub.lists = [
            lists(pod("a"), version=10, rest="2"),
            lists(pod("b"), version=10, rest="3"),
            lists(pod("c"), version=10),
        ]
        async with reflecting(stub, limit=1) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["a", "b", "c"])
            assert len(consumer.batches) == 1


async def test_a_version_the_server_does_not_have_yet_is_not_insisted_on() -> None:
    """An etcd restored from a backup counts from further back."""
    async with serving() as stub:
        too_large = refuses(504, "Timeout", "Too large resource version: 10, current: 5")
        stub.lists = [lists(pod("a"), version=10), too_large, lists(pod("b"), version=5)]
        stub.watches = [refuses(410, "Expired"), streams(hangs)]
        async with reflecting(stub) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["b"])
        assert [asked.get("resourceVersion") for asked in stub.asked(watch=False)] == ["0", "10", None]


async def test_a_silent_watch_is_given_up_and_begun_again() -> None:
    async with serving() as stub:
        stub.watches = [streams(hangs), streams(added(pod("a", 5)), hangs)]
        async with reflecting(stub, pace=Pace(quiet=0.05)) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["a"])
            assert "the connection broke" in consumer.reports[0]


async def test_a_resource_that_is_not_served_is_looked_for_again_now_and_then() -> None:
    async with serving() as stub:
        stub.lists = [refuses(404, "NotFound"), refuses(404, "NotFound"), lists(pod("a"))]
        clock = Clock()
        async with reflecting(stub, clock, Pace(recheck=60)) as (reflector, consumer):
            await consumer.until(lambda: bool(consumer.batches))
            assert consumer.batches[0] == [NotServed()]
            await reflector.synced()  # known not to exist
            await consumer.until(lambda: consumer.names == ["a"])
            assert reflector.health().served
            assert len(consumer.batches) == 2  # not served is said once
        assert clock.slept == [60, 60]


async def test_a_resource_that_is_taken_away_is_not_served_any_more() -> None:
    async with serving() as stub:
        stub.lists = [lists(pod("a")), refuses(404, "NotFound")]
        stub.watches = [streams(drops), refuses(404, "NotFound")]

        async def slowly(seconds: float) -> None:
            await asyncio.sleep(0.01)

        clock = Clock()
        clock.sleep = slowly  # type: ignore[method-assign]
        async with reflecting(stub, clock) as (reflector, consumer):
            await consumer.until(lambda: [NotServed()] in consumer.batches)
            assert consumer.names == []
            assert not reflector.health().served


LACKS = 'pods is forbidden: User "dovetail" cannot list resource "pods" in API group "" at the cluster scope'


async def test_a_forbidden_resource_that_is_not_needed_holds_nothing_up() -> None:
    async with serving() as stub:
        stub.lists = [refuses(403, "Forbidden", LACKS), refuses(403, "Forbidden", LACKS), lists(pod("a"))]
        clock = Clock()
        async with reflecting(stub, clock, without="pods are not counted") as (reflector, consumer):
            await asyncio.wait_for(reflector.synced(), 20)
            assert consumer.batches[0] == [NotServed()]
            await consumer.until(lambda: consumer.names == ["a"])
            assert reflector.health().served
            first, second = consumer.reports  # once, although it was forbidden twice
            assert 'lacks verb "list" on resource "pods"' in first
            assert "pods are not counted" in first
            assert "can be read now" in second
        assert clock.slept == [60, 60]


async def test_a_forbidden_resource_that_is_needed_is_waited_for() -> None:
    async with serving() as stub:
        stub.lists = [refuses(403, "Forbidden", LACKS), lists(pod("a"))]
        async with reflecting(stub) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["a"])
            assert [NotServed()] not in consumer.batches


async def test_an_unreadable_pod_is_reported_and_its_next_good_version_is_taken() -> None:
    async with serving() as stub:
        stub.lists = [lists(pod("a"), pod("bad", nodeName=7), version=10)]
        stub.watches = [streams(modified(pod("bad", 11, nodeName=8)), modified(pod("bad", 12)), hangs)]
        async with reflecting(stub) as (reflector, consumer):
            await consumer.until(lambda: consumer.names == ["a", "bad"])
            first = consumer.batches[0][0]
            assert isinstance(first, Replaced)
            assert [each.ref.name for each in first.unreadable] == ["bad"]
            assert any(isinstance(each, Unreadable) for batch in consumer.batches for each in batch)
            assert reflector.unreadable == ()


async def test_a_known_pod_that_became_unreadable_is_not_taken_for_deleted() -> None:
    async with serving() as stub:
        stub.lists = [lists(pod("a"), version=10), lists(pod("a", nodeName=7), pod("b"), version=20)]
        stub.watches = [refuses(410), streams(hangs)]
        async with reflecting(stub) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["a", "b"])


async def test_selectors_are_sent_with_lists_and_watches() -> None:
    async with serving() as stub:
        stub.watches = [streams(added(pod("a", 5)), hangs)]
        selected = {"fieldSelector": "status.phase!=Succeeded", "labelSelector": "team=ml"}
        async with reflecting(stub, params=selected) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["a"])
        for request in stub.seen:
            assert request.query["fieldSelector"] == "status.phase!=Succeeded"
            assert request.query["labelSelector"] == "team=ml"


async def test_a_queue_that_is_full_holds_the_server_back_and_loses_nothing() -> None:
    queue: asyncio.Queue[object] = asyncio.Queue(maxsize=1)
    async with serving() as stub:
        stub.watches = [streams(*(added(pod(f"p{i}", i + 2)) for i in range(50)), hangs)]
        async with reflecting(stub, deliver=queue.put):
            seen: list[object] = []
            async with asyncio.timeout(20):
                while len(seen) < 51:  # the list and 50 pods
                    batch = await queue.get()
                    assert isinstance(batch, list)
                    seen += batch


async def test_a_missing_permission_is_said_and_tried_again() -> None:
    message = 'pods is forbidden: User "dovetail" cannot list resource "pods" in API group "" at the cluster scope'
    async with serving() as stub:
        stub.lists = [refuses(403, "Forbidden", message), lists(pod("a"))]
        async with reflecting(stub) as (reflector, consumer):
            await consumer.until(lambda: consumer.names == ["a"])
            assert 'user "dovetail" lacks verb "list" on resource "pods"' in reflector.health().error


async def test_a_list_after_410_asks_for_what_is_not_older_than_what_was_seen() -> None:
    """With a limit and no resourceVersionMatch the server answers with the past, from which it cannot watch."""
    async with serving() as stub:
        stub.lists = [
            lists(pod("a"), version=10),
            lists(pod("b"), version=90, rest="more"),
            lists(pod("c"), version=90),
        ]
        stub.watches = [refuses(410, "Expired"), streams(hangs)]
        async with reflecting(stub, first_version="") as (_, consumer):
            await consumer.until(lambda: consumer.names == ["b", "c"])
        assert stub.asked(watch=False) == [
            {"limit": "500"},
            {"limit": "500", "resourceVersion": "10", "resourceVersionMatch": "NotOlderThan"},
            {"limit": "500", "continue": "more"},
        ]


async def test_a_list_older_than_what_was_seen_is_not_taken() -> None:
    """A server that does not know resourceVersionMatch, or a cache in between. The newest state is asked for next."""
    async with serving() as stub:
        stub.lists = [lists(pod("a"), version=10), lists(version=9), lists(pod("b"), version=11)]
        stub.watches = [streams(added(pod("a", 10)), event("ERROR", failure(410))), streams(hangs)]
        async with reflecting(stub) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["b"])
            replaced = [each for batch in consumer.batches for each in batch if isinstance(each, Replaced)]
            assert [(len(each.items), each.rewound) for each in replaced] == [(1, False), (1, False)]
        assert [asked.get("resourceVersion") for asked in stub.asked(watch=False)] == ["0", "10", None]


async def test_a_restored_server_is_believed_and_said_to_be_rewound() -> None:
    async with serving() as stub:
        stub.lists = [lists(pod("a"), version=10), refuses(504, "Timeout"), lists(pod("b"), version=5)]
        stub.watches = [refuses(410, "Expired"), streams(hangs)]
        async with reflecting(stub) as (_, consumer):
            await consumer.until(lambda: consumer.names == ["b"])
            [last] = consumer.batches[-1]
            assert isinstance(last, Replaced)
            assert last.rewound
            assert any("the newest state is 5, after 10" in line for line in consumer.reports)


async def test_a_trouble_is_said_once_and_its_end_with_how_long_it_took() -> None:
    clock = Clock()

    async def a_while(*_: object) -> None:
        clock.at += 2

    async with serving() as stub:
        stub.lists = [lists(pod("a"), version=10)]
        stub.watches = [*[streams(drops)] * 6, streams(a_while, added(pod("b", 11)), hangs)]
        async with reflecting(stub, clock, Pace(backoff=Backoff(first=2.0, longest=2.0))) as (reflector, consumer):
            await consumer.until(lambda: consumer.names == ["a", "b"])
            await asyncio.sleep(0)
            assert [line.partition(": ")[2].partition(":")[0] for line in consumer.reports] == [
                "GET /api/v1/pods",
                "watching again, after 8.0 s",
            ]
            health = reflector.health()
            assert (health.broken, health.failures, health.age) == (6, 0, 0)


async def test_an_idle_watch_that_stays_open_is_the_end_of_a_trouble() -> None:
    async with serving() as stub:
        stub.watches = [streams(drops), streams(hangs)]
        async with reflecting(stub) as (_, consumer):
            async with asyncio.timeout(20):
                while len(consumer.reports) < 2:
                    await asyncio.sleep(0.01)
            assert "watching again" in consumer.reports[1]


async def test_the_age_grows_while_lists_succeed_and_watches_do_not() -> None:
    """A server that lists the past for ever: every answer is prompt, and nothing new is ever seen."""
    clock = Clock()
    async with serving() as stub:
        stub.lists = [lists(pod("a"), version=10)]
        stub.watches = [streams(event("ERROR", failure(410, "Expired")))]
        async with reflecting(stub, clock, Pace(backoff=Backoff(first=2.0, longest=2.0))) as (reflector, consumer):
            await consumer.until(lambda: len(consumer.batches) > 30)
            health = reflector.health()
            assert health.age > 25
            assert health.quiet <= 2
            assert len(consumer.reports) == 1
