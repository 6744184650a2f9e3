"""GRES strings, TRES strings and the usage made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.domain.gres import gpu_indices, indices
from slurmrest_adapter.domain.jobs import AccountingRecord, ExitCode, JobInfo
from slurmrest_adapter.domain.usage import Usage, from_job, from_record, gpu_count, tres


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ([], ()),
        (["gpu:a100:2(IDX:0-1)"], (0, 1)),
        (["gpu:a100:2(IDX:0,3)"], (0, 3)),
        (["gpu:a100:4(IDX:0-1,6-7)"], (0, 1, 6, 7)),
        (["gpu:1(IDX:2)"], (2,)),
        (["gres/gpu:a100:1(IDX:1)"], (1,)),
        (["gpu:nvidia_a100_80gb_pcie_1g.10gb:1(IDX:5)"], (5,)),
        (["gpu:a100:1(IDX:1),gpu:l40s:1(IDX:0)"], (0, 1)),
        (["gpu:a100:2(IDX:N/A)"], ()),
        (["gpu:a100:2"], ()),
        (["shard:a100:2(IDX:0-1)", "mygpu:1(IDX:3)", "gpufs:1(IDX:4)"], ()),
        ([""], ()),
    ],
)
def test_indices_of_gpus(details: list[str], expected: tuple[int, ...]) -> None:
    assert gpu_indices(details) == expected


def test_another_gres_by_name() -> None:
    assert gpu_indices(["gpu:1(IDX:0),fpga:2(IDX:3-4)"], "fpga") == (3, 4)


@given(st.lists(st.text(max_size=40), max_size=3), st.text(max_size=20))
def test_any_text_can_be_read(details: list[str], words: str) -> None:
    gpu_indices(details)
    gpu_indices([f"gpu:1(IDX:{words})"])
    tres(words)
    tres(f"cpu={words}")


def test_index_lists() -> None:
    assert indices("0-2,5") == (0, 1, 2, 5)
    assert indices("3-1") == ()
    assert indices("N/A") == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("cpu=4", {"cpu": 4}),
        ("cpu=4,mem=8G,node=1,billing=4", {"cpu": 4, "mem": 8192, "node": 1, "billing": 4}),
        ("mem=1500M", {"mem": 1500}),
        ("mem=2048K", {"mem": 2}),
        ("mem=1.50G", {"mem": 1536}),
        ("mem=1T", {"mem": 1024 * 1024}),
        ("mem=500", {"mem": 500}),
        (
            "gres/gpu=3,gres/gpu:a100=2,gres/gpu:l40s=1",
            {"gres/gpu": 3, "gres/gpu:a100": 2, "gres/gpu:l40s": 1},
        ),
        ("billing=2K", {"billing": 2048}),
        ("cpu=,=3,mem=xG,cpu", {}),
        ("cpu=nan,mem=inf,node=1", {"node": 1}),
        ("cpu=1e999", {}),
    ],
)
def test_tres_strings(text: str, expected: dict[str, int]) -> None:
    assert tres(text) == expected


def test_gpus_are_counted_once() -> None:
    assert gpu_count({"gres/gpu": 3, "gres/gpu:a100": 2, "gres/gpu:l40s": 1}) == 3
    assert gpu_count({"gres/gpu:a100": 2, "gres/gpu:l40s": 1}) == 3
    assert gpu_count({"cpu": 1, "gres/gpumem": 7}) == 0


RECORD = AccountingRecord(
    job_id=7,
    states=("COMPLETED",),
    submit_time=100,
    start_time=130,
    end_time=190,
    elapsed_seconds=60,
    cpu_user_seconds=10.5,
    cpu_system_seconds=0.5,
    max_rss_mib=300,
    energy_joules=None,
    tres_allocated={"cpu": 4, "mem": 400, "gres/gpu": 2, "gres/gpu:a100": 2},
)


def test_usage_from_slurmdbd() -> None:
    assert from_record(RECORD) == Usage("slurmdbd", 60, 30, 2, 120, 4, 240, 400, 11.0, 300, None)
    words = from_record(RECORD).words()
    assert "120 GPU-seconds" in words
    assert "30 s queued" in words
    assert "slurmdbd" in words


def test_usage_as_observed_says_so() -> None:
    job = JobInfo(
        7, ("COMPLETED",), tres_allocated="cpu=2,mem=1G", submit_time=100, start_time=130, end_time=190
    )
    used = from_job(job)
    assert used == Usage("observed", 60, 30, 0, 0, 2, 120, 1024)
    assert used.cpu_used_seconds is None
    assert "no GPU" in used.words()
    assert "observed" in used.words()


def test_gpus_that_the_site_does_not_account_are_observed_too() -> None:
    job = JobInfo(
        7,
        ("COMPLETED",),
        tres_allocated="cpu=2,mem=1G",
        gres=("gpu:a100:2(IDX:0,3)", "gpu:l40s:1(IDX:0)", "fpga:1(IDX:0)"),
        start_time=130,
        end_time=190,
    )
    assert (from_job(job).gpus, from_job(job).gpu_seconds) == (3, 180)


def test_a_job_that_never_started_used_nothing() -> None:
    used = from_job(JobInfo(7, ("CANCELLED",), submit_time=100, end_time=110))
    assert (used.elapsed_seconds, used.wait_seconds, used.cpu_seconds) == (0, None, 0)


def test_a_clock_that_went_back_gives_no_negative_usage() -> None:
    used = from_job(JobInfo(7, ("COMPLETED",), submit_time=200, start_time=150, end_time=100))
    assert (used.elapsed_seconds, used.wait_seconds) == (0, 0)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ExitCode(), "no exit code"),
        (ExitCode(0, None), "exit code 0"),
        (ExitCode(3, 0), "exit code 3"),
        (ExitCode(0, 9), "signal 9"),
    ],
)
def test_exit_codes_in_words(code: ExitCode, words: str) -> None:
    assert code.words() == words
