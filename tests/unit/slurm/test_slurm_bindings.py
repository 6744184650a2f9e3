"""The gateway through every version, on recorded answers and on spoilt ones."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmrest_adapter.domain.errors import (
    Incompatible,
    MaybeAccepted,
    NotFound,
    Rejected,
    SlurmError,
    Unauthorized,
    Unavailable,
)
from slurmrest_adapter.domain.jobspec import GpuRequest, JobSpec
from slurmrest_adapter.slurm import bindings, breaker, negotiate, retry
from slurmrest_adapter.slurm.base import JobChange
from slurmrest_adapter.slurm.build import TokenSettings, build_gateway
from slurmrest_adapter.slurm.gateway import Gateway
from tests.fakes import hostile_slurmrestd as hostile
from tests.fakes.hostile_slurmrestd import Slurmrestd

TOKEN = "eyJ-the-token"
SPEC = JobSpec(
    name="web-0123456789ab",
    comment="sra1:x.y",
    user="alice",
    cpus=3,
    memory_mib=77,
    gpus=(GpuRequest("gpu", "a100", 2),),
    time_limit_minutes=7,
)
BINDINGS = Path(bindings.__file__).parent


@pytest.fixture(params=hostile.recordings(), ids=lambda path: path.stem)
def slurmrestd(request: pytest.FixtureRequest) -> Iterator[Slurmrestd]:
    with Slurmrestd.load(request.param).serving() as fake:
        yield fake


@pytest.fixture
def room(slurmrestd: Slurmrestd) -> Iterator[Gateway]:
    """Asks each question once, so that an error is the answer's own."""
    gateway = build_gateway(
        [slurmrestd.url],
        TokenSettings("static", value=TOKEN),
        api_version=slurmrestd.version,
        read_s=10,
        retry=retry.NEVER,
        breaker=breaker.OFF,
    )
    gateway.ping()
    slurmrestd.heard.clear()
    yield gateway
    gateway.close()


def calls(room: Gateway, job_id: int) -> dict[str, Callable[[], Any]]:
    """Everything that can be asked or ordered, apart from ping."""
    return {
        "partitions": room.partitions,
        "nodes": room.nodes,
        "submit": lambda: room.submit(SPEC, "#!/bin/sh\n"),
        "job": lambda: room.job(job_id, "alice"),
        "states": lambda: room.states([job_id]),
        "all states": room.states,
        "cancel": lambda: room.cancel(job_id, "alice"),
        "signal": lambda: room.signal(job_id, "TERM", "alice"),
        "cancel many": lambda: room.cancel_many([job_id, 10_000_000], "alice"),
        "update": lambda: room.update(job_id, JobChange(comment="x"), "alice"),
        "hold": lambda: room.hold(job_id, "alice"),
        "accounting": lambda: room.accounting(job_id, "alice"),
        "find": lambda: room.find_by_name("recorded", "alice"),
    }


def outcomes(room: Gateway, fake: Slurmrestd) -> dict[str, Any]:
    """What each call returns or is refused with; any other exception is a failure."""
    found: dict[str, Any] = {}
    for name, call in calls(room, fake.job_id).items():
        try:
            found[name] = call()
        except SlurmError as error:
            found[name] = error
    refusals = [outcome for outcome in found.values() if isinstance(outcome, SlurmError)]
    assert not [error for error in refusals if TOKEN in repr(error) or "\n" in str(error)]
    return found


def test_recorded_answers_are_understood(room: Gateway, slurmrestd: Slurmrestd) -> None:
    found = outcomes(room, slurmrestd)
    assert room.ping().release.startswith(slurmrestd.release)
    assert room.ping().up
    assert {partition.name for partition in found["partitions"]} == {"all"}
    (node,) = found["nodes"]
    assert (node.name, node.cpus, node.memory_mib) == ("n4", 32, 64000)
    assert node.states
    assert found["submit"].job_id == slurmrestd.job_id
    job = found["job"]
    assert (job.job_id, job.name, job.states) == (slurmrestd.job_id, slurmrestd.job_name, ("RUNNING",))
    assert (job.user, job.uid, job.partition, job.account) == ("alice", 2001, "gpu", "physics")
    assert (job.cpus, job.memory_mib, job.time_limit_minutes) == (1, 77, 3)
    assert job.comment == "a new comment"
    assert [gres.partition("(")[0] for gres in job.gres] == ["gpu:a100:1"]
    assert found["states"][slurmrestd.job_id].states == ("RUNNING",)
    assert found["all states"] == found["states"]
    assert found["cancel"] is None
    assert found["signal"] is None
    assert {job_id: type(error) for job_id, error in found["cancel many"].items()} == {10_000_000: NotFound}
    assert found["update"] is None
    record = found["accounting"]
    assert (record.states, record.exit_code.return_code) == (("FAILED",), 3)
    assert record.tres_allocated["gres/gpu:a100"] == 1
    assert record.tres_allocated["mem"] == 77
    assert record.end_time >= record.start_time >= record.submit_time
    assert found["find"] == []  # none of that name
    (same,) = room.find_by_name(slurmrestd.job_name, "alice")
    assert (same.job_id, same.states) == (slurmrestd.job_id, ("RUNNING",))


