"""A reader that leaves, as in ``run pod.yaml | head -2``: the real program and real pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurmrest_adapter.cli.streams import Streams
from tests.fakes.pods import container, pod
from tests.fakes.shell import Shell

# The command line on the small Slurm; after it the pod ends with exit code 3.
_PROGRAM = """
import json
import sys
from functools import partial
from pathlib import Path
from slurmrest_adapter.cli import build
from slurmrest_adapter.cli.main import main
from slurmrest_adapter.store.sqlite import SqliteStore
from slurmrest_adapter.tracking.driver.deps import Deps
from tests.fakes.shell import Shell

shell = Shell(Path(sys.argv.pop(1)))
manifest = sys.argv.pop(1)
clock = shell.world.clock
shell.config.write_text(json.dumps(shell.settings))
build.gateway_of = lambda settings: shell.world.slurm
build.Deps = partial(Deps, clock=clock, sleep=clock.sleep)
build.SqliteStore = partial(SqliteStore, clock=clock)
if sys.argv[1] == "run":
    shell.life(code=3)
    clock.after(4, lambda: shell.log("main", *["x" * 100] * 9))
else:
    assert shell("run", manifest, "--detach").exit_code == 0
    shell.log("main", *["x" * 100] * 9)
sys.argv[1:1] = ["--config", str(shell.config)]
main()
"""


def with_a_closed_pipe(directory: Path, *words: str) -> tuple[int, str]:
    """Run it with a standard output that nobody reads; its exit code and what it said."""
    manifest = directory / "pod.json"
    manifest.write_text(json.dumps(pod(container())))
    environment = {n: v for n, v in os.environ.items() if not n.startswith("SLURMREST_")}
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(directory / "world"), str(manifest), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
        env=environment,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        told = process.stderr.read().decode()
    return process.wait(), told


@pytest.mark.parametrize("output", ["table", "json"])
def test_run_ends_with_the_pods_code(tmp_path: Path, output: str) -> None:
    code, told = with_a_closed_pipe(tmp_path, "run", str(tmp_path / "pod.json"), "-o", output)
    assert code == 3, told
    assert "Traceback" not in told
    assert "BrokenPipe" not in told
    assert "Running: Slurm job 100" in told  # it was followed on


@pytest.mark.parametrize("words", [["logs", "train"], ["status", "-o", "json"]])
def test_other_commands_end_quietly(tmp_path: Path, words: list[str]) -> None:
    assert with_a_closed_pipe(tmp_path, *words) == (141, "")


@pytest.mark.parametrize("names", [("main",), ("left", "right")])
def test_a_line_without_end_is_not_kept(
    shell: Shell, names: tuple[str, ...], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    shell("run", shell.file(pod(*(container(name) for name in names))), "--detach")
    record = shell.record()
    path = shell.world.shared / record.directory / "logs" / names[0] / "0.log"
    path.parent.mkdir(parents=True)
    piece = b"2023-11-14T22:13:20.000000000Z stdout P " + b"x" * 16384 + b"\n"
    path.write_bytes(piece * 41)
    if os.geteuid() == 0:
        os.chown(path, shell.world.uid, shell.world.uid)
    Streams(shell.world.deps, record, to_stderr=False).finish()
    out = capfdbinary.readouterr().out
    if len(names) == 1:
        assert out == b"x" * 16384 * 41 + b"\n"
    else:
        lines = out.splitlines()
        assert len(lines) > 5
        assert all(line.startswith(b"[left]  ") for line in lines)
        assert sum(line.count(b"x") for line in lines) == 16384 * 41
