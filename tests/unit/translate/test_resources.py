"""How many CPUs, MiB and GPUs a pod asks of Slurm."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.domain.errors import Invalid, PodError, Unsupported
from slurmrest_adapter.domain.pod import view
from slurmrest_adapter.translate.resources import MOST_GPUS, PRODUCT_LABEL, Resources, of_pod
from slurmrest_adapter.translate.site import Site
from tests.fakes.pods import container, pod

SITE = Site(
    "lab",
    cpus=2,
    memory="256Mi",
    gpu_resources={"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu", "lab/l40s": "gpu:l40s", "lab/fpga": "fpga"},
    gpu_types={"NVIDIA-A100-SXM4-80GB": "a100", "NVIDIA-L40S": "l40s"},
)
GPU = "nvidia.com/gpu"


def asks(name: str = "main", limits: dict[str, Any] | None = None, **requests: Any) -> dict[str, Any]:
    return container(name, resources={"limits": limits or {}, "requests": requests})


def needs(*apps: dict[str, Any], init: list[dict[str, Any]] | None = None, **spec: Any) -> Resources:
    return of_pod(view(pod(*apps, initContainers=init, **spec)), SITE)


def test_the_limit_else_the_request_else_the_default() -> None:
    both = needs(asks(limits={"cpu": "4", "memory": "1Gi"}, cpu="1", memory="1Mi"))
    assert (both.cpus, both.memory_mib) == (4, 1024)
    request = needs(asks(cpu="3", memory="100Mi"))
    assert (request.cpus, request.memory_mib) == (3, 100)
    nothing = needs(container())
    assert (nothing.cpus, nothing.memory_mib) == (2, 256)


def test_apps_are_summed_and_the_largest_init_container_counts() -> None:
    apps = [asks("a", {"cpu": "1", "memory": "100Mi"}), asks("b", {"cpu": "2", "memory": "50Mi"})]
    small = [asks("i", {"cpu": "2", "memory": "20Mi"}), asks("j", {"cpu": "3", "memory": "30Mi"})]
    assert (needs(*apps, init=small).cpus, needs(*apps, init=small).memory_mib) == (3, 150)
    large = [asks("i", {"cpu": "8", "memory": "20Mi"}), asks("j", {"cpu": "1", "memory": "2Gi"})]
    assert (needs(*apps, init=large).cpus, needs(*apps, init=large).memory_mib) == (8, 2048)


def test_an_init_container_without_resources_has_the_default() -> None:
    assert needs(asks(limits={"cpu": "1", "memory": "1Mi"}), init=[container("i")]).memory_mib == 256


def test_rounded_up_once() -> None:
    thirds = [asks(f"c{i}", {"cpu": "300m", "memory": "600Ki"}) for i in range(3)]
    assert (needs(*thirds).cpus, needs(*thirds).memory_mib) == (1, 2)
    assert needs(asks(limits={"cpu": "1001m", "memory": 1024 * 1024 + 1})).cpus == 2
    assert needs(asks(limits={"cpu": "1001m", "memory": 1024 * 1024 + 1})).memory_mib == 2


def test_never_nothing() -> None:
    zero = needs(asks(limits={"cpu": "0", "memory": "0"}))
    assert (zero.cpus, zero.memory_mib) == (1, 1)


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 2**40)), min_size=1, max_size=6))
def test_the_sum_of_any_containers(amounts: list[tuple[int, int]]) -> None:
    found = needs(*(asks(f"c{i}", {"cpu": f"{m}m", "memory": b}) for i, (m, b) in enumerate(amounts)))
    assert found.cpus == max(1, -(-sum(m for m, _ in amounts) // 1000))
    assert found.memory_mib == max(1, -(-sum(b for _, b in amounts) // 1024**2))


def test_gpus_are_sliced_in_order() -> None:
    found = needs(asks("a", {GPU: "1"}), container("b"), asks("c", {GPU: 2}))
    assert [gpu.tres for gpu in found.gpus] == ["gres/gpu:3"]
    assert found.slices == {"a": (0,), "b": (), "c": (1, 2)}


def test_init_containers_start_at_the_first_gpu_again() -> None:
    init = [asks("i", {GPU: "1"}), asks("j", {GPU: "3"})]
    found = needs(asks("a", {GPU: "1"}), asks("b", {GPU: "1"}), init=init)
    assert [gpu.count for gpu in found.gpus] == [3]
    assert found.slices == {"i": (0,), "j": (0, 1, 2), "a": (0,), "b": (1,)}


@given(st.lists(st.integers(0, 8), min_size=1, max_size=5), st.lists(st.integers(0, 8), max_size=3))
def test_slices_of_apps_never_overlap(apps: list[int], inits: list[int]) -> None:
    found = needs(
        *(asks(f"a{i}", {GPU: n}) for i, n in enumerate(apps)),
        init=[asks(f"i{i}", {GPU: n}) for i, n in enumerate(inits)],
    )
    positions = [p for i in range(len(apps)) for p in found.slices[f"a{i}"]]
    assert positions == list(range(sum(apps)))
    total = max([sum(apps), *inits])
    assert [gpu.count for gpu in found.gpus] == ([total] if total else [])
    assert all(p < total for slice_ in found.slices.values() for p in slice_)


def test_no_gpu_asks_for_no_gres() -> None:
    assert needs(asks(limits={GPU: "0"})).gpus == ()
    assert needs(asks(limits={GPU: None})).gpus == ()
    assert needs(asks(limits={"lab/unheard": None})).gpus == ()


def test_the_resource_or_the_product_fixes_the_type() -> None:
    assert needs(asks(limits={"lab/l40s": 1})).gpus[0].tres == "gres/gpu:l40s:1"
    a100 = {PRODUCT_LABEL: "NVIDIA-A100-SXM4-80GB"}
    assert needs(asks(limits={GPU: 2}), nodeSelector=a100).gpus[0].tres == "gres/gpu:a100:2"
    l40s = {PRODUCT_LABEL: "NVIDIA-L40S"}
    assert needs(asks(limits={"lab/l40s": 1}), nodeSelector=l40s).gpus[0].tres == "gres/gpu:l40s:1"
    # Without a GPU the selector chose the virtual node, no more.
    assert needs(container(), nodeSelector={PRODUCT_LABEL: "of another world"}).gpus == ()


C0 = "spec.containers[0].resources"
C1 = "spec.containers[1].resources"
PRODUCT = f"spec.nodeSelector[{PRODUCT_LABEL}]"
WRONG_AMOUNTS: list[tuple[dict[str, Any], str]] = [
    (asks(limits={"cpu": "lots"}), f"{C0}.limits.cpu"),
    (asks(limits={"cpu": "-1"}), f"{C0}.limits.cpu"),
    (asks(memory="1 Gi"), f"{C0}.requests.memory"),
    (asks(memory=True), f"{C0}.requests.memory"),
    (asks(limits={"cpu": "1"}, cpu="2"), f"{C0}.requests.cpu"),
    (asks(limits={GPU: "0.5"}), f"{C0}.limits[{GPU}]"),
    (asks(limits={GPU: "500m"}), f"{C0}.limits[{GPU}]"),
    (asks(limits={GPU: -1}), f"{C0}.limits[{GPU}]"),
    (asks(limits={GPU: "1E"}), f"{C0}.limits[{GPU}]"),
    (asks(limits={GPU: MOST_GPUS + 1}), f"{C0}.limits[{GPU}]"),
    (container(resources={"requests": {GPU: "1"}}), f"{C0}.limits[{GPU}]"),
    (container(resources={"limits": {GPU: 2}, "requests": {GPU: 1}}), f"{C0}.requests[{GPU}]"),
]
REFUSED: list[tuple[list[dict[str, Any]], str | None, str]] = [
    ([asks(limits={"example.com/tpu": 1})], None, f"{C0}.limits[example.com/tpu]"),
    ([container(resources={"requests": {"hugepages-2Mi": "4Mi"}})], None, f"{C0}.requests[hugepages-2Mi]"),
    ([asks("a", {GPU: 1}), asks("b", {"lab/fpga": 1})], None, f"{C1}.limits[lab/fpga]"),
    ([asks("a", {GPU: 1}), asks("b", {"amd.com/gpu": 1})], None, f"{C1}.limits[amd.com/gpu]"),
    ([asks(limits={GPU: 1, "lab/l40s": 1})], None, f"{C0}.limits[lab/l40s]"),
    ([asks(limits={GPU: 1})], "H100", PRODUCT),
]


@pytest.mark.parametrize(("app", "field"), WRONG_AMOUNTS)
def test_a_wrong_amount_is_named(app: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        needs(app)
    assert caught.value.field == field


@pytest.mark.parametrize(("apps", "product", "field"), REFUSED)
def test_what_the_site_does_not_have_is_named(
    apps: list[dict[str, Any]], product: str | None, field: str
) -> None:
    with pytest.raises(Unsupported) as caught:
        needs(*apps, nodeSelector={PRODUCT_LABEL: product} if product else None)
    assert caught.value.field == field


def test_too_many_gpus_together() -> None:
    with pytest.raises(Invalid, match="more GPUs than any node has"):
        needs(*(asks(f"c{i}", {GPU: MOST_GPUS}) for i in range(2)))


def test_the_product_must_be_the_resources_own() -> None:
    with pytest.raises(Invalid) as caught:
        needs(asks(limits={"lab/l40s": 1}), nodeSelector={PRODUCT_LABEL: "NVIDIA-A100-SXM4-80GB"})
    assert caught.value.field == PRODUCT
    with pytest.raises(Invalid) as caught:
        needs(asks(limits={GPU: 1}), nodeSelector=["x"])
    assert caught.value.field == "spec.nodeSelector"


def test_a_site_without_that_gres_says_what_it_has() -> None:
    with pytest.raises(Unsupported, match="known: none"):
        of_pod(view(pod(asks(limits={GPU: 1}))), Site("lab", gpu_resources={}))


def test_storage_is_without_effect() -> None:
    assert needs(asks(limits={"ephemeral-storage": "1Ti"})).gpus == ()


AMOUNTS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.just([]))
KEYS = st.sampled_from(["cpu", "memory", GPU, "lab/l40s", "x/y"]) | st.text(max_size=5)


@given(st.dictionaries(KEYS, AMOUNTS))
def test_any_amount_is_a_number_or_refused_by_name(limits: dict[str, Any]) -> None:
    found: Resources | PodError
    try:
        found = needs(asks(limits=limits))
    except PodError as error:
        found = error
    if isinstance(found, PodError):
        assert found.field.startswith(C0)
    else:
        assert found.cpus >= 1
        assert found.memory_mib >= 1
