"""Whole pods, run by the real runner in plain mode, with a stand-in for Apptainer that only executes.

What Apptainer itself does is tested in the Slurm lab; here it is the life of the pod: order, exit
codes, records, TERM, the deadline, the second copy.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any, Dict, List

from slurmrest_adapter.podrunner import sandbox

# Everything up to the root file system, which is "/" here, is Apptainer's; then the program.
APPTAINER = """#!/bin/sh
while [ "$1" != / ] || [ "$last" = --home ] || [ "$last" = --cwd ]; do last=$1; shift; done
shift
exec "$@"
"""
START = "from slurmrest_adapter.podrunner.main import entry; entry()"


class Pods(unittest.TestCase):
    def setUp(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.addCleanup(self._directory.cleanup)
        self.pod = os.path.join(self._directory.name, "pod")
        os.mkdir(self.pod)
        programs = os.path.join(self._directory.name, "bin")
        os.mkdir(programs)
        path = os.path.join(programs, "apptainer")
        with open(path, "w") as stream:
            stream.write(APPTAINER)
        os.chmod(path, 0o755)
        self.environ = {
            "PATH": programs + os.pathsep + os.defpath,
            "PYTHONPATH": os.getcwd(),
            "SRA_POD_DIR": self.pod,
            "SLURM_JOB_ID": "5",
            "SLURMD_NODENAME": "n1",
        }

    def start(self, containers: List[Dict[str, Any]], **values: Any) -> "subprocess.Popen[bytes]":
        for index, container in enumerate(containers):
            container.setdefault("name", "c{}".format(index))
            container.setdefault("image", "/")
            if "run" in container:
                container["command"] = ["/bin/sh", "-c", container.pop("run")]
        plan: Dict[str, Any] = {
            "schema": 1,
            "uid": "u",
            "namespace": "n",
            "name": "p",
            "grace_seconds": 10,
            "runtime": {"name": "apptainer", "mode": "plain"},
            "containers": containers,
        }
        plan.update(values)
        with open(os.path.join(self.pod, "plan.json"), "w") as stream:
            json.dump(plan, stream)
        return self.again()

    def again(self) -> "subprocess.Popen[bytes]":
        with open(os.path.join(self.pod, "runner.log"), "ab") as log:
            return subprocess.Popen([sys.executable, "-c", START], env=self.environ, stdout=log, stderr=log)

    def status(self) -> Dict[str, Any]:
        with open(os.path.join(self.pod, "status.json")) as stream:
            data: Dict[str, Any] = json.load(stream)
        return data

    def log(self, name: str, restart: int = 0) -> List[str]:
        path = os.path.join(self.pod, "logs", name, "{}.log".format(restart))
        with open(path) as stream:
            return [line.split(" ", 3)[3] for line in stream.read().splitlines()]

    def wait_for_output(self, name: str) -> None:
        path = os.path.join(self.pod, "logs", name, "0.log")
        for _ in range(3000):
            if os.path.exists(path) and os.path.getsize(path):
                return
            time.sleep(0.01)
        self.fail("no output of " + name)

    def runner_log(self) -> str:
        with open(os.path.join(self.pod, "runner.log")) as stream:
            return stream.read()

    def test_the_first_that_failed_in_the_specs_order(self) -> None:
        code = self.start([{"run": "exit 0"}, {"run": "sleep 0.2; exit 3"}, {"run": "exit 4"}]).wait()
        status = self.status()
        self.assertEqual(code, 3, self.runner_log())
        self.assertEqual(status["end"], {"exit_code": 3, "reason": None, "message": ""})
        self.assertEqual([c["exit_code"] for c in status["containers"]], [0, 3, 4])
        self.assertEqual([c["reason"] for c in status["containers"]], ["Completed", "Error", "Error"])
        self.assertEqual(status["phase"], "ended")
        self.assertEqual(status["job"], {"id": "5", "node": "n1", "restart": 0, "gpus": []})
        self.assertEqual(status["runner"]["mode"], "plain")

    def test_init_containers_in_order(self) -> None:
        order = os.path.join(self.pod, "order")
        steps = [{"init": True, "run": "sleep 0.1; echo {} >>{}".format(n, order)} for n in (1, 2)]
        code = self.start([*steps, {"run": "echo app >>" + order}]).wait()
        self.assertEqual(code, 0, self.runner_log())
        with open(order) as stream:
            self.assertEqual(stream.read(), "1\n2\napp\n")

    def test_a_failed_init_container_ends_the_pod(self) -> None:
        code = self.start(
            [{"init": True, "run": "exit 9"}, {"init": True, "run": "true"}, {"run": "true"}]
        ).wait()
        records = self.status()["containers"]
        self.assertEqual(code, 9, self.runner_log())
        self.assertEqual([c["state"] for c in records], ["terminated", "waiting", "waiting"])
        self.assertEqual({c["reason"] for c in records[1:]}, {"PodInitializing"})
        self.assertFalse(os.path.exists(os.path.join(self.pod, "logs", "c2")))

    def test_what_cannot_be_started(self) -> None:
        code = self.start(
            [
                {"command": ["no-such-program"]},
                {"command": ["/etc/passwd"]},
                {"image": "/no/such.sif"},
                {"command": ["sh"], "env": [["a.b", "1"]]},
                {"command": ["true"], "gpus": [0]},
                {"run": "echo others run on"},
            ]
        ).wait()
        records = self.status()["containers"]
        self.assertEqual(code, 127, self.runner_log())
        self.assertEqual([c["exit_code"] for c in records], [127, 126, 125, 128, 128, 0])
        self.assertEqual(
            [c["reason"] for c in records],
            ["ContainerCannotRun"] * 2 + ["ErrImagePull"] + ["ContainerCannotRun"] * 2 + ["Completed"],
        )
        self.assertIn("no-such-program", records[0]["message"])
        self.assertIn("/no/such.sif: No such file", records[2]["message"])
        self.assertIn("Slurm allotted 0", records[4]["message"])
        self.assertEqual(self.log("c5"), ["others run on"])

    def test_output_and_the_programs_own_255(self) -> None:
        code = self.start([{"run": "echo out; printf err >&2; exit 255"}]).wait()
        self.assertEqual(code, 255, self.runner_log())
        self.assertEqual(self.status()["containers"][0]["reason"], "Error")
        with open(os.path.join(self.pod, "logs", "c0", "0.log")) as stream:
            text = stream.read()
        self.assertIn(" stdout F out\n", text)
        self.assertIn(" stderr P err\n", text)

    def test_a_signals_death(self) -> None:
        code = self.start([{"run": "kill -9 $$"}]).wait()
        self.assertEqual((code, self.status()["containers"][0]["signal"]), (137, 9), self.runner_log())

    def test_term_reaches_the_program_once(self) -> None:
        trap = "trap 'echo term; exit 5' TERM; echo up; while :; do sleep 0.05; done"
        runner = self.start([{"run": trap}])
        self.wait_for_output("c0")
        runner.send_signal(signal.SIGTERM)
        runner.send_signal(signal.SIGTERM)
        self.assertEqual(runner.wait(), 5, self.runner_log())
        self.assertEqual(self.log("c0"), ["up", "term"])
        self.assertEqual(self.status()["end"]["reason"], "Terminated")

    def test_kill_after_the_grace_period(self) -> None:
        runner = self.start([{"run": "trap '' TERM; echo up; sleep 1000"}], grace_seconds=0.2)
        self.wait_for_output("c0")
        runner.send_signal(signal.SIGTERM)
        self.assertEqual(runner.wait(), 137, self.runner_log())
        self.assertEqual(self.status()["containers"][0]["signal"], 9)

    def test_the_deadline(self) -> None:
        code = self.start([{"run": "exec sleep 1000"}, {"run": "true"}], deadline_seconds=1).wait()
        self.assertEqual(code, 143, self.runner_log())
        self.assertEqual(self.status()["end"]["reason"], "DeadlineExceeded")

    def test_a_deadline_is_a_failure_even_if_all_end_well(self) -> None:
        trap = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
        self.assertEqual(self.start([{"run": trap}], deadline_seconds=1).wait(), 137, self.runner_log())

    def test_a_second_copy_does_nothing(self) -> None:
        self.start([{"run": "echo once"}]).wait()
        before = self.status()
        # The first may be alive on this or another node, with its sandbox mounted.
        others = os.path.join(self.pod, "sandbox", "n9.1", "dev")
        os.makedirs(others)
        self.environ["SLURM_JOB_ID"] = "6"
        self.assertEqual(self.again().wait(), 0)
        self.assertEqual(self.status(), before)
        self.assertIn("job 5 has this pod already", self.runner_log())
        self.assertEqual(self.log("c0"), ["once"])
        self.assertTrue(os.path.isdir(others))

    def test_a_run_leaves_another_runs_sandbox_alone(self) -> None:
        others = os.path.join(self.pod, "sandbox", "n9.1", "dev")
        os.makedirs(others)
        self.assertEqual(self.start([{"run": "true"}]).wait(), 0)
        self.assertTrue(os.path.isdir(others))
        self.assertEqual(os.listdir(os.path.join(self.pod, "sandbox")), ["n9.1"])

    def test_a_requeued_job_runs_again(self) -> None:
        self.start([{"run": "echo $SLURM_JOB_ID."}]).wait()
        first = self.status()
        self.environ["SLURM_RESTART_COUNT"] = "1"
        self.assertEqual(self.again().wait(), 0, self.runner_log())
        second = self.status()
        self.assertGreater(second["seq"], first["seq"])
        self.assertEqual(second["job"]["restart"], 1)
        self.assertEqual(second["containers"][0]["restart_count"], 1)
        self.assertEqual((self.log("c0"), self.log("c0", 1)), (["."], ["."]))

    def test_a_plan_for_one_run_is_removed_after_it(self) -> None:
        plan = os.path.join(self.pod, "plan.json")
        self.assertEqual(self.start([{"run": "test -e " + plan}], once=True).wait(), 0, self.runner_log())
        self.assertFalse(os.path.exists(plan))
        self.assertEqual(self.start([{"run": "true"}], once=False).wait(), 0, self.runner_log())
        self.assertTrue(os.path.exists(plan))

    def test_volumes_of_a_pod_are_there_before_it_and_gone_after_it(self) -> None:
        base = os.path.join(self._directory.name, "disk")
        os.mkdir(base)
        self.environ["TMPDIR"] = base
        volume = "$(echo {}/*/pods/*/d)".format(base)
        mounts = [{"volume": "d", "path": "/no/such/place"}]
        code = self.start(
            [
                {
                    "init": True,
                    "mounts": mounts,
                    "run": "echo kept >{}/file; stat -c %a {}".format(volume, volume),
                },
                {"mounts": mounts, "run": "cat {}/file; mkdir -m 0 {}/closed".format(volume, volume)},
                {"mounts": [{"volume": "d", "path": "/x", "sub_path": "file/below"}], "run": "true"},
            ],
            volumes=[{"name": "d", "files": None}],
        ).wait()
        self.assertEqual(code, 128, self.runner_log())
        self.assertEqual((self.log("c0"), self.log("c1")), (["777"], ["kept"]))
        self.assertEqual(self.status()["containers"][2]["reason"], "ContainerCannotRun")
        (own,) = os.listdir(base)
        self.assertEqual(os.listdir(os.path.join(base, own, "pods")), [])

    def test_volumes_that_cannot_be_made_end_the_pod(self) -> None:
        base = os.path.join(self._directory.name, "disk")
        os.makedirs(os.path.join(base, "slurmrest-adapter-{}".format(os.getuid())))
        os.chmod(os.path.join(base, "slurmrest-adapter-{}".format(os.getuid())), 0o777)
        self.environ["TMPDIR"] = base
        self.assertEqual(self.start([{"run": "true"}], volumes=[{"name": "d"}]).wait(), 125)
        end = self.status()["end"]
        self.assertIn("volumes: ", end["message"])
        self.assertIn("open to other users", end["message"])

    def test_a_plan_that_cannot_be_followed(self) -> None:
        self.assertEqual(self.start([]).wait(), 125)
        status = self.status()
        self.assertEqual((status["phase"], status["end"]["exit_code"]), ("ended", 125))
        self.assertIn("containers:", status["end"]["message"])

    def test_without_a_sandbox_it_goes_on_plainly(self) -> None:
        with open(os.path.join(self.pod, "sandbox"), "w"):
            pass  # so that the sandbox has no place
        runtime = {"name": "apptainer", "mode": "auto"}
        self.assertEqual(self.start([{"run": "exit 3"}], runtime=runtime).wait(), 3, self.runner_log())
        self.assertEqual(self.status()["runner"]["mode"], "plain")
        self.assertIn("plain mode, because there is no sandbox", self.runner_log())

    def test_a_sandbox_that_must_be(self) -> None:
        with open(os.path.join(self.pod, "sandbox"), "w"):
            pass
        runtime = {"name": "apptainer", "mode": "sandbox"}
        self.assertEqual(self.start([{"run": "exit 3"}], runtime=runtime).wait(), 125, self.runner_log())
        self.assertIn("no sandbox on this node", self.status()["end"]["message"])

    def test_no_directory(self) -> None:
        self.environ["SRA_POD_DIR"] = "/no/such"
        self.assertEqual(self.again().wait(), 125)


class Sandboxes(unittest.TestCase):
    def test_the_first_process_and_its_exit_code(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            place = os.path.join(directory, "sandbox")

            def body() -> int:
                # Only what is true inside: first process, an own /dev, the tmpfs.
                inside = os.getpid() == 1 and os.path.isdir(os.path.join(place, sandbox.ROOTS))
                return 42 if inside and not os.path.exists("/dev/kmsg") else 1

            try:
                code = sandbox.run(place, [], body)
            except sandbox.Unavailable as error:
                self.skipTest("no user namespaces here: {}".format(error))
            self.assertEqual(code, 42)
            self.assertEqual(os.listdir(place), [])  # nothing of it is seen outside

    def test_where_it_cannot_be_had(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            place = os.path.join(directory, "sandbox")
            os.mkdir(place)
            with self.assertRaises(sandbox.Unavailable) as caught:
                sandbox.run(place, ["/dev/../etc/passwd"], lambda: 0)
            self.assertTrue(str(caught.exception))
            self.assertEqual(os.getpid(), int(os.readlink("/proc/self")))
