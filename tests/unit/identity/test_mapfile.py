"""Default deny: the first line that matches, or nobody."""

from __future__ import annotations

import pwd

import pytest

from slurmrest_adapter.domain.errors import RefusedIdentity
from slurmrest_adapter.domain.pod import PodView, view
from slurmrest_adapter.identity.base import Owner
from slurmrest_adapter.identity.mapfile import Line, MapMapper
from tests.fakes.pods import pod

ALICE = Owner("alice", "physics", uid=1001, gid=1001)
BOB = Owner("bob", "ai", uid=1002, gid=1002)


def of(namespace: str = "physics", account: str | None = None) -> PodView:
    raw = pod()
    raw["metadata"]["namespace"] = namespace
    raw["spec"]["serviceAccountName"] = account
    return view(raw)


def test_no_line_no_job() -> None:
    with pytest.raises(RefusedIdentity) as caught:
        MapMapper([], 1000).owner(of())
    assert caught.value.field == "metadata.namespace"
    assert "'physics'" in caught.value.reason
    assert "'default'" in caught.value.reason


def test_the_first_line_that_matches() -> None:
    mapper = MapMapper(
        [Line("physics", "robot", BOB), Line("physics", "*", ALICE), Line("*", "*", BOB)], 1000
    )
    assert mapper.owner(of()) == ALICE
    assert mapper.owner(of(account="robot")) == BOB
    assert mapper.owner(of("chemistry")) == BOB


@pytest.mark.parametrize("namespace", ["physics2", "xphysics", "phys"])
def test_a_name_is_matched_whole(namespace: str) -> None:
    with pytest.raises(RefusedIdentity):
        MapMapper([Line("physics", "*", ALICE)], 1000).owner(of(namespace))


def test_wildcards() -> None:
    assert MapMapper([Line("team-*", "*", ALICE)], 1000).owner(of("team-a")) == ALICE


@pytest.mark.parametrize(
    "owner",
    [
        Owner("root"),
        Owner("slurm"),
        Owner("slurm", uid=5000, gid=5000),
        Owner("alice", uid=0, gid=0),
        Owner("alice", uid=999, gid=1001),
    ],
)
def test_never_who_owns_the_machinery(owner: Owner) -> None:
    with pytest.raises(RefusedIdentity, match="may not run pods"):
        MapMapper([Line("*", "*", owner)], 1000).owner(of())


def test_a_refused_line_does_not_fall_through_to_the_next() -> None:
    with pytest.raises(RefusedIdentity):
        MapMapper([Line("*", "*", Owner("root")), Line("*", "*", ALICE)], 1000).owner(of())


def test_uid_and_gid_from_this_host() -> None:
    entry = next(entry for entry in pwd.getpwall() if entry.pw_name not in ("root", "slurm"))
    found = MapMapper([Line("*", "*", Owner(entry.pw_name))], 0).owner(of())
    assert (found.uid, found.gid) == (entry.pw_uid, entry.pw_gid)
    assert MapMapper([Line("*", "*", Owner(entry.pw_name, uid=7777))], 0).owner(of()).uid == 7777


def test_a_uid_that_only_passwd_knows_is_checked_too() -> None:
    system = next(e for e in pwd.getpwall() if 0 < e.pw_uid < 1000 and e.pw_name != "slurm")
    with pytest.raises(RefusedIdentity):
        MapMapper([Line("*", "*", Owner(system.pw_name))], 1000).owner(of())


def test_a_user_nobody_here_knows_has_no_uid() -> None:
    assert MapMapper([Line("*", "*", Owner("no-such-user-here"))], 1000).owner(of()).uid is None
