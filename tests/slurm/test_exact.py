"""What a container is given, byte for byte, as a real job in the lab's Slurm."""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from slurmrest_adapter.domain.podplan import ContainerPlan, DnsPlan, FilePlan, MountPlan, VolumePlan
from slurmrest_adapter.podrunner import first
from slurmrest_adapter.podrunner.container import _TAKEN
from tests.slurm.test_runner import ALICE, SIF, Site, lab, shared_site, shell, site, wait_for

pytestmark = pytest.mark.slurm
__all__ = ["shared_site", "site"]

TELL = """
import base64, json, os, sys
text = lambda data: data.decode("latin-1")
files = {}
for folder, _, names in os.walk(b"/files"):
    for name in names:
        path = os.path.join(folder, name)
        mode = os.stat(path).st_mode & 0o777
        data = open(path, "rb").read() if mode & 0o400 else b""
        files[text(os.path.relpath(path, b"/files"))] = [mode, text(data)]
argv = [text(word) for word in open("/proc/self/cmdline", "rb").read().split(b"\\0")[:-1]]
env = {text(name): text(value) for name, value in os.environb.items()}
print(json.dumps([argv, env, os.getcwd(), files]))
"""
SCRIPT = f"#!/usr/bin/python3\n{TELL}"
# The image's own and the GPUs'; nothing of the node's, of Slurm's or of Apptainer's.
KNOWN = {"PATH", "HOME", "LAB_IMAGE", "GPG_KEY", "LANG", "PYTHON_VERSION", "PYTHON_SHA256"}
KNOWN |= {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"}
# With these the program that tells could not be found, or would be another.
DECISIVE = ("PATH", "PYTHON", "LD_", "GCONV", "GLIBC", "MALLOC")


def latin(text: str) -> str:
    return text.encode().decode("latin-1")


def test_every_variable_and_nothing_else(site: Site) -> None:
    env = (
        ("with.dot", "1"), ("with-dash", "2"), ("1st", "3"), ("%s {x}", "4"), ("crlf", "a\r\nb\r\n"),
        ("UID", "5"), ("HOME", "/a:b,c"), ("LD_LIBRARY_PATH", "/x"), ("PROMPT_COMMAND", "6"), ("key", "7"),
        ("APPTAINER_NAME", "8"), ("PATH", "/usr/local/bin:/usr/bin"),
    )  # fmt: skip
    look = ContainerPlan("main", site.image("python:3"), command=("python3", "-c", TELL), env=env)
    pod = site.pod(look, mode="sandbox")
    assert pod.run() == 0, pod.runner_log() + str(pod.record())
    argv, environ, cwd, _ = json.loads(pod.output("main"))
    assert {name: environ.pop(name) for name, _ in env} == dict(env)
    assert set(environ) <= KNOWN
    assert (argv[0], cwd) == ("python3", "/")


characters = st.characters(codec="utf-8", exclude_characters="\0")
values = st.one_of(
    st.text(characters, max_size=200),
    st.sampled_from(
        ["\r\n", "$(id)", "`id`", "'", '"', "\\", "$$", "${HOME}", "\n", " ", "-x", "--", "\x01"]
    ),
    st.lists(st.sampled_from(["\r", "\n", "\\", "'", '"', "$", "`", "=", " ", "é", "\x80", "\x81"])).map(
        "".join
    ),
)
tame = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
wild = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters="="), min_size=1)
names = st.one_of(tame, wild).filter(lambda name: not name.startswith(DECISIVE))
modes = st.integers(0, 0o777)
paths = st.text(st.characters(codec="utf-8", exclude_characters="\0/\r"), min_size=1, max_size=40).filter(
    lambda path: path not in (".", "..") and len(path.encode()) <= 200
)


# How a program can be named: by its path, from the working directory, or for PATH to find.
WAYS = ("absolute", "relative", "bare")


@st.composite
def wanted(draw: st.DrawFn) -> dict[str, Any]:
    """One container: its program, arguments, variables, files with modes."""
    return {
        "program": draw(paths),
        "way": draw(st.sampled_from(WAYS)),
        "env": draw(st.dictionaries(draw(st.sampled_from([tame, names])), values, max_size=8)),
        "args": draw(st.lists(values, max_size=8)),
        "files": draw(st.dictionaries(paths, st.tuples(modes, st.binary(max_size=200)), max_size=4)),
    }


