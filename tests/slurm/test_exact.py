"""What a container is given, byte for byte, as a real job in the lab's Slurm."""

from __future__ import annotations

import json

import pytest

from slurmrest_adapter.domain.podplan import ContainerPlan
from tests.slurm.test_runner import Site, shared_site, site

pytestmark = pytest.mark.slurm
__all__ = ["shared_site", "site"]

TELL = "import json,os,sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))"


def test_every_variable_and_nothing_else(site: Site) -> None:
    env = (
        ("with.dot", "1"), ("with-dash", "2"), ("1st", "3"), ("%s {x}", "4"), ("crlf", "a\r\nb\r\n"),
        ("UID", "5"), ("HOME", "/a:b,c"), ("LD_LIBRARY_PATH", "/x"), ("PROMPT_COMMAND", "6"), ("key", "7"),
        ("APPTAINER_NAME", "8"), ("PATH", "/usr/local/bin:/usr/bin"),
    )  # fmt: skip
    look = ContainerPlan("main", site.image("python:3"), command=("python3", "-c", TELL), env=env)
    pod = site.pod(look, mode="sandbox")
    assert pod.run() == 0, pod.runner_log() + str(pod.record())
    _, environ, _ = json.loads(pod.output("main"))
    assert {name: environ[name] for name, _ in env} == dict(env)
    assert not [name for name in environ if name.startswith(("SINGULARITY", "SLURM")) or name == "PS1"]
    assert [name for name in environ if name.startswith("APPTAINER")] == ["APPTAINER_NAME"]
