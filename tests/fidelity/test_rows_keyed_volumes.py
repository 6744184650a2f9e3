"""ConfigMaps and Secrets as files, alone and in a projected volume (R054 to R102)."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import pytest

from tests.fidelity.mounttest import content, mode, mounttest
from tests.fidelity.specs import Images, Pod, config_map, container, pod, running, secret, unique
from tests.fidelity.ways import Cluster

AT = "/etc/the-volume"
DATA = {"data-1": "value-1", "data-2": "value-2", "data-3": "value-3"}
OWNER_READS = "-r--------"


def b64(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def object_of(kind: str, name: str, **fields: Any) -> Pod:
    """A ConfigMap or Secret with the data above."""
    if kind == "configMap":
        return config_map(name, data=DATA, **fields)
    return secret(name, data={key: b64(value) for key, value in DATA.items()}, **fields)


def volume(kind: str, of: str, projected: bool, items: Any = None, default: int | None = None) -> Pod:
    """A volume's source: all keys of an object or some, mode 0644 or another."""
    chosen: Pod = {} if items is None else {"items": items}
    modes: Pod = {} if default is None else {"defaultMode": default}
    if projected:
        return {"projected": {"sources": [{kind: {"name": of, **chosen}}], **modes}}
    return {kind: {"name" if kind == "configMap" else "secretName": of, **chosen, **modes}}


@dataclass(frozen=True)
class Case:
    """One way to mount an object: `item` and `default` are modes, `user` is asked for."""

    kind: str
    projected: bool = False
    mapped: bool = False
    item: int | None = None
    default: int | None = None
    user: int | None = None

    @property
    def path(self) -> str:
        if not self.mapped:
            return f"{AT}/data-1"
        return f"{AT}/path/to/data-2" if self.kind == "configMap" else f"{AT}/new-path-data-1"

    @property
    def items(self) -> list[Pod] | None:
        if not self.mapped:
            return None
        key = "data-2" if self.kind == "configMap" else "data-1"
        modes: Pod = {} if self.item is None else {"mode": self.item}
        return [{"key": key, "path": self.path.removeprefix(f"{AT}/"), **modes}]


CASES = {
    "R055": Case("configMap"),
    "R056": Case("configMap", user=1000),
    "R057": Case("configMap", default=0o400),
    "R058": Case("configMap", mapped=True),
    "R059": Case("configMap", mapped=True, item=0o400),
    "R060": Case("configMap", mapped=True, user=1000),
    "R066": Case("secret"),
    "R067": Case("secret", default=0o400),
    "R069": Case("secret", mapped=True),
    "R070": Case("secret", mapped=True, item=0o400),
    "R077": Case("configMap", projected=True),
    "R078": Case("configMap", projected=True, user=1000),
    "R079": Case("configMap", projected=True, default=0o400),
    "R080": Case("configMap", projected=True, mapped=True),
    "R081": Case("configMap", projected=True, mapped=True, item=0o400),
    "R082": Case("configMap", projected=True, mapped=True, user=1000),
    "R097": Case("secret", projected=True),
    "R099": Case("secret", projected=True, default=0o400),
    "R100": Case("secret", projected=True, mapped=True),
    "R101": Case("secret", projected=True, mapped=True, item=0o400),
}


@pytest.mark.parametrize("row", CASES)
def test_keys_are_files(cluster: Cluster, images: Images, row: str) -> None:
    case, name = CASES[row], unique("keys")
    made = pod(
        mounttest(
            images,
            f"--file_content={case.path}",
            f"--file_mode={case.path}",
            volumeMounts=[{"name": "v", "mountPath": AT, "readOnly": True}],
        ),
        volumes=[{"name": "v", **volume(case.kind, name, case.projected, case.items, case.default)}],
    )
    if case.user is not None:
        made["spec"]["securityContext"] = {"runAsUser": case.user}
    lines = cluster.output(made, object_of(case.kind, name)).splitlines()
    letters = OWNER_READS if 0o400 in (case.item, case.default) else "-rw-r--r--"
    value = DATA["data-2" if case.path.endswith("data-2") else "data-1"]
    assert lines == [content(case.path, value), mode(case.path, letters)]


TWICE = {
    "R061": ("configMap", False),
    "R071": ("secret", False),
    "R083": ("configMap", True),
    "R102": ("secret", True),
}


@pytest.mark.parametrize("row", TWICE)
def test_one_object_in_two_volumes(cluster: Cluster, images: Images, row: str) -> None:
    (kind, projected), name = TWICE[row], unique("twice")
    paths = [f"{AT}-1/data-1", f"{AT}-2/data-1"]
    made = pod(
        mounttest(
            images,
            *(f"--file_content={path}" for path in paths),
            f"--file_mode={paths[0]}",
            volumeMounts=[{"name": f"v-{n}", "mountPath": f"{AT}-{n}", "readOnly": True} for n in (1, 2)],
        ),
        volumes=[{"name": f"v-{n}", **volume(kind, name, projected)} for n in (1, 2)],
    )
    lines = cluster.output(made, object_of(kind, name)).splitlines()
    assert lines == [*(content(path, "value-1") for path in paths), mode(paths[0])]


