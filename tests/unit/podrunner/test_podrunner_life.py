"""When containers are started again, and when a pod is idle: the arithmetic, and whole pods."""

import os
import unittest
from typing import Any, Dict, List

from slurmrest_adapter.podrunner import backoff, logs, message, volumes
from tests.unit.podrunner import test_podrunner_pod


class Waits(unittest.TestCase):
    def test_the_kubelets_own(self) -> None:
        waits = backoff.Backoff(10)
        self.assertEqual([waits.after(1) for _ in range(8)], [0, 10, 20, 40, 80, 160, 300, 300])

    def test_a_long_run_forgets(self) -> None:
        waits = backoff.Backoff(10)
        for _ in range(5):
            waits.after(1)
        self.assertEqual([waits.after(600.1), waits.after(600), waits.after(1)], [0, 10, 20])

    def test_another_base_scales_all(self) -> None:
        waits = backoff.Backoff(0.5)
        self.assertEqual([waits.after(1) for _ in range(7)], [0, 0.5, 1, 2, 4, 8, 15])
        self.assertEqual((waits.after(30.5), waits.after(30)), (0, 0.5))

    def test_a_first_wait(self) -> None:
        waits = backoff.Backoff(10, 10)
        self.assertEqual([waits.after(0) for _ in range(3)], [10, 20, 40])

    def test_policies(self) -> None:
        self.assertEqual(
            [
                [backoff.again(policy, code) for code in (0, 1, 137)]
                for policy in ("Always", "OnFailure", "Never")
            ],
            [[True, True, True], [False, True, True], [False, False, False]],
        )


class Idleness(unittest.TestCase):
    def test_only_waiting_counts(self) -> None:
        idle = backoff.Idle(100)
        self.assertEqual(idle.update(True, 0), 100)
        self.assertIsNone(idle.update(False, 40))
        self.assertEqual(idle.update(True, 1000), 60)
        self.assertEqual(idle.update(True, 1059), 1)
        self.assertEqual(idle.update(True, 1061), 0)

    def test_work_forgets(self) -> None:
        idle = backoff.Idle(100)
        idle.update(True, 0)
        idle.update(False, 99)
        idle.worked()
        self.assertEqual(idle.update(True, 200), 100)

    def test_without_a_limit(self) -> None:
        self.assertIsNone(backoff.Idle(None).update(True, 0))


class Words(test_podrunner_pod.Pods):
    """The file alone; what containers do with it is tested in the lab."""

    def bound(self) -> str:
        mounts: List[volumes.Bound] = []
        source = message.bind("/dev/x", os.path.join(self.pod, "messages", "c"), mounts)
        self.assertEqual(mounts, [volumes.Bound(source, "/dev/x", False)])
        self.assertEqual(os.stat(source).st_mode & 0o777, 0o666)
        return source

    def test_the_files_end(self) -> None:
        source = self.bound()
        with open(source, "wb") as stream:
            stream.write(b"x" * 5000 + b"end")
        self.assertEqual(message.read(source, b"log"), "x" * 4093 + "end")
        self.bound()
        self.assertEqual(message.read(source, None), "")  # each run begins with an empty one

    def test_the_logs_end(self) -> None:
        lines = b"".join(b"%d\n" % n for n in range(100))
        self.assertEqual(message.read(None, lines).split("\n")[0], "20")
        self.assertEqual(message.read(None, lines + b"open").split("\n")[0], "21")
        self.assertEqual(message.read(None, b"\xff"), "\ufffd")

    def test_a_volumes_file_may_be_anything(self) -> None:
        fifo = os.path.join(self.pod, "fifo")
        os.mkfifo(fifo)
        mounts = [volumes.Bound(fifo, "/v", False)]
        self.assertEqual(message.read(message.bind("/v", "/no/such", mounts), b"log"), "log")
        link = os.path.join(self.pod, "link")
        os.symlink("/etc/passwd", link)
        self.assertEqual(message.read(link, None), "")


