"""Args, command, entrypoint: what runs, and with which words (R004 to R009)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fidelity.specs import Images, container, pod
from tests.fidelity.ways import Cluster

# The image's own: ENTRYPOINT ["/usr/local/bin/entry", "--fixed arg"], which prints its arguments and
# then becomes them, CMD ["echo", "default  words", "$HOME"].
ENTRY = ["entry: cwd=/work/dir", "entry: arg=[--fixed arg]"]


def said(*words: str) -> list[str]:
    return [f"entry: arg=[{word}]" for word in words]


CALLS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "R004": ({}, [*ENTRY, *said("echo", "default  words", "$HOME"), "default  words $HOME"]),
    "R005": (
        {"args": ["echo", "override", "arguments  two"]},
        [*ENTRY, *said("echo", "override", "arguments  two"), "override arguments  two"],
    ),
    # The image's CMD goes with its ENTRYPOINT: a shell with arguments would print them.
    "R006": ({"command": ["sh", "-c", 'echo "[$#]" "$@"', "name"]}, ["[0]"]),
    "R007": (
        {"command": ["sh", "-c", 'echo "[$#]" "$@"', "name"], "args": ["override", "arguments  two"]},
        ["[2] override arguments  two"],
    ),
}


@pytest.mark.parametrize("row", CALLS)
def test_what_runs(cluster: Cluster, images: Images, row: str) -> None:
    fields, lines = CALLS[row]
    made = pod(container(images.entry, None, **fields))
    assert cluster.output(made).splitlines() == lines


def test_R008(cluster: Cluster, images: Images) -> None:
    made = pod(
        container(
            images.shell,
            None,
            command=["sh", "-c", "TEST_VAR=wrong echo '$(TEST_VAR)' '$$(TEST_VAR)' '$(NONE)'"],
            env=[{"name": "TEST_VAR", "value": "test-value"}],
        )
    )
    assert cluster.output(made).splitlines() == ["test-value $(TEST_VAR) $(NONE)"]


def test_R009(cluster: Cluster, images: Images) -> None:
    made = pod(
        container(
            images.shell,
            None,
            command=["sh", "-c"],
            args=["TEST_VAR=wrong echo '$(TEST_VAR)' '$$(TEST_VAR)' '$(NONE)'"],
            env=[{"name": "TEST_VAR", "value": "test-value"}],
        )
    )
    assert cluster.output(made).splitlines() == ["test-value $(TEST_VAR) $(NONE)"]
