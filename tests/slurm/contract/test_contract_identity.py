"""As whom: tokens that are wrong, expired, absent or another's, through every version."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts.slurmlab.tokens import mint_from
from slurmrest_adapter.domain.errors import Rejected, Unauthorized
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.slurm.build import TokenSettings, build_gateway
from tests.slurm.contract.conftest import NOTHING, OPERATOR, SLEEP, Room, Site, refusal

pytestmark = pytest.mark.slurm


def token(site: Site, user: str, lifetime: int = 600) -> str:
    """A token as the site's administrator would make one."""
    return mint_from(Path(site.env["LAB_JWT_KEY"]), user, lifetime)


def test_an_expired_token(room: Room) -> None:
    text = token(room.site, "alice", -60)
    expired = room.site.gateway(room.version, TokenSettings("static", value=text))
    asked = room.spec()
    for call in (
        lambda: expired.submit(asked, SLEEP),
        lambda: expired.states(user="alice"),
        lambda: expired.accounting(1, "alice"),
        lambda: expired.cancel(1, "alice"),
        lambda: expired.cancel_many([1], "alice"),
        lambda: expired.hold(1, "alice"),
    ):
        with pytest.raises(Unauthorized, match="it has expired") as caught:
            call()
        assert text not in repr(caught.value)


def test_a_wrong_key(room: Room, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    wrong = room.site.gateway(room.version, TokenSettings("hs256", key_file=str(key)))
    wrong.ping()  # is answered all the same
    with pytest.raises(Unauthorized, match=f"the HS256 key {key} for user alice"):
        wrong.submit(room.spec(), SLEEP)
    with pytest.raises(Unauthorized):  # which /slurmdb itself answers as if slurmdbd were down
        wrong.accounting(1, "alice")


def test_no_token_where_one_is_wanted(room: Room) -> None:
    with pytest.raises(Unauthorized, match=r"slurm\.token"):
        room.site.gateway(room.version, TokenSettings("none")).ping()


def test_an_ordinary_token_cannot_speak_for_another(room: Room) -> None:
    alice = room.site.gateway(room.version, TokenSettings("static", value=token(room.site, "alice")))
    assert isinstance(alice.states(), dict)
    assert isinstance(alice.states(user="alice"), dict)
    with pytest.raises(Unauthorized, match="for user bob"):
        alice.submit(room.spec("bob"), SLEEP)


def test_a_privileged_token_speaks_for_anybody(room: Room, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"SLURM_JWT={token(room.site, 'root')}\n")
    anybody = room.site.gateway(room.version, TokenSettings("file", token_file=str(path)))
    ref = anybody.submit(room.spec("bob"), NOTHING)
    job = room.gateway.job(ref.job_id, "bob")
    assert (job.user, job.uid, job.gid, job.account) == ("bob", 2002, 2002, "ai")
    # The file is read for each call: a renewed token is taken at once.
    path.write_text(token(room.site, "root", -60))
    with pytest.raises(Unauthorized, match="expired"):
        anybody.states(user="bob")


def test_users_at_once_through_one_gateway(room: Room) -> None:
    specs = [room.spec(user) for user in ("alice", "bob") * 4]
    with ThreadPoolExecutor(8) as callers:
        ids = list(callers.map(lambda one: room.submit(NOTHING, one), specs))
        jobs = list(callers.map(lambda job_id: room.gateway.job(job_id, OPERATOR), ids))
    assert [(job.name, job.user, job.comment) for job in jobs] == [(s.name, s.user, s.comment) for s in specs]


def test_the_unix_socket_speaks_as_its_owner_alone(room: Room) -> None:
    socket = f"unix://{room.site.env['LAB_REST_SOCKET']}"
    local = build_gateway([socket], TokenSettings("none"), api_version=room.version)
    assert local.ping().up
    assert {node.name for node in local.nodes()} == {"n1", "n2", "n3", "n4"}
    assert isinstance(local.states(), dict)
    asked = room.spec(uid=2001, gid=2001)
    # slurmrestd's own user may not submit for alice; the job must not become its own instead.
    with pytest.raises(Rejected, match="user id"):
        local.submit(asked, SLEEP)
    assert room.gateway.find_by_name(asked.name, "alice") == []


def test_the_next_endpoint_answers(site: Site) -> None:
    assert build_gateway(["http://127.0.0.1:9", site.endpoint], site.minted).ping().up


def test_a_body_that_no_slurmrestd_takes(site: Site) -> None:
    """More than 64 MiB: an answer or a reset, but never a job and never a success."""
    gateway = site.gateway(read_s=60)
    name = f"big-{time.time_ns()}"
    spec = JobSpec(name=name, comment="", user="alice", partition="all")
    refusal(lambda: gateway.submit(spec, "#!/bin/sh\n" + "#" * (66 * 1024 * 1024)))
    assert gateway.find_by_name(name, "alice") == []