def command_of(case: dict[str, Any]) -> str:
    prefix = {"absolute": "/programs/", "relative": "./", "bare": ""}[case["way"]]
    return f"{prefix}{case['program']}"


def refused_in_plain(name: str, value: str) -> bool:
    """What docs/configuration.md says that Apptainer cannot carry: no shell identifiers, its own names…"""
    return (
        not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name)
        or name in ("LD_LIBRARY_PATH", "HOME")
        or name in _TAKEN
        or any(mark in value for mark in ("\r\n", "\x80", "\x81"))
    )


def hostile(site: Site, mode: str, cases: list[dict[str, Any]]) -> None:
    """One pod, a container for each case: exact, or in plain mode refused by name."""
    containers, volumes = [], []
    for number, case in enumerate(cases):
        files = tuple(
            FilePlan(path, mode_, base64.b64encode(data).decode())
            for path, (mode_, data) in case["files"].items()
        )
        # A script is started with its own path among the arguments, so they show that too.
        program = FilePlan(case["program"], 0o755, base64.b64encode(SCRIPT.encode()).decode())
        volumes += [VolumePlan(f"v{number}", files), VolumePlan(f"p{number}", (program,))]
        env = {name: value for name, value in case["env"].items() if not name.startswith(DECISIVE)}
        case["env"] = env
        containers.append(
            ContainerPlan(
                f"c{number}", site.image("python:3"), command=(command_of(case), *case["args"]),
                env=(*env.items(), ("PATH", "/programs:/usr/bin:/bin")), working_dir="/programs",
                mounts=(MountPlan(f"v{number}", "/files", True), MountPlan(f"p{number}", "/programs", True)),
            )
        )  # fmt: skip
    pod = site.pod(*containers, volumes=tuple(volumes), mode=mode)
    pod.run()
    for number, case in enumerate(cases):
        record = pod.record(number)
        if mode == "plain" and record["reason"] == "ContainerCannotRun":
            named = [name for name, value in case["env"].items() if f"env {name!r}" in record["message"]]
            named += ["HOME"] if "HOME" in case["env"] and "env HOME:" in record["message"] else []
            assert named, (case, record)
            assert all(refused_in_plain(name, case["env"][name]) for name in named), (case, record)
            continue
        assert record["exit_code"] == 0, (record["message"], case, pod.output(f"c{number}", "stderr"))
        argv, environ, cwd, files = json.loads(pod.output(f"c{number}"))
        # What the kernel makes of a script's name: where it was found, for one without a slash; and
        # Apptainer finds a relative one too before it starts it.
        found = case["way"] == "bare" or mode == "plain"
        path = f"/programs/{case['program']}" if found else command_of(case)
        assert argv[1:] == [latin(word) for word in (path, *case["args"])]
        assert cwd == "/programs"
        given_ = {latin(name): latin(value) for name, value in case["env"].items()}
        assert {name: environ.get(name) for name in given_} == given_
        assert files == {
            latin(path): [mode_, data.decode("latin-1") if mode_ & 0o400 else ""]
            for path, (mode_, data) in case["files"].items()
        }
        if mode == "sandbox":
            assert set(environ) - set(given_) <= KNOWN


def few(examples: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=examples, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
@few(4)
@given(st.lists(wanted(), min_size=6, max_size=6))
def test_hostile(site: Site, mode: str, cases: list[dict[str, Any]]) -> None:
    """Exact in a sandbox; exact or refused by name where Apptainer starts the program."""
    hostile(site, mode, cases)


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["sandbox", "plain"])
@few(60)
@given(st.lists(wanted(), min_size=8, max_size=8))
def test_hostile_for_long(site: Site, mode: str, cases: list[dict[str, Any]]) -> None:
    hostile(site, mode, cases)


