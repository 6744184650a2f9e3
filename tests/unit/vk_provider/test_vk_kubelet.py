"""The kubelet API over TLS: logs in every form, who may ask, certificates."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
import requests
from cryptography import x509

from slurmrest_adapter.domain.errors import Invalid
from tests.unit.vk_provider.conftest import World, pod, until
from vk_provider.logquery import LogOptions, log_options, logs_request

# The self-signed certificate is not verified, as by an API server that was not told how.
pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")

LOGS = "/containerLogs/ns/p/c"


def test_logs_with_every_option(world: World) -> None:
    world.start()
    job = world.run()
    old = datetime(2026, 1, 1, tzinfo=UTC)
    world.sidecar.write(job, "c", "one\ntwo\n", old)
    world.sidecar.write(job, "c", "three\nno end")

    def text(query: str) -> str:
        answer = world.kubelet(f"{LOGS}?{query}")
        assert answer.status_code == 200, answer.text
        return answer.text

    assert text("") == "one\ntwo\nthree\nno end"
    assert text("tailLines=2") == "three\nno end"
    assert text("tailLines=0") == ""
    assert text("limitBytes=5") == "one\nt"
    assert text("sinceSeconds=3600") == "three\nno end"
    assert text("sinceTime=2026-01-02T00:00:00Z") == "three\nno end"
    assert text("timestamps=true").startswith("2026-01-01T00:00:00.000000Z one\n")


def test_a_log_of_a_container_that_has_printed_nothing_is_empty(world: World) -> None:
    world.start()
    world.run()
    answer = world.kubelet(LOGS)
    assert (answer.status_code, answer.text) == (200, "")


def test_follow_ends_with_the_container(world: World) -> None:
    world.start()
    job = world.run()
    world.sidecar.write(job, "c", "first\n")
    answer = world.kubelet(f"{LOGS}?follow=true", stream=True)
    lines = answer.iter_lines()
    assert next(lines) == b"first"
    world.sidecar.write(job, "c", "second\n")
    assert next(lines) == b"second"
    world.sidecar.end(job)
    assert list(lines) == []


def test_follow_with_no_tail_gives_only_what_comes(world: World) -> None:
    world.start()
    job = world.run()
    world.sidecar.write(job, "c", "past\n", datetime.now(UTC) - timedelta(minutes=1))
    answer = world.kubelet(f"{LOGS}?follow=true&tailLines=0", stream=True)
    world.sidecar.write(job, "c", "future\n", datetime.now(UTC) + timedelta(minutes=1))
    assert next(answer.iter_lines()) == b"future"


def test_a_reader_that_leaves_is_noticed(world: World) -> None:
    world.start()
    world.run()
    answer = world.kubelet(f"{LOGS}?follow=true", stream=True)
    until(lambda: world.sidecar.followers == 1)
    answer.close()
    until(lambda: world.sidecar.followers == 0)


def test_a_log_that_breaks_off_does_not_look_like_its_end(world: World) -> None:
    world.start()
    job = world.run()
    world.sidecar.write(job, "c", "first\n")
    lost = threading.Event()
    real = world.sidecar._lines

    def broken(*arguments):  # type: ignore[no-untyped-def]
        yield next(iter(real(*arguments)))
        lost.wait(10)
        raise OSError("gone")

    world.sidecar._lines = broken  # type: ignore[method-assign]
    answer = world.kubelet(f"{LOGS}?follow=true", stream=True)
    pieces = answer.iter_content(100)
    assert next(pieces) == b"first\n"
    lost.set()
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        list(pieces)


def test_logs_that_cannot_be_had(world: World) -> None:
    world.start()
    world.api.add_pod(pod())
    world.job()
    until(lambda: (world.api.pod("p") or {})["status"].get("containerStatuses"))
    until(lambda: world.kubelet(LOGS).status_code == 400)
    assert world.kubelet(LOGS).text == 'container "c" in pod "p" is waiting to start: ContainerCreating'
    assert world.kubelet("/containerLogs/ns/p/other").status_code == 404
    assert world.kubelet("/containerLogs/ns/other/c").status_code == 404
    assert world.kubelet("/containerLogs/ns/p/..%2f..").status_code == 404
    world.sidecar.start(world.job())
    until(lambda: world.kubelet(LOGS).status_code == 200)
    assert world.kubelet(f"{LOGS}?previous=true").status_code == 400
    assert world.kubelet(f"{LOGS}?tailLines=-1").status_code == 422
    world.sidecar.down = True
    assert world.kubelet(LOGS).status_code == 502


def test_the_other_paths(world: World) -> None:
    world.start()
    world.run()
    assert world.kubelet("/healthz").text == "ok"
    listed = world.kubelet("/pods").json()
    assert [item["metadata"]["name"] for item in listed["items"]] == ["p"]
    assert world.kubelet("/runningpods/").json()["kind"] == "PodList"
    assert world.kubelet("/exec/ns/p/c").status_code == 501
    assert world.kubelet("/nothing").status_code == 404


def test_who_may_ask(world: World) -> None:
    world.start()
    assert world.kubelet("/healthz", user="apiserver").status_code == 200
    assert world.kubelet("/healthz", user="somebody").status_code == 403
    with pytest.raises(requests.exceptions.ConnectionError):
        world.kubelet("/healthz", user="")
    world.api.fail("POST", "subjectaccessreviews", 500)
    assert world.kubelet("/healthz", user="third").status_code == 500


def test_the_serving_certificate_is_asked_for_and_taken_over(world: World) -> None:
    world.start()
    requested = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    body = until(lambda: world.api.calls("POST", requested))[0]
    assert body["spec"]["signerName"] == "kubernetes.io/kubelet-serving"
    assert body["spec"]["usages"] == ["digital signature", "key encipherment", "server auth"]
    assert world.kubelet("/healthz").status_code == 200, "a self-signed one serves meanwhile"
    world.stop()
    world.start()
    until(lambda: len(world.api.calls("GET", requested)) > 1)
    assert len(world.api.calls("POST", requested)) == 1, "the one that waits is good"
    world.stop()
    world.api.sign = world.ca.sign
    world.start()
    file = world.directory / "vk-provider" / "vnode" / "tls.crt"
    issuer = "CN=cluster-ca"
    until(lambda: x509.load_pem_x509_certificate(file.read_bytes()).issuer.rfc4514_string() == issuer)
    assert file.stat().st_mode & 0o777 == 0o600
    asked = len(world.api.calls("POST", requested))
    world.stop()
    world.start()
    assert world.kubelet("/healthz").status_code == 200
    assert len(world.api.calls("POST", requested)) == asked, "the kept one is good"


def test_log_options_are_checked() -> None:
    assert log_options({}) == LogOptions()
    assert log_options({"follow": ["true"], "tailLines": ["3"]}) == LogOptions(follow=True, tail_lines=3)
    for name, value in (
        ("tailLines", "-1"),
        ("tailLines", "x"),
        ("limitBytes", "0"),
        ("sinceSeconds", "0"),
        ("sinceTime", "yesterday"),
        ("sinceTime", "2026-01-01T00:00:00"),
        ("follow", "perhaps"),
    ):
        with pytest.raises(Invalid, match=name):
            log_options({name: [value]})
    with pytest.raises(Invalid, match="sinceTime"):
        log_options({"sinceTime": ["2026-01-01T00:00:00Z"], "sinceSeconds": ["1"]})


def test_what_was_not_asked_is_not_sent() -> None:
    made = logs_request(
        {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}, "c", LogOptions(), "2026-01-01T00:00:00Z"
    )
    assert made == {
        "Namespace": "ns",
        "PodUID": "u",
        "PodName": "p",
        "ContainerName": "c",
        "Opts": {"Follow": False, "Previous": False, "Timestamps": False},
    }