def test_each_request_is_of_the_version_and_says_who(room: Gateway, slurmrestd: Slurmrestd) -> None:
    outcomes(room, slurmrestd)
    for heard in slurmrestd.heard:
        assert heard.path.split("/")[2] == slurmrestd.version
        assert heard.headers["x-slurm-user-token"] == TOKEN
        assert heard.headers.get("content-type", "application/json") == "application/json"
        assert len(heard.path) < 8000
    sent = [json.loads(heard.body) for heard in slurmrestd.heard if heard.path.endswith("/job/submit")]
    (job,) = (body["job"] for body in sent)
    number = {"set": True, "infinite": False}
    assert job["memory_per_node"] == {**number, "number": 77}
    assert job["time_limit"] == {**number, "number": 7}
    assert (job["cpus_per_task"], job["tres_per_node"]) == (3, "gres/gpu:a100:2")
    # Where a denial of one cancel is told nowhere, the way for many is taken.
    single = {heard.path for heard in slurmrestd.heard if heard.method == "DELETE" and "/job/" in heard.path}
    assert bool(single) is (slurmrestd.version not in ("v0.0.40", "v0.0.41"))


def test_options_of_spank_plugins_go_both_ways(room: Gateway, slurmrestd: Slurmrestd) -> None:
    """To slurmstepd by the environment, to prolog and epilog by spank_environment: in every version."""
    options = {"_SLURM_SPANK_OPTION_slurmrest_adapter_pod_uid": "uid-1", "_SLURM_SPANK_OPTION_a_b": "x=y z"}
    room.submit(replace(SPEC, environment={**SPEC.environment, **options}), "#!/bin/sh\n")
    room.submit(SPEC, "#!/bin/sh\n")
    with_options, without = (
        json.loads(heard.body)["job"] for heard in slurmrestd.heard if heard.path.endswith("/job/submit")
    )
    both = ["_SLURM_SPANK_OPTION_a_b=x=y z", "_SLURM_SPANK_OPTION_slurmrest_adapter_pod_uid=uid-1"]
    assert with_options["spank_environment"] == both
    assert set(both) <= set(with_options["environment"])
    assert "spank_environment" not in without
    assert with_options == {
        **without,
        **{key: with_options[key] for key in ("environment", "spank_environment")},
    }


def test_nulls_lose_nothing_else(room: Gateway, slurmrestd: Slurmrestd) -> None:
    slurmrestd.mood = hostile.nulls
    found = outcomes(room, slurmrestd)
    assert found["job"].job_id == slurmrestd.job_id
    assert (found["job"].name, found["job"].cpus) == (slurmrestd.job_name, None)
    assert found["states"][slurmrestd.job_id].states == ()
    assert found["submit"].job_id == slurmrestd.job_id
    assert found["accounting"].job_id == slurmrestd.job_id
    assert found["accounting"].end_time is None
    assert found["nodes"][0].name == "n4"


def test_nothing_but_nulls_is_never_a_job(room: Gateway, slurmrestd: Slurmrestd) -> None:
    slurmrestd.mood = hostile.all_null
    found = outcomes(room, slurmrestd)
    assert isinstance(found["submit"], Rejected)
    assert isinstance(found["job"], NotFound)
    assert found["states"] == {}
    assert found["accounting"] is None
    assert found["nodes"] == []


def test_new_words_and_keys_are_kept_or_ignored(room: Gateway, slurmrestd: Slurmrestd) -> None:
    before = outcomes(room, slurmrestd)
    slurmrestd.mood = hostile.new_words
    found = outcomes(room, slurmrestd)
    assert found["job"].states == (*before["job"].states, "NEVER_HEARD")
    assert found["states"][slurmrestd.job_id].states == ("RUNNING", "NEVER_HEARD")
    assert found["accounting"].states == ("FAILED", "NEVER_HEARD")
    assert found["job"].exit_code.return_code == before["job"].exit_code.return_code
    assert found["submit"] == before["submit"]


