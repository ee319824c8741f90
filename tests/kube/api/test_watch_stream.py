"""A watch's bytes → events, however the network cuts them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.kube.api import watch
from dovetail.kube.api.typed import Ref, TypedReader, Unreadable
from dovetail.kube.api.watch import Changed, Deleted, Event, Garbled, Lines, WatchReader
from dovetail.kube.objects import core as objects
from tests.kube.api.stub import added, bookmark, deleted, event, failure, modified, pod
from tests.properties import with_examples

# U+0085 and U+2028 end lines for Python's str.splitlines, not for the API server.
TEXTS = ["", "web", "näve", "名前", "line\u0085end", "a\u2028b", "\\n", '"quoted"', "🂡" * 50]


def reader() -> WatchReader[objects.Pod]:
    return WatchReader(TypedReader(objects.Pod))


def heard_in_chunks(chunks: list[bytes]) -> tuple[list[Event[objects.Pod]], str]:
    lines, told = Lines(), reader()
    events: list[Event[objects.Pod]] = []
    version = ""
    for chunk in chunks:
        whole = lines.feed(chunk)
        if whole:
            heard = told.read(whole)
            assert not heard.garbled
            events += heard.events
            version = heard.version or version
    return events, version


@st.composite
def streams_and_cuts(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    count = draw(st.integers(1, 8))
    stream = b""
    for i in range(count):
        kind = draw(st.sampled_from([added, modified, deleted, None]))
        text = draw(st.sampled_from(TEXTS))
        what = pod(f"p{i % 3}", i + 1, nodeName=text)
        stream += kind(what) if kind else bookmark(i + 1)
    cuts = draw(st.lists(st.integers(0, len(stream)), max_size=30))
    return stream, sorted(cuts)


@given(streams_and_cuts())
@with_examples(100)
def test_however_the_stream_is_cut_the_events_are_the_same(case: tuple[bytes, list[int]]) -> None:
    stream, cuts = case
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert heard_in_chunks([chunk for chunk in chunks if chunk]) == heard_in_chunks([stream])


def test_byte_by_byte() -> None:
    stream = added(pod("a", 1, nodeName="名前\u0085")) + bookmark(5) + deleted(pod("a", 6))
    events, version = heard_in_chunks([stream[i : i + 1] for i in range(len(stream))])
    assert [type(each) for each in events] == [Changed, Deleted]
    assert isinstance(events[0], Changed)
    assert events[0].object.spec.node_name == "名前\u0085"
    assert version == "6"


def test_a_bookmark_is_no_event_but_says_how_far_we_are() -> None:
    heard = reader().read(added(pod("a", 3)) + bookmark(9))
    assert len(heard.events) == 1
    assert heard.version == "9"


def test_an_error_event_ends_the_watch_after_what_came_before_it() -> None:
    gone = event("ERROR", failure(410, "Expired", "too old resource version: 1 (5)"))
    heard = reader().read(added(pod("a", 3)) + gone + added(pod("b", 4)))
    assert len(heard.events) == 1
    assert heard.version == "3"
    assert heard.error is not None
    assert heard.error.code == 410


@pytest.mark.parametrize(
    "line", [b"garbage\n", b'{"type":"ADDED","object":{"meta\n', b"\xff\xfe\n", b"[]\n", b'{"object":{}}\n', b"{}\n"]
)
def test_a_garbled_line_stops_the_reading_after_what_came_before_it(line: bytes) -> None:
    heard = reader().read(added(pod("a", 3)) + line + added(pod("b", 4)))
    assert [each.object.metadata.name for each in heard.events if isinstance(each, Changed)] == ["a"]
    assert heard.version == "3"
    assert "no watch event" in heard.garbled


def test_an_empty_line_is_nothing() -> None:
    heard = reader().read(added(pod("a", 3)) + b"\n\n" + added(pod("b", 4)))
    assert len(heard.events) == 2
    assert not heard.garbled


def test_a_pod_that_cannot_be_read_is_named_and_the_others_are_read() -> None:
    told = reader()
    heard = told.read(added(pod("a", 3)) + added(pod("bad", 4, nodeName=7)) + added(pod("c", 5)))
    assert [type(each) for each in heard.events] == [Changed, Unreadable, Changed]
    bad = heard.events[1]
    assert isinstance(bad, Unreadable)
    assert bad.ref == Ref("ml", "bad", "uid-bad")
    assert "$.spec.nodeName" in bad.message
    assert heard.version == "5"
    assert list(told.unreadable) == [("ml", "bad")]

    assert isinstance(told.read(modified(pod("bad", 6, nodeName="n1"))).events[0], Changed)
    assert not told.unreadable  # the later, good version counts


def test_a_deleted_pod_that_cannot_be_read_is_deleted_all_the_same() -> None:
    told = reader()
    told.read(added(pod("bad", 4, nodeName=7)))
    assert told.read(deleted(pod("bad", 5, nodeName=7))).events == [Deleted(Ref("ml", "bad", "uid-bad"), None)]
    assert not told.unreadable


def test_null_means_absent() -> None:
    heard = reader().read(added(pod("a", 3, nodeName=None, tolerations=None)))
    (only,) = heard.events
    assert isinstance(only, Changed)
    assert only.object.spec.node_name == ""


def test_annotations_in_another_order_make_an_equal_pod() -> None:
    one, other = pod("a", 3), pod("a", 4)
    one["metadata"]["annotations"] = {"x": "1", "y": "2"}
    other["metadata"]["annotations"] = {"y": "2", "x": "1"}
    del one["metadata"]["resourceVersion"], other["metadata"]["resourceVersion"]
    first, second = reader().read(added(one) + modified(other)).events
    assert first == second


def test_a_line_without_end_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LONGEST_LINE", 1000)
    lines = Lines()
    for _ in range(10):
        lines.feed(b"x" * 100)
    with pytest.raises(Garbled):
        lines.feed(b"x")


def test_a_page_with_one_bad_pod_has_all_the_others() -> None:
    items = [pod("a"), pod("bad", nodeName=[]), pod("c")]
    page = TypedReader(objects.Pod).page(json.dumps({"metadata": {"resourceVersion": "7"}, "items": items}).encode())
    assert [item.metadata.name for item in page.items] == ["a", "c"]
    assert [each.ref.name for each in page.unreadable] == ["bad"]
    assert page.version == "7"


def test_a_list_without_items_is_empty() -> None:
    assert TypedReader(objects.Pod).page(b'{"metadata":{"resourceVersion":"7"},"items":null}').items == []
