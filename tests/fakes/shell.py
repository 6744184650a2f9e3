"""The command line on a small Slurm in memory and a made-up clock; store and files are real."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from slurmrest_adapter.cli.main import cli
from slurmrest_adapter.store.base import PodRecord
from tests.fakes.pods import UID
from tests.fakes.world import World, container_record

GOLDEN = Path(__file__).parents[1] / "unit" / "cli" / "golden"


class Shell:
    """Calls the command line and moves the world beneath it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.world = World(directory)
        (self.world.state / "identity.key").write_bytes(self.world.deps.key)
        gid = 1001 if os.geteuid() == 0 else os.getegid()
        line = {
            "namespace": "physics",
            "user": "alice",
            "account": "physics",
            "uid": self.world.uid,
            "gid": gid,
        }
        self.config = directory / "config.yaml"
        self.settings: dict[str, Any] = {
            "cluster": "lab",
            "state_dir": str(self.world.state),
            "shared_dir": str(self.world.shared),
            "identity": {"min_uid": 0, "map": [line, {**line, "namespace": "ai"}]},
        }

    def __call__(self, *words: str, stdin: str | None = None) -> Result:
        self.config.write_text(json.dumps(self.settings))
        return CliRunner().invoke(cli, ["--config", str(self.config), *words], input=stdin)

    def file(self, *documents: Any, text: str | None = None) -> str:
        """A manifest file; its path."""
        path = self.directory / "pod.yaml"
        path.write_text(yaml.safe_dump_all(documents) if text is None else text, encoding="utf-8")
        return str(path)

    def record(self, uid: str = UID) -> PodRecord:
        record = self.world.deps.store.get(uid)
        assert record is not None
        return record

    def log(self, name: str, *lines: str, uid: str = UID, run: int = 0) -> None:
        """What a run of a container has logged."""
        path = self.world.shared / self.record(uid).directory / "logs" / name / f"{run}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        # It is another thread that reads it, and it must not find a file that is root's for a moment.
        building = path.with_suffix(".new")
        building.write_text(
            "".join(f"2023-11-14T22:13:2{i}.000000000Z stdout F {x}\n" for i, x in enumerate(lines))
        )
        if os.geteuid() == 0:
            os.chown(building, self.world.uid, self.world.uid)
        building.replace(path)

    def life(self, code: int = 0, word: str | None = None, start: float = 2, seconds: float = 60) -> None:
        """Plan how the next job fares: it starts, works, ends."""
        world = self.world

        def begin() -> None:
            world.slurm.start(100)
            world.runner_writes(self.record(), 1, None, container_record(state="running"))

        def end() -> None:
            self.log("main", "hello", "world")
            over = {"exit_code": code, "reason": None, "message": ""}
            done = {**container_record(code=code), "finished_at": world.clock(), "gpus": ["0", "1"]}
            done |= {"cpu_s": 41.25, "memory_bytes": 9 << 20, "memory_peak_bytes": (12 << 20) + 1}
            world.runner_writes(self.record(), 2, over, done)
            world.slurm.end(100, word or ("FAILED" if code else "COMPLETED"), code)

        world.clock.after(start, begin)
        world.clock.after(start + seconds, end)


def golden(name: str, document: Any) -> None:
    """Compare with a golden file; REGENERATE_GOLDEN=1 writes it."""
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    path = GOLDEN / f"{name}.json"
    if os.environ.get("REGENERATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
