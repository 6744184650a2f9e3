"""The states of 2,000 live jobs in one call, beside `GET jobs/`: time and bytes.

The control only receives its answer; the gateway also decodes its own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests

from bench.lab import Lab, lab
from bench.rounds import Verdict, ratios

JOBS = 2000
ROUNDS = 7
MOST_TIME = 1 / 20
MOST_BYTES = 1 / 50


class Weigh:
    """Adds up the bytes of the answers that the gateway gets, beneath it."""

    def __init__(self, found: Lab) -> None:
        self.bytes = 0
        session: Any = found.gateway._session
        send = session.send

        def weighed(*arguments: Any, **named: Any) -> requests.Response:
            response: requests.Response = send(*arguments, **named)
            self.bytes += len(response.content)
            return response

        session.send = weighed


def run() -> list[Verdict]:
    """The verdicts."""
    with lab() as found:
        with ThreadPoolExecutor(4) as pool:
            specs = [found.spec() for _ in range(JOBS)]
            refs = pool.map(lambda spec: found.gateway.submit(spec, "#!/bin/sh\ntrue\n"), specs)
            found.jobs.extend(ref.job_id for ref in refs)
        ids = list(found.jobs)
        for _ in range(3):  # finds out which way costs less
            answer = found.gateway.states(ids)
        assert set(answer) == set(ids)
        assert {state.states for state in answer.values()} == {("PENDING",)}
        weigh = Weigh(found)
        url = f"{found.url}/slurm/{found.gateway.api_version}/jobs/"
        whole: list[int] = []
        with requests.Session() as bare:

            def control() -> None:
                answer = bare.get(url, headers=found.headers, timeout=60)
                answer.raise_for_status()
                whole.append(len(answer.content))

            each = ratios(lambda: found.gateway.states(ids), control, ROUNDS)
        assert weigh.bytes
        calls = ROUNDS + 1
        share = (weigh.bytes / calls) / (sum(whole) / len(whole))
        return [
            Verdict(f"time of the states of {JOBS} jobs / of GET jobs/", each, most=MOST_TIME),
            Verdict(f"bytes of the states of {JOBS} jobs / of GET jobs/", [share], most=MOST_BYTES),
        ]
