"""What a pod says of its own cards, and what is believed: its owner may write anything, HAMi writes what was asked."""

from __future__ import annotations

import pytest

from dovetail.kube.conversion.settings import Settings
from dovetail.kube.live.binder import Fate
from dovetail.kube.live.reader import PodReader
from dovetail.model.decision import Share
from tests.kube.live.stage import Stage, gpu_node, read, waiting
from tests.kube.manifests import ALLOCATED, CORES, GPU, MEM, Object, container, node

TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
MLU_ALLOCATED = "hami.io/cambricon-mlu-devices-allocated"
MLU = "cambricon.com/vmlu"
A, B = "GPU-a,NVIDIA,500,3:", "GPU-b,NVIDIA,500,3:"
SHARE_A, SHARE_B = Share(0, "GPU-a", 500, 30), Share(0, "GPU-b", 500, 30)
PART = {MEM: 500, CORES: 3}


def says(item: Object, text: str, key: str = ALLOCATED, on: str = "") -> Object:
    """The same pod with this annotation, and perhaps a node."""
    meta = {**item["metadata"], "annotations": {**item["metadata"].get("annotations", {}), key: text}}
    spec = {**item["spec"], "nodeName": on} if on else item["spec"]
    return {**item, "metadata": meta | ({"resourceVersion": "2"} if on else {}), "spec": spec}


def plain_node(name: str = "n", cards: int = 1) -> Object:
    """With the vendor's own plugin: kubelet picks the card."""
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": str(cards)}
    return node(name, labels=labels, allocatable={GPU: str(cards)})


class TestReading:
    def held(self, item: Object) -> tuple[tuple[Share, ...] | None, str]:
        held, problems = PodReader({"dovetail": Settings()}).running(read(item))
        return held.running.shares, " ".join(map(str, problems))

    def pod(self, *containers: Object, init: tuple[Object, ...] = ()) -> Object:
        item = waiting("p")
        item["spec"] |= {"containers": list(containers), "initContainers": list(init), "nodeName": "n"}
        return item

    def test_as_many_cards_as_were_asked_for_are_read(self) -> None:
        two = self.pod(container({GPU: 2, **PART}))
        assert self.held(says(two, f"{A}{B};")) == ((SHARE_A, SHARE_B), "")
        assert self.held(says(two, f"{A};")) == ((SHARE_A,), "")

    @pytest.mark.parametrize("text", ["GPU-a,NVIDIA,0,0:;", "GPU-a,NVIDIA,2147483647,100:;"])
    def test_amounts_are_those_asked_for(self, text: str) -> None:
        """The record says 0 MiB, or all that a number can hold: the pod asked for 500 MiB and 3 %."""
        assert self.held(says(self.pod(container({GPU: 1, **PART})), text)) == ((SHARE_A,), "")

    def test_what_was_written_for_the_plugin_serves_where_the_record_is_gone(self) -> None:
        item = says(self.pod(container({GPU: 1, **PART})), f"{A};", key=TO_ALLOCATE)
        assert self.held(item) == ((SHARE_A,), "")
        half = says(self.pod(container({GPU: 2, **PART})), f"{A};", key=TO_ALLOCATE)  # the plugin took one out
        assert self.held(half) == (None, "")

    def test_cards_of_a_vendor_that_was_not_asked_for_are_ignored(self) -> None:
        shares, said = self.held(says(self.pod(container()), f"{A}{B};"))
        assert shares == ()
        assert "Pod ml/p" in said
        assert ALLOCATED in said
        both = says(says(self.pod(container({GPU: 1, **PART})), f"{A};"), "MLU-a,MLU,1,1:;", MLU_ALLOCATED)
        shares, said = self.held(both)
        assert shares == (SHARE_A,)
        assert MLU_ALLOCATED in said
        assert ALLOCATED not in said

    @pytest.mark.parametrize("text", [";", ",,0,0:;", " "])
    def test_a_string_without_cards_is_nothing_to_speak_of(self, text: str) -> None:
        assert self.held(says(self.pod(container()), text)) == ((), "")
        assert self.held(says(self.pod(container({GPU: 1, **PART})), text)) == (None, "")

    @pytest.mark.parametrize(
        "text",
        [
            f"{A}{B};;",  # the first container asked for one
            f"{A};{B}{B};",
            f"{A};{B};{B};",  # more segments than containers, and three cards where two were asked for
            f"{A}{B}{B};",
        ],
    )
    def test_more_cards_than_were_asked_for_leave_them_to_be_guessed(self, text: str) -> None:
        shares, said = self.held(says(self.pod(container({GPU: 1}, name="x"), container({GPU: 1}, name="y")), text))
        assert shares is None
        assert f"Pod ml/p: metadata.annotations.{ALLOCATED}: names more cards than the pod asks for" in said

    def test_segments_that_are_not_the_containers_count_in_all(self) -> None:
        """HAMi loses empty ones, and older versions leave out init containers."""
        idle, asks = container(name="idle"), container({GPU: 2, **PART}, name="asks")
        fewer = self.pod(idle, asks, container(name="other"))
        assert self.held(says(fewer, f"{A}{B};")) == ((SHARE_A, SHARE_B), "")
        more = self.pod(asks)
        assert self.held(says(more, f";{A}{B};")) == ((SHARE_A, SHARE_B), "")
        without_init = self.pod(container({GPU: 1, **PART}), init=(container(name="i"), container(name="j")))
        assert self.held(says(without_init, f"{A};")) == ((Share(2, "GPU-a", 500, 30),), "")

    def test_init_containers_have_cards_of_their_own(self) -> None:
        item = self.pod(container({GPU: 1, **PART}), init=(container({GPU: 2, **PART}, name="init"),))
        assert self.held(says(item, f"{A}{B};{A};")) == ((SHARE_A, SHARE_B, Share(1, "GPU-a", 500, 30)), "")
        assert self.held(says(item, f"{A};{A}{B};"))[0] is None

    def test_cards_of_several_vendors_are_all_read(self) -> None:
        item = says(self.pod(container({GPU: 1, MLU: 1, **PART})), f"{A};")
        assert self.held(says(item, "MLU-a,MLU,9,1:;", MLU_ALLOCATED)) == ((SHARE_A, Share(0, "MLU-a", 9, 10)), "")


