"""The runner's plan: what is wrong is named, what is secret is not."""

import copy
import json
import os
import tempfile
import unittest
from typing import Any, Dict

from slurmrest_adapter.podrunner import plan


def good() -> Dict[str, Any]:
    return {
        "schema": 1,
        "uid": "5b1c",
        "namespace": "physics",
        "name": "train",
        "cluster": "lab",
        "hostname": "train",
        "grace_seconds": 30,
        "deadline_seconds": None,
        "runtime": {"name": "apptainer", "insecure_registries": ["r:5000"], "cache": None, "mode": "auto"},
        "containers": [
            {
                "name": "main",
                "image": "docker://r:5000/a:1",
                "init": False,
                "command": ["sh", "-c", 'echo "$X"'],
                "args": None,
                "env": [["X", "1"]],
                "working_dir": None,
                "gpus": [0, 1],
                "pull_policy": "IfNotPresent",
            }
        ],
    }


class Plans(unittest.TestCase):
    def test_a_good_plan(self) -> None:
        parsed = plan.parse(good())
        self.assertEqual(parsed.uid, "5b1c")
        self.assertIsNone(parsed.deadline_seconds)
        self.assertEqual(parsed.containers[0].env, [("X", "1")])
        self.assertEqual(parsed.containers[0].gpus, [0, 1])
        self.assertIsNone(parsed.containers[0].args)

    def test_unknown_keys_are_a_newer_sidecars(self) -> None:
        data = good()
        data["later"] = 1
        data["containers"][0]["later"] = 1
        self.assertEqual(plan.parse(data).name, "train")

    def test_errors_name_the_field(self) -> None:
        wrong: Any = [
            (("schema",), 2, "schema"),
            (("uid",), "", "uid"),
            (("grace_seconds",), -1, "grace_seconds"),
            (("deadline_seconds",), "5", "deadline_seconds"),
            (("runtime",), None, "runtime"),
            (("runtime", "name"), "podman", "runtime.name"),
            (("runtime", "mode"), "loud", "runtime.mode"),
            (("runtime", "cache"), "tmp", "runtime.cache"),
            (("runtime", "insecure_registries"), "r:5000", "runtime.insecure_registries"),
            (("containers",), [], "containers"),
            (("containers", 0, "name"), "../x", "containers[0].name"),
            (("containers", 0, "image"), None, "containers[0].image"),
            (("containers", 0, "command"), "sh", "containers[0].command"),
            (("containers", 0, "args"), ["a", 1], "containers[0].args[1]"),
            (("containers", 0, "args"), ["a\0"], "containers[0].args[0]"),
            (("containers", 0, "env"), [["A"]], "containers[0].env[0]"),
            (("containers", 0, "env"), [["A", "b\0"]], "containers[0].env[0]"),
            (("containers", 0, "gpus"), [-1], "containers[0].gpus"),
            (("containers", 0, "gpus"), [True], "containers[0].gpus"),
            (("containers", 0, "pull_policy"), "Sometimes", "containers[0].pull_policy"),
            (("containers", 0, "working_dir"), 3, "containers[0].working_dir"),
        ]
        for path, value, field in wrong:
            data = copy.deepcopy(good())
            place: Any = data
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            with self.subTest(field=field, value=value):
                with self.assertRaises(plan.PlanError) as caught:
                    plan.parse(data)
                self.assertTrue(str(caught.exception).startswith(field + ":"), str(caught.exception))

    def test_values_are_not_told(self) -> None:
        data = good()
        data["containers"][0]["env"] = [["PASSWORD", "hunter2\0"]]
        with self.assertRaises(plan.PlanError) as caught:
            plan.parse(data)
        self.assertNotIn("hunter2", str(caught.exception))

    def test_two_of_one_name_and_late_init(self) -> None:
        data = good()
        data["containers"].append(copy.deepcopy(data["containers"][0]))
        with self.assertRaisesRegex(plan.PlanError, "same name"):
            plan.parse(data)
        data["containers"][1].update(name="late", init=True)
        with self.assertRaisesRegex(plan.PlanError, "init containers must come first"):
            plan.parse(data)

    def test_files(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "plan.json")
            with self.assertRaisesRegex(plan.PlanError, "No such file"):
                plan.load(path)
            with open(path, "w") as stream:
                stream.write("{")
            with self.assertRaisesRegex(plan.PlanError, "not valid JSON"):
                plan.load(path)
            with open(path, "w") as stream:
                json.dump(good(), stream)
            self.assertEqual(plan.load(path).name, "train")
            link = os.path.join(directory, "link")
            os.symlink(path, link)
            with self.assertRaises(plan.PlanError):
                plan.load(link)