DASHES = ("-x", "--", "--help")
WORST = ("a b", "a\nb", "$(id)", "`id`", "'\"", "*", "~", "größer ☃", "a:b,c\\", "=", "#!")


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_the_worst_programs(site: Site, mode: str) -> None:
    named = [(name, way) for name in DASHES for way in WAYS]
    named += [(name, WAYS[at % len(WAYS)]) for at, name in enumerate(WORST)]
    args = ["", "", "-x", "--", "\n", "$(id)"]
    cases = [{"program": name, "way": way, "env": {}, "args": args, "files": {}} for name, way in named]
    hostile(site, mode, cases)


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_an_empty_word_is_no_program(site: Site, mode: str) -> None:
    pod = site.pod(ContainerPlan("main", SIF, command=("", "x")), mode=mode)
    assert pod.run() == 127, pod.runner_log()
    assert (pod.record()["reason"], "''" in pod.record()["message"]) == ("ContainerCannotRun", True)


def test_processes_have_no_privileges_and_the_usual_surroundings(site: Site) -> None:
    text = """
    grep -E '^(NoNewPrivs|CapBnd|CapEff|CapPrm|CapAmb|CapInh|SigIgn|SigBlk):' /proc/self/status
    umask; readlink /proc/self/fd/0; ls /proc/self/fd | wc -l; id -un; ps -o pid,comm | grep init
    echo inside > /etc/new; cat /etc/new; rm /etc/new; rm -r /usr/share 2>/dev/null; ls -d /usr/bin
    """
    pod = site.pod(shell(text), mode="sandbox")
    assert pod.run() == 0, pod.runner_log()
    lines = pod.output("main").split("\n")
    facts = dict(line.split(":\t") for line in lines[:8])
    assert {name: int(value, 16) for name, value in facts.items()} == {
        "NoNewPrivs": 1, "CapBnd": 0, "CapEff": 0, "CapPrm": 0, "CapAmb": 0, "CapInh": 0,
        "SigIgn": 0, "SigBlk": 0,
    }  # fmt: skip
    assert lines[8:12] == ["0022", "/dev/null", "4", "alice"]  # ls has its own open
    assert lines[12].split() == ["1", "init"]
    assert lines[13:15] == ["inside", "/usr/bin"]


def test_a_signal_that_ends_the_program_is_told(site: Site) -> None:
    pod = site.pod(
        shell("kill -TERM $$", "term"),
        shell("kill -SEGV $$", "segv"),
        shell("exit 143", "code"),
        mode="sandbox",
    )
    pod.run()
    seen = [(pod.record(index)["exit_code"], pod.record(index)["signal"]) for index in range(3)]
    assert seen == [(143, 15), (139, 11), (143, None)]


def test_a_root_that_is_written_and_nothing_left(site: Site) -> None:
    write = "echo x > /x && mkdir -p /deep/er && rm /etc/passwd && chmod 0 /deep && ls /x /etc/passwd /y"
    home = f"/var/tmp/slurmrest-adapter-{ALICE}/pods"
    before = set(lab("exec", "ls", home).split())
    pod = site.pod(
        shell(write, "written"),
        shell("sleep 1; ls /x; ls /etc/passwd", "fresh"),
        mode="sandbox",
    )
    pod.run()
    assert pod.record(0)["exit_code"] == 1  # ls, of what is gone
    assert pod.output("written") == "/x\n"
    assert pod.output("fresh") == "/etc/passwd\n"  # each container has a layer of its own
    wait_for("its directory to be gone", lambda: set(lab("exec", "ls", home).split()) <= before)


