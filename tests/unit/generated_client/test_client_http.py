"""Requests: built alone, sent exactly, and without an identity that stays."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
import requests
import responses
from requests.adapters import HTTPAdapter

from generated_client.v0_0_42 import Client, Request, UnexpectedResponse
from generated_client.v0_0_42.api.slurm import (
    delete_job,
    get_job,
    get_jobs_state,
    get_ping,
    post_job,
    post_job_submit,
)
from generated_client.v0_0_42.api.slurmdb import get_jobs as get_accounting_jobs
from generated_client.v0_0_42.models import JobDescMsg, JobSubmitReq, UintNoVal

pytestmark = pytest.mark.unit

BASE = "http://slurm.invalid:6820"
PING = f"{BASE}/slurm/v0.0.42/ping/"
SUBMIT = f"{BASE}/slurm/v0.0.42/job/submit"
ALICE = {"X-SLURM-USER-TOKEN": "alice-token", "X-SLURM-USER-NAME": "alice"}


@pytest.fixture
def http() -> Iterator[responses.RequestsMock]:
    with responses.RequestsMock() as mock:
        yield mock


@pytest.fixture
def client() -> Client:
    session = requests.Session()
    session.trust_env = False
    return Client(BASE + "/", session, (5, 30))


def test_importing_everything_loads_no_other_http_library() -> None:
    program = (
        "import pkgutil, sys, importlib, generated_client as g\n"
        "assert not [m for m in sys.modules if m.startswith('generated_client.')]\n"
        "names = [m.name for m in pkgutil.walk_packages(g.__path__, 'generated_client.')]\n"
        "for name in names: importlib.import_module(name)\n"
        "assert len(names) > 50, names\n"
        "loaded = {m.partition('.')[0] for m in sys.modules}\n"
        "print(sorted(loaded & {'httpx', 'aiohttp', 'anyio', 'dateutil'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_list_repeats_the_parameter() -> None:
    request = get_jobs_state.get_request(job_id=["1", "2", "143_1"])
    assert (request.method, request.path) == ("GET", "/slurm/v0.0.42/jobs/state/")
    assert request.params == (("job_id", "1"), ("job_id", "2"), ("job_id", "143_1"))
    assert request.json is None


def test_what_is_not_given_is_not_sent() -> None:
    assert get_jobs_state.get_request().params == ()
    assert get_jobs_state.get_request(job_id=[]).params == ()
    assert get_accounting_jobs.get_request(step=["7"], start_time="0").params == (
        ("step", "7"),
        ("start_time", "0"),
    )


@pytest.mark.parametrize(
    ("job_id", "path"),
    [("143", "143"), ("143_1", "143_1"), ("../jobs", "..%2Fjobs"), ("1?signal=KILL", "1%3Fsignal%3DKILL")],
)
def test_an_id_cannot_leave_its_place_in_the_path(job_id: str, path: str) -> None:
    assert delete_job.get_request(job_id).path == f"/slurm/v0.0.42/job/{path}"


def test_signal_and_flags_travel_as_parameters(http: responses.RequestsMock, client: Client) -> None:
    http.delete(
        f"{BASE}/slurm/v0.0.42/job/143",
        json={"status": []},
        match=[responses.matchers.query_param_matcher({"signal": "TERM", "flags": "BATCH_JOB"})],
    )
    assert delete_job.sync(client, "143", signal="TERM", flags="BATCH_JOB", headers=ALICE).status == []


def test_repeated_ids_and_escaping_on_the_wire(http: responses.RequestsMock, client: Client) -> None:
    http.get(f"{BASE}/slurm/v0.0.42/jobs/state/", json={"jobs": []})
    get_jobs_state.sync(client, job_id=["1", "2"], headers=ALICE)
    assert http.calls[0].request.url == f"{BASE}/slurm/v0.0.42/jobs/state/?job_id=1&job_id=2"
    http.get(f"{BASE}/slurmdb/v0.0.42/jobs/", json={"jobs": []})
    get_accounting_jobs.sync(client, job_name=["a&b=c d"], headers=ALICE)
    assert http.calls[1].request.url == f"{BASE}/slurmdb/v0.0.42/jobs/?job_name=a%26b%3Dc+d"


def test_the_body_is_sent_as_exactly_application_json(http: responses.RequestsMock, client: Client) -> None:
    http.post(SUBMIT, json={"job_id": 143})
    job = JobDescMsg(
        name="zoë $(id) `x`\n",
        environment=["PATH=/bin", "A==b"],
        time_limit=UintNoVal(set_=True, number=5),
        user_id=2001,
    )
    body = JobSubmitReq(job=job, script="#!/bin/sh\n")
    headers = {**ALICE, "content-type": "application/json; charset=utf-8"}
    assert post_job_submit.sync(client, body=body, headers=headers).job_id == 143
    sent = http.calls[0].request
    assert sent.headers["Content-Type"] == "application/json"
    assert sent.headers["Accept"] == "application/json"
    assert json.loads(sent.body or b"") == {
        "script": "#!/bin/sh\n",
        "job": {
            "name": "zoë $(id) `x`\n",
            "environment": ["PATH=/bin", "A==b"],
            "time_limit": {"set": True, "number": 5},
            "user_id": 2001,
        },
    }


def test_a_request_without_body_has_no_content_type(http: responses.RequestsMock, client: Client) -> None:
    http.get(PING, json={"pings": []})
    get_ping.sync(client)
    assert "Content-Type" not in http.calls[0].request.headers


@pytest.mark.parametrize("text", ["\ud800", "a\udcffb"])
def test_a_body_that_cannot_be_encoded_is_not_sent(
    http: responses.RequestsMock, client: Client, text: str
) -> None:
    with pytest.raises(ValueError):
        post_job.sync(client, "1", body=JobDescMsg(comment=text))
    assert len(http.calls) == 0


def test_headers_are_for_one_call_alone(http: responses.RequestsMock, client: Client) -> None:
    http.get(PING, json={"pings": []})
    request = get_ping.get_request()
    client.send(request, ALICE)
    client.send(request, {"X-SLURM-USER-TOKEN": "bob-token"})
    client.send(request)
    first, second, third = (call.request.headers for call in http.calls)
    assert (first["X-SLURM-USER-TOKEN"], first["X-SLURM-USER-NAME"]) == ("alice-token", "alice")
    assert second["X-SLURM-USER-TOKEN"] == "bob-token"
    assert "X-SLURM-USER-NAME" not in second
    assert not [name for name in third if name.lower().startswith("x-slurm")]
    for place in (vars(client), dict(client.session.headers), request.headers):
        assert "token" not in str(place).lower()


def test_a_redirect_is_not_followed(http: responses.RequestsMock, client: Client) -> None:
    http.get(f"{BASE}/slurm/v0.0.42/job/1", status=302, headers={"Location": "http://elsewhere.invalid/"})
    with pytest.raises(UnexpectedResponse, match="redirect") as caught:
        get_job.sync(client, "1", headers=ALICE)
    assert caught.value.status_code == 302
    assert len(http.calls) == 1


def test_the_timeout_is_on_every_call(client: Client) -> None:
    seen: list[object] = []

    class Adapter(HTTPAdapter):
        def send(self, *args: Any, **kwargs: Any) -> NoReturn:
            seen.append(kwargs["timeout"])
            raise requests.ConnectionError("refused")

    client.session.mount("http://", Adapter())
    with pytest.raises(requests.ConnectionError):
        client.send(get_ping.get_request())
    with pytest.raises(requests.ConnectionError):
        client.send(get_ping.get_request(), timeout=(1, 90))
    assert seen == [(5, 30), (1, 90)]


def test_the_repr_of_a_request_hides_its_body() -> None:
    body = JobSubmitReq(job=JobDescMsg(environment=["PASSWORD=hunter2"]))
    request = post_job_submit.get_request(body=body)
    assert isinstance(request, Request)
    assert "hunter2" not in repr(request)
