"""Volumes in the plan: bytes, paths, modes; what is missing is named; where the objects come from."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slurmrest_adapter.domain.errors import Invalid, PodError, Unsupported
from slurmrest_adapter.domain.pod import view
from slurmrest_adapter.domain.podplan import MountPlan, VolumePlan
from slurmrest_adapter.domain.volumes import Objects, of_envelope
from slurmrest_adapter.translate.pod import Ownership, Translated, translate
from slurmrest_adapter.translate.site import Site
from slurmrest_adapter.translate.volume_files import quoted
from tests.fakes.pods import container
from tests.fakes.pods import pod as plain_pod

pytestmark = pytest.mark.unit
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
V = {"name": "v", "mountPath": "/v"}


SITE = Site("lab", host_paths=("/scratch",), claims={"physics/data": "/data/physics"})


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def named(name: str, namespace: str | None = "physics", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"metadata": metadata, **fields}


def with_volume(source: dict[str, Any], mount: dict[str, Any] | None = None) -> dict[str, Any]:
    raw = plain_pod(container(volumeMounts=[{**V, **(mount or {})}]), volumes=[{"name": "v", **source}])
    raw["metadata"].update(labels={"b": "2", "a": "1"}, annotations={"x": 'line\n"q" \\ ☃ \x01\u200b'})
    odd = {"ABSOLUTE": "/etc", "UP": "..", "TICKS": "`id`"}
    raw["spec"]["containers"][0]["env"] = [{"name": name, "value": value} for name, value in odd.items()]
    raw["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1500m"}}
    return raw


def made(raw: dict[str, Any], objects: Objects = Objects()) -> Translated:  # noqa: B008
    return translate(view(raw), Ownership("alice"), SITE, b"k" * 32, "/shared/pods/x", objects)


def files(raw: dict[str, Any], objects: Objects = Objects()) -> dict[str, tuple[int, bytes]]:  # noqa: B008
    (volume,) = made(raw, objects).plan.volumes
    assert volume.files is not None
    return {file.path: (file.mode, base64.b64decode(file.data)) for file in volume.files}


CM = named("c", data={"text": "é\n", "b": "x"}, binaryData={"bytes": b64(bytes(range(256)))})
SECRET = named("s", data={"k": b64(b"\0\xff"), "both": b64(b"old")}, stringData={"both": "new"})
OBJECTS = Objects((CM, named("c", "other", data={"text": "theirs"})), (SECRET,))


def test_a_config_map_is_all_its_keys() -> None:
    assert files(with_volume({"configMap": {"name": "c"}}), OBJECTS) == {
        "b": (0o644, b"x"), "bytes": (0o644, bytes(range(256))), "text": (0o644, "é\n".encode()),
    }  # fmt: skip


def test_a_secret_with_modes_and_string_data() -> None:
    source = {"secretName": "s", "defaultMode": 0o400}
    assert files(with_volume({"secret": source}), OBJECTS) == {
        "both": (0o400, b"new"), "k": (0o400, b"\0\xff"),
    }  # fmt: skip


def test_items_choose_place_and_mode() -> None:
    items = [{"key": "text", "path": "a//b/./t", "mode": 0}, {"key": "text", "path": "again"}]
    found = files(with_volume({"configMap": {"name": "c", "items": items, "defaultMode": 0o600}}), OBJECTS)
    assert found == {"a/b/t": (0, "é\n".encode()), "again": (0o600, "é\n".encode())}


def test_what_is_optional_may_be_missing() -> None:
    assert files(with_volume({"configMap": {"name": "none", "optional": True}})) == {}
    items = [{"key": "none", "path": "none"}, {"key": "b", "path": "b"}]
    source = {"configMap": {"name": "c", "optional": True, "items": items}}
    assert files(with_volume(source), OBJECTS) == {"b": (0o644, b"x")}


def test_a_projected_volume_where_the_later_source_wins() -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "annotations", "fieldRef": {"fieldPath": "metadata.annotations"}},
        {"path": "one", "mode": 0o400, "fieldRef": {"fieldPath": "metadata.labels['b']"}},
        {"path": "uid", "fieldRef": {"fieldPath": "metadata.uid"}},
        {
            "path": "cpu",
            "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu", "divisor": "1m"},
        },
    ]
    sources = [
        {"configMap": {"name": "c"}},
        {"secret": {"name": "s", "items": [{"key": "both", "path": "b"}]}},
        {"downwardAPI": {"items": items}},
        {"configMap": {"name": "none", "optional": True}},
    ]
    found = files(with_volume({"projected": {"sources": sources, "defaultMode": 0o440}}), OBJECTS)
    assert found["b"] == (0o440, b"new")
    assert found["text"] == (0o440, "é\n".encode())
    assert found["labels"] == (0o440, b'a="1"\nb="2"')
    assert found["annotations"] == (0o440, 'x="line\\n\\"q\\" \\\\ ☃ \\x01\\u200b"'.encode())
    assert found["one"] == (0o400, b"2")
    assert found["uid"] == (0o440, b"0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9")
    assert found["cpu"] == (0o440, b"1500")


# As Go 1.22's strconv.Quote writes them.
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        ("\x00\x1f\x7f\x80\xa0\xad", r'"\x00\x1f\x7f\u0080\u00a0\u00ad"'),
        ("it's ☃ 𝄞", '"it\'s ☃ 𝄞"'),
        ("\U000e0001", r'"\U000e0001"'),
    ],
)
def test_values_are_quoted_as_go_does(value: str, expected: str) -> None:
    assert quoted(value) == expected


API_TOKEN = {
    "projected": {
        "defaultMode": 0o644,
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
                }
            },
        ],
    }
}


def with_token(name: str, path: str = TOKEN_PATH) -> dict[str, Any]:
    raw = with_volume(API_TOKEN, {"name": name, "mountPath": path, "readOnly": True})
    raw["spec"]["volumes"][0]["name"] = name
    return raw


def test_the_api_servers_own_volume_without_a_token_is_without_effect_and_noted() -> None:
    done = made(with_token("kube-api-access-x7k2p"))
    assert done.plan.volumes == ()
    assert done.plan.containers[0].mounts == ()
    (note,) = done.notes
    assert note.startswith("spec.volumes[0].projected: no token was sent")


def test_the_old_form_of_it_is_a_secret() -> None:
    raw = with_token("default-token-abcde")
    raw["spec"]["volumes"][0] = {"name": "default-token-abcde", "secret": {"secretName": "t"}}
    assert made(raw).plan.volumes == ()
    done = made(raw, Objects(secrets=(named("t", stringData={"token": "x"}),)))
    assert [v.name for v in done.plan.volumes] == ["default-token-abcde"]


@pytest.mark.parametrize("name", ["kube-api-access-x7k2p", "mine"])
def test_tokens_come_from_who_sends_the_pod(name: str) -> None:
    sent = {"token": "eyJ.x.y", "ca.crt": "-----BEGIN", "extra": "e"}
    objects = Objects(projected=(named(name, None, data=sent),))
    found = files(with_token(name, TOKEN_PATH if name != "mine" else "/t"), objects)
    assert found == {
        "token": (0o644, b"eyJ.x.y"),
        "ca.crt": (0o644, b"-----BEGIN"),
        "extra": (0o644, b"e"),
        "namespace": (0o644, b"physics"),
    }


@pytest.mark.parametrize("path", [TOKEN_PATH, "/elsewhere"])
@pytest.mark.parametrize("sent", [None, {}])
def test_a_token_that_nobody_sent_is_refused(path: str, sent: dict[str, str] | None) -> None:
    objects = Objects() if sent is None else Objects(projected=(named("mine", data=sent),))
    with pytest.raises(Unsupported) as caught:
        made(with_token("mine", path), objects)
    assert caught.value.field == "spec.volumes[0].projected.sources[0].serviceAccountToken"


def test_only_where_the_api_server_mounts_it() -> None:
    with pytest.raises(Unsupported):
        made(with_token("kube-api-access-x7k2p", "/elsewhere"))


def test_what_of_the_api_servers_volume_was_not_sent_is_left_out() -> None:
    objects = Objects(projected=(named("kube-api-access-1", data={"token": "t"}),))
    assert set(files(with_token("kube-api-access-1"), objects)) == {"token", "namespace"}


def test_the_envelope() -> None:
    one = {
        "name": "main",
        "configMaps": [CM],
        "secrets": None,
        "projectedvolumemaps": [named("v", data={"a": "1"})],
        "emptyDirs": ["/e"],
    }
    two = {**one, "secrets": [SECRET], "projectedvolumemaps": []}
    found = of_envelope([one, two, {"name": "third"}])
    assert found == Objects((CM,), (SECRET,), (named("v", data={"a": "1"}),))
    assert of_envelope(None) == Objects()
    assert repr(found) == "Objects()"
    for wrong, field in (
        ({}, "container"),
        ([{"secrets": {}}], "container[0].secrets"),
        ([{"configMaps": [{"metadata": {}}]}], "container[0].configMaps[0].metadata.name"),
    ):
        with pytest.raises(Invalid) as caught:
            of_envelope(wrong)
        assert caught.value.field.startswith(field)


def test_empty_directories() -> None:
    raw = plain_pod(
        container(
            volumeMounts=[
                {"name": "none", "mountPath": "/n"},
                {"name": "disk", "mountPath": "/d", "readOnly": True},
                {"name": "memory", "mountPath": "/m"},
            ]
        ),
        volumes=[
            {"name": "none"},
            {"name": "disk", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "unused", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        ],
    )
    done = made(raw)
    assert done.plan.volumes == (
        VolumePlan("none"),
        VolumePlan("disk", None, "", 2**30),
        VolumePlan("memory", None, "Memory", 2**26),
    )
    assert [m.read_only for m in done.plan.containers[0].mounts] == [True, False, False]
    (note,) = done.notes
    assert note.startswith("spec.volumes[1].emptyDir.sizeLimit: ")


def test_mounts() -> None:
    def at(path: str, **fields: Any) -> dict[str, Any]:
        return {"name": "v", "mountPath": path, **fields}

    raw = with_volume({"emptyDir": {}})
    raw["spec"]["containers"][0]["volumeMounts"] = [
        at("/a/b/c", subPath="x//y/"),
        at("/a/b-c"),
        at("relative/"),
        at("/a/../a/b", mountPropagation="None", recursiveReadOnly="Enabled", readOnly=True),
        at("/odd: ,é", subPath="./"),
        at("/dev/shm", subPath="..data"),
    ]
    assert made(raw).plan.containers[0].mounts == (
        MountPlan("v", "/a/b", True),
        MountPlan("v", "/a/b/c", False, "x/y"),
        MountPlan("v", "/a/b-c"),
        MountPlan("v", "/dev/shm", False, "..data"),
        MountPlan("v", "/odd: ,é"),
        MountPlan("v", "/relative"),
    )


def test_directories_of_the_node() -> None:
    raw = with_volume({"hostPath": {"path": "/scratch/a//b/", "type": "DirectoryOrCreate"}})
    plan = made(raw).plan
    assert plan.volumes == (
        VolumePlan("v", None, "", None, "/scratch/a/b", "DirectoryOrCreate", host_within=("/scratch",)),
    )
    assert not plan.containers[0].mounts[0].read_only
    for read_only in (True, False):
        raw = with_volume({"persistentVolumeClaim": {"claimName": "data", "readOnly": read_only}})
        plan = made(raw).plan
        # The site's own word, so that it may be a link to anywhere.
        assert plan.volumes == (VolumePlan("v", None, "", None, "/data/physics", "Directory"),)
        assert plan.containers[0].mounts[0].read_only is read_only


def test_a_part_of_a_volume_by_variables() -> None:
    raw = with_volume({"emptyDir": {}}, {"subPathExpr": "run/$(NAME)$$(NAME)"})
    raw["spec"]["containers"][0]["env"] = [{"name": "NAME", "value": "a.b"}]
    assert made(raw).plan.containers[0].mounts[0].sub_path == "run/a.b$(NAME)"


def test_files_are_read_only_whatever_the_mount_says() -> None:
    raw = with_volume({"configMap": {"name": "c"}}, {"readOnly": False})
    assert made(raw, OBJECTS).plan.containers[0].mounts[0].read_only


def source(kind: str, **fields: Any) -> dict[str, Any]:
    return {kind: {"secretName" if kind == "secret" else "name": "c", **fields}}


def item(**fields: Any) -> dict[str, Any]:
    return source("configMap", items=[{"key": "b", "path": "b", **fields}])


def downward(**fields: Any) -> dict[str, Any]:
    return {"downwardAPI": {"items": [{"path": "p", **fields}]}}


FIELD = {"fieldRef": {"fieldPath": "metadata.name"}}
TWICE = {
    "projected": {
        "sources": [
            {"configMap": {"name": "c", "items": [{"key": "b", "path": "x"}]}},
            {"downwardAPI": {"items": [{"path": "x", **FIELD}]}},
        ]
    }
}
MOUNT = "spec.containers[0].volumeMounts[0]"
VOLUME = "spec.volumes[0]"
ITEM = f"{VOLUME}.downwardAPI.items[0]"


@pytest.mark.parametrize(
    ("volume", "mount", "kind", "field"),
    [
        (source("configMap", name="none"), {}, Invalid, f"{VOLUME}.configMap.name"),
        ({"configMap": {}}, {}, Invalid, f"{VOLUME}.configMap.name"),
        (source("secret"), {}, Invalid, f"{VOLUME}.secret.secretName"),
        (item(key="none"), {}, Invalid, f"{VOLUME}.configMap.items[0].key"),
        (item(path=""), {}, Invalid, f"{VOLUME}.configMap.items[0].path"),
        (item(path="/b"), {}, Invalid, f"{VOLUME}.configMap.items[0].path"),
        (item(path="a/../../b"), {}, Invalid, f"{VOLUME}.configMap.items[0].path"),
        (item(path="..b"), {}, Invalid, f"{VOLUME}.configMap.items[0].path"),
        (item(path="."), {}, Invalid, f"{VOLUME}.configMap.items[0].path"),
        (item(path="x" * 256), {}, Invalid, f"{VOLUME}.configMap.items[0].path"),
        (item(mode=0o1000), {}, Invalid, f"{VOLUME}.configMap.items[0].mode"),
        (item(mode=-1), {}, Invalid, f"{VOLUME}.configMap.items[0].mode"),
        (source("configMap", defaultMode=512), {}, Invalid, f"{VOLUME}.configMap.defaultMode"),
        (source("configMap", defaultMode="0644"), {}, Invalid, f"{VOLUME}.configMap.defaultMode"),
        (downward(), {}, Invalid, f"{VOLUME}.downwardAPI.items[0]"),
        (downward(fieldRef={"fieldPath": "spec.nodeName"}), {}, Invalid, f"{ITEM}.fieldRef"),
        (downward(resourceFieldRef={"resource": "limits.cpu"}), {}, Invalid, f"{ITEM}.res"),
        (
            downward(resourceFieldRef={"containerName": "main", "resource": "limits.memory"}),
            {}, Unsupported, f"{ITEM}.resourceFieldRef",
        ),
        (TWICE, {}, Invalid, f"{VOLUME}.projected.sources[1].downwardAPI.items[0].path"),
        ({"projected": {"sources": [{}]}}, {}, Invalid, f"{VOLUME}.projected.sources[0]"),
        ({"emptyDir": {}, "secret": {"secretName": "s"}}, {}, Invalid, VOLUME),
        ({"emptyDir": {"medium": "HugePages"}}, {}, Unsupported, f"{VOLUME}.emptyDir.medium"),
        ({"emptyDir": {"sizeLimit": "much"}}, {}, Invalid, f"{VOLUME}.emptyDir.sizeLimit"),
        ({"hostPath": {"path": "/etc"}}, {}, Unsupported, f"{VOLUME}.hostPath.path"),
        ({"hostPath": {"path": "/scratchy"}}, {}, Unsupported, f"{VOLUME}.hostPath.path"),
        ({"hostPath": {"path": "/scratch/../etc"}}, {}, Invalid, f"{VOLUME}.hostPath.path"),
        ({"hostPath": {"path": "scratch"}}, {}, Invalid, f"{VOLUME}.hostPath.path"),
        ({"hostPath": {"path": "/scratch", "type": "Dir"}}, {}, Invalid, f"{VOLUME}.hostPath.type"),
        ({"hostPath": {"path": "/scratch"}}, {"recursiveReadOnly": "Enabled", "readOnly": True},
            Unsupported, f"{MOUNT}.recursiveReadOnly"),
        ({"persistentVolumeClaim": {"claimName": "c"}}, {}, Unsupported,
            f"{VOLUME}.persistentVolumeClaim.claimName"),
        ({"nfs": {"server": "s", "path": "/"}}, {}, Unsupported, MOUNT),
        ({}, {"name": "w"}, Invalid, f"{MOUNT}.name"),
        ({}, {"mountPath": None}, Invalid, f"{MOUNT}.mountPath"),
        ({}, {"mountPath": "/"}, Unsupported, f"{MOUNT}.mountPath"),
        ({}, {"mountPath": "/proc/x"}, Unsupported, f"{MOUNT}.mountPath"),
        ({}, {"mountPath": "/x/../dev"}, Unsupported, f"{MOUNT}.mountPath"),
        ({}, {"mountPath": "/a\rb"}, Unsupported, f"{MOUNT}.mountPath"),
        ({}, {"subPath": "/etc"}, Invalid, f"{MOUNT}.subPath"),
        ({}, {"subPath": "a/../b"}, Invalid, f"{MOUNT}.subPath"),
        ({}, {"subPathExpr": "$(NOT_THERE)"}, Invalid, f"{MOUNT}.subPathExpr"),
        ({}, {"subPathExpr": "$(ABSOLUTE)"}, Invalid, f"{MOUNT}.subPathExpr"),
        ({}, {"subPathExpr": "a/$(UP)"}, Invalid, f"{MOUNT}.subPathExpr"),
        ({}, {"subPathExpr": "$(TICKS)"}, Invalid, f"{MOUNT}.subPathExpr"),
        ({}, {"subPathExpr": "a", "subPath": "b"}, Invalid, f"{MOUNT}.subPathExpr"),
        ({}, {"mountPropagation": "HostToContainer"}, Unsupported, f"{MOUNT}.mountPropagation"),
        ({}, {"recursiveReadOnly": "Enabled"}, Invalid, f"{MOUNT}.recursiveReadOnly"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    volume: dict[str, Any], mount: dict[str, Any], kind: type[PodError], field: str
) -> None:
    with pytest.raises(kind) as caught:
        made(with_volume(volume, mount), OBJECTS)
    assert caught.value.field.startswith(field)


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ({"data": {"k": 5}}, 'key "k" of ConfigMap is no string'),
        ({"binaryData": {"k": "hunter2!"}}, 'key "k" of ConfigMap is not base64'),
        ({"data": {"k": "a"}, "binaryData": {"k": "YQ=="}}, "both in data and in binaryData"),
        ({"data": {"../k": "a"}}, "cannot be a file's name"),
        ({"data": {"..": "a"}}, "must not contain '..'"),
    ],
)
def test_objects_that_no_api_server_has_seen(held: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match="spec") as caught:
        made(with_volume(source("configMap")), Objects((named("c", **held),)))
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"volumes": [{"name": "v"}, {"name": "v"}]}, "spec.volumes[1].name"),
        ({"volumes": [{"name": "../v"}]}, "spec.volumes[0].name"),
        ({"volumes": [{"emptyDir": {}}]}, "spec.volumes[0].name"),
    ],
)
def test_names_of_volumes(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        made(plain_pod(**spec))
    assert caught.value.field == field


def test_two_mounts_at_one_path() -> None:
    raw = with_volume({})
    raw["spec"]["containers"][0]["volumeMounts"].append({"name": "v", "mountPath": "/x/../v/"})
    with pytest.raises(Invalid) as caught:
        made(raw)
    assert caught.value.field == "spec.containers[0].volumeMounts[1].mountPath"


def test_a_file_below_a_file() -> None:
    items = [{"key": "b", "path": "x"}, {"key": "b", "path": "x/y"}]
    with pytest.raises(Invalid, match="below a file"):
        made(with_volume(source("configMap", items=items)), OBJECTS)


NAMES = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=20)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@given(st.dictionaries(PATHS, st.tuples(st.binary(max_size=50), st.integers(0, 0o777)), max_size=6))
def test_any_bytes_at_any_path_with_any_mode(wanted: dict[str, tuple[bytes, int]]) -> None:
    for path in wanted:
        parts = path.split("/")
        assume("." not in parts and not path.startswith(".."))
        assume(".." not in parts)
        assume(not any("/".join(parts[:n]) in wanted for n in range(1, len(parts))))
        assume(all(len(part.encode()) < 256 for part in parts))
    keys = {f"k{number}": path for number, path in enumerate(wanted)}
    data = {key: b64(wanted[path][0]) for key, path in keys.items()}
    items = [{"key": key, "path": path, "mode": wanted[path][1]} for key, path in keys.items()]
    if items:
        raw = with_volume({"secret": {"secretName": "s", "items": items}})
        found = files(raw, Objects(secrets=(named("s", data=data),)))
        assert found == {path: (mode, content) for path, (content, mode) in wanted.items()}


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_path_leads_out(path: str, sub_path: str) -> None:
    raw = with_volume(item(path=path), {"mountPath": path or "/", "subPath": sub_path})
    try:
        plan = made(raw, OBJECTS).plan
    except PodError:
        return
    (volume,), (mount,) = plan.volumes, plan.containers[0].mounts
    assert volume.files is not None
    for one in (volume.files[0].path, mount.sub_path):
        assert not one.startswith("/")
        assert ".." not in one.split("/")
    assert mount.path.startswith("/")
    assert not {"..", ".", ""} & set(mount.path.split("/")[1:])


@given(st.binary(min_size=8, max_size=64))
def test_nothing_of_a_secret_is_in_the_job(value: bytes) -> None:
    objects = Objects(secrets=(named("c", data={"k": b64(value)}),))
    done = made(with_volume(source("secret")), objects)
    assert b64(value) not in done.spec.to_json() + repr(done) + repr(objects)
    assert done.spec == made(with_volume({})).spec