def test_a_read_only_root(site: Site) -> None:
    pod = site.pod(
        shell("echo x > /x", "denied", read_only_root=True),
        shell("ls /x; ls /etc/passwd; pwd", "fresh", read_only_root=True, working_dir="/not/there"),
        mode="sandbox",
    )
    pod.run()
    assert "Read-only file system" in pod.output("denied", "stderr")
    assert pod.output("fresh") == "/etc/passwd\n/not/there\n"


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_files_of_names(site: Site, mode: str) -> None:
    look = "hostname; cat /etc/hostname; tail -2 /etc/hosts; cat /etc/resolv.conf"
    own = VolumePlan("own", (FilePlan("hosts", 0o644, base64.b64encode(b"mine\n").decode()),))
    pod = site.pod(
        shell(look),
        shell("cat /etc/hosts", "own", mounts=(MountPlan("own", "/etc/hosts", True, "hosts"),)),
        host_aliases=(("10.1.2.3", ("db", "db.example")),),
        dns=DnsPlan(False, ("10.0.0.53",), ("a.example",), ("ndots:5",)),
        volumes=(own,),
        mode=mode,
    )
    assert pod.run() == 0, pod.runner_log() + json.dumps(pod.status())
    lines = pod.output("main").splitlines()
    assert lines[:2] == ["pod-host"] * 2
    assert lines[2].split()[1] == "pod-host"
    assert lines[3].split() == ["10.1.2.3", "db", "db.example"]
    assert lines[4:] == ["nameserver 10.0.0.53", "search a.example", "options ndots:5"]
    assert pod.output("own") == "mine\n"


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_directories_of_the_node(site: Site, mode: str) -> None:
    name = f"node-{secrets.token_hex(4)}"
    lab("exec", "--as", "alice", "mkdir", f"/var/tmp/{name}")
    try:
        path = f"/var/tmp/{name}"
        kinds = (("made", f"{path}/new/dir", "DirectoryOrCreate"), ("file", f"{path}/file", "FileOrCreate"))
        mounts = (
            MountPlan("made", "/m/made"),
            MountPlan("file", "/m/file"),
            MountPlan("made", "/ro", True),
        )
        pod = site.pod(
            shell("echo a > /m/made/a; echo b >> /m/file; echo c > /ro/c", mounts=mounts),
            volumes=tuple(VolumePlan(volume, host_path=at, host_type=kind) for volume, at, kind in kinds),
            mode=mode,
        )  # fmt: skip
        assert pod.run() == 1, pod.runner_log()
        assert "Read-only" in pod.output("main", "stderr")
        assert lab("exec", "cat", f"{path}/new/dir/a", f"{path}/file") == "a\nb\n"
        wrong = site.pod(
            shell("true", mounts=(MountPlan("v", "/m"),)),
            volumes=(VolumePlan("v", host_path=f"{path}/file", host_type="Directory"),),
            mode=mode,
        )
        assert wrong.run() == 125
        assert "is no Directory" in wrong.status()["end"]["message"]
    finally:
        lab("exec", "rm", "-rf", f"/var/tmp/{name}")


@pytest.fixture
def tree(site: Site) -> Iterator[Path]:
    """A directory that every user of the lab sees, and that is no image yet."""
    folder = site.shared / f"image-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o755)
    folder.chmod(0o777)
    yield folder
    lab("exec", "sh", "-c", f"chmod -R u+rwx /shared/{folder.name}; rm -rf /shared/{folder.name}")


def test_an_image_without_a_shell(site: Site, tree: Path) -> None:
    program = first.program("x86_64")
    assert program is not None
    (tree / "only").write_bytes(program)
    (tree / "only").chmod(0o755)
    pod = site.pod(
        ContainerPlan("main", f"/shared/{tree.name}", command=("/only",)),
        ContainerPlan("no", f"/shared/{tree.name}", command=("sh",)),
        mode="sandbox",
    )
    assert pod.run() == 127, pod.runner_log()
    assert (pod.record()["reason"], pod.record()["exit_code"]) == ("Completed", 0)


def test_variables_of_an_image_that_was_made_for_apptainer(site: Site, tree: Path) -> None:
    at = f"/shared/{tree.name}/root"
    lab("exec", "--as", "alice", "apptainer", "-q", "build", "--sandbox", at, SIF)
    line = """export FROM_SCRIPT="a  b" OTHER=1"""
    lab("exec", "--as", "alice", "sh", "-c", f"echo '{line}' > {at}/.singularity.d/env/91-own.sh")
    env = (("OTHER", "2"), ("a.b", "3"))
    pod = site.pod(ContainerPlan("main", at, command=("env",), env=env), mode="sandbox")
    assert pod.run() == 0, pod.runner_log() + str(pod.record())
    found = pod.output("main").splitlines()
    assert {"FROM_SCRIPT=a  b", "OTHER=2", "a.b=3"} <= set(found)
    assert not [line for line in found if line.startswith(("APPTAINER", "SINGULARITY"))]
