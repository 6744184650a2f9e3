"""hostPath of every type and PersistentVolumeClaims, by `run` and by `POST /create`."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.conftest import Cli, Lab
from tests.slurm.test_serve import Sidecar, state, with_uid

pytestmark = pytest.mark.slurm
Pods = Callable[..., dict[str, Any]]

SETUP = """
set -e
mkdir -m 1777 {at} {at}/dir
cd {at}
echo kept >dir/kept
echo text >file
chown -R alice: .
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
mknod -m 666 char c 1 3
mknod -m 666 block b 7 0
ln -s dir link
"""
# The type → what is there, and what `stat` calls it.
THERE = {
    "": ("dir", "directory"),
    "DirectoryOrCreate": ("dir", "directory"),
    "Directory": ("link", "directory"),
    "FileOrCreate": ("file", "regular file"),
    "File": ("file", "regular file"),
    "Socket": ("socket", "socket"),
    "CharDevice": ("char", "character special file"),
    "BlockDevice": ("block", "block special file"),
}
DEVICES = ("CharDevice", "BlockDevice")


@pytest.fixture
def node(lab: Lab) -> Iterator[str]:
    """A directory of the compute nodes with one thing of each type in it."""
    at = f"/var/tmp/node-{secrets.token_hex(6)}"
    lab.exec("sh", "-c", SETUP.format(at=at))
    yield at
    lab.exec("rm", "-rf", at)


@contextmanager
def served(cli: Cli) -> Iterator[Sidecar]:
    """`serve` with this command line's configuration."""
    path = Path("/tmp") / f"sra-{uuid.uuid4().hex[:12]}.sock"
    sidecar = Sidecar(cli, path)
    try:
        yield sidecar
    finally:
        sidecar.end()
        path.unlink(missing_ok=True)


def host(pod: Pods, script: str, *sources: dict[str, Any]) -> dict[str, Any]:
    """A pod with volumes of the node at /m/0, /m/1…"""
    numbered = list(enumerate(sources))
    mounts = [{"name": f"v{n}", "mountPath": f"/m/{n}"} for n, _ in numbered]
    main = {"command": ["sh", "-c", script], "volumeMounts": mounts}
    return pod(main=main, spec={"volumes": [{"name": f"v{n}", "hostPath": each} for n, each in numbered]})


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_every_type_that_is_there(cli: Cli, pod: Pods, lab: Lab, node: str, mode: str) -> None:
    there = {kind: what for kind, what in THERE.items() if mode == "sandbox" or kind not in DEVICES}
    sources = [{"path": f"{node}/{name}", "type": kind} for kind, (name, _) in there.items()]
    script = "for m in /m/*; do stat -c %F $m; done; cat /m/0/kept /m/4; echo new >/m/1/new"
    script += "; echo more >>/m/3; ! [ -e /m/6 ] || echo gone >/m/6"
    made = host(pod, script, *sources)
    configured = cli.configure(podrunner={"mode": mode}, policy={"host_paths": [node]})
    done = configured.run(made)
    assert done.code == 0, done.out + done.err
    lines = cli("logs", done.json()["uid"]).out.splitlines()
    assert lines == [*(words for _, words in there.values()), "kept", "text"]
    # It is the node's own, written to as the job's user, and stays.
    assert lab.exec("stat", "-c", "%U %n", f"{node}/dir/new") == f"alice {node}/dir/new\n"
    assert lab.exec("cat", f"{node}/file") == "text\nmore\n"


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_what_is_made(cli: Cli, pod: Pods, lab: Lab, node: str, mode: str) -> None:
    made = host(
        pod,
        "umask; stat -c '%a %F' /m/0 /m/1 /m/2",
        {"path": f"{node}/a/b", "type": ""},
        {"path": f"{node}/c/d", "type": "DirectoryOrCreate"},
        {"path": f"{node}/e", "type": "FileOrCreate"},
    )
    done = cli.configure(podrunner={"mode": mode}, policy={"host_paths": [node]}).run(made)
    assert done.code == 0, done.out + done.err
    lines = cli("logs", done.json()["uid"]).out.splitlines()
    assert lines[1:] == ["755 directory", "755 directory", "644 regular empty file"]
    assert lab.exec("stat", "-c", "%U", f"{node}/a/b", f"{node}/c/d", f"{node}/e").split() == ["alice"] * 3


WRONG = {
    "Directory": ("file", "is no Directory"),
    "DirectoryOrCreate": ("file", "is no DirectoryOrCreate"),
    "File": ("dir", "is no File"),
    "FileOrCreate": ("dir", "is no FileOrCreate"),
    "Socket": ("file", "is no Socket"),
    "CharDevice": ("block", "is no CharDevice"),
    "BlockDevice": ("char", "is no BlockDevice"),
}
ABSENT = ("Directory", "File", "Socket", "CharDevice", "BlockDevice")


