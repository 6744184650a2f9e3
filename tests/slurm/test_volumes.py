"""Volumes of files and empty directories in real pods, as a container sees them."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.slurm.conftest import ROOT, Cli, Lab, container

pytestmark = pytest.mark.slurm
Pods = Callable[..., dict[str, Any]]
ALL_BYTES = bytes(range(256)) * 3


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def config_map(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "physics"}, **fields,
    }  # fmt: skip


def secret(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "physics"}, **fields,
    }  # fmt: skip


def mounted(script: str, *mounts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"command": ["sh", "-c", script], "volumeMounts": list(mounts), **fields}


def mount(name: str, path: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "mountPath": path, **fields}


# Modes and contents of all files below the working directory, in order.
LOOK = (
    'find . -type f | sort | while read f; do echo "$(stat -c %a "$f") $f $(md5sum <"$f" | cut -c1-32)"; done'
)


def line(mode: int, path: str, data: bytes) -> str:
    return f"{mode:o} ./{path} {hashlib.md5(data).hexdigest()}"


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_files_arrive_byte_for_byte_with_their_modes(cli: Cli, pod: Pods, lab: Lab, mode: str) -> None:
    mark = f"secret-{secrets.token_hex(8)}"
    made = pod(
        config=mounted(f"cd /v; {LOOK}", mount("config", "/v")),
        chosen=mounted(f"cd /v; {LOOK}; stat -c %a a", mount("chosen", "/v")),
        hidden=mounted(f"cd /v; {LOOK}; ./run", mount("hidden", "/v")),
        all=mounted(f"cd /v; {LOOK}; cat labels; echo; cat cpu", mount("all", "/v")),
        written=mounted(
            "for f in /v/text /v/new; do echo x >$f; done; rm /v/text; chmod 777 /v; mkdir /v/d; cat /v/text",
            mount("config", "/v", readOnly=False),
        ),
        spec={
            "volumes": [
                {"name": "config", "configMap": {"name": "config", "defaultMode": 0o400}},
                {
                    "name": "chosen",
                    "configMap": {
                        "name": "config",
                        "items": [
                            {"key": "text", "path": "a/b/text", "mode": 0o444},
                            {"key": "bytes", "path": "a, b: c"},
                        ],
                    },
                },
                {"name": "hidden", "secret": {"secretName": "hidden", "defaultMode": 0o500}},
                {
                    "name": "all",
                    "projected": {
                        "sources": [
                            {"configMap": {"name": "config"}},
                            {"secret": {"name": "hidden", "items": [{"key": "run", "path": "text"}]}},
                            {
                                "downwardAPI": {
                                    "items": [
                                        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                                        {
                                            "path": "cpu",
                                            "mode": 0o600,
                                            "resourceFieldRef": {
                                                "containerName": "all",
                                                "resource": "limits.cpu",
                                                "divisor": "1m",
                                            },
                                        },
                                    ]
                                }
                            },
                            {"secret": {"name": "none", "optional": True}},
                        ]
                    },
                },
            ]
        },
    )
    made["metadata"]["labels"] = {"b": 'it\'s "quoted"', "a": "1"}
    program = f"#!/bin/sh\necho {mark}\n".encode()
    objects = [
        config_map("config", data={"text": "größer\n"}, binaryData={"bytes": b64(ALL_BYTES)}),
        secret("hidden", data={"run": b64(program)}, stringData={"plain": mark}),
    ]
    done = cli.configure(podrunner={"mode": mode}).run(made, *objects)
    assert done.code == 0, done.err + done.out
    uid = done.json()["uid"]
    text = "größer\n".encode()
    out = {
        name: cli("logs", uid, "-c", name).out.splitlines() for name in ("config", "chosen", "hidden", "all")
    }
    assert out["config"] == [line(0o400, "bytes", ALL_BYTES), line(0o400, "text", text)]
    assert out["chosen"] == [line(0o644, "a, b: c", ALL_BYTES), line(0o444, "a/b/text", text), "755"]
    assert out["hidden"] == [line(0o500, "plain", mark.encode()), line(0o500, "run", program), mark]
    labels = b'a="1"\nb="it\'s \\"quoted\\""'
    assert out["all"] == [
        line(0o644, "bytes", ALL_BYTES),
        line(0o600, "cpu", b"1000"),
        line(0o644, "labels", labels),
        line(0o644, "text", program),
        *labels.decode().splitlines(),
        "1000",
    ]
    # All three ways of writing failed, and the file is as it was.
    assert cli("logs", uid, "-c", "written").out.splitlines()[-1] == "größer"
    errors = cli("logs", uid, "-c", "written").out.count("Read-only file system")
    assert errors == 5


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_an_empty_directory_is_shared_and_kept(cli: Cli, pod: Pods, mode: str) -> None:
    made = pod(
        first=mounted(
            "echo first >/d/first; until [ -e /d/second ]; do sleep 0.1; done; cat /d/init /d/second /m/init",
            mount("disk", "/d"),
            mount("memory", "/m"),
        ),
        second=mounted(
            "until [ -e /e/first ]; do sleep 0.1; done; echo second >/e/second; cat /e/first; echo x >/m/x",
            mount("disk", "/e"),
            mount("memory", "/m", readOnly=True),
        ),
        part=mounted("cd /p; ls -a; stat -c %a .", mount("disk", "/p", subPath="new, part:1/x y")),
        spec={
            "volumes": [
                {"name": "disk", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            ]
        },
    )
    script = "stat -c %a /d /m; umask 0; echo init >/d/init; echo minit >/m/init; stat -f -c %T /m"
    script += "; head -c 2000000 /dev/zero >/m/big && echo fits; rm /m/big; id -u"
    made["spec"]["initContainers"] = pod(init=mounted(script, mount("disk", "/d"), mount("memory", "/m")))[
        "spec"
    ]["containers"]
    done = cli.configure(podrunner={"mode": mode}).run(made)
    document = done.json()
    assert container(document, "second")["exitCode"] == 1  # the mount was read-only
    uid = document["uid"]
    init = cli("logs", uid, "-c", "init").out
    assert init.splitlines()[:3] == ["777", "777", "tmpfs"]
    assert ("fits" in init) == (mode == "plain")  # the size is kept where the pod has its own memory
    assert cli("logs", uid, "-c", "first").out == "init\nsecond\nminit\n"
    assert cli("logs", uid, "-c", "second").out.splitlines()[0] == "first"
    assert cli("logs", uid, "-c", "part").out.split() == [".", "..", "777"]
    assert "sizeLimit" in done.err


def test_mounts_of_all_shapes(cli: Cli, pod: Pods) -> None:
    odd = '/odd, "path": é/ x'
    made = pod(
        main=mounted(
            "cat /etc/group; cat /etc/new.conf; ls /etc/passwd; cat /deep/a/b/c/in/x; ls /deep/a/b/c; "
            f"cat '{odd}/x'; cat /opt/x/in/x; pwd; "
            "echo 1 >/opt/x/in/y || echo ro; echo 2 >/opt/w && cat /opt/w; "
            "cat /tmp/v/x /dev/shm/x",
            mount("files", "/etc/group", subPath="x"),
            mount("files", "/etc/new.conf", subPath="x"),
            mount("dir", "/deep/a/b/c"),
            mount("files", "/deep/a/b/c/in"),
            mount("files", odd),
            mount("files", "/opt/x/in"),
            mount("dir", "/opt"),
            mount("files", "/tmp/v"),
            mount("files", "/dev/shm"),
            workingDir="/tmp/v",
        ),
        nested=mounted(
            "ls /run/here/none; cat /run/here/none/x; cat /run/here/x",
            mount("files", "/run/here"),
            mount("files", "/run/here/none"),
        ),
        script=mounted("", mount("script", "/scripts"), command=["/scripts/go"]),
        spec={
            "volumes": [
                {"name": "files", "configMap": {"name": "files"}},
                {"name": "script", "configMap": {"name": "script", "defaultMode": 0o755}},
                {"name": "dir"},
            ]
        },
    )
    objects = [
        config_map("files", data={"x": "content\n"}),
        config_map("script", data={"go": "#!/bin/sh\necho went\n"}),
    ]
    done = cli.run(made, *objects)
    uid = done.json()["uid"]
    assert done.code == 0, done.err + done.out + cli("logs", uid, "-c", "main").out
    c = "content"
    out = [one for one in cli("logs", uid, "-c", "main").out.splitlines() if "Read-only" not in one]
    assert out == [c, c, "/etc/passwd", c, "in", "x", c, c, "/tmp/v", "ro", "2", c, c]
    assert cli("logs", uid, "-c", "nested").out.splitlines() == ["none", "x", c, c]
    assert cli("logs", uid, "-c", "script").out == "went\n"


def test_a_link_in_a_volume_does_not_lead_out(cli: Cli, pod: Pods) -> None:
    made = pod(
        main=mounted("cat /x/passwd", mount("dir", "/x", subPath="out")), spec={"volumes": [{"name": "dir"}]}
    )
    made["spec"]["initContainers"] = pod(init=mounted("ln -s /etc /d/out", mount("dir", "/d")))["spec"][
        "containers"
    ]
    document = cli.run(made).json()
    main = container(document, "main")
    assert (main["reason"], main["exitCode"]) == ("ContainerCannotRun", 128)
    assert "subPath 'out' leads out of volume 'dir'" in main["message"]


@pytest.mark.parametrize(("mode", "end"), [("sandbox", "own"), ("plain", "own"), ("sandbox", "cancel")])
def test_nothing_of_the_files_is_elsewhere_or_stays(
    cli: Cli, pod: Pods, lab: Lab, mode: str, end: str
) -> None:
    mark, value = f"mark{secrets.token_hex(8)}", f"value{secrets.token_hex(8)}"
    wait = "until [ -e /d/go ]; do sleep 0.1; done; chmod 0 /d/sub"
    made = pod(
        main=mounted(
            f"mkdir /d/sub; cp /s/{mark} /d/sub/{mark}; cp /s/{mark} /m/{mark}; echo up; {wait}",
            mount("secret", "/s"),
            mount("disk", "/d"),
            mount("memory", "/m"),
        ),
        spec={
            "volumes": [
                {"name": "secret", "secret": {"secretName": "s"}},
                {"name": "disk", "emptyDir": {}},
                {"name": "memory", "emptyDir": {"medium": "Memory"}},
            ]
        },
    )
    objects = [secret("s", stringData={mark: value})]
    text = yaml.safe_dump_all([made, *objects])
    configured = cli.configure(podrunner={"mode": mode})
    done = configured("run", "--output", "json", "--detach", "-", stdin=text)
    assert done.code == 0, done.err
    document = done.json()
    uid, job = document["uid"], str(document["job"]["id"])
    cli.until(uid, lambda d: cli("logs", uid).out == "up\n")
    find = ["sh", "-c", f"find /var/tmp /tmp /dev/shm -name '{mark}' 2>/dev/null; true"]
    there = lab.exec(*find).split()
    assert any(path.startswith("/var/tmp/") for path in there)
    assert any(path.startswith("/dev/shm/") for path in there) == (mode == "plain")
    for path in there:  # closed to everybody else while it is there
        assert lab.exec("cat", path, user="bob", code=None) == ""
    shown = [lab.exec("scontrol", "write", "batch_script", job, "-")]
    shown += [lab.exec("scontrol", "show", "job", job), lab.exec("ps", "-eo", "args")]
    shown += [lab.exec("sacct", "-B", "-j", job), lab.exec("sacct", "--env-vars", "-j", job)]
    assert value not in "\n".join(shown)
    if end == "own":
        lab.exec("sh", "-c", f"touch {next(p for p in there if '/var/tmp' in p).rpartition('/sub/')[0]}/go")
    else:
        cli("delete", uid)
    cli.until(uid, lambda d: bool(d["usage"]))
    assert lab.exec(*find) == ""
    # Not even in the plan, which the runner removes.
    patterns = ["-e", value, "-e", b64(value.encode())]
    assert lab.exec("grep", "-rl", *patterns, "/shared/pods", "/var/spool", code=None) == ""
    assert mark not in lab.exec("mount")


def test_large_objects(cli: Cli, pod: Pods) -> None:
    data = {f"k{n}": os.urandom(1000 * 1000) for n in range(4)}
    made = pod(
        main=mounted(
            "cat /v0/k0 /v1/k1 /v2/k2 /v3/k3 | md5sum", *(mount(f"v{n}", f"/v{n}") for n in range(4))
        ),
        spec={"volumes": [{"name": f"v{n}", "configMap": {"name": f"c{n}"}} for n in range(4)]},
    )
    objects = [config_map(f"c{n}", binaryData={f"k{n}": b64(data[f"k{n}"])}) for n in range(4)]
    done = cli.run(made, *objects)
    assert done.code == 0, done.err
    expected = hashlib.md5(b"".join(data.values())).hexdigest()
    assert cli("logs", done.json()["uid"]).out.split()[0] == expected


def test_what_is_missing_is_said_and_nothing_is_submitted(cli: Cli, pod: Pods) -> None:
    made = pod(
        main=mounted("true", mount("v", "/v")),
        spec={"volumes": [{"name": "v", "configMap": {"name": "none"}}]},
    )
    done = cli.run(made)
    assert done.code == 125
    assert 'spec.volumes[0].configMap.name: there is no ConfigMap "none"' in done.err + done.out
    assert cli("status", "--output", "json").json()["pods"] == []


def test_the_example_runs(cli: Cli, lab: Lab) -> None:
    text = (ROOT / "examples" / "volumes.yaml").read_text()
    path = cli.directory / "volumes.yaml"
    Path(path).write_text(text.replace("127.0.0.1:5000", lab.registry))
    done = cli("run", str(path))
    assert done.code == 0, done.err
    assert "the password has 7 letters" in done.out
    assert "written by prepare" in done.out
