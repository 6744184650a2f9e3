"""``slurmrest-adapter spank``: what it prints, and what it does with a spool and a listener."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from slurmrest_adapter.cli.main import cli
from slurmrest_adapter.server.events import EventListener
from slurmrest_adapter.server.listen import bind
from slurmrest_adapter.sources.spankpost import path_of
from slurmrest_adapter.store.events import SqliteEvents
from slurmrest_adapter.store.sqlite import SqliteStore
from slurmrest_adapter.tracking.driver.events import Intake
from tests.fakes.pods import pod
from tests.fakes.shell import Shell, golden
from tests.fakes.spank import KEY, body, event, posted

PATH = "/spank/v1/events"


@pytest.fixture
def plugged(shell: Shell) -> Iterator[Shell]:
    """A site with the plugin, where nobody listens."""
    key = shell.directory / "spank.key"
    key.write_bytes(KEY + b"\n")
    key.chmod(0o600)
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    shell.settings["spank"] = {
        "enabled": True,
        "events": f"http://127.0.0.1:{port}{PATH}",
        "key_file": str(key),
    }
    with capture_logs():  # of a listener in this process, which are no command's output
        yield shell


def listener(shell: Shell, key: bytes = KEY, cluster: str = "lab") -> EventListener:
    address = shell.settings["spank"]["events"]
    events = SqliteEvents(shell.world.state / "events.sqlite3")
    pods = SqliteStore(shell.world.state / "pods.sqlite3")
    intake = Intake(events, pods, key, cluster, lambda uid, ended: None)
    made = EventListener(bind(address, (), "spank.events"), path_of(address), intake)
    made.start()
    return made


@pytest.fixture
def listening(plugged: Shell) -> Iterator[Shell]:
    """The same with the listener of a `serve`."""
    made = listener(plugged)
    yield plugged
    made.stop()


def fill(directory: Path, count: int) -> list[str]:
    """So many events of now, as the plugin spools them; their names."""
    directory.mkdir(exist_ok=True)
    names = []
    for number in range(1, count + 1):
        text, signature = posted(seq=number, time=time.time())
        names.append(f"{1_700_000_000_000_000_000 + number:020d}-0123456789abcdef-{number:06d}.event")
        (directory / names[-1]).write_bytes(signature.encode() + b"\n" + text)
    return names


class TestSourceAndHint:
    def test_source(self) -> None:
        done = CliRunner().invoke(cli, ["spank", "source"])
        assert done.exit_code == 0
        assert (Path(done.stdout.strip()) / "Makefile").is_file()

    def test_hint_has_the_sites_own_values(self, plugged: Shell) -> None:
        done = plugged("spank", "hint")
        assert done.exit_code == 0
        given = plugged.settings["spank"]
        (line,) = re.findall(r"^optional .*$", done.stdout, re.MULTILINE)
        assert f" cluster=lab events={given['events']} key_file=/etc/slurm/sra-spank.key spool=/var" in line
        assert f"\n  key_file: {given['key_file']}\n" in done.stdout
        assert KEY.decode() not in done.output

    def test_hint_before_anything_is_configured(self, shell: Shell) -> None:
        done = shell("spank", "hint")
        assert done.exit_code == 0
        assert "events=http://ADDRESS-OF-THIS-HOST:8322/spank/v1/events" in done.stdout


class TestServe:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"events": None}, "spank.events: is needed with spank.enabled"),
            ({"key_file": None}, "spank.key_file: is needed with spank.enabled"),
            ({"key_file": "/nowhere/key"}, "spank.key_file: /nowhere/key cannot be read: No such file"),
            ({"events": "ftp://x"}, "spank.events: the address of events is"),
            ({"events": "http://192.0.2.1:9/x"}, "spank.events: cannot listen on http://192.0.2.1:9/x"),
        ],
    )
    def test_what_events_need_is_named_at_the_start(
        self, plugged: Shell, changes: dict[str, Any], words: str
    ) -> None:
        plugged.settings["spank"] |= changes
        plugged.settings["listen"] = {"plugin": f"unix://{plugged.directory}/plugin.sock"}
        done = plugged("serve")
        assert done.exit_code == 125
        assert words in done.stderr
        assert not (plugged.directory / "plugin.sock").exists()

    def test_a_key_that_others_may_read(self, plugged: Shell) -> None:
        Path(plugged.settings["spank"]["key_file"]).chmod(0o644)
        plugged.settings["listen"] = {"plugin": f"unix://{plugged.directory}/plugin.sock"}
        done = plugged("serve")
        assert done.exit_code == 125
        assert "has mode 0644, so others may use it: chmod 600" in done.stderr


class TestCheck:
    def test_all_is_well(self, listening: Shell) -> None:
        events = SqliteEvents(listening.world.state / "events.sqlite3", clock=lambda: 0)
        events.add([], [event()], {})
        done = listening("spank", "check", "-o", "json")
        document = json.loads(done.stdout)
        assert (done.exit_code, document["verdict"]) == (0, "ok")
        by_subject = {check["subject"]: check for check in document["checks"]}
        assert by_subject["listener"]["seen"].endswith("took a signed test event and counted it")
        assert set(by_subject) >= {"key", "listener", "events", "n1"}
        assert document["counters"]["test"] == 1
        address = listening.settings["spank"]["events"]
        for check in document["checks"]:  # what differs from run to run
            check["seen"] = check["seen"].replace(address, "http://127.0.0.1:8322" + PATH)
            check["seen"] = check["seen"].replace(str(listening.directory), "/etc/slurm")
            check["seen"] = re.sub(r"\d+ days ago", "12 s ago", check["seen"])
        document["checks"] = [
            c for c in document["checks"] if c["subject"] in ("key", "listener", "events", "n1")
        ]
        golden("spank-check", document)

    def test_for_people(self, listening: Shell) -> None:
        done = listening("spank", "check")
        assert done.exit_code == 0
        assert "counted so far: 1 test" in done.stdout

    def test_nobody_listens(self, plugged: Shell) -> None:
        done = plugged("spank", "check", "-o", "json")
        assert done.exit_code == 1
        (check,) = (c for c in json.loads(done.stdout)["checks"] if c["verdict"] == "fail")
        assert "Connection refused" in check["seen"]
        assert check["advice"] == "start slurmrest-adapter serve"

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"key": b"x" * 32}, "refuses events signed with spank.key_file"),
            ({"cluster": "other"}, "answered 204 and counted nothing here"),
        ],
    )
    def test_serve_has_another_configuration(
        self, plugged: Shell, changes: dict[str, Any], words: str
    ) -> None:
        made = listener(plugged, **changes)
        try:
            done = plugged("spank", "check")
        finally:
            made.stop()
        assert done.exit_code == 1
        assert words in " ".join(done.stdout.split())

    def test_another_server_is_there(self, plugged: Shell) -> None:
        port = int(plugged.settings["spank"]["events"].split(":")[2].split("/")[0])
        with closing(socket.create_server(("127.0.0.1", port))) as server:

            def answer() -> None:
                client, _ = server.accept()
                client.recv(1000)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                client.close()

            threading.Thread(target=answer, daemon=True).start()
            done = plugged("spank", "check")
        assert done.exit_code == 1
        assert "answers 200" in " ".join(done.stdout.split())

    def test_a_site_without_the_plugin(self, shell: Shell) -> None:
        done = shell("spank", "check", "-o", "json")
        document = json.loads(done.stdout)
        assert done.exit_code == 0
        assert [c["verdict"] for c in document["checks"]] == ["skip"]

    @pytest.mark.parametrize("heard", [False, True])
    def test_jobs_ran_and_no_event_came(self, listening: Shell, heard: bool) -> None:
        listening("run", listening.file(pod()), "--detach")
        listening.world.slurm.start(100)
        listening("status")
        if heard:
            SqliteEvents(listening.world.state / "events.sqlite3").add([(event(), body())], [], {})
        done = listening("spank", "check", "-o", "json")
        (check,) = (c for c in json.loads(done.stdout)["checks"] if c["subject"] == "events")
        assert done.exit_code == 0
        assert check["verdict"] == ("ok" if heard else "warn")
        assert ("no event ever came" in check["seen"]) is not heard

    def test_most_of_what_comes_is_refused(self, listening: Shell) -> None:
        SqliteEvents(listening.world.state / "events.sqlite3").add([], [], {"forged": 50, "taken": 3})
        done = listening("spank", "check", "-o", "json")
        (check,) = (c for c in json.loads(done.stdout)["checks"] if c["subject"] == "forged")
        assert (check["verdict"], "compare key_file" in check["advice"]) == ("warn", True)


class TestDrain:
    def test_all_is_delivered(self, listening: Shell) -> None:
        listening("run", listening.file(pod()), "--detach")
        spool = listening.directory / "spool"
        fill(spool, 20)
        done = listening("spank", "drain", str(spool))
        assert (done.exit_code, done.stdout) == (0, "20 delivered, 0 kept\n")
        assert list(spool.iterdir()) == []
        assert len(SqliteEvents(listening.world.state / "events.sqlite3").of_job(100)) == 20
        assert listening("spank", "drain", str(spool)).stdout == "0 delivered, 0 kept\n"

    def test_no_configuration_is_needed_with_an_address(self, listening: Shell) -> None:
        spool = listening.directory / "spool"
        fill(spool, 2)
        address = listening.settings["spank"]["events"]
        done = CliRunner().invoke(
            cli, ["--config", "/nowhere", "spank", "drain", "--to", address, str(spool)]
        )
        assert (done.exit_code, done.stdout) == (0, "2 delivered, 0 kept\n")

    def test_what_is_not_taken_stays_and_is_named(self, listening: Shell) -> None:
        spool = listening.directory / "spool"
        names = fill(spool, 3)
        (spool / names[1]).write_bytes(b"sha256=00\n" + body())
        (spool / "dropped").write_text("4")
        done = listening("spank", "drain", str(spool), "-o", "json")
        assert done.exit_code == 1
        document = json.loads(done.stdout)
        assert (document["delivered"], document["kept"], document["dropped"]) == (2, 1, 4)
        document["directory"] = "/var/spool/slurmrest-adapter"
        document["address"] = "http://127.0.0.1:8322" + PATH
        golden("spank-drain", document)
        told = listening("spank", "drain", str(spool))
        assert told.stdout == "0 delivered, 1 kept; the plugin had no room for 4\n"
        assert f"kept {names[1]}: answered 403" in told.stderr

    def test_nobody_listens(self, plugged: Shell) -> None:
        spool = plugged.directory / "spool"
        names = fill(spool, 3)
        done = plugged("spank", "drain", str(spool))
        assert (done.exit_code, done.stdout) == (1, "0 delivered, 3 kept\n")
        assert "stopped, 3 not tried: http://127.0.0.1" in done.stderr
        assert sorted(path.name for path in spool.iterdir()) == names

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["drain", "/nowhere"], "/nowhere: No such file or directory"),
            (
                ["drain", "--to", "nowhere", "/tmp"],
                "--to 'nowhere' is neither http://HOST:PORT/PATH nor unix",
            ),
        ],
    )
    def test_what_cannot_begin_exits_125(self, plugged: Shell, words: list[str], told: str) -> None:
        done = plugged("spank", *words)
        assert done.exit_code == 125
        assert told in done.stderr

    def test_no_address(self, shell: Shell) -> None:
        done = shell("spank", "drain", "/tmp")
        assert done.exit_code == 125
        assert "spank.events: is not configured; name the address with --to" in done.stderr


@pytest.mark.parametrize("command", ["source", "hint", "check", "drain"])
def test_help_has_an_example(command: str) -> None:
    done = CliRunner().invoke(cli, ["spank", command, "--help"])
    assert done.exit_code == 0
    assert "Example: " in done.stdout
