"""The verdict on new pods: HAMi's mutations and denials, with the arithmetic of `plan`."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from dovetail.kube.admission.review import BadReview, PodVerdict, Review
from dovetail.kube.admission.webhook import NothingKnown, PodWebhook, WebhookOptions
from dovetail.kube.conversion.settings import Settings
from dovetail.kube.conversion.vendors import DEFAULT_VENDORS
from dovetail.model.device import Device
from dovetail.model.node import Enforcer, Node
from dovetail.model.pod import Pod
from tests.kube.manifests import ask_of

GPU, MEM, PCT, CORES = (f"nvidia.com/{name}" for name in ("gpu", "gpumem", "gpumem-percentage", "gpucores"))
Doc = dict[str, Any]


class Known(NothingKnown):
    """A cluster with these nodes, labels and limits."""

    def __init__(self, *nodes: Node, labels: Mapping[str, str] | None = None, limit: str = "") -> None:
        self._nodes, self._labels, self._limit = nodes, labels or {}, limit

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        return self._labels

    def nodes(self) -> Collection[Node]:
        return self._nodes

    def over_quota(self, pod: Pod) -> str:
        return self._limit


def webhook(cluster: Known | None = None, vendor: Mapping[str, Any] | None = None, **options: Any) -> PodWebhook:
    row = replace(DEFAULT_VENDORS.by_word["NVIDIA"], **(vendor or {}))
    settings = Settings(vendors=DEFAULT_VENDORS.with_rows([row]))
    return PodWebhook(WebhookOptions("dovetail", {"dovetail": settings}, **options), cluster)


def pod(limits: Doc | None = None, **spec: Any) -> Doc:
    container: Doc = {"name": "main", "image": "i", "resources": {"limits": limits or {}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "creationTimestamp": None},
        "spec": {"containers": [container], "schedulerName": "default-scheduler", **spec},
    }


def verdict(document: Doc, hook: PodWebhook | None = None, namespace: str = "team") -> PodVerdict:
    return (hook or webhook()).verdict(Review("admission.k8s.io/v1", "u", namespace, document))


def patched(document: Doc, hook: PodWebhook | None = None) -> Doc:
    """The document after the patch, applied by RFC 6902's rules."""
    result = verdict(document, hook)
    assert result.denial == ""
    return applied(document, result)


def applied(document: Doc, result: PodVerdict) -> Doc:
    document = json.loads(json.dumps(document))
    for operation in result.patch:
        place: Any = document
        *above, last = (step.replace("~1", "/").replace("~0", "~") for step in str(operation["path"]).split("/")[1:])
        for step in above:
            place = place[int(step)] if isinstance(place, list) else place[step]
        if isinstance(place, list) and operation["op"] == "add":
            assert last == "-"
            place.append(operation["value"])
        elif isinstance(place, list):
            place[int(last)] = operation["value"]
        else:
            place[last] = operation["value"]
    return document


def limits_of(document: Doc) -> Doc:
    limits: Doc = document["spec"]["containers"][0]["resources"]["limits"]
    return limits


def env_of(document: Doc) -> list[Doc]:
    return list(document["spec"]["containers"][0].get("env", []))


@pytest.mark.parametrize(
    ("limits", "after"),
    [
        ({GPU: 1}, {GPU: 1, CORES: "100"}),  # a whole card is exclusive
        ({GPU: 2, PCT: 100}, {GPU: 2, PCT: 100, CORES: "100"}),
        ({GPU: 1, PCT: 50}, {GPU: 1, PCT: 50}),
        ({GPU: 1, MEM: 3000}, {GPU: 1, MEM: 3000}),
        ({GPU: 1, CORES: 30}, {GPU: 1, CORES: 30}),
        ({MEM: 3000}, {MEM: 3000, GPU: "1"}),  # defaultGPUNum
        ({CORES: 30}, {CORES: 30, GPU: "1"}),
        ({GPU: 1, MEM: "8Gi"}, {GPU: 1, MEM: "8192"}),  # 8 x 1,024 MiB
        ({GPU: 1, MEM: "8k"}, {GPU: 1, MEM: "8k"}),  # 8,000 MiB, as the API server stores 8000
    ],
)
def test_amounts(limits: Doc, after: Doc) -> None:
    changed = patched(pod(limits))
    assert limits_of(changed) == after
    assert changed["spec"]["schedulerName"] == "dovetail"


