"""A compromised node by the dice: it changes its own Node object and that one's status, and may do nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from tests.kube.live.hostile import values
from tests.live.fuzz.pods import AMOUNTS, ODD, many, word
from tools.controlplane.client import MERGE, Client, Object, path_of
from tools.controlplane.objects import GPU, GPU_CORES, GPU_MEMORY, HANDSHAKE, REGISTER, card, cards

HONEST = ("h0", "h1", "h2", "k0", "s0", "canary")  # nodes whose UUIDs it claims
NUMBERS: tuple[object, ...] = (
    0,
    -1,
    1,
    100,
    15360,
    2**31 - 1,
    2**31,
    2**63 - 1,
    2**63,
    10**30,
    0.5,
    1e308,
    "7",
    None,
    True,
    [],
    {},
)
NOTES = (
    *(REGISTER, HANDSHAKE, "hami.io/node-nvidia-score", "hami.io/mutex.lock", "hami.io/device-cordon"),
    *("hami.io/node-register-mlu", "hami.io/node-dcu-register", "hami.io/node-amd-register", "dovetail.dev/enforcer"),
    *("hami.io/node-handshake-mlu", "x.example.com/y"),
)
MOST_KEPT = 20_000  # bytes of a change that the object keeps until some later act
MOST_CARDS = 1500  # in a register that is just below 250 kB


class LyingNode:
    """`act()` sends one request, and returns what it was and the answer's status."""

    def __init__(self, api: Client, name: str, dice: random.Random, without: Sequence[str]) -> None:
        """`without`: names of acts that are left out."""
        self._api, self._name, self._dice = api, name, dice
        self._heavy = False  # the last act made the object large: each further one would cost the API server as much
        acts = (
            *(self._sound_register, self._new_cards, self._many_cards, self._others_cards, self._absurd_cards),
            *(self._garbage, self._allocatable, self._labels, self._taints, self._conditions, self._large),
            *(self._handshake, self._enforcer, self._unschedulable, self._many_resources, self._odd_notes),
        )
        self._acts = [do for do in acts if do.__name__.strip("_") not in without]

    def act(self) -> tuple[str, int]:
        do = self._wipe if self._heavy or self._dice.random() < 0.1 else self._dice.choice(self._acts)
        change = do()
        self._heavy = len(json.dumps(change)) > MOST_KEPT
        part = "status" if "status" in change else ""
        status = self._api.status("PATCH", path_of("Node", self._name, part=part), change, MERGE)
        return f"{self._name} {do.__name__.strip('_')}", status

    def _wipe(self) -> Object:
        """As at first: what would pile up over many changes becomes too large for the API server."""
        labels = {**dict.fromkeys(f"l{number}" for number in range(500)), "kind": "hami"}
        notes = {**dict.fromkeys(NOTES), REGISTER: json.dumps(cards(self._name, 4))}
        return {"metadata": {"managedFields": [{}], "labels": labels, "annotations": notes}, "spec": {"taints": []}}

    def _note(self, key: str, value: str | None) -> Object:
        return {"metadata": {"annotations": {key: value}}}

    def _register(self, entries: list[Object]) -> Object:
        return self._note(REGISTER, json.dumps(entries, separators=(",", ":")))

    # --- cards

    def _sound_register(self) -> Object:
        return self._register(cards(self._name, self._dice.randrange(1, 9)))

    def _new_cards(self) -> Object:
        """UUIDs and models that were never seen: what is kept for them must be given up again."""
        stem = word(self._dice, 12)
        return self._register([card(f"GPU-{stem}-{n}", n, model=f"Model {stem} {n}") for n in range(64)])

    def _many_cards(self) -> Object:
        stem, count = word(self._dice), many(self._dice, MOST_CARDS)
        return self._register([card(f"GPU-{stem}-{n}", n, model=f"M{n}") for n in range(count)])

    def _others_cards(self) -> Object:
        return self._register([*cards(self._dice.choice(HONEST), 4), *cards(self._name, 1)])

    def _absurd_cards(self) -> Object:
        made = cards(self._name, self._dice.randrange(1, 5))
        for entry in made:
            for field in self._dice.sample(["devmem", "devcore", "count", "index", "numa", "type", "id", "mode"], 2):
                entry[field] = self._dice.choice((*NUMBERS, *ODD))
        return self._register(made)

    def _garbage(self) -> Object:
        return self._note(self._dice.choice(NOTES), next(values(self._dice.randrange(1 << 30), 1)))

    # --- what it has

    def _allocatable(self) -> Object:
        what = self._dice.sample(["cpu", "memory", "pods", "ephemeral-storage", GPU, GPU_MEMORY, GPU_CORES], 2)
        amounts = {resource: self._dice.choice(AMOUNTS) for resource in what}
        return {"status": {"capacity": amounts, "allocatable": amounts}}

    def _many_resources(self) -> Object:
        """New names, and away with all of them in every second call."""
        if self._dice.random() < 0.5:
            return {"status": {"allocatable": None, "capacity": None}}
        stem = word(self._dice)
        amounts = {f"x.io/{stem}{number}": "1" for number in range(many(self._dice, 3000))}
        return {"status": {"capacity": amounts, "allocatable": amounts}}

    def _conditions(self) -> Object:
        status = self._dice.choice(("True", "False", "Unknown"))
        more = [{"type": word(self._dice), "status": "True"} for _ in range(many(self._dice, 200))]
        return {"status": {"conditions": [{"type": "Ready", "status": status}, *more]}}

    # --- what it says of itself

    def _labels(self) -> Object:
        """The host name stays: pods that name it must not be led elsewhere by this run's own doing."""
        odd: Object = {f"l{number}": word(self._dice) for number in range(many(self._dice, 500))}
        found = {"nvidia.com/gpu.count": self._dice.choice(("1", "8", "2147483647", "x", None))}
        found |= {"nvidia.com/gpu.memory": self._dice.choice(("15360", "9" * 18, "0"))}
        found |= {"nvidia.com/gpu.product": self._dice.choice(("Tesla-T4", "Tesla-T4-SHARED", word(self._dice)))}
        found |= {"nvidia.com/gpu.replicas": self._dice.choice(("10", "2147483647", "-1", None))}
        found |= {"kind": self._dice.choice(("hami", "stock", word(self._dice)))}
        keep = {"kubernetes.io/hostname": self._name}
        return {"metadata": {"labels": {**(odd if self._dice.random() < 0.5 else dict.fromkeys(odd)), **found, **keep}}}

    def _taints(self) -> Object:
        count = self._dice.choice((0, 1, many(self._dice, 1000)))
        effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        made = [{"key": f"t{n}", "value": word(self._dice), "effect": self._dice.choice(effects)} for n in range(count)]
        return {"spec": {"taints": made}}

    def _large(self) -> Object:
        """Alone: the API server keeps 256 KiB of annotations for a node."""
        piece = self._dice.choice(("x", "[", '{"id":', "💥", "GPU-h0-0,"))
        text = piece * (240_000 // len(piece.encode()))
        return {"metadata": {"annotations": {**dict.fromkeys(NOTES), self._dice.choice(NOTES): text}}}

    def _handshake(self) -> Object:
        said = ("Reported 2026-01-01 00:00:00", "Requesting_2026.01.01 00:00:00", "Deleted_2026.01.01", None, *ODD)
        return self._note(HANDSHAKE, self._dice.choice(said))

    def _enforcer(self) -> Object:
        value = self._dice.choice(("stock", "hami", "dovetail", "", None, word(self._dice)))
        return {"metadata": {"labels": {"dovetail.dev/enforcer": value}}}

    def _unschedulable(self) -> Object:
        return {"spec": {"unschedulable": self._dice.random() < 0.5}}

    def _odd_notes(self) -> Object:
        chosen = self._dice.sample(NOTES, 4)
        return {"metadata": {"annotations": {key: self._dice.choice((None, *ODD)) for key in chosen}}}
