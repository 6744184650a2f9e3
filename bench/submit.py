"""`Gateway.submit`, beside a bare `requests` loop that posts the same bodies, and beside `sbatch`.

Both sides post to the same slurmrestd over kept-alive connections. The control's bodies are made
and encoded beforehand, and it reads nothing of an answer but the job id.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import requests

from bench.lab import USER, Lab, lab, slurm_lab
from bench.rounds import Verdict, seconds

THREADS = (1, 4)
JOBS = 40  # of each side in each round
ROUNDS = 11
SBATCH_ROUNDS = 3
LEAST = 0.8


def run() -> list[Verdict]:
    """The verdicts; rates as a ratio, so more is better."""
    with lab() as found:
        verdicts = [_against_requests(found, threads) for threads in THREADS]
        return [*verdicts, _against_sbatch(found)]


def _against_requests(found: Lab, threads: int) -> Verdict:
    each = []
    with requests.Session() as bare, ThreadPoolExecutor(threads) as pool:
        for number in range(-1, ROUNDS):  # the first one opens connections and is not counted
            if number % 2:
                ours = _ours(found, pool)
                theirs = _bare(found, pool, bare)
            else:
                theirs = _bare(found, pool, bare)
                ours = _ours(found, pool)
            if number >= 0:
                each.append(theirs / ours)
    word = "thread" if threads == 1 else "threads"
    return Verdict(f"submits/s of the gateway / of bare requests, {threads} {word}", each, least=LEAST)


def _ours(found: Lab, pool: ThreadPoolExecutor) -> float:
    specs = [found.spec() for _ in range(JOBS)]

    def work() -> None:
        refs = list(pool.map(lambda spec: found.gateway.submit(spec, found.script), specs))
        found.jobs.extend(ref.job_id for ref in refs)

    return seconds(work)


def _bare(found: Lab, pool: ThreadPoolExecutor, session: requests.Session) -> float:
    bodies = [json.dumps(found.body(found.spec())).encode() for _ in range(JOBS)]
    headers = {**found.headers, "Content-Type": "application/json"}
    url = found.submit_url()

    def post(body: bytes) -> int:
        return int(session.post(url, data=body, headers=headers, timeout=30).json()["job_id"])

    return seconds(lambda: found.jobs.extend(pool.map(post, bodies)))


def _against_sbatch(found: Lab) -> Verdict:
    """Printed for comparison; `sbatch` runs in a loop inside the lab, its script in a file."""
    loop = (
        f"i=0; while [ $i -lt {JOBS} ]; do sbatch --parsable -A physics -p all -t 10 -n 1 --mem 100 "
        f"-d afterok:{found.held} -o /dev/null --wrap true; i=$((i+1)); done"
    )
    each = []
    with ThreadPoolExecutor(1) as pool:
        for _ in range(SBATCH_ROUNDS):
            printed: list[str] = []
            theirs = seconds(lambda: printed.append(slurm_lab("exec", "--as", USER, "sh", "-c", loop)))  # noqa: B023
            found.jobs.extend(int(word) for word in printed[0].split())
            each.append(theirs / _ours(found, pool))
    return Verdict("submits/s of the gateway / of sbatch processes, 1 thread", each)
