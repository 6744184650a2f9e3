"""How a container is started: argv, environment, the command's place, Apptainer's words."""

import os
import tempfile
import unittest
from typing import Any, Dict

from slurmrest_adapter.podrunner import apptainer, container
from slurmrest_adapter.podrunner.plan import ContainerPlan


def planned(**values: Any) -> ContainerPlan:
    fields: Dict[str, Any] = {
        "name": "c",
        "image": "/x.sif",
        "init": False,
        "command": None,
        "args": None,
        "env": [],
        "working_dir": None,
        "gpus": [],
        "pull_policy": "IfNotPresent",
        "mounts": [],
    }
    fields.update(values)
    return ContainerPlan(**fields)


class CommandLines(unittest.TestCase):
    def test_the_four_cases_of_kubernetes(self) -> None:
        entrypoint, cmd = ["/ep", "-a"], ["x"]
        line = container.command_line
        self.assertEqual(line(None, None, entrypoint, cmd), ["/ep", "-a", "x"])
        self.assertEqual(line(None, ["y"], entrypoint, cmd), ["/ep", "-a", "y"])
        self.assertEqual(line(["/c"], None, entrypoint, cmd), ["/c"])
        self.assertEqual(line(["/c"], ["y"], entrypoint, cmd), ["/c", "y"])

    def test_empty_lists_are_not_given(self) -> None:
        self.assertEqual(container.command_line([], [], ["/ep"], ["x"]), ["/ep", "x"])

    def test_nothing_to_run(self) -> None:
        with self.assertRaises(container.CannotRun) as caught:
            container.command_line(None, None, [], [])
        self.assertEqual(caught.exception.code, 128)


class Environments(unittest.TestCase):
    def test_the_pod_wins_over_gpus_over_the_image(self) -> None:
        env, notes = container.environment(
            ["A=image", "B=x=y", "CUDA_VISIBLE_DEVICES=all"],
            {"CUDA_VISIBLE_DEVICES": "0", "GPU_DEVICE_ORDINAL": "0"},
            [("A", "pod"), ("GPU_DEVICE_ORDINAL", "7"), ("A", "last")],
        )
        self.assertEqual(
            env, {"A": "last", "B": "x=y", "CUDA_VISIBLE_DEVICES": "0", "GPU_DEVICE_ORDINAL": "7"}
        )
        self.assertEqual(notes, [])

    def test_what_apptainer_cannot_pass_is_refused(self) -> None:
        for name, value in (
            ("a.b", "1"),
            ("with-dash", "1"),
            ("1x", "1"),
            ("", "1"),
            ("UID", "0"),
            ("EUID", "0"),
            ("GID", "0"),
            ("PROMPT_COMMAND", "x"),
            ("LD_LIBRARY_PATH", "/x"),
            ("X", "a\r\nb"),
            ("X", "\x80"),
            ("X", "\x81"),
        ):
            with self.subTest(name=name), self.assertRaises(container.CannotRun) as caught:
                container.environment([], {}, [("GOOD", "1"), (name, value)])
            self.assertIn(repr(name), str(caught.exception))

    def test_without_apptainer_all_but_the_impossible_is_taken(self) -> None:
        pairs = [("a.b", "1"), ("with-dash", ""), ("UID", "0"), ("LD_LIBRARY_PATH", "/x"), ("X", "a\r\nb")]
        env, notes = container.environment(["e.f=g=h", "=x"], {}, pairs, exact=True)
        self.assertEqual(env, dict([("e.f", "g=h"), *pairs]))
        self.assertEqual(notes, [])
        for name, value in (("a=b", "1"), ("", "1"), ("X", "x" * 131072)):
            with self.subTest(name=name), self.assertRaises(container.CannotRun):
                container.environment([], {}, [(name, value)], exact=True)

    def test_values_are_not_told(self) -> None:
        with self.assertRaises(container.CannotRun) as caught:
            container.environment([], {}, [("X", "hunter2\r\n")])
        self.assertNotIn("hunter2", str(caught.exception))

    def test_hostile_values_stay(self) -> None:
        value = "'\"$(id)`id`\\\n\t\r\u00e9=,\x01"
        env, _ = container.environment([], {}, [("X", value)])
        self.assertEqual(env["X"], value)

    def test_the_images_odd_names_are_left_out_and_noted(self) -> None:
        env, notes = container.environment(["a.b=1", "C=2"], {}, [])
        self.assertEqual(env, {"C": "2"})
        self.assertEqual(len(notes), 1)
        self.assertIn("a.b", notes[0])