def test_requests_that_state_an_amount_follow_the_limits() -> None:
    given = pod({GPU: 1, MEM: "8Gi"})
    given["spec"]["containers"][0]["resources"]["requests"] = {GPU: 1, MEM: "8Gi"}
    assert patched(given)["spec"]["containers"][0]["resources"]["requests"] == {GPU: 1, MEM: "8192"}


def test_memory_factor_and_default_count() -> None:
    hook = webhook(vendor={"memory_factor": 1024, "default_count": 2})
    assert limits_of(patched(pod({MEM: "8Gi"}), hook)) == {MEM: "8", GPU: "2"}  # units of 1,024 MiB


@pytest.mark.parametrize(
    "limits", [{GPU: 1}, {MEM: "8Gi"}, {GPU: 2, CORES: 30}, {GPU: 1, PCT: 100}, {GPU: 1, MEM: 7500}, {PCT: 30}]
)
def test_the_mutated_pod_asks_for_what_plan_reads_in_the_original(limits: Doc) -> None:
    before = pod(limits, schedulerName="dovetail")
    after = patched(before)
    first, second = (ask_of(one) for one in (before, after))
    assert first is not None
    assert second is not None
    assert replace(first, plain=False) == replace(second, plain=False)


def test_asked_again_there_is_nothing_to_change() -> None:
    row = {"overwrite_env": True, "runtime_class": "nvidia", "core_policy": "force"}
    hook = webhook(vendor=row)
    given = pod({MEM: "8Gi", "nvidia.com/priority": 1}, initContainers=[{"name": "prepare"}])
    once = patched(given, hook)
    assert once != given
    assert verdict(once, hook).patch == []


def test_priority_becomes_a_variable() -> None:
    assert env_of(patched(pod({GPU: 1, "nvidia.com/priority": 1}))) == [{"name": "CUDA_TASK_PRIORITY", "value": "1"}]


def test_the_runtime_class_of_other_vendors_is_written_too() -> None:
    row = replace(DEFAULT_VENDORS.by_word["Ascend910B2"], runtime_class="ascend")
    settings = Settings(vendors=DEFAULT_VENDORS.with_rows([row]))
    hook = PodWebhook(WebhookOptions("dovetail", {"dovetail": settings}))
    changed = patched(pod({"huawei.com/Ascend910B2": 1}), hook)
    assert changed["spec"]["runtimeClassName"] == "ascend"
    assert "env" not in changed["spec"]["containers"][0]
    assert "runtimeClassName" not in patched(pod({GPU: 1}), hook)["spec"]


def test_runtime_class_core_policy_and_hidden_cards_of_device_config() -> None:
    hook = webhook(vendor={"overwrite_env": True, "runtime_class": "nvidia", "core_policy": "force"})
    own = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    changed = patched(pod({GPU: 1}, initContainers=[{"name": "prepare", "env": [own]}]), hook)
    force = {"name": "GPU_CORE_UTILIZATION_POLICY", "value": "force"}
    assert env_of(changed) == [force]
    hidden = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}
    assert changed["spec"]["initContainers"][0]["env"] == [hidden, force]  # it cannot see the cards of others
    assert changed["spec"]["runtimeClassName"] == "nvidia"
    assert patched(pod({GPU: 1}, runtimeClassName="mine"), hook)["spec"]["runtimeClassName"] == "mine"