def test_R054(cluster: Cluster, images: Images) -> None:
    data, name = bytes((0xDE, 0xCA, 0xFE, 0xBA, 0xD0, 0xFE, 0xFF)), unique("binary")
    mounts = [{"name": "v", "mountPath": AT, "readOnly": True}]
    made = pod(
        mounttest(images, f"--file_content={AT}/data-1", name="text", volumeMounts=mounts),
        container(images.shell, f"hexdump -C {AT}/dump.bin", "binary", volumeMounts=mounts),
        volumes=[{"name": "v", **volume("configMap", name, False)}],
    )
    text = cluster.output(made, config_map(name, data=DATA, binaryData={"dump.bin": b64(data)}))
    assert text.splitlines() == [content(f"{AT}/data-1", "value-1")]
    first = cluster.log(made, "binary").splitlines()[0]
    assert first.split("|")[0].split() == ["00000000", *(f"{byte:02x}" for byte in data)]


def test_R064(cluster: Cluster, images: Images) -> None:
    names = [unique("racey") for _ in range(50)]
    cluster.make(*(config_map(name, data={"data-1": f"of {name}\n"}) for name in names))
    items = [{"key": "data-1", "path": "data-1"}]
    volumes = [{"name": f"v-{n}", **volume("configMap", name, False, items)} for n, name in enumerate(names)]
    pods = [
        pod(
            container(
                images.shell,
                "cat /etc/config-*/data-1 | sort; sleep 1000",
                volumeMounts=[{"name": f"v-{n}", "mountPath": f"/etc/config-{n}"} for n in range(50)],
                resources={"limits": {"cpu": "1", "memory": "100Mi"}},
            ),
            volumes=volumes,
            restartPolicy="Always",
        )
        for _ in range(5)
    ]
    for made in [cluster.create(each) for each in pods]:
        cluster.until(made, running)
        cluster.logged(made, "".join(f"of {name}\n" for name in sorted(names)))


def test_R072(cluster: Cluster, images: Images) -> None:
    name = unique("same-name")
    other = secret(name, "ai", data={"this-is-not-it": b64("nor is this\n")})
    path = f"{AT}/data-1"
    made = pod(
        mounttest(
            images,
            f"--file_content={path}",
            f"--file_mode={path}",
            volumeMounts=[{"name": "v", "mountPath": AT, "readOnly": True}],
        ),
        container(images.shell, f"ls {AT}", "names", volumeMounts=[{"name": "v", "mountPath": AT}]),
        volumes=[{"name": "v", **volume("secret", name, False)}],
    )
    lines = cluster.output(made, other, object_of("secret", name)).splitlines()
    assert lines == [content(path, "value-1"), mode(path)]
    assert cluster.log(made, "names").split() == list(DATA)


def test_R074(cluster: Cluster, images: Images) -> None:
    name = unique("beside")
    mounts = [
        {"name": f"{kind}-volume", "mountPath": f"/etc/{kind}-volume"} for kind in ("secret", "configmap")
    ]
    made = pod(
        container(images.shell, "cat /etc/*-volume/data-1; sleep 1000", volumeMounts=mounts),
        volumes=[
            {"name": "secret-volume", **volume("secret", name, False)},
            {"name": "configmap-volume", **volume("configMap", name, False)},
        ],
    )
    value = b64("value-1\n")
    stored = cluster.create(
        made, secret(name, data={"data-1": value}), config_map(name, binaryData={"data-1": value})
    )
    cluster.until(stored, running)
    cluster.logged(stored, "value-1\nvalue-1\n")


def test_R076(cluster: Cluster, images: Images) -> None:
    name = unique("all")
    sources = [
        {"downwardAPI": {"items": [{"path": "podname", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"secret": {"name": name}},
        {"configMap": {"name": name}},
    ]
    made = pod(
        container(
            images.shell,
            "cat /all/podname; echo; cat /all/secret-data /all/configmap-data",
            volumeMounts=[{"name": "podinfo", "mountPath": "/all"}],
        ),
        volumes=[{"name": "podinfo", "projected": {"sources": sources}}],
    )
    objects = [
        secret(name, data={"secret-data": b64("secret-value-1\n")}),
        config_map(name, data={"configmap-data": "configmap-value-1\n"}),
    ]
    lines = cluster.output(made, *objects).splitlines()
    assert lines == [made["metadata"]["name"], "secret-value-1", "configmap-value-1"]