@pytest.mark.asyncio
class TestCluster:
    async def test_a_pod_without_gpus_locks_none_by_its_annotation(self) -> None:
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=2))
            evil = says(waiting("evil", limits={}), "GPU-n-0,NVIDIA,8000,100:GPU-n-1,NVIDIA,8000,100:;")
            stage.pods(evil)
            await stage.settle()
            (bind,) = stage.hands.binds
            assert stage.hands.claimed == (ALLOCATED,)
            stage.answer(Fate.BOUND, bind)
            stage.pods(says(evil, evil["metadata"]["annotations"][ALLOCATED], on="n"))
            stage.pods(waiting("good"), waiting("fine"))
            await stage.settle()
            assert sorted(bind.pod.name for bind in stage.hands.binds) == ["evil", "fine", "good"]
            assert [line for line in stage.log if "ml/evil" in line and ALLOCATED in line]

    async def test_what_was_claimed_when_the_binding_is_written_counts(self) -> None:
        async with Stage() as stage:
            stage.pods(waiting("a"))
            stage.pods(says(waiting("a", version=2), "x", "hami.io/vgpu-devices-to-allocate"))
            assert stage.mirror.known.claimed("uid-a") == ("hami.io/vgpu-devices-to-allocate",)
            assert stage.mirror.known.claimed("nobody") == ()

    @pytest.mark.parametrize("node_first", [True, False])
    @pytest.mark.parametrize("text", ["elsewhere,NVIDIA,1,1:;", "n/gpu-1,NVIDIA,1,1:;"])
    async def test_where_kubelet_picks_the_card_no_annotation_frees_it(self, text: str, node_first: bool) -> None:
        async with Stage() as stage:
            evil = says(waiting("evil", limits={GPU: 1}), text, on="n")
            for is_node in (True, False) if node_first else (False, True):
                if is_node:
                    stage.nodes(plain_node())
                else:
                    stage.pods(evil)
                await stage.settle()
            stage.pods(waiting("good", limits={GPU: 1}))
            await stage.settle()
            assert stage.hands.binds == []
            assert [share.uuid for share in stage.scheduler.ledger.held_shares("uid-evil")] == ["n/gpu-0"]
            stage.driver.reports.problems()
            assert [line for line in stage.log if "ml/evil" in line and "kubelet picks" in line]

    async def test_an_init_container_that_ended_frees_nothing_where_kubelet_picks(self) -> None:
        async with Stage() as stage:
            stage.nodes(plain_node())
            evil = waiting("evil", limits={GPU: 1})
            evil["spec"]["initContainers"] = [container({GPU: 1}, name="init")]
            evil["status"] = {"initContainerStatuses": [{"name": "init", "state": {"terminated": {"exitCode": 0}}}]}
            stage.pods(says(evil, "elsewhere,NVIDIA,1,1:;;", on="n"), waiting("good", limits={GPU: 1}))
            await stage.settle()
            assert stage.hands.binds == []

    async def test_what_is_written_counts_again_once_hami_registers_the_cards_again(self) -> None:
        async with Stage() as stage:
            stage.nodes(gpu_node(cards=2))
            stage.pods(says(waiting("a"), "GPU-n-1,NVIDIA,8000,100:;", on="n"))
            for item in (plain_node(cards=2), gpu_node(cards=2)):  # the register was away for a while
                stage.nodes(item)
                await stage.settle()
            assert [share.uuid for share in stage.scheduler.ledger.held_shares("uid-a")] == ["GPU-n-1"]
