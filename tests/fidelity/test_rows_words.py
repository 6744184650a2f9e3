"""Termination messages (R141 to R144, N19)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fidelity.specs import Images, container, pod, terminated
from tests.fidelity.ways import Cluster

FALLBACK = {"terminationMessagePolicy": "FallbackToLogsOnError"}


def user(number: int) -> dict[str, Any]:
    return {"securityContext": {"runAsUser": number}}


# The script, fields of the container, the pod's end, the message.
WORDS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "R141": (
        "printf DONE >/dev/termination-custom-log",
        {"terminationMessagePath": "/dev/termination-custom-log", **user(1000)},
        "Succeeded",
        "DONE",
    ),
    "R142": ("printf DONE; false", FALLBACK, "Failed", "DONE"),
    "R143": ("printf OK >/dev/termination-log; echo not this; true", FALLBACK, "Succeeded", "OK"),
    "R144": ("echo DONE; true", FALLBACK, "Succeeded", ""),
    "N19": ("printf DONE >/dev/termination-log", user(0), "Succeeded", "DONE"),
}


@pytest.mark.parametrize("row", WORDS)
def test_last_words(cluster: Cluster, images: Images, row: str) -> None:
    script, fields, ends_as, words = WORDS[row]
    made = cluster.create(pod(container(images.shell, script, **fields)))
    assert terminated(cluster.finished(made, ends_as)).get("message", "") == words
