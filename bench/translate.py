"""Translating a pod of ten containers, beside `json.loads` of the same pod."""

from __future__ import annotations

import json

from bench.pods import pod
from bench.rounds import Verdict, ratios
from slurmrest_adapter.domain.pod import view
from slurmrest_adapter.translate.pod import Ownership, translate
from slurmrest_adapter.translate.site import Site

CONTAINERS = 10
ROUNDS = 200
LOADS = 10  # a single one is too short for the clock
MOST = 20.0


def run() -> list[Verdict]:
    """The verdict; no lab is needed."""
    text = json.dumps(pod(CONTAINERS))
    raw = json.loads(text)
    site, owner = Site("lab"), Ownership("alice", "physics", uid=1001, gid=1001)

    def subject() -> None:
        translate(view(raw), owner, site, b"k" * 32, "/shared/pods/0123456789abcdef")

    def control() -> None:
        for _ in range(LOADS):
            json.loads(text)

    each = [ratio * LOADS for ratio in ratios(subject, control, ROUNDS)]
    return [Verdict(f"translating {CONTAINERS} containers / json.loads of the pod", each, most=MOST)]