def test_not_a_number_loses_nothing(room: Gateway, slurmrestd: Slurmrestd) -> None:
    before = outcomes(room, slurmrestd)
    slurmrestd.mood = hostile.not_numbers
    found = outcomes(room, slurmrestd)
    before.pop("cancel many")
    found.pop("cancel many")  # holds errors, which equal only themselves
    assert found == before


def test_errors_in_a_200_are_errors(room: Gateway, slurmrestd: Slurmrestd) -> None:
    slurmrestd.mood = hostile.errors
    for name, outcome in outcomes(room, slurmrestd).items():
        assert isinstance(outcome, Rejected), name
        assert (outcome.number, outcome.words) == (2066, "Invalid qos specification"), name


def test_a_submit_without_a_job_id_is_refused_in_the_warnings_words(
    room: Gateway, slurmrestd: Slurmrestd
) -> None:
    slurmrestd.mood = hostile.no_job_id
    with pytest.raises(Rejected, match="Expected integer, but got string"):
        room.submit(SPEC, "#!/bin/sh\n")


@pytest.mark.parametrize(
    "mood",
    [hostile.text, hostile.page, hostile.cut, hostile.broken_off, hostile.empty, hostile.insane],
    ids=lambda mood: str(mood.__name__),
)
def test_what_is_no_answer_is_none(room: Gateway, slurmrestd: Slurmrestd, mood: hostile.Mood) -> None:
    """Never an empty list, never a success: unanswered, and of a submit perhaps accepted."""
    slurmrestd.mood = mood
    for name, outcome in outcomes(room, slurmrestd).items():
        assert type(outcome) is MaybeAccepted if name == "submit" else isinstance(outcome, Unavailable), name
    assert sum(heard.path.endswith("/submit") for heard in slurmrestd.heard) == 1


def test_another_shape_is_no_answer(room: Gateway, slurmrestd: Slurmrestd) -> None:
    slurmrestd.mood = hostile.other_shape
    for name, outcome in outcomes(room, slurmrestd).items():
        assert isinstance(outcome, SlurmError), name


def test_a_redirect_takes_no_token_along(room: Gateway, slurmrestd: Slurmrestd) -> None:
    with Slurmrestd.load(hostile.recordings()[0]).serving() as elsewhere:
        slurmrestd.mood = hostile.redirect(elsewhere.url + "/slurm/")
        for name, outcome in outcomes(room, slurmrestd).items():
            assert isinstance(outcome, SlurmError), name
            assert not isinstance(outcome, Unavailable), name
            assert "redirect" in str(outcome), name
        assert elsewhere.heard == []


def test_ids_by_the_thousand_never_make_a_line_too_long(room: Gateway, slurmrestd: Slurmrestd) -> None:
    for many in (400, 401, 20_000):
        asked = [slurmrestd.job_id, *range(1_000_000_000, 1_000_000_000 + many - 1)]
        assert set(room.states(asked)) == {slurmrestd.job_id}
    assert max(len(heard.path) for heard in slurmrestd.heard) < 8000


def test_a_line_that_is_too_long_is_an_outage_and_no_answer(room: Gateway, slurmrestd: Slurmrestd) -> None:
    operation = negotiate.load(slurmrestd.version).states(range(1_000_000_000, 1_000_005_000))
    with pytest.raises(SlurmError) as caught:
        room._ask(operation, "alice")
    expected = Rejected if slurmrestd.release == "24.11" else Unavailable
    assert isinstance(caught.value, expected)


def test_no_token_is_unauthorized(slurmrestd: Slurmrestd) -> None:
    room = build_gateway([slurmrestd.url], TokenSettings("none"), api_version=slurmrestd.version)
    with pytest.raises(Unauthorized, match="Authentication failure"):
        room.ping()


def test_the_version_is_found_out_or_refused_with_both_lists(slurmrestd: Slurmrestd) -> None:
    token = TokenSettings("static", value=TOKEN)
    room = build_gateway([slurmrestd.url], token)
    assert room.ping().up
    assert room.api_version == slurmrestd.version
    other = next(version for version in negotiate.OURS if version != slurmrestd.version)
    with pytest.raises(Incompatible) as caught:
        build_gateway([slurmrestd.url], token, api_version=other).ping()
    assert (caught.value.ours, caught.value.theirs) == ((other,), (slurmrestd.version,))


