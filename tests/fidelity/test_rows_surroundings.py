"""What is around a container: its root, its rights, its hosts and name servers (R134 to R136, R170, R176)."""

from __future__ import annotations

from typing import Any

from tests.fidelity.specs import Images, container, pod
from tests.fidelity.ways import Cluster


def test_R134(cluster: Cluster, images: Images) -> None:
    made = pod(
        container(
            images.shell, "echo test >/file; ls /file; true", securityContext={"readOnlyRootFilesystem": True}
        )
    )
    lines = cluster.output(made).splitlines()
    assert "can't create /file: Read-only file system" in lines[0]
    assert "No such file or directory" in lines[1]


def test_R135(cluster: Cluster, images: Images) -> None:
    fields: list[dict[str, Any]] = [{"securityContext": {"readOnlyRootFilesystem": False}}, {}]
    script = "echo written >/checkfile && cat /checkfile && echo new >/etc/passwd && rm /etc/group"
    for given in fields:
        assert cluster.output(pod(container(images.shell, script, **given))) == "written\n"


def test_R136(cluster: Cluster, images: Images) -> None:
    script = "ip link add dummy0 type dummy || true; ip link show dummy0"
    made = cluster.create(pod(container(images.shell, script, securityContext={"privileged": False})))
    cluster.finished(made, "Failed")
    assert "Operation not permitted" in cluster.log(made).splitlines()[0]


def test_R170(cluster: Cluster, images: Images) -> None:
    aliases = [{"ip": "123.45.67.89", "hostnames": ["foo", "bar"]}, {"ip": "::1:2", "hostnames": ["six"]}]
    lines = cluster.output(pod(container(images.shell, "cat /etc/hosts"), hostAliases=aliases)).splitlines()
    assert "123.45.67.89\tfoo\tbar" in lines
    assert "::1:2\tsix" in lines
    # Beside them a pod finds itself.
    assert any(line.split()[:2] == ["127.0.0.1", "localhost"] for line in lines)


def test_R176(cluster: Cluster, images: Images) -> None:
    asked = {
        "nameservers": ["1.1.1.1"],
        "searches": ["resolv.conf.local", "two.example"],
        "options": [{"name": "ndots", "value": "3"}, {"name": "edns0"}],
    }
    made = pod(container(images.shell, "cat /etc/resolv.conf"), dnsPolicy="None", dnsConfig=asked)
    found: dict[str, list[str]] = {}
    for line in cluster.output(made).splitlines():
        word, *values = line.split()
        found.setdefault(word, []).extend(values)
    assert found == {
        "nameserver": ["1.1.1.1"],
        "search": ["resolv.conf.local", "two.example"],
        "options": ["ndots:3", "edns0"],
    }
