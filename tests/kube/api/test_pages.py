"""Lists in pages: the next is on its way while this one is read, and what the whole page says counts."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.kube.api.pages import LONGEST_HEAD, Ahead, rest_of
from dovetail.kube.api.typed import TypedReader
from dovetail.kube.objects import core as objects
from tests.kube.api.stub import PODS, api_of, hangs, lists, pod, says, serving, streams

HEAD = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"t0k","remainingItemCount":9}'


@pytest.mark.parametrize(
    ("so_far", "rest"),
    [
        (HEAD + b',"items":[', "t0k"),
        (HEAD, None),  # the objects are not in sight yet
        (b"", None),
        (b'{"metadata":{"resourceVersion":"7"},"items":[{"continue":"no"', ""),
        (b'{"items":[' + b"x" * LONGEST_HEAD, ""),
        (b"x" * LONGEST_HEAD, ""),
    ],
)
def test_the_head_of_a_page_says_how_to_go_on(so_far: bytes, rest: str | None) -> None:
    assert rest_of(so_far) == rest


async def test_the_next_page_is_asked_for_while_this_one_is_used() -> None:
    async with serving() as stub, api_of(stub) as api:
        stub.lists = [lists(pod("a"), rest="two"), lists(pod("b"), rest="three"), lists(pod("c"))]
        pages = api.list_pages(PODS, TypedReader(objects.Pod), version="", limit=1)
        first = await anext(pages)
        await asyncio.sleep(0.2)
        assert [item.metadata.name for item in first.items] == ["a"]
        assert len(stub.asked(watch=False)) == 2  # and no more than one ahead
        assert [item.metadata.name async for page in pages for item in page.items] == ["b", "c"]


async def test_a_token_behind_the_objects_is_found_as_well() -> None:
    late = {"items": [pod("a")], "metadata": {"resourceVersion": "5", "continue": "two"}}
    async with serving() as stub, api_of(stub) as api:
        stub.lists = [says(late), lists(pod("b"))]
        pages = [page async for page in api.list_pages(PODS, TypedReader(objects.Pod), version="", limit=1)]
        assert [item.metadata.name for page in pages for item in page.items] == ["a", "b"]
        assert [query.get("continue") for query in stub.asked(watch=False)] == [None, "two"]


async def test_who_stops_in_the_middle_leaves_nothing_behind() -> None:
    async with serving() as stub, api_of(stub) as api:
        stub.lists = [lists(pod("a"), rest="two"), streams(hangs)]
        pages = api.list_pages(PODS, TypedReader(objects.Pod), version="", limit=1)
        await anext(pages)
        await pages.aclose()
        await asyncio.sleep(0.05)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not [task for task in others if "_whole" in repr(task)]


async def test_a_page_that_fails_before_its_head_ends_the_waiting() -> None:
    async def fails(heard: object) -> bytes:
        raise OSError("gone")

    ahead = Ahead(fails)
    assert await ahead.rest == ""
    with pytest.raises(OSError, match="gone"):
        await ahead.body