def test_a_site_without_slurmdbd_keeps_no_accounts(room: Gateway, slurmrestd: Slurmrestd) -> None:
    slurmrestd.mood = lambda answer: (
        hostile.Answer(404, "text/plain", b"Unable find requested URL.")
        if slurmrestd.heard[-1].path.startswith("/slurmdb/")
        else answer
    )
    assert room.keeps_accounts  # nobody knows better yet
    assert room.accounting(slurmrestd.job_id, "alice") is None
    assert not room.keeps_accounts
    (found,) = room.find_by_name(slurmrestd.job_name, "alice")
    assert found.job_id == slurmrestd.job_id
    assert room.find_by_name("another", "alice") == []


def test_where_no_accounts_are_kept_nothing_ends_anothers_job(slurmrestd: Slurmrestd) -> None:
    """There slurmctld would stop for good; so it is not even asked."""
    ping = slurmrestd.answers["ping"].json
    ping["meta"]["plugin"]["accounting_storage"] = ""
    slurmrestd.answers["ping"] = slurmrestd.answers["ping"].with_json(ping)
    room = build_gateway(
        [slurmrestd.url], TokenSettings("static", value=TOKEN), api_version=slurmrestd.version
    )
    job_id = slurmrestd.job_id
    orders: list[Callable[[], None]] = [
        lambda: room.cancel(job_id, "bob"),
        lambda: room.signal(job_id, "TERM", "bob"),
    ]
    for order in orders:
        with pytest.raises(Rejected, match="belongs to alice"):
            order()
    assert not room.keeps_accounts
    for others in ([job_id, 7], [job_id, *range(10_000_000, 10_000_060)]):
        assert set(room.cancel_many(others, "bob")) == set(others)
    assert not [heard for heard in slurmrestd.heard if heard.method == "DELETE"]
    room.cancel(job_id, "alice")
    assert room.cancel_many([job_id], "alice") == {}
    assert len([heard for heard in slurmrestd.heard if heard.method == "DELETE"]) == 2


def test_a_delete_without_its_body_cancels_one_by_one(room: Gateway, slurmrestd: Slurmrestd) -> None:
    """Some proxies drop the body; Slurm refuses the rest, and nobody else's job is ended."""
    words = "Invalid signal jobs request, at least one job id or filter is required."
    row = {"description": "Signal request failed", "error_number": 2173, "error": words}

    def dropped(answer: hostile.Answer) -> hostile.Answer:
        many = slurmrestd.heard[-1].method == "DELETE" and slurmrestd.heard[-1].path.endswith("/jobs/")
        return answer.with_json({"errors": [row]}) if many else answer

    slurmrestd.mood = dropped
    refused = room.cancel_many([slurmrestd.job_id], "alice")
    if slurmrestd.version in ("v0.0.40", "v0.0.41"):  # they have no other way that tells of a denial
        assert [type(error) for error in refused.values()] == [Rejected]
    else:
        assert refused == {}


VERSIONS = [pytest.param(version, id=version) for version in negotiate.OURS]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_binding_imports_its_own_version_and_no_other(version: str) -> None:
    name = version.replace(".", "_")
    tree = ast.parse((BINDINGS / f"{name}.py").read_text())
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    generated = {module.split(".")[1] for module in modules if module.startswith("generated_client.")}
    assert generated == {name}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    script = (
        "import sys, slurmrest_adapter.slurm.negotiate as n\n"
        "b = n.load(sys.argv[1])\n"
        "b.ping(); b.nodes(); b.partitions(); b.states([1]); b.job(1); b.jobs()\n"
        "b.kill(1); b.kill_many([1]); b.accounting(1); b.accounting_by_name('n', 'u', 1)\n"
        "found = {m.split('.')[1] for m in sys.modules if m.startswith('generated_client.v')}\n"
        "assert found == {sys.argv[1].replace('.', '_')}, found\n"
        "others = {m for m in sys.modules if m.startswith('slurmrest_adapter.slurm.bindings.v')}\n"
        "assert len(others) == 1, others\n"
    )
    subprocess.run([sys.executable, "-c", script, version], check=True, cwd=Path(__file__).parents[3])


def test_what_the_bindings_share_imports_no_version() -> None:
    for path in BINDINGS.glob("*.py"):
        if path.name.startswith("v0_"):
            continue
        tree = ast.parse(path.read_text())
        modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        modules += [
            alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
        ]
        assert not [module for module in modules if module.startswith("generated_client")], path.name


def test_there_is_a_binding_for_each_generated_version() -> None:
    generated = {
        path.name for path in (Path(__file__).parents[3] / "generated_client").glob("v*") if path.is_dir()
    }
    assert {path.stem for path in BINDINGS.glob("v0_*.py")} == generated
    assert {version.replace(".", "_") for version in negotiate.OURS} == generated
