"""What the layers on real daemons share: the labs and the command line."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
SLURM_LAB = ROOT / "scripts" / "slurm-lab"
SHELL = "lab/busybox:1"
PYTHON = "lab/python:3"


@dataclass(frozen=True)
class Lab:
    """The running lab: what `scripts/slurm-lab env` prints, and commands inside it."""

    env: dict[str, str]

    @property
    def registry(self) -> str:
        return self.env["LAB_REGISTRY"]

    @property
    def _name(self) -> tuple[str, str]:
        return ("--name", self.env["LAB_NAME"])

    def exec(self, *command: str, user: str | None = None, code: int | None = 0) -> str:
        """Run a command inside and return its standard output."""
        who = ["--as", user] if user else []
        done = subprocess.run(
            [SLURM_LAB, "exec", *self._name, *who, *command], capture_output=True, text=True
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def daemon(self, action: str, name: str) -> None:
        """Stop or start one of its daemons."""
        subprocess.run([SLURM_LAB, action, *self._name, name], check=True, capture_output=True)

    def token(self, user: str) -> str:
        """A token for slurmrestd."""
        done = subprocess.run(
            [SLURM_LAB, "token", *self._name, user], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def config(self) -> dict[str, Any]:
        """The configuration that the lab wrote."""
        loaded: dict[str, Any] = yaml.safe_load(Path(self.env["SLURMREST_CONFIG"]).read_text())
        return loaded


@dataclass
class Done:
    """A command that ended."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """Standard output as the one JSON document it must be."""
        document: dict[str, Any] = json.loads(self.out)
        return document


@dataclass
class Cli:
    """The command line with a state directory of its own."""

    lab: Lab
    directory: Path
    overrides: dict[str, Any] = field(default_factory=dict)
    prefix: list[str] = field(default_factory=list)

    def configure(self, **sections: Any) -> Cli:
        """The same command line under a changed configuration (sections are merged one level deep)."""
        return Cli(self.lab, self.directory, {**self.overrides, **sections}, self.prefix)

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        config = self.lab.config()
        config["state_dir"] = str(self.directory / "state")
        for section, values in self.overrides.items():
            merged = isinstance(values, dict) and isinstance(config.get(section), dict)
            config[section] = {**config[section], **values} if merged else values
        path = self.directory / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        program = str(Path(sys.executable).parent / "slurmrest-adapter")
        return [*self.prefix, program, "--config", str(path), *arguments]

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command and leave it running."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURMREST_")}
        return subprocess.Popen(
            self._command(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )

    def __call__(self, *arguments: str, stdin: str = "") -> Done:
        """Run a command to its end."""
        process = self.start(*arguments)
        out, err = process.communicate(stdin.encode(), timeout=300)
        # Containers may print anything; surrogateescape gives the same bytes back.
        return Done(process.returncode, *(data.decode("utf-8", "surrogateescape") for data in (out, err)))

    def run(self, pod: dict[str, Any], *more: dict[str, Any], options: tuple[str, ...] = ()) -> Done:
        """`run --output json` of a pod and the objects it refers to."""
        text = yaml.safe_dump_all([pod, *more], allow_unicode=True)
        return self("run", "--output", "json", *options, "-", stdin=text)

    def detach(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Submit a pod; its document."""
        done = self.run(pod, options=("--detach",))
        assert done.code == 0, done.err
        return done.json()

    def status(self, word: Any) -> dict[str, Any]:
        """A pod's document now."""
        done = self("status", str(word), "--output", "json")
        assert done.code == 0, done.err
        return done.json()

    def until(
        self, word: Any, wanted: Callable[[dict[str, Any]], bool], seconds: float = 60
    ) -> dict[str, Any]:
        """Ask for a pod's status until it is as wanted."""
        deadline = time.monotonic() + seconds
        while not wanted(document := self.status(word)):
            assert time.monotonic() < deadline, document
            time.sleep(0.2)
        return document


def slurm_lab() -> Lab:
    """The default Slurm lab, up; LAB_SLURM chooses its release."""
    subprocess.run([SLURM_LAB, "up"], check=True, capture_output=True)
    printed = subprocess.run([SLURM_LAB, "env"], check=True, capture_output=True, text=True).stdout
    return Lab(dict(word.split("=", 1) for word in shlex.split(printed)))


def container(document: dict[str, Any], name: str) -> dict[str, Any]:
    """One container of a pod's document."""
    both = [*document["initContainers"], *document["containers"]]
    return next(one for one in both if one["name"] == name)