class Roots(unittest.TestCase):
    def setUp(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.addCleanup(self._directory.cleanup)
        self.root = os.path.realpath(self._directory.name)
        for name in ("usr/bin", "opt/tool", "work"):
            os.makedirs(os.path.join(self.root, name))
        self.file("usr/bin/tool", 0o755)
        self.file("usr/bin/data", 0o644)
        self.file("work/run.sh", 0o755)
        os.symlink("usr/bin", os.path.join(self.root, "bin"))
        os.symlink("/bin/tool", os.path.join(self.root, "opt/absolute"))
        os.symlink("../../../../../../usr/bin/tool", os.path.join(self.root, "opt/up"))
        os.symlink("round", os.path.join(self.root, "opt/round"))
        os.symlink("/etc/hostname", os.path.join(self.root, "opt/hosts-file"))

    def file(self, name: str, mode: int) -> None:
        path = os.path.join(self.root, name)
        with open(path, "w") as stream:
            stream.write("#!/bin/sh\n")
        os.chmod(path, mode)

    def test_links_stay_inside(self) -> None:
        tool = os.path.join(self.root, "usr/bin/tool")
        for path in ("/bin/tool", "/opt/absolute", "/opt/up", "/../bin/./tool", "//usr//bin/tool"):
            self.assertEqual(container.find(self.root, path), tool, path)
        for path in ("/opt/round", "/opt/hosts-file", "/nothing", "/usr/bin/tool/x"):
            self.assertIsNone(container.find(self.root, path), path)

    def code(self, name: str, path: str = "/bin:/opt", cwd: str = "/") -> int:
        try:
            container.check_command(self.root, name, path, cwd)
        except container.CannotRun as problem:
            self.assertIn(repr(name), str(problem))
            return problem.code
        return 0

    def test_commands(self) -> None:
        self.assertEqual(self.code("tool"), 0)
        self.assertEqual(self.code("absolute"), 0)
        self.assertEqual(self.code("/opt/up"), 0)
        self.assertEqual(self.code("./run.sh", cwd="/work"), 0)
        self.assertEqual(self.code("run.sh", path=".", cwd="/work"), 0)
        self.assertEqual(self.code("./run.sh"), 127)
        self.assertEqual(self.code("nope"), 127)
        self.assertEqual(self.code(""), 127)
        self.assertEqual(self.code("-c"), 127)
        self.assertEqual(self.code("tool", path="/nowhere"), 127)
        self.assertEqual(self.code("/opt/round"), 127)
        self.assertEqual(self.code("/usr/bin/data"), 126)
        self.assertEqual(self.code("data"), 126)
        self.assertEqual(self.code("/usr"), 126)

    def test_the_pods_path_counts(self) -> None:
        config = {"Env": ["PATH=/nowhere"]}
        start = container.resolve(
            planned(command=["tool"], env=[("PATH", "/usr/bin")]), config, self.root, {}
        )
        self.assertEqual(start.env["PATH"], "/usr/bin")
        with self.assertRaises(container.CannotRun):
            container.resolve(planned(command=["tool"]), config, self.root, {})
        start = container.resolve(planned(command=["tool"]), {}, self.root, {})
        self.assertEqual(start.env["PATH"], container.DEFAULT_PATH)

    def test_working_directories(self) -> None:
        def cwd(value: Any, image: str = "") -> Any:
            config = {"WorkingDir": image, "Cmd": ["/bin/tool"]}
            start = container.resolve(planned(working_dir=value), config, self.root, {})
            return start.cwd, start.make_cwd

        self.assertEqual(cwd(None), ("/", False))
        self.assertEqual(cwd(None, "/work"), ("/work", False))
        self.assertEqual(cwd("/opt/tool", "/work"), ("/opt/tool", False))
        self.assertEqual(cwd("/new/deep"), ("/new/deep", True))
        self.assertEqual(cwd("/tmp/x"), ("/tmp/x", True))
        for wrong in ("work", "/usr/bin/tool"):
            with self.assertRaises(container.CannotRun):
                cwd(wrong)

    def test_home(self) -> None:
        config = {"Env": ["HOME=/work"], "Cmd": ["/bin/tool"]}
        start = container.resolve(planned(), config, self.root, {})
        self.assertEqual((start.home, "HOME" in start.env), ("/work", False))
        start = container.resolve(planned(env=[("HOME", "/h")]), config, self.root, {})
        self.assertEqual(start.home, "/h")
        self.assertEqual(container.resolve(planned(), {"Cmd": ["/bin/tool"]}, self.root, {}).home, "/")
        with self.assertRaisesRegex(container.CannotRun, "HOME"):
            container.resolve(planned(env=[("HOME", "a:b")]), config, self.root, {})

    def test_an_image_without_oci_configuration_runs_its_runscript(self) -> None:
        with self.assertRaisesRegex(container.CannotRun, "no command"):
            container.resolve(planned(), None, self.root, {})
        os.makedirs(os.path.join(self.root, ".singularity.d"))
        self.file(".singularity.d/runscript", 0o755)
        start = container.resolve(planned(args=["a"]), None, self.root, {})
        self.assertEqual(start.argv, ["/.singularity.d/runscript", "a"])
        self.assertNotIn("PATH", start.env)


class Calls(unittest.TestCase):
    def test_nothing_of_the_node_goes_in(self) -> None:
        start = container.Start(["sh", "-c", "$(id)"], {"A": "x\ny"}, "/h", "/new", True, [])
        os.environ["SLURM_JOB_ID"] = "5"
        self.addCleanup(os.environ.pop, "SLURM_JOB_ID")
        place = apptainer.Place("/root,fs", "/empty", "pod", ["/dev/a:b"], True, [])
        argv, env = apptainer.call(start, place)
        self.assertEqual(argv[-4:], ["/root,fs", "sh", "-c", "$(id)"])
        self.assertEqual(argv[argv.index("/dev/a\\:b:/dev/a\\:b") - 1], "-B")
        self.assertIn("/empty:/new", argv)
        self.assertNotIn("--nv", argv)
        self.assertNotIn("x\ny", "".join(argv))
        self.assertEqual(env.pop("APPTAINERENV_A"), "x\ny")
        self.assertLessEqual(set(env), {"PATH", "HOME", "USER", "LANG"})


class Words(unittest.TestCase):
    def test_apptainers_refusals(self) -> None:
        def code(text: bytes) -> Any:
            problem = container.fatal(text)
            return None if problem is None else problem.code

        self.assertEqual(code(b'FATAL:   "x": executable file not found in $PATH\n'), 127)
        self.assertEqual(code(b"FATAL:   stat /x: no such file or directory\n"), 127)
        self.assertEqual(code(b"FATAL:   permission denied\n"), 126)
        self.assertEqual(code(b"FATAL:   engine configuration too big > 1048448\n"), 128)

    def test_a_programs_own_words(self) -> None:
        for text in (b"", b"oops\n", b"FATAL: mine\n", b"FATAL:   one\nand another\n", b"x\nFATAL:   y\n"):
            self.assertIsNone(container.fatal(text), text)
