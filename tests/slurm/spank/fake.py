"""The plugin in processes of tests/fakes/spank/slurm.c: what real Slurm cannot be made to do on demand."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from tests.labs import ROOT
from tests.slurm.spank.conftest import SOURCES

FAKES = ROOT / "tests/fakes/spank"
STRICT = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g"]
MEMCHECK = [
    *("valgrind", "-q", "--leak-check=full", "--show-leak-kinds=definite,indirect,possible"),
    *("--errors-for-leak-kinds=definite,indirect,possible", "--track-fds=yes", "--error-exitcode=99"),
]
# One process' life, by context.
STEPD = ("init", "init_post_opt", "task_post_fork", "task_exit", "exit")


@dataclass
class Done:
    """What a process said."""

    code: int
    log: list[str]
    calls: dict[str, str]
    err: str


@dataclass
class FakeSlurm:
    """Starts processes with the plugin loaded.

    Attributes:
        program: the compiled tests/fakes/spank/slurm.c.
        plugin: what it loads.
        arguments: of the line in plugstack.conf.
        prefix: a program to run it under, such as valgrind.
    """

    program: Path
    plugin: Path
    arguments: dict[str, str]
    prefix: list[str] = field(default_factory=list)

    def lines(self, context: str, *more: str, **changes: str | None) -> list[str]:
        """A script's beginning: context, arguments, and a job on the node n1."""
        arguments = self.arguments | changes
        return [
            f"context {context}",
            "clear args",
            *(f"arg {key}={quote(value, safe='')}" for key, value in arguments.items() if value is not None),
            "process SLURMD_NODENAME=n1",
            *("item job 12", "item uid 2001", "item step 4294967291"),
            *("item tasks 1", "item task 0", "item status 0", "item pid self"),
            *("env SLURM_JOB_GPUS=0,2", "process SLURM_JOB_GPUS=0,2"),
            *more,
        ]

    def run(self, lines: list[str]) -> Done:
        """Run a script to its end."""
        done = subprocess.run(
            [*self.prefix, str(self.program), str(self.plugin)],
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            timeout=120,
        )
        said = [line.split(" ", 2) for line in done.stdout.splitlines()]
        return Done(
            done.returncode,
            [" ".join(words[1:]) for words in said if words[0] == "log"],
            {words[1]: words[2] for words in said if words[0] == "call"},
            done.stderr,
        )

    def stepd(self, *more: str, **changes: str | None) -> Done:
        """A batch step of one task."""
        return self.run([*self.lines("remote", *more, **changes), *(f"call {name}" for name in STEPD)])

    def script(self, name: str, *more: str, **changes: str | None) -> Done:
        """A job_prolog or job_epilog."""
        return self.run([*self.lines("job_script", *more, **changes), f"call {name}"])


def compile_fake(compiler: str, include: Path, build: Path) -> Path:
    """Compile the fake Slurm."""
    program = build / "slurm"
    command = [compiler, *STRICT, "-isystem", str(include), "-rdynamic", "-o", str(program)]
    subprocess.run([*command, str(FAKES / "slurm.c"), "-ldl"], check=True)
    return program


def compile_fuzzer(compiler: str, include: Path, build: Path) -> Path:
    """Compile the fuzzer with the sanitizers."""
    program = build / "fuzz"
    sanitizers = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    names = ("config", "endpoint", "event", "options", "sha256", "text", "usage")
    parts = [FAKES / "fuzz.c", *(SOURCES / f"{name}.c" for name in names)]
    command = [compiler, *STRICT, *sanitizers, "-isystem", str(include), "-I", str(SOURCES)]
    subprocess.run([*command, "-o", str(program), *map(str, parts)], check=True)
    return program