@pytest.mark.parametrize(
    ("document", "options"),
    [
        (pod(), {}),  # no cards
        (pod({"cpu": 2}), {}),
        (pod({GPU: 0}), {}),
        (pod({GPU: 1}, schedulerName="volcano"), {}),
        (pod({GPU: 1}, schedulerName="hami-scheduler"), {}),  # HAMi beside us, unless the name is one of ours
        (pod({GPU: 1}), {"force_overwrite": False}),
        (pod({"aliyun.com/gpu-mem": 4}), {}),  # another system's plugin has a scheduler of its own
        ({**pod({GPU: 1}), "metadata": {"labels": {"hami.io/webhook": "ignore"}}}, {}),
        ({**pod({GPU: 1}, nodeName="n"), "metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}, {}),
    ],
)
def test_pods_that_are_left_as_they_are(document: Doc, options: Doc) -> None:
    assert verdict(document, webhook(**options)) == PodVerdict()


def test_namespaces_that_are_left_alone() -> None:
    assert verdict(pod({GPU: 1}), namespace="kube-system") == PodVerdict()
    assert verdict(pod({GPU: 1}), webhook(Known(labels={"hami.io/webhook": "ignore"}))) == PodVerdict()


def test_a_pod_that_names_one_of_our_schedulers_keeps_the_name() -> None:
    both = {"dovetail": Settings(), "hami-scheduler": Settings()}
    hook = PodWebhook(WebhookOptions("dovetail", both, force_overwrite=False))
    changed = patched(pod({GPU: 1}, schedulerName="hami-scheduler"), hook)
    assert (changed["spec"]["schedulerName"], limits_of(changed)[CORES]) == ("hami-scheduler", "100")


def _annotated(**annotations: str) -> Doc:
    given = pod({GPU: 1})
    given["metadata"]["annotations"] = {f"hami.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return given


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            pod({GPU: 1}, nodeName="gpu-1"),
            ["spec.nodeName: pod has node assigned", "nodeSelector: {kubernetes.io/hostname: gpu-1}"],
        ),
        (
            {**pod({GPU: 1}, initContainers=[{"name": "i", "securityContext": {"privileged": True}}])},
            ["spec.initContainers[0].securityContext.privileged: container i is privileged"],
        ),
        (pod({GPU: 1, PCT: 120}), ["gpumem-percentage: 120 is no percentage", "write 1 to 100"]),
        (pod({GPU: 1, PCT: -1}), ["-1 is no percentage"]),
        (pod({GPU: "1500m"}), ["nvidia.com/gpu: 1500m is not a number of cards"]),
        (pod({GPU: 1, MEM: "1.5"}), ["gpumem: 1.5 is not a whole number of MiB; write MiB per card, such as 16384"]),
        (pod({GPU: 1, MEM: 17179869184}), ["nvidia.com/gpumem"]),
        (_annotated(node_scheduler_policy="binpak"), ["'binpak' is no node policy; write one of binpack, spread"]),
        (_annotated(gpu_scheduler_policy="spraed"), ["'spraed' is no GPU policy; write one of"]),
        (_annotated(device_scoring_weights="slot=1"), ["are no weights; write slot=1,core=1,memory=1"]),
    ],
)
def test_denials_say_the_fix(document: Doc, said: list[str]) -> None:
    denial = verdict(document).denial
    for text in said:
        assert text in denial, denial


def test_slips_in_names_are_warnings_or_with_strict_denials() -> None:
    given = pod({GPU: 1, "nvidia.com/gpu-mem": 3000})
    given["metadata"]["annotations"] = {"hami.io/gpu-schedular-policy": "spread"}
    slips = verdict(given)
    assert slips.denial == ""
    assert [line.rpartition("; ")[2] for line in slips.warnings] == [
        "did you mean hami.io/gpu-scheduler-policy?",
        "did you mean nvidia.com/gpumem?",
    ]
    assert "did you mean nvidia.com/gpumem?" in verdict(given, webhook(strict=True)).denial


def _node(memory: int = 15_360, cards: int = 2, enforcer: Enforcer = Enforcer.HAMI) -> Node:
    devices = tuple(Device(f"GPU-{n}", n, "NVIDIA", "NVIDIA Tesla T4", memory) for n in range(cards))
    return Node("n", devices=devices, enforcer=enforcer)


@pytest.mark.parametrize(
    ("limits", "nodes", "said"),
    [
        ({GPU: 2, MEM: 15_360}, [_node()], ""),
        ({GPU: 3}, [_node()], "it asks for 3 cards of one node, and no node has more than 2"),
        (
            {GPU: 1, MEM: 16_000},
            [_node()],
            "16,000 MiB each on one node, and no node has as many so large; the largest",
        ),
        ({GPU: 1, MEM: 3000}, [_node(enforcer=Enforcer.STOCK)], "it asks for a part of a card, and on every node"),
        ({GPU: 1}, [_node(enforcer=Enforcer.STOCK)], ""),
        ({GPU: 1, MEM: 3000}, [_node(enforcer=Enforcer.STOCK), _node()], ""),
        ({GPU: 1}, [_node(cards=0)], "no node of the cluster has a card of NVIDIA"),
        ({GPU: 99}, [], ""),  # no nodes are known
    ],
)
def test_a_request_that_no_node_could_take(limits: Doc, nodes: list[Node], said: str) -> None:
    result = verdict(pod(limits), webhook(Known(*nodes)))
    assert result.denial == ""  # a larger node may join
    assert [said in line for line in result.warnings] == ([True] if said else [])
    assert said in verdict(pod(limits), webhook(Known(*nodes), strict=True)).denial


