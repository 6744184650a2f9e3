"""What people type, what they get, and with which exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from slurmrest_adapter.cli import main as program
from slurmrest_adapter.cli.errors import DEBUG
from slurmrest_adapter.cli.main import cli
from slurmrest_adapter.domain.errors import Rejected, Unauthorized, Unavailable
from tests.fakes.pods import OTHER_UID, UID, container, pod
from tests.fakes.shell import Shell
from tests.fakes.world import container_record


def refused(shell: Shell, *words: str, stdin: str | None = None) -> str:
    """The one line on standard error of a command that fails; nothing was submitted."""
    done = shell(*words, stdin=stdin)
    assert done.exit_code == 125, done.output
    assert done.stdout == ""
    *before, line = done.stderr.splitlines()
    assert all(one.endswith(": submitting") for one in before)
    assert line.startswith("slurmrest-adapter: ")
    return line


class TestRefusedBeforeSlurm:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("kind: [", "malformed YAML at line 1"),
            ("a: b: c", "malformed YAML at line 1, column 5"),
            ("kind: Pod\n\tx: 1", "malformed YAML at line 2"),
            ("\x00", "malformed YAML"),
            ("x: " + "9" * 5000, "malformed YAML"),
            ("[" * 3000, "malformed YAML"),
            ("", "holds no document"),
            ("---\n---\n", "holds no document"),
            ("just words", "kind: document 1 is a string, no Kubernetes object"),
            ("- 1", "kind: document 1 is a list, no Kubernetes object"),
            ("apiVersion: apps/v1\nkind: Deployment", "document 1 is apps/v1 Deployment"),
            ("apiVersion: v1\nkind: Service", "document 1 is v1 Service"),
            ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}", "exactly one Pod, this has 0"),
            ("apiVersion: v1\nkind: Pod\n---\napiVersion: v1\nkind: Pod", "exactly one Pod, this has 2"),
            ("apiVersion: v1\nkind: List\nitems: 5", "items: a list is needed"),
            ("apiVersion: v1\nkind: Pod", "metadata: is required"),
            ("apiVersion: v1\nkind: Pod\nmetadata: [a]", "metadata: a map is needed"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {}", "metadata.name: is required"),
            ("apiVersion: v1\nkind: Pod\nkind: Pod", "line 3, column 1: the key 'kind' is given twice"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: a, name: b}", "the key 'name' is given twice"),
        ],
    )
    def test_a_file_that_is_no_pod(self, shell: Shell, text: str, words: str) -> None:
        assert words in refused(shell, "run", shell.file(text=text))
        assert shell.world.slurm.submits == []

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda p: p["metadata"].update(namespace="nobody"), "metadata.namespace: no line of the site's"),
            (lambda p: p["metadata"].update(name="A B"), "metadata.name: 'A B' is no DNS name"),
            (lambda p: p["metadata"].update(uid=5), "metadata.uid"),
            (
                lambda p: p["spec"]["containers"][0].update(resources={"limits": {"cpu": "two"}}),
                "spec.containers[0].resources.limits.cpu: 'two' is not a quantity",
            ),
            (
                lambda p: p["spec"]["containers"][0].update(resources={"limits": {"nvidia.com/gpu": "0.5"}}),
                "spec.containers[0].resources.limits[nvidia.com/gpu]: '0.5' is no whole number",
            ),
            (
                lambda p: p["spec"]["containers"][0].update(resources={"limits": {"tpu": 1}}),
                "spec.containers[0].resources.limits[tpu]: this site has no GRES",
            ),
            (lambda p: p["spec"]["containers"][0].update(env=[{"name": "A", "value": 5}]), "env[0].value"),
            (
                lambda p: p["spec"].update(contaniers=[]),
                "spec.contaniers: unknown field; did you mean 'containers'",
            ),
            (lambda p: p["spec"].update({"a\nb": 1}), "spec.a b: unknown field"),
            (lambda p: p["spec"].update(hostPID=True), "spec.hostPID"),
            (
                lambda p: p["spec"]["containers"][0].update(
                    env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]
                ),
                "spec.containers[0].env[0].valueFrom.configMapKeyRef",
            ),
        ],
    )
    def test_a_pod_that_cannot_be_carried(
        self, shell: Shell, change: Callable[[Any], None], words: str
    ) -> None:
        raw = pod()
        change(raw)
        assert words in refused(shell, "run", shell.file(raw))
        assert shell.world.slurm.submits == []
        assert shell.world.deps.store.pods(ended=True) == []

    def test_no_such_file(self, shell: Shell) -> None:
        assert "nowhere.yaml: cannot be read" in refused(shell, "run", "nowhere.yaml")
        assert "cannot be read" in refused(shell, "run", str(shell.directory))
        latin = shell.directory / "latin.yaml"
        latin.write_bytes(b"kind: \xe9")
        assert "cannot be read" in refused(shell, "run", str(latin))

    def test_a_bad_configuration(self, shell: Shell) -> None:
        shell.settings["slrm"] = {}
        assert "slrm: unknown key; did you mean slurm?" in refused(shell, "run", shell.file(pod()))
        del shell.settings["slrm"], shell.settings["shared_dir"]
        assert "shared_dir: is needed" in refused(shell, "status")

    def test_a_state_directory_that_cannot_be(self, shell: Shell) -> None:
        (shell.directory / "file").write_text("")
        shell.settings["state_dir"] = str(shell.directory / "file" / "x")
        assert "state_dir" in refused(shell, "status")

    def test_an_identity_key_that_is_none(self, shell: Shell) -> None:
        (shell.world.state / "identity.key").write_bytes(b"short")
        assert "identity.key is shorter than 32 bytes" in refused(shell, "status")

    @pytest.mark.parametrize(
        "error",
        [
            Rejected(2000, "Invalid partition name specified"),
            Unauthorized("the token has expired"),
            Unavailable("http://127.0.0.1:1: connection refused"),
        ],
    )
    def test_slurm_says_no(self, shell: Shell, error: Any) -> None:
        shell.world.slurm.refusal = error
        assert str(error) in refused(shell, "run", shell.file(pod()))
        assert shell.world.slurm.jobs == {}

    def test_an_unreadable_value_is_not_shown(self, shell: Shell) -> None:
        raw = pod(container(env=[{"name": "PASSWORD", "value": ["s3cr3t"]}]))
        done = shell("run", shell.file(raw))
        assert done.exit_code == 125
        assert "s3cr3t" not in done.output


class TestRun:
    def test_to_the_end(self, shell: Shell, gpu_pod: dict[str, Any]) -> None:
        shell.life()
        done = shell("run", shell.file(gpu_pod))
        assert done.exit_code == 0, done.output
        assert "hello\nworld\n" in done.stdout
        assert "physics/train  Succeeded" in done.stdout
        assert "120 GPU-seconds" in done.stdout
        assert "Slurm job 100 as alice" in done.stderr
        assert "Pending: Slurm job 100 is queued: Resources" in done.stderr
        assert "Running: Slurm job 100 is running on n1, GPUs 0,1" in done.stderr

    @pytest.mark.parametrize("code", [1, 3, 126])
    def test_the_pods_own_exit_code(self, shell: Shell, code: int) -> None:
        shell.life(code=code)
        assert shell("run", shell.file(pod())).exit_code == code

    def test_a_uid_is_made_where_there_is_none(self, shell: Shell) -> None:
        raw = pod()
        del raw["metadata"]["uid"]
        for _ in range(2):
            assert shell("run", shell.file(raw), "--detach").exit_code == 0
        uids = {record.uid for record in shell.world.deps.store.pods()}
        assert len(uids) == 2
        assert all(len(uid) == 36 for uid in uids)

    def test_from_standard_input_and_as_json(self, shell: Shell) -> None:
        assert shell("run", "--detach", "-", stdin=json.dumps(pod())).exit_code == 0
        assert shell.record().job_id == 100

    def test_the_same_uid_is_not_submitted_twice(self, shell: Shell) -> None:
        for _ in range(2):
            assert shell("run", shell.file(pod()), "--detach").exit_code == 0
        assert len(shell.world.slurm.submits) == 1

    def test_references_are_answered_by_the_file(self, shell: Shell) -> None:
        source = {"configMapKeyRef": {"name": "settings", "key": "n"}}
        raw = pod(container(env=[{"name": "N", "valueFrom": source}]))
        settings = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "settings", "namespace": "physics"},
            "data": {"n": "$(5)"},
        }
        assert shell("run", shell.file(settings, raw), "--detach").exit_code == 0
        plan = json.loads((shell.world.shared / shell.record().directory / "plan.json").read_text())
        assert plan["containers"][0]["env"] == [["N", "$(5)"]]

    def test_a_list_as_kubectl_writes_it(self, shell: Shell) -> None:
        assert (
            shell(
                "run", shell.file({"apiVersion": "v1", "kind": "List", "items": [pod()]}), "--detach"
            ).exit_code
            == 0
        )

    def test_dates_stay_text(self, shell: Shell) -> None:
        text = json.dumps(pod(container(args=["DATE"]))).replace('"DATE"', "2026-01-02")
        assert shell("run", shell.file(text=text), "--detach").exit_code == 0

    def test_what_is_ignored_is_said(self, shell: Shell) -> None:
        done = shell("run", shell.file(pod(container(tty=True), restartPolicy="Always")), "--detach")
        notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
        assert notes == ["note: spec.containers[0].tty: the output is a pipe, not a terminal"]

    def test_interrupted_it_leaves_the_pod_running(self, shell: Shell) -> None:
        def interrupt() -> None:
            raise KeyboardInterrupt

        shell.world.clock.after(5, interrupt)
        done = shell("run", shell.file(pod()))
        assert done.exit_code == 130
        assert f"slurmrest-adapter delete {UID} ends it" in done.stderr
        assert shell.world.slurm.cancels == []

    def test_interrupted_while_it_submits(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(shell.world.slurm, "submit", interrupt)
        done = shell("run", shell.file(pod()))
        assert done.exit_code == 130
        first, last = done.stderr.splitlines()
        assert first == f"pod physics/train (uid {UID}): submitting"
        assert f"may have been submitted; slurmrest-adapter status|delete {UID}" in last
        assert shell.record().job_id is None  # its intent is known, so `status` finds it

    def test_what_is_ignored_is_said_once(self, shell: Shell) -> None:
        shell.life()
        done = shell("run", shell.file(pod(container(tty=True))))
        assert "Running: Slurm job 100" in done.stderr
        assert done.stderr.count("spec.containers[0].tty") == 1

    def test_the_logs_of_all_runs_come_one_after_the_other(self, shell: Shell) -> None:
        world = shell.world

        def restarts() -> None:
            world.slurm.start(100)
            shell.log("main", "first")
            shell.log("main", "third", run=2)  # the program of run 1 could not be executed

        def end() -> None:
            over = {"exit_code": 0, "reason": None, "message": ""}
            world.runner_writes(shell.record(), 2, over, {**container_record(), "restart_count": 2})
            world.slurm.end(100, "COMPLETED", 0)

        world.clock.after(5, restarts)
        world.clock.after(10, end)
        done = shell("run", shell.file(pod(restartPolicy="OnFailure")))
        assert done.exit_code == 0
        assert done.stdout.splitlines()[:2] == ["first", "third"]

    def test_the_log_of_an_earlier_run(self, shell: Shell) -> None:
        shell("run", shell.file(pod(restartPolicy="OnFailure")), "--detach")
        shell.world.slurm.start(100)
        shell.log("main", "first")
        runs = {**container_record(state="running"), "restart_count": 0}
        shell.world.runner_writes(shell.record(), 1, None, runs)
        assert shell("logs", "train").stdout == "first\n"
        assert "container main of pod physics/train has no earlier run" in refused(
            shell, "logs", "train", "--previous"
        )
        waits = {**container_record(state="waiting"), "last_state": {"exit_code": 1}}
        shell.world.runner_writes(shell.record(), 2, None, waits)
        assert shell("logs", "train", "-p").stdout == "first\n"
        shell.log("main", "second", run=1)
        shell.world.runner_writes(shell.record(), 3, None, {**runs, "restart_count": 1})
        assert shell("logs", "train", "-p").stdout == "first\n"
        assert shell("logs", "train").stdout == "second\n"


class TestOnePod:
    @pytest.mark.parametrize("word", [UID, "100", "train", "physics/train"])
    def test_status_by_any_word(self, shell: Shell, word: str) -> None:
        shell("run", shell.file(pod()), "--detach")
        done = shell("status", word)
        assert done.exit_code == 0
        assert "physics/train  Pending" in done.stdout
        assert "is queued: Resources" in done.stdout
        assert "submitted" in done.stdout  # its story

    def test_a_name_in_two_namespaces(self, shell: Shell) -> None:
        shell("run", shell.file(pod()), "--detach")
        other = pod(uid=OTHER_UID)
        other["metadata"]["namespace"] = "ai"
        shell("run", shell.file(other), "--detach")
        line = refused(shell, "status", "train")
        assert "'train' is a pod's name in several namespaces: ai, physics" in line
        assert "physics/train" in shell("status", "physics/train").stdout

    def test_a_name_used_again_is_the_newest(self, shell: Shell) -> None:
        shell("run", shell.file(pod()), "--detach")
        shell.world.clock.sleep(1)
        shell("run", shell.file(pod(uid=OTHER_UID)), "--detach")
        assert json.loads(shell("status", "train", "-o", "json").stdout)["uid"] == OTHER_UID

    @pytest.mark.parametrize("command", ["status", "logs", "delete"])
    def test_nobody(self, shell: Shell, command: str) -> None:
        assert "no pod 'nobody' is known here" in refused(shell, command, "nobody")
        assert "no pod '' is known here" in refused(shell, command, "")

    def test_the_list(self, shell: Shell) -> None:
        assert "no pods that have not ended" in shell("status").stdout
        shell.life()
        shell("run", shell.file(pod()))
        shell("run", shell.file(pod(uid=OTHER_UID, name="second")), "--detach")
        running = shell("status").stdout
        assert "physics/second" in running
        assert "physics/train" not in running
        assert "physics/train" in shell("status", "--all").stdout

    @pytest.mark.parametrize("service_user", [None, "slurm"])
    def test_one_question_for_all(
        self, shell: Shell, monkeypatch: pytest.MonkeyPatch, service_user: str | None
    ) -> None:
        if service_user:
            shell.settings["slurm"] = {"service_user": service_user}
        for uid, name in ((UID, "train"), (OTHER_UID, "second")):
            shell("run", shell.file(pod(uid=uid, name=name)), "--detach")
        asked: list[list[int]] = []
        real = shell.world.slurm.states

        def states(job_ids: Any = None, user: str | None = None) -> Any:
            asked.append(list(job_ids))
            return real(job_ids, user)

        monkeypatch.setattr(shell.world.slurm, "states", states)
        assert "physics/second" in shell("status").stdout
        assert [sorted(one) for one in asked] == [[100, 101]]
        shell.world.slurm.down = True
        listed = json.loads(shell("status", "-o", "json").stdout)["pods"]
        assert len(listed) == 2
        assert all("could not be asked" in one["message"] for one in listed)

    def test_a_story_that_looks_like_markup(self, shell: Shell) -> None:
        shell.world.slurm.refusal = Rejected(1, "[red]no[/red] [/]")
        shell("run", shell.file(pod()))
        assert "[red]no[/red] [/]" in shell("status", UID).stdout


class TestLogs:
    def started(self, shell: Shell, *names: str) -> None:
        shell("run", shell.file(pod(*(container(name) for name in names))), "--detach")

    def test_whole_and_tail(self, shell: Shell) -> None:
        self.started(shell, "main")
        shell.log("main", "one", "two", "three")
        assert shell("logs", "train").stdout == "one\ntwo\nthree\n"
        assert shell("logs", "train", "--tail", "2").stdout == "two\nthree\n"
        assert shell("logs", "train", "--tail", "0").stdout == ""
        assert shell("logs", "train", "--tail", "-1").stdout == "one\ntwo\nthree\n"
        first = shell("logs", "train", "--timestamps").stdout.splitlines()[0]
        assert first == "2023-11-14T22:13:20.000000000Z one"

    def test_nothing_yet(self, shell: Shell) -> None:
        self.started(shell, "main")
        done = shell("logs", "train")
        assert (done.exit_code, done.output) == (0, "")

    def test_several_containers_need_a_choice(self, shell: Shell) -> None:
        self.started(shell, "left", "right")
        shell.log("right", "here")
        assert "say which: -c left|right" in refused(shell, "logs", "train")
        assert shell("logs", "train", "-c", "right").stdout == "here\n"
        assert "no container 'middle': left, right" in refused(shell, "logs", "train", "-c", "middle")

    def test_following_ends_with_the_container(self, shell: Shell) -> None:
        self.started(shell, "main")
        shell.world.slurm.start(100)
        shell.world.slurm.end(100)
        shell.log("main", "last words")
        assert shell("logs", "-f", "train").stdout == "last words\n"

    def test_a_log_that_is_a_trap(self, shell: Shell) -> None:
        self.started(shell, "main")
        shell.log("main", "x")
        log = shell.world.shared / shell.record().directory / "logs" / "main" / "0.log"
        log.unlink()
        log.symlink_to("/etc/passwd")
        assert "0.log" in refused(shell, "logs", "train")


class TestDelete:
    def test_a_queued_pod(self, shell: Shell) -> None:
        shell("run", shell.file(pod()), "--detach")
        done = shell("delete", "train")
        assert done.exit_code == 0
        assert "pod physics/train has ended" in done.stdout
        assert shell.world.slurm.cancels == [100]
        again = shell("delete", "train")
        assert again.exit_code == 0
        assert shell.world.slurm.cancels == [100]

    def test_a_grace_period_of_its_own(self, shell: Shell) -> None:
        shell("run", shell.file(pod()), "--detach")
        shell.world.slurm.start(100)
        done = shell("delete", "100", "--grace-period", "0", "-o", "json")
        assert json.loads(done.stdout)["phase"] == "Failed"
        assert shell.world.slurm.signals == []

    def test_somebody_elses_job(self, shell: Shell) -> None:
        shell("run", shell.file(pod()), "--detach")
        shell.world.slurm.change(100, comment="mine")
        done = shell("delete", "train")
        assert done.exit_code == 125
        assert "left alone" in done.stderr
        assert shell.world.slurm.cancels == []


class TestUsage:
    @pytest.mark.parametrize("command", ["run", "status", "logs", "delete"])
    def test_help_has_an_example(self, command: str) -> None:
        done = CliRunner().invoke(cli, [command, "--help"])
        assert done.exit_code == 0
        assert f"Example: slurmrest-adapter {command} " in done.stdout

    def test_the_programs_own_help(self) -> None:
        done = CliRunner().invoke(cli, ["--help"])
        assert "slurmrest-adapter run pod.yaml" in done.stdout
        for command in ("run", "status", "logs", "delete"):
            assert command in done.stdout

    @pytest.mark.parametrize(
        "words",
        [
            ["run"],
            ["nonsense"],
            ["run", "--nonsense", "x"],
            ["run", "a", "b"],
            ["status", "-o", "xml"],
            ["delete", "x", "--grace-period", "-1"],
            ["logs", "x", "--tail", "many"],
            ["--config"],
            [],
        ],
    )
    def test_wrong_usage_exits_125(
        self, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sys, "argv", ["slurmrest-adapter", *words])
        with pytest.raises(SystemExit) as caught:
            program.main()
        assert caught.value.code == 125
        assert "Error: " in capsys.readouterr().err or not words

    def test_a_fault_of_ours_is_no_pods_exit_code(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        def broken(path: object) -> None:
            raise ZeroDivisionError("a fault")

        monkeypatch.setattr("slurmrest_adapter.cli.status.build", broken)
        monkeypatch.setattr(sys, "argv", ["slurmrest-adapter", "status"])
        with pytest.raises(SystemExit) as caught:
            program.main()
        assert caught.value.code == 125
        told = capsys.readouterr()
        (line,) = told.err.splitlines()
        assert "ZeroDivisionError: a fault" in line
        assert told.out == ""
        monkeypatch.setattr(sys, "argv", ["slurmrest-adapter", "status", "-o", "json"])
        with pytest.raises(SystemExit):
            program.main()
        assert "ZeroDivisionError: a fault" in json.loads(capsys.readouterr().out)["error"]

    def test_where_a_fault_was_is_shown_on_demand(
        self, shell: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> None:
            raise ZeroDivisionError("a fault")

        monkeypatch.setattr("slurmrest_adapter.cli.status.Follower", broken)
        shell.file()
        monkeypatch.setenv(DEBUG, "1")
        # The configuration's check of the environment lets the variable through.
        assert shell("status").exit_code == 0
        shell("run", shell.file(pod()), "--detach")
        done = shell("status")
        assert (done.exit_code, "Traceback" in done.stderr) == (125, True)
        monkeypatch.delenv(DEBUG)
        assert "Traceback" not in shell("status").stderr

    def test_the_exit_code_of_a_command_passes_through(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sys, "argv", ["slurmrest-adapter", "--version"])
        with pytest.raises(SystemExit) as caught:
            program.main()
        assert caught.value.code == 0