def test_another_type_or_nothing(cli: Cli, pod: Pods, lab: Lab, node: str) -> None:
    wrong = [(kind, name, words) for kind, (name, words) in WRONG.items()]
    wrong += [(kind, "none", "No such file or directory") for kind in ABSENT]
    with served(cli.configure(policy={"host_paths": [node]})) as sidecar:
        pods = [
            with_uid(host(pod, "echo started", {"path": f"{node}/{name}", "type": kind}))
            for kind, name, _ in wrong
        ]
        for made in pods:
            sidecar.create(made)
        for made, (kind, name, words) in zip(pods, wrong, strict=True):
            entry = sidecar.until(made, lambda entry: entry.get("phase") not in (None, "Pending", "Running"))
            assert entry["phase"] == "Failed", (kind, entry)
            assert f"volume 'v0': '{node}/{name}'" in entry["message"], (kind, entry)
            assert words in entry["message"], (kind, entry)
            assert state(entry, "main").get("terminated", {}).get("exitCode") != 0, (kind, entry)
    assert lab.exec("ls", node).split() == ["block", "char", "dir", "file", "link", "socket"]


def test_a_device_that_plain_mode_would_mount_in_vain(cli: Cli, pod: Pods, node: str) -> None:
    configured = cli.configure(podrunner={"mode": "plain"}, policy={"host_paths": [node]})
    for kind in ("CharDevice", ""):
        document = configured.run(host(pod, "true", {"path": f"{node}/char", "type": kind})).json()
        assert document["phase"] == "Failed"
        assert f"volume 'v0': '{node}/char' is a device, which podrunner mode plain" in document["message"]


def test_only_what_the_site_allows(cli: Cli, pod: Pods, node: str) -> None:
    for path in ("/etc", f"{node}-not", "/"):
        done = cli.configure(policy={"host_paths": [node]}).run(host(pod, "true", {"path": path}))
        assert done.code == 125
        assert "spec.volumes[0].hostPath.path" in done.out + done.err
        assert "not allowed by the site" in done.out + done.err
    assert cli("status", "--output", "json").json()["pods"] == []


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_no_link_leads_out_of_what_the_site_allows(
    cli: Cli, pod: Pods, lab: Lab, node: str, mode: str
) -> None:
    """One pod plants a link and mounts through it; so might another user's."""
    configured = cli.configure(podrunner={"mode": mode}, policy={"host_paths": [f"{node}/dir"]})
    done = configured.run(host(pod, f"ln -s {node} /m/0/out; ln -s . /m/0/in", {"path": f"{node}/dir"}))
    assert done.code == 0, done.out + done.err
    for path in ("out", "out/file", "out/new"):
        document = configured.run(host(pod, "echo started", {"path": f"{node}/dir/{path}"})).json()
        words = f"volume 'v0': '{node}/dir/{path}' leads to '{node}{path[len('out') :]}', which the site"
        assert (document["phase"], words in document["message"]) == ("Failed", True), document
    assert lab.exec("ls", node).split() == ["block", "char", "dir", "file", "link", "socket"]
    done = configured.run(host(pod, "cat /m/0/kept", {"path": f"{node}/dir/in/out/dir/in"}))
    assert cli("logs", done.json()["uid"]).out == "kept\n", done.out + done.err


def claimed(pod: Pods, script: str, read_only: bool = False) -> dict[str, Any]:
    main = {"command": ["sh", "-c", script], "volumeMounts": [{"name": "v", "mountPath": "/data"}]}
    claim = {"claimName": "results", "readOnly": read_only}
    return pod(main=main, spec={"volumes": [{"name": "v", "persistentVolumeClaim": claim}]})


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_a_claim_is_the_directory_that_the_site_names(
    cli: Cli, pod: Pods, lab: Lab, node: str, mode: str
) -> None:
    claims = {"pvc": {"physics/results": f"{node}/dir", "ai/results": "/elsewhere"}}
    configured = cli.configure(podrunner={"mode": mode}, volumes=claims)
    done = configured.run(claimed(pod, "echo first >/data/run; cat /data/kept"))
    assert done.code == 0, done.out + done.err
    assert cli("logs", done.json()["uid"]).out == "kept\n"
    done = configured.run(
        claimed(pod, "cat /data/run; (echo second >/data/run) 2>/dev/null || echo denied", True)
    )
    assert cli("logs", done.json()["uid"]).out == "first\ndenied\n"
    assert lab.exec("cat", f"{node}/dir/run") == "first\n"


def test_a_claim_without_a_directory(cli: Cli, pod: Pods, node: str) -> None:
    done = cli.configure(volumes={"pvc": {"ai/results": node}}).run(claimed(pod, "true"))
    assert done.code == 125
    assert "persistentVolumeClaim.claimName: the site names no directory" in done.out + done.err
    gone = cli.configure(volumes={"pvc": {"physics/results": f"{node}/none"}}).run(claimed(pod, "true"))
    assert "No such file or directory" in gone.json()["message"]


def test_both_by_create(cli: Cli, pod: Pods, lab: Lab, node: str) -> None:
    configured = cli.configure(
        policy={"host_paths": [node]}, volumes={"pvc": {"physics/results": f"{node}/dir"}}
    )
    with served(configured) as sidecar:
        made = with_uid(claimed(pod, "cat /data/kept >/host/copy"))
        spec = made["spec"]
        spec["volumes"].append(
            {"name": "host", "hostPath": {"path": f"{node}/made", "type": "DirectoryOrCreate"}}
        )
        spec["containers"][0]["volumeMounts"].append({"name": "host", "mountPath": "/host"})
        sidecar.create(made)
        entry = sidecar.until(made, lambda entry: "terminated" in state(entry, "main"))
        assert state(entry, "main")["terminated"]["exitCode"] == 0, entry
        assert lab.exec("cat", f"{node}/made/copy") == "kept\n"