def test_a_quota_that_is_exceeded_denies() -> None:
    limit = "quota q: NVIDIA memory 6,000 of 8,000 MiB in use"
    assert verdict(pod({GPU: 1}), webhook(Known(limit=limit))).denial == f"exceeding resource quota: {limit}"


def _body(document: Any, version: str = "admission.k8s.io/v1", **request: Any) -> Doc:
    about = {"resource": {"group": "", "version": "v1", "resource": "pods"}, "operation": "CREATE", "namespace": "team"}
    asked = {"uid": "u-1", **about, "object": document, **request}
    return {"apiVersion": version, "kind": "AdmissionReview", "request": asked}


@pytest.mark.parametrize("version", ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"])
def test_the_answer_on_the_wire(version: str) -> None:
    said = json.loads(webhook().answer(json.dumps(_body(pod({GPU: 1}), version)).encode()))
    assert (said["apiVersion"], said["kind"]) == (version, "AdmissionReview")
    assert (said["response"]["uid"], said["response"]["allowed"]) == ("u-1", True)
    assert said["response"]["patchType"] == "JSONPatch"
    patch = json.loads(base64.b64decode(said["response"]["patch"]))
    assert {"op": "add", "path": "/spec/containers/0/resources/limits/nvidia.com~1gpucores", "value": "100"} in patch
    denied = json.loads(webhook().answer(json.dumps(_body(pod({GPU: 1}, nodeName="n"), version)).encode()))["response"]
    assert (denied["allowed"], denied["status"]["code"], "patch" in denied) == (False, 403, False)


@pytest.mark.parametrize(
    "request_", [{"operation": "UPDATE"}, {"subResource": "status"}, {"resource": {"resource": "services"}}]
)
def test_other_questions_are_answered_with_yes(request_: Doc) -> None:
    said = json.loads(webhook().answer(json.dumps(_body(pod({GPU: 1}), **request_)).encode()))
    assert said["response"] == {"uid": "u-1", "allowed": True}


ODD: list[Any] = [None, "", "x" * 300, -1, 2**70, 1.5, True, [], {}, [None], {"a": None}, "8Gi", {"limits": {GPU: []}}]


def _spoiled(value: Any, chance: random.Random) -> Any:
    """The document with one part replaced, added or taken away."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(sorted(value))
        if chance.random() < 0.15:
            return {other: content for other, content in value.items() if other != key}
        return {**value, key: _spoiled(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        place = chance.randrange(len(value))
        return [*value[:place], _spoiled(value[place], chance), *value[place + 1 :]]
    return chance.choice(ODD)


def test_hostile_reviews_never_break_it() -> None:
    chance, hook, outcomes = random.Random(7), webhook(Known(_node())), {"answered": 0, "refused": 0}
    whole = _body(pod({GPU: 1, MEM: "8Gi", "nvidia.com/priority": 1}, initContainers=[{"name": "i", "env": []}]))
    whole["request"]["object"]["metadata"]["annotations"] = {"hami.io/gpu-scheduler-policy": "spread"}
    for _ in range(10_000):
        document = json.loads(json.dumps(whole))
        for _ in range(chance.randrange(1, 4)):
            document["request"]["object"] = _spoiled(document["request"]["object"], chance)
        if chance.random() < 0.2:
            document = _spoiled(document, chance)
        body = json.dumps(document).encode()
        if chance.random() < 0.1:
            body = body[: chance.randrange(len(body) + 1)]
        if chance.random() < 0.05:
            body = body.replace(b"a", b"\xff")
        try:
            said = json.loads(hook.answer(body))["response"]
            assert isinstance(said["allowed"], bool)
            outcomes["answered"] += 1
        except BadReview:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 1_000, outcomes


def test_deep_nesting_is_refused() -> None:
    body = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","object":'
    with pytest.raises(BadReview):
        webhook().answer(body + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}}")
