"""The seal of a pod's record: a keyed digest, written with the record, that shows whether it was changed later.

    dovetail.dev/seal: v1 <digest> {"hami.io/vgpu-devices-allocated":"GPU-1,NVIDIA,7500,30:;"}

The digest covers the pod's UID, its node and the text that follows, which repeats the record. If another client has
changed the record and not the seal, the seal still names the cards that were bound.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from math import inf

import msgspec

SEAL = "dovetail.dev/seal"
VERSION = "v1"
DIGEST_BYTES = 16  # of HMAC-SHA256's 32: 2^128 guesses, and each of them needs a restart of the scheduler
MAX_SEAL_TEXT = 65_536  # characters
MAX_KEYS = 16
MIN_KEY_LENGTH, MAX_KEY_LENGTH = 32, 1_024  # characters
_STRINGS = msgspec.json.Decoder(dict[str, str])


class SealKeyError(ValueError):
    """The keys cannot be used. The message never contains a key."""


class Seals:
    """Makes and checks seals. Without keys it makes none, and no pod needs one."""

    def __init__(self, keys: Sequence[bytes] = (), since: float = inf) -> None:
        """The first key seals; all keys verify."""
        self._keys = tuple(keys)
        self.since = since  # our pods that were created later have a seal; seconds since 1970

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __repr__(self) -> str:
        return f"Seals({len(self._keys)} keys, since {self.since:g})"

    def seal(self, uid: str, node: str, strings: Mapping[str, str]) -> str:
        """The annotation's value for a pod with these device strings (annotation -> text); "" without a key."""
        if not self._keys:
            return ""
        text = msgspec.json.encode(strings)
        return f"{VERSION} {_digest(self._keys[0], uid, node, text)} {text.decode()}"

    def opened(self, seal: str, uid: str, node: str) -> dict[str, str] | None:
        """The device strings that were bound; None where none of our keys made this seal for this pod and node."""
        version, _, rest = seal.partition(" ")
        digest, _, text = rest.partition(" ")
        if version != VERSION or len(seal) > MAX_SEAL_TEXT or not digest.isascii():
            return None
        said = text.encode(errors="replace")
        for key in self._keys:
            if hmac.compare_digest(_digest(key, uid, node, said), digest):
                return _STRINGS.decode(said)
        return None

    def requires(self, created: float) -> bool:
        """Whether a pod of ours, created at this time, was sealed when it was bound."""
        return bool(self._keys) and created >= self.since

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Digests that identify the keys without revealing them, in their order."""
        return tuple(hmac.digest(key, b"dovetail.dev/seal key", "sha256").hex()[:16] for key in self._keys)


NO_SEALS = Seals()


def _digest(key: bytes, uid: str, node: str, text: bytes) -> str:
    """The digest. UIDs and node names contain no NUL, so no two inputs give the same bytes."""
    message = f"dovetail.dev/seal {VERSION}\0{uid}\0{node}\0".encode(errors="replace") + text
    return urlsafe_b64encode(hmac.digest(key, message, "sha256")[:DIGEST_BYTES]).decode().rstrip("=")


def keys_from(text: str) -> tuple[bytes, ...]:
    """The keys: one in each line; empty lines and lines that begin with # do not count."""
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise SealKeyError("has no key; write one line, such as `openssl rand -hex 32` prints")
    if len(keys) > MAX_KEYS:
        raise SealKeyError(f"has {len(keys)} keys; at most {MAX_KEYS} are used")
    if wrong := [n for n, key in enumerate(keys, 1) if not MIN_KEY_LENGTH <= len(key) <= MAX_KEY_LENGTH]:
        size = len(keys[wrong[0] - 1])
        wanted = f"{MIN_KEY_LENGTH} to {MAX_KEY_LENGTH:,}, such as `openssl rand -hex 32` prints"
        raise SealKeyError(f"key {wrong[0]} has {size} characters; write {wanted}")
    if len(set(keys)) < len(keys):
        raise SealKeyError("has the same key twice")
    return tuple(key.encode() for key in keys)
