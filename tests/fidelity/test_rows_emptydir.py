"""Empty directories on disk and on memory (R108 to R122), and the node's own (N20)."""

from __future__ import annotations

import re

import pytest

from tests.fidelity.mounttest import NEW, content, mounttest, perms
from tests.fidelity.specs import Images, Pod, container, pod, running
from tests.fidelity.ways import Cluster

AT = "/test-volume"
FILE = f"{AT}/test-file"
LETTERS = {"0644": "-rw-r--r--", "0666": "-rw-rw-rw-", "0777": "-rwxrwxrwx"}
# Rows R109 to R120, in their order. As upstream: root is the default user, a context without one.
FILES = {
    f"R{109 + n}": (*way, file)
    for n, (way, file) in enumerate(
        (way, file)
        for way in ((None, ""), (None, "Memory"), (1001, ""), (1001, "Memory"))
        for file in LETTERS
    )
}


def with_empty(images: Images, medium: str, *flags: str, user: int | None = None) -> Pod:
    """A pod with an empty directory."""
    context: Pod = {"seLinuxOptions": {"level": "s0"}}
    if user is not None:
        context["runAsUser"] = user
    return pod(
        mounttest(images, f"--fs_type={AT}", *flags, volumeMounts=[{"name": "test-volume", "mountPath": AT}]),
        securityContext=context,
        volumes=[{"name": "test-volume", "emptyDir": {"medium": medium} if medium else {}}],
    )


def check_medium(line: str, medium: str) -> None:
    """The first line says the file system's type."""
    assert line.startswith(f'mount type of "{AT}": ')
    assert line.endswith(": tmpfs") == (medium == "Memory")


@pytest.mark.parametrize("row", FILES)
def test_a_new_file(cluster: Cluster, images: Images, row: str) -> None:
    user, medium, file = FILES[row]
    made = with_empty(images, medium, f"--new_file_{file}={FILE}", f"--file_perm={FILE}", user=user)
    first, *lines = cluster.output(made).splitlines()
    check_medium(first, medium)
    assert lines == [content(FILE, NEW), "", perms(FILE, LETTERS[file])]


@pytest.mark.parametrize(("row", "medium"), [("R121", ""), ("R122", "Memory")], ids=["R121", "R122"])
def test_the_directory(cluster: Cluster, images: Images, row: str, medium: str) -> None:
    first, *lines = cluster.output(with_empty(images, medium, f"--file_perm={AT}")).splitlines()
    check_medium(first, medium)
    assert lines == [perms(AT, "-rwxrwxrwx")]


def test_R108(cluster: Cluster, images: Images) -> None:
    # Upstream reads the file by exec while the first container still runs.
    wait = "until [ -s /usr/share/volumeshare/shareddata.txt ]; do sleep 0.1; done"
    main = f"{wait}; cat /usr/share/volumeshare/shareddata.txt; sleep 1000"
    words = "Hello from the busy-box sub-container"
    made = cluster.create(
        pod(
            container(
                images.shell, main, volumeMounts=[{"name": "data", "mountPath": "/usr/share/volumeshare"}]
            ),
            container(
                images.shell,
                f"echo {words} >/pod-data/shareddata.txt",
                "sub",
                volumeMounts=[{"name": "data", "mountPath": "/pod-data"}],
            ),
            volumes=[{"name": "data", "emptyDir": {}}],
        )
    )
    cluster.until(made, running)
    cluster.logged(made, f"{words}\n")


def test_N20(cluster: Cluster, images: Images) -> None:
    made = pod(
        mounttest(
            images,
            f"--fs_type={AT}",
            f"--file_mode={AT}",
            volumeMounts=[{"name": "test-volume", "mountPath": AT}],
        ),
        volumes=[{"name": "test-volume", "hostPath": {"path": "/tmp"}}],
    )
    assert re.search(f'^mode of file "{AT}": dg?trwxrwx', cluster.output(made), re.MULTILINE)
