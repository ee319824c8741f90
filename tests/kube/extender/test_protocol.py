"""kube-scheduler's JSON, as its Go types write it."""

from __future__ import annotations

import json

import pytest

from dovetail.kube.extender import protocol
from dovetail.kube.extender.protocol import FilterResult, NodeVictims, WrongRequest
from tests.kube.extender.asked_stage import decoded, waiting


def body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_names_of_nodes() -> None:
    args = protocol.filter_args(body(Pod=waiting("a"), Nodes=None, NodeNames=["n1", "n2"]))
    assert (args.pod.metadata.name, args.names, args.nodes, args.offered) == ("a", ("n1", "n2"), None, ("n1", "n2"))


def test_keys_are_read_in_any_case_as_go_reads_them() -> None:
    args = protocol.filter_args(body(pod=waiting("a"), nodenames=["n1"]))
    assert args.names == ("n1",)


def test_whole_nodes_go_back_as_they_came() -> None:
    node = {"metadata": {"name": "n1", "labels": {"a": "b"}}, "status": {"something": "else"}}
    args = protocol.filter_args(body(Pod=waiting("a"), Nodes={"items": [node, {"metadata": {"name": "n2"}}]}))
    assert args.offered == ("n1", "n2")
    answer = decoded(protocol.filter_answer(FilterResult(("n1",)), args.nodes))
    assert answer["Nodes"]["items"] == [node]
    assert answer["NodeNames"] is None


def test_the_answer_to_filter() -> None:
    answer = decoded(protocol.filter_answer(FilterResult((), {"n1": "GPU memory short"}, {"n2": "node unregistered"})))
    assert answer == {
        "Nodes": None,
        "NodeNames": [],
        "FailedNodes": {"n1": "GPU memory short"},
        "FailedAndUnresolvableNodes": {"n2": "node unregistered"},
        "Error": "",
    }


def test_an_error_names_no_nodes() -> None:
    assert decoded(protocol.filter_answer(FilterResult(error="not now")))["NodeNames"] is None


def test_the_arguments_of_bind() -> None:
    args = protocol.bind_args(body(PodName="a", PodNamespace="ml", PodUID="u", Node="n1"))
    assert (args.key, args.uid, args.node) == ("ml/a", "u", "n1")


def test_victims_by_uid_and_as_whole_pods() -> None:
    meta = {"n1": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 1}, "n2": {"Pods": None}}
    args = protocol.preempt_args(body(Pod=waiting("a"), NodeNameToVictims=None, NodeNameToMetaVictims=meta))
    assert args.victims == {"n1": NodeVictims(("u1",), 1), "n2": NodeVictims(())}
    whole = {"n1": {"Pods": [{"metadata": {"name": "v", "uid": "u1"}}], "NumPDBViolations": 0}}
    assert protocol.preempt_args(body(Pod=waiting("a"), NodeNameToVictims=whole)).victims == {
        "n1": NodeVictims(("u1",))
    }
    assert decoded(protocol.preempt_answer(args.victims))["NodeNameToMetaVictims"]["n1"] == meta["n1"]


def test_scores() -> None:
    assert decoded(protocol.priorities_answer({"n1": 7})) == [{"Host": "n1", "Score": 7}]


@pytest.mark.parametrize(
    ("read", "raw", "said"),
    [
        (protocol.filter_args, b"", "the body is no ExtenderArgs"),
        (protocol.filter_args, b"[1]", "the body is no ExtenderArgs"),
        (protocol.filter_args, b'{"NodeNames":[]}', "Pod is missing"),
        (protocol.filter_args, b'{"Pod":null,"NodeNames":[]}', "Pod is missing"),
        (protocol.filter_args, b'{"Pod":{"metadata":{},"spec":{}}}', "neither NodeNames nor Nodes"),
        (protocol.filter_args, b'{"Pod":{"spec":3},"NodeNames":[]}', "Pod "),
        (protocol.filter_args, b'{"Pod":{"metadata":{},"spec":{}},"NodeNames":"n1"}', "NodeNames: a list of names"),
        (protocol.filter_args, b"[" * 100_000, "the body is no ExtenderArgs"),
        (protocol.bind_args, b'{"PodName":"a","PodNamespace":"ml","Node":"n"}', "PodUID is missing"),
        (protocol.bind_args, b'{"PodName":7}', "PodName: a text is expected"),
        (
            protocol.preempt_args,
            b'{"Pod":{"metadata":{},"spec":{}},"NodeNameToMetaVictims":{"n":{"Pods":[{}]}}}',
            "no UID",
        ),
    ],
)
def test_what_is_not_of_the_protocol_is_named(read: object, raw: bytes, said: str) -> None:
    assert callable(read)
    with pytest.raises(WrongRequest, match=said.replace("[", r"\[")):
        read(raw)


def test_the_number_of_nodes_is_bounded() -> None:
    names = [f"n{n}" for n in range(protocol.MAX_NODES + 1)]
    with pytest.raises(WrongRequest, match="50,001 nodes; at most 50,000"):
        protocol.filter_args(body(Pod=waiting("a"), NodeNames=names))
