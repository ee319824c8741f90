"""The seal of a record: any change of what it covers breaks it."""

from __future__ import annotations

import timeit

import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from dovetail.kube.conversion.seals import MAX_KEYS, SealKeyError, Seals, keys_from
from dovetail.kube.live.lease import CLOCK_SKEW, Marks

KEY, OLD, OTHER = b"k" * 32, b"o" * 32, b"x" * 32
RECORD = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,7500,30:;"}

names = some.text("abcdefghij0123456789-.", min_size=1, max_size=20)
texts = some.text(max_size=60)
records = some.dictionaries(names, texts, max_size=3)


@given(names, names, records)
def test_a_seal_says_what_was_sealed(uid: str, node: str, record: dict[str, str]) -> None:
    seals = Seals((KEY,))
    assert seals.opened(seals.seal(uid, node, record), uid, node) == record


@given(names, names, records, names, names)
def test_another_pod_or_node_breaks_it(uid: str, node: str, record: dict[str, str], pod: str, place: str) -> None:
    assume((pod, place) != (uid, node))
    seals = Seals((KEY,))
    assert seals.opened(seals.seal(uid, node, record), pod, place) is None


@given(names, names, records, some.integers(0, 10_000), some.characters(codec="utf-8"))
def test_any_single_character_that_changes_breaks_it(
    uid: str, node: str, record: dict[str, str], at: int, character: str
) -> None:
    seals = Seals((KEY,))
    seal = seals.seal(uid, node, record)
    at %= len(seal)
    assume(seal[at] != character)
    assert seals.opened(seal[:at] + character + seal[at + 1 :], uid, node) is None
    assert seals.opened(seal[:at] + seal[at + 1 :], uid, node) is None


@given(some.text(max_size=80))
def test_what_is_no_seal_opens_nothing(text: str) -> None:
    assert Seals((KEY,)).opened(text, "uid", "node") is None


@pytest.mark.parametrize("text", ["", "v1", "v1 ", "v1  {}", "v2 x {}", "v1 \udc80 {}", "v1 x " + "{" * 100_000])
def test_broken_seals_open_nothing(text: str) -> None:
    assert Seals((KEY,)).opened(text, "uid", "node") is None


def test_the_first_key_seals_and_all_of_them_verify() -> None:
    old, both, new = Seals((OLD,)), Seals((KEY, OLD)), Seals((KEY,))
    of_old, of_both = old.seal("u", "n", RECORD), both.seal("u", "n", RECORD)
    assert both.opened(of_old, "u", "n") == RECORD
    assert new.opened(of_both, "u", "n") == RECORD
    assert old.opened(of_both, "u", "n") is None
    assert new.opened(of_old, "u", "n") is None


def test_without_a_key_nothing_is_sealed_and_nothing_needs_a_seal() -> None:
    assert Seals().seal("u", "n", RECORD) == ""
    assert not Seals(since=0.0).requires(1.0)


def test_no_text_of_it_contains_a_key() -> None:
    seals = Seals((KEY,))
    assert "kkk" not in repr(seals) + seals.seal("u", "n", RECORD) + "".join(seals.fingerprints)


class TestKeys:
    def test_a_key_per_line_without_comments(self) -> None:
        assert keys_from(f"# new\n{'a' * 32}\n\n  {'b' * 64}  \n") == (b"a" * 32, b"b" * 64)

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("", "has no key"),
            ("# nothing\n", "has no key"),
            ("secretsecret", "key 1 has 12 characters; write 32 to 1,024"),
            ("a" * 32 + "\n" + "b" * 31, "key 2 has 31 characters"),
            ("c" * 1025, "key 1 has 1025 characters"),
            (("a" * 32 + "\n") * 2, "has the same key twice"),
            ("\n".join(f"{n:032}" for n in range(MAX_KEYS + 1)), "has 17 keys; at most 16"),
        ],
    )
    def test_what_cannot_be_used_is_refused_without_naming_it(self, text: str, complaint: str) -> None:
        with pytest.raises(SealKeyError, match=complaint) as refused:
            keys_from(text)
        assert "secretsecret" not in str(refused.value)


class TestSince:
    """When sealing began stands in the Lease, which no tenant can write."""

    def marks(self, *keys: bytes) -> Marks:
        return Marks(("dovetail",), (), Seals(keys).fingerprints)

    def test_it_begins_with_the_first_holder_that_has_a_key(self) -> None:
        assert self.marks(KEY).sealing_after({}, 1000.0).sealed_since == 1000.0 + CLOCK_SKEW

    def test_it_goes_on_with_the_next_holder_and_with_a_key_that_is_added(self) -> None:
        lease = self.marks(OLD).sealing_after({}, 1000.0).metadata()["annotations"]
        assert self.marks(OLD).sealing_after(lease, 2000.0).sealed_since == 1005.0
        assert self.marks(KEY, OLD).sealing_after(lease, 2000.0).sealed_since == 1005.0

    def test_it_begins_anew_where_a_key_was_dropped(self) -> None:
        """Records that the dropped key sealed cannot be checked: they must not all fail at once."""
        lease = self.marks(KEY, OLD).sealing_after({}, 1000.0).metadata()["annotations"]
        assert self.marks(KEY).sealing_after(lease, 2000.0).sealed_since == 2005.0

    def test_a_holder_without_a_key_ends_it(self) -> None:
        lease = self.marks(KEY).sealing_after({}, 1000.0).metadata()["annotations"]
        without = self.marks().sealing_after(lease, 2000.0)
        assert Marks.SEALED not in without.metadata()["annotations"]

    @pytest.mark.parametrize("text", ["", "x", "1e400 a", "-1 a", "999999999999999999 a", "nan a"])
    def test_what_cannot_be_read_is_no_time(self, text: str) -> None:
        assert Marks.of({Marks.SEALED: text}).sealed_since == float("inf")


def test_a_seal_costs_microseconds() -> None:
    """Goal: 20 µs a bind. Measured on two busy cores: about 4 µs to seal and to check."""
    seals, times = Seals((KEY,)), 2_000
    uid, node = "0a1b2c3d-0000-0000-0000-000000000000", "gpu-node-17"
    sealing = min(timeit.repeat(lambda: seals.seal(uid, node, RECORD), number=times, repeat=5)) / times
    seal = seals.seal(uid, node, RECORD)
    checking = min(timeit.repeat(lambda: seals.opened(seal, uid, node), number=times, repeat=5)) / times
    print(f"seal {sealing * 1e6:.1f} µs, check {checking * 1e6:.1f} µs")
    assert sealing < 200e-6
    assert checking < 200e-6