class Restarts(test_podrunner_pod.Pods):
    def again_and_again(self, containers: List[Dict[str, Any]], **values: Any) -> Dict[str, Any]:
        runner = self.start(containers, backoff_base_seconds=0.02, **values)
        runner.wait()
        return self.status()

    def counting(self, name: str) -> str:
        """A script that counts its runs in a file and has the number in $n."""
        path = os.path.join(self.pod, name)
        return "echo x >>{0}; n=$(grep -c x {0}); ".format(path)

    def test_on_failure_until_it_succeeds(self) -> None:
        status = self.again_and_again(
            [{"restart_policy": "OnFailure", "run": self.counting("a") + "echo $n; exit $((4 - n))"}]
        )
        record = status["containers"][0]
        self.assertEqual(
            (status["end"]["exit_code"], record["exit_code"], record["restart_count"]), (0, 0, 3)
        )
        self.assertEqual((record["last_state"]["exit_code"], record["last_state"]["reason"]), (1, "Error"))
        self.assertEqual(sorted(os.listdir(os.path.join(self.pod, "logs", "c0"))), ["2.log", "3.log"])
        self.assertEqual((self.log("c0", 2), self.log("c0", 3)), (["3"], ["4"]))

    def test_always_goes_on_until_it_is_ended(self) -> None:
        runs = self.counting("a") + "[ $n -lt 3 ] || kill -TERM $(cat {}/pid); exit 0".format(self.pod)
        runner = self.start(
            [{"restart_policy": "Always", "run": "sleep 0.1; " + runs}], backoff_base_seconds=0.02
        )
        with open(os.path.join(self.pod, "pid"), "w") as stream:
            stream.write(str(runner.pid))
        self.assertEqual(runner.wait(), 0, self.runner_log())
        status = self.status()
        self.assertEqual(status["end"]["reason"], "Terminated")
        self.assertGreaterEqual(status["containers"][0]["restart_count"], 2)

    def test_ended_while_it_waits(self) -> None:
        status = self.again_and_again(
            [{"restart_policy": "Always", "run": "exit 3"}], deadline_seconds=1, **{"grace_seconds": 1}
        )
        record = status["containers"][0]
        self.assertEqual((record["state"], record["exit_code"], record["reason"]), ("terminated", 3, "Error"))
        self.assertEqual((status["end"]["exit_code"], status["end"]["reason"]), (3, "DeadlineExceeded"))

    def test_what_cannot_be_started_is_tried_again_too(self) -> None:
        status = self.again_and_again(
            [{"restart_policy": "OnFailure", "command": ["no-such-program"]}], deadline_seconds=1
        )
        record = status["containers"][0]
        self.assertEqual((record["exit_code"], record["last_state"]["exit_code"]), (127, 127))
        self.assertGreater(record["restart_count"], 2)

    def test_images_are_tried_again_where_nobody_waits(self) -> None:
        container = {"restart_policy": "Always", "image": "/no/such.sif"}
        status = self.again_and_again([dict(container)], image_retries=True, deadline_seconds=1)
        record = status["containers"][0]
        self.assertEqual((record["state"], record["reason"]), ("waiting", "ImagePullBackOff"))
        self.assertEqual((record["restart_count"], record["last_state"]), (0, None))
        status = self.again_and_again([dict(container)])
        self.assertEqual(status["containers"][0]["exit_code"], 125)

    def test_sidecars_stop_last_in_reverse_and_decide_nothing(self) -> None:
        order = os.path.join(self.pod, "order")
        trap = "trap 'echo {0} >>{1}; exit {2}' TERM; touch {3}.{0}; while :; do sleep 0.02; done"
        up = os.path.join(self.pod, "up")
        side = {"init": True, "sidecar": True, "restart_policy": "Always"}
        status = self.again_and_again(
            [
                dict(side, run=trap.format("one", order, 6, up)),
                dict(side, run=trap.format("two", order, 7, up)),
                {
                    "run": "until test -e {0}.one -a -e {0}.two; do sleep 0.02; done; echo app >>{1}".format(
                        up, order
                    )
                },
            ]
        )
        self.assertEqual(status["end"]["exit_code"], 0, self.runner_log())
        with open(order) as stream:
            self.assertEqual(stream.read().split(), ["app", "two", "one"])
        self.assertEqual([each["exit_code"] for each in status["containers"]], [6, 7, 0])

    def test_an_init_container_that_fails_for_good_ends_the_sidecars(self) -> None:
        status = self.again_and_again(
            [
                {"init": True, "sidecar": True, "restart_policy": "Always", "run": "exec sleep 1000"},
                {"init": True, "run": "exit 8"},
                {"run": "true"},
            ]
        )
        self.assertEqual(status["end"]["exit_code"], 8, self.runner_log())
        self.assertEqual(status["containers"][0]["exit_code"], 143)
        self.assertEqual(status["containers"][2]["state"], "waiting")

    def test_idle_gpus(self) -> None:
        self.environ["SLURM_JOB_GPUS"] = "0,1"
        runner = self.start(
            [{"restart_policy": "OnFailure", "run": "exit 3"}], backoff_base_seconds=100, max_idle_seconds=0.3
        )
        self.assertEqual(runner.wait(), 3, self.runner_log())
        end = self.status()["end"]
        self.assertEqual(end["reason"], "GPUsIdle")
        self.assertIn("2 GPUs", end["message"])

    def test_a_requeued_job_counts_on(self) -> None:
        self.again_and_again([{"restart_policy": "OnFailure", "run": self.counting("a") + "[ $n -ge 3 ]"}])
        self.environ["SLURM_RESTART_COUNT"] = "1"
        self.assertEqual(self.again().wait(), 0, self.runner_log())
        # The last run of the first time was number 2.
        self.assertEqual(self.status()["containers"][0]["restart_count"], 3)

    def test_old_logs(self) -> None:
        for name in ("0.log", "1.log", "1.log.2", "2.log", "3.log", "notes"):
            open(os.path.join(self.pod, name), "w").close()
        logs.clear(self.pod, 4)
        self.assertEqual(sorted(os.listdir(self.pod)), ["3.log", "notes"])


# The base classes' own tests run in their module.
for _case in (Words, Restarts):
    for _name in dir(test_podrunner_pod.Pods):
        if _name.startswith("test_"):
            setattr(_case, _name, None)
