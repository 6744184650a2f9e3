"""The runner's volumes: bytes, modes, what is mounted where, and that nothing stays behind."""

import base64
import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from typing import Any, Dict, List, Optional

from slurmrest_adapter.podrunner import apptainer, container, plan, volumes
from tests.unit.podrunner.test_podrunner_container import planned
from tests.unit.podrunner.test_podrunner_plan import good

ALL_BYTES = bytes(range(256))


def file(path: str, data: bytes = b"", mode: int = 0o644) -> Dict[str, Any]:
    return {"path": path, "mode": mode, "data": base64.b64encode(data).decode("ascii")}


def with_volumes(*given: Dict[str, Any], mounts: Any = ()) -> plan.Plan:
    data = good()
    data["volumes"] = list(given)
    data["containers"][0]["mounts"] = list(mounts)
    return plan.parse(data)


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


class Plans(unittest.TestCase):
    def test_a_plan_without_volumes_is_an_older_sidecars(self) -> None:
        parsed = plan.parse(good())
        self.assertEqual((parsed.volumes, parsed.containers[0].mounts), ([], []))

    def test_what_is_in_it(self) -> None:
        parsed = with_volumes(
            {"name": "f", "files": [file("a/b", ALL_BYTES, 0o400)], "medium": "", "size_bytes": None},
            {"name": "m", "files": None, "medium": "Memory", "size_bytes": 5},
            mounts=[{"volume": "f", "path": "/x", "read_only": True, "sub_path": "a"}],
        )
        self.assertEqual(parsed.volumes[0].files, [plan.File("a/b", 0o400, ALL_BYTES)])
        self.assertEqual(parsed.volumes[1], plan.Volume("m", None, True, 5))
        self.assertEqual(parsed.containers[0].mounts, [plan.Mount("f", "/x", True, "a")])

    def test_errors_name_the_field_and_show_no_data(self) -> None:
        f = {"name": "f", "files": []}  # type: Dict[str, Any]
        wrong = [
            ([f, f], [], "volumes: two"),
            ([{"name": "../f", "files": []}], [], "volumes[0].name"),
            ([{"name": "f", "medium": "Disk"}], [], "volumes[0].medium"),
            ([{"name": "f", "size_bytes": 0}], [], "volumes[0].size_bytes"),
            ([{"name": "f", "files": [file("/a")]}], [], "volumes[0].files[0].path"),
            ([{"name": "f", "files": [file("a/../../b")]}], [], "volumes[0].files[0].path"),
            ([{"name": "f", "files": [file("a//b")]}], [], "volumes[0].files[0].path"),
            ([{"name": "f", "files": [file("a", b"", 0o1777)]}], [], "volumes[0].files[0].mode"),
            ([{"name": "f", "files": [{"path": "a", "mode": 1, "data": "hunter2!"}]}], [], "files[0].data"),
            ([{"name": "f", "host_path": "a"}], [], "volumes[0].host_path"),
            ([{"name": "f", "host_path": "/a", "host_within": ["a"]}], [], "volumes[0].host_within"),
            ([f], [{"volume": "g", "path": "/x"}], "main mounts a volume"),
            ([f], [{"volume": "f", "path": "x"}], "mounts[0].path"),
            ([f], [{"volume": "f", "path": "/x/../y"}], "mounts[0].path"),
            ([f], [{"volume": "f", "path": "/"}], "mounts[0].path"),
            ([f], [{"volume": "f", "path": "/x", "sub_path": "../y"}], "mounts[0].sub_path"),
        ]  # type: List[Any]
        for given, mounts, words in wrong:
            with self.subTest(words), self.assertRaises(plan.PlanError) as caught:
                with_volumes(*given, mounts=mounts)
            self.assertIn(words, str(caught.exception))
            self.assertNotIn("hunter2", str(caught.exception))

    def test_several_mebibytes(self) -> None:
        data = os.urandom(6 * 1024 * 1024)
        parsed = with_volumes({"name": "f", "files": [file("big", data)]})
        assert parsed.volumes[0].files is not None
        self.assertEqual(parsed.volumes[0].files[0].data, data)


class Made(unittest.TestCase):
    """Volumes as plain mode makes them: the sandbox only puts a tmpfs below."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.base = os.path.realpath(directory.name)
        self.addCleanup(os.umask, os.umask(0o077))
        memory = volumes._SHARED_MEMORY
        volumes._SHARED_MEMORY = self.base
        self.addCleanup(setattr, volumes, "_SHARED_MEMORY", memory)

    def make(self, *given: Dict[str, Any]) -> Dict[str, str]:
        parsed = with_volumes(*given)
        self.local = volumes.Local(parsed, {"TMPDIR": self.base})
        self.addCleanup(self.local.remove)
        return volumes.make(parsed, None, self.local)

    def test_bytes_and_modes_whatever_the_umask(self) -> None:
        files = [file("bytes", ALL_BYTES), file("a/b/c", b"", 0o400), file("a/x", b"x", 0o777)]
        files += [file("none", b"hidden", 0)]
        made = self.make({"name": "f", "files": files})
        with open(os.path.join(made["f"], "bytes"), "rb") as stream:
            self.assertEqual(stream.read(), ALL_BYTES)
        modes = {
            path: mode_of(os.path.join(made["f"], path)) for path in ("bytes", "a/b/c", "a/x", "none", "a")
        }
        self.assertEqual(modes, {"bytes": 0o644, "a/b/c": 0o400, "a/x": 0o777, "none": 0, "a": 0o755})
        self.assertEqual(mode_of(os.path.dirname(made["f"])), 0o700)

    def test_empty_directories_are_open_inside_what_is_closed(self) -> None:
        made = self.make({"name": "d"}, {"name": "m", "medium": "Memory"})
        for path in made.values():
            self.assertEqual(mode_of(path), 0o777)
            self.assertEqual(os.listdir(path), [])
            self.assertEqual(mode_of(os.path.dirname(path)), 0o700)

    def test_a_device_of_the_node_could_not_be_opened(self) -> None:
        for kind in ("", "CharDevice"):
            given = {"name": "v", "host_path": "/dev/null", "host_type": kind}
            with self.assertRaises(volumes.VolumeError) as caught:
                self.make(given)
            self.assertIn("volume 'v': '/dev/null' is a device", str(caught.exception))
            parsed = with_volumes(given)
            made = volumes.make(parsed, self.base, volumes.Local(parsed, {}))
            self.assertEqual(made, {"v": "/dev/null"})

    def test_nothing_stays(self) -> None:
        made = self.make({"name": "d"}, {"name": "f", "files": [file("a", b"secret", 0o400)]})
        os.makedirs(os.path.join(made["d"], "closed", "inner"))
        os.chmod(os.path.join(made["d"], "closed", "inner"), 0)
        os.chmod(os.path.join(made["d"], "closed"), 0)
        os.symlink(self.base, os.path.join(made["d"], "link"))
        deep = os.getcwd()
        try:
            os.chdir(made["d"])
            for _ in range(3000):  # beyond what one path can say
                os.mkdir("deep")
                os.chdir("deep")
        finally:
            os.chdir(deep)
        self.local.remove()
        for path in made.values():
            self.assertFalse(os.path.exists(path))
        self.assertEqual(os.listdir(os.path.join(self.base, os.listdir(self.base)[0], "pods")), [])

    def test_what_a_killed_runner_left_is_removed_by_the_next(self) -> None:
        text = "import os, sys; from slurmrest_adapter.podrunner import volumes; "
        text += (
            "s = volumes.Scratch(sys.argv[1]); open(s.path + '/left', 'w').close(); os.kill(os.getpid(), 9)"
        )
        subprocess.call([sys.executable, "-c", text, self.base])
        home = os.path.join(self.base, os.listdir(self.base)[0], "pods")
        (left,) = os.listdir(home)
        os.mkdir(os.path.join(home, "othernode-1"))
        first = volumes.Scratch(self.base)
        volumes.Local(with_volumes(), {"TMPDIR": self.base}).tidy()  # the first one lives
        second = volumes.Scratch(self.base)
        names = {os.path.basename(first.path), os.path.basename(second.path), "othernode-1"}
        self.assertEqual(set(os.listdir(home)), names)
        self.assertNotIn(left, names)
        first.remove()
        second.remove()

    def test_tidying_makes_nothing_and_passes_over_what_is_not_ours(self) -> None:
        local = volumes.Local(with_volumes(), {"TMPDIR": self.base})
        local.tidy()
        self.assertEqual(os.listdir(self.base), [])
        own = os.path.join(self.base, "slurmrest-adapter-{}".format(os.getuid()))
        kept = os.path.join(own, "pods", "{}-1".format(os.uname().nodename))
        os.makedirs(kept)
        os.chmod(own, 0o777)  # anybody may have put that there
        local.tidy()
        self.assertTrue(os.path.isdir(kept))
        os.chmod(own, 0o700)
        local.tidy()
        self.assertFalse(os.path.isdir(kept))

    def test_a_link_of_the_node_must_stay_in_what_the_site_allows(self) -> None:
        allowed, other = os.path.join(self.base, "allowed"), os.path.join(self.base, "other")
        for path in (allowed, other):
            os.makedirs(os.path.join(path, "data"))
        os.symlink(other, os.path.join(allowed, "out"))
        os.symlink("data", os.path.join(allowed, "in"))
        os.symlink(allowed, os.path.join(self.base, "base"))  # the site's own word for it may be a link

        def given(path: str, *within: str) -> Dict[str, object]:
            bases = [os.path.join(self.base, each) for each in within]
            return {"name": "v", "host_path": os.path.join(self.base, path), "host_within": bases}

        data = os.path.join(os.path.realpath(allowed), "data")
        for path in ("allowed/in", "base/in", "base/data"):
            self.assertEqual(self.make(given(path, "base")), {"v": data})
        for path in ("allowed/out", "allowed/out/data", "allowed/out/new", "allowed-not", "other"):
            with self.assertRaises(volumes.VolumeError) as caught:
                self.make(given(path, "allowed"))
            self.assertIn("which the site does not allow (policy.host_paths)", str(caught.exception))
        self.assertEqual(os.listdir(other), ["data"])
        self.assertEqual(self.make(given("allowed/out", "allowed", "other")), {"v": os.path.realpath(other)})

    def test_who_changes_a_path_later_cannot_move_the_volume(self) -> None:
        path = os.path.join(self.base, "a")
        os.makedirs(os.path.join(path, "b"))
        made = self.make({"name": "v", "host_path": os.path.join(path, "b"), "host_within": [self.base]})
        mount = plan.Mount("v", "/v", False, "")
        self.assertEqual([each.source for each in self.bound(made, mount)], [made["v"]])
        os.rename(path, path + "2")
        os.symlink("/etc", path)
        with self.assertRaises(volumes.VolumeError) as caught:
            self.bound(made, mount)
        self.assertIn("volume 'v': a link has come into its path", str(caught.exception))

    def test_somebody_elses_directory_is_not_used(self) -> None:
        os.mkdir(os.path.join(self.base, "slurmrest-adapter-{}".format(os.getuid())), 0o755)
        os.chmod(os.path.join(self.base, "slurmrest-adapter-{}".format(os.getuid())), 0o755)
        with self.assertRaises(volumes.VolumeError):
            self.make({"name": "d"})

    def bound(self, made: Dict[str, str], *mounts: plan.Mount) -> List[volumes.Bound]:
        return volumes.bind(list(mounts), made)

    def test_parents_come_before_what_lies_below(self) -> None:
        made = self.make({"name": "d"}, {"name": "f", "files": [file("k", b"v")]})
        mounts = [
            plan.Mount("f", "/a/b/f", True, "k"),
            plan.Mount("d", "/a/b-c", False, ""),
            plan.Mount("d", "/a/b", True, ""),
            plan.Mount("d", "/a", False, ""),
        ]
        bound = self.bound(made, *mounts)
        self.assertEqual([one.target for one in bound], ["/a", "/a/b", "/a/b/f", "/a/b-c"])
        self.assertEqual([one.read_only for one in bound], [False, True, True, False])
        self.assertEqual(bound[2].source, os.path.join(made["f"], "k"))
        # The mount points are there before the runtime looks for them, a file for a file.
        self.assertEqual(sorted(os.listdir(made["d"])), ["b", "b-c", "f"])
        self.assertTrue(os.path.isfile(os.path.join(made["d"], "f")))

    def test_a_part_that_is_missing_becomes_a_directory(self) -> None:
        made = self.make({"name": "d"})
        (bound,) = self.bound(made, plan.Mount("d", "/x", False, "a, b/c:d"))
        self.assertEqual(bound.source, os.path.join(made["d"], "a, b/c:d"))
        self.assertEqual(mode_of(bound.source), 0o777)

    def test_a_part_never_leads_out_of_its_volume(self) -> None:
        made = self.make({"name": "d"})
        os.symlink("/etc", os.path.join(made["d"], "out"))
        os.mkdir(os.path.join(made["d"], "in"))
        os.symlink("in", os.path.join(made["d"], "link"))
        for sub_path in ("out", "out/passwd", "out/new"):
            with self.assertRaises(volumes.VolumeError):
                self.bound(made, plan.Mount("d", "/x", False, sub_path))
        (bound,) = self.bound(made, plan.Mount("d", "/x", False, "link"))
        self.assertEqual(bound.source, os.path.join(made["d"], "in"))

    def test_a_link_is_no_way_to_make_files_elsewhere(self) -> None:
        made = self.make({"name": "d"})
        os.symlink(self.base, os.path.join(made["d"], "out"))
        before = set(os.listdir(self.base))
        self.bound(made, plan.Mount("d", "/x", False, ""), plan.Mount("d", "/x/out/new", False, ""))
        self.assertEqual(set(os.listdir(self.base)), before)

    def test_odd_paths_in_apptainers_words(self) -> None:
        bound = volumes.Bound('/a,b:c "d', "/x y\n", True)
        self.assertEqual(apptainer.mount(bound), '"type=bind","source=/a,b:c ""d","destination=/x y\n","ro"')

    def test_the_disk(self) -> None:
        base = self.base
        for environ, expected in (
            ({}, "/var/tmp"),
            ({"TMPDIR": "/tmp/"}, "/var/tmp"),
            ({"TMPDIR": base}, base),
            ({"TMPDIR": base + "/none"}, "/var/tmp"),
            ({"SLURM_TMPDIR": base, "TMPDIR": "/tmp"}, base),
        ):  # type: Any
            self.assertEqual(volumes.disk_base(environ), expected)


class Views(unittest.TestCase):
    """What a container will see is known before it starts: its command may lie in a volume."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        base = os.path.realpath(directory.name)
        self.root, self.volume = os.path.join(base, "root"), os.path.join(base, "volume")
        for path in ("root/bin", "root/run", "root/var", "volume/dir"):
            os.makedirs(os.path.join(base, path))
        os.symlink("/run", os.path.join(self.root, "var/run"))
        for path, mode in (("root/bin/tool", 0o755), ("volume/run", 0o755), ("volume/plain", 0o644)):
            with open(os.path.join(base, path), "w"):
                os.chmod(os.path.join(base, path), mode)

    def resolve(self, target: str, cwd: Optional[str] = None, *command: str) -> container.Start:
        bound = [volumes.Bound(self.volume, target, True)]
        return container.resolve(planned(command=list(command), working_dir=cwd), {}, self.root, {}, bound)

    def test_a_command_in_a_volume(self) -> None:
        self.assertEqual(self.resolve("/scripts", None, "/scripts/run").argv, ["/scripts/run"])
        self.resolve("/scripts", "/scripts", "./run")
        # The image's link is followed on the way to the mount and to the command alike.
        self.resolve("/var/run/scripts", None, "/run/scripts/run")
        self.resolve("/run/scripts", None, "/var/run/scripts/run")
        for command, code in (("/scripts/plain", 126), ("/scripts/none", 127), ("/scripts/dir", 126)):
            with self.assertRaises(container.CannotRun) as caught:
                self.resolve("/scripts", None, command)
            self.assertEqual(caught.exception.code, code)

    def test_a_volume_hides_what_the_image_has(self) -> None:
        with self.assertRaises(container.CannotRun) as caught:
            self.resolve("/bin", None, "/bin/tool")
        self.assertEqual(caught.exception.code, 127)

    def test_the_working_directory(self) -> None:
        for target, cwd, make in (
            ("/v", "/v", False),
            ("/v", "/v/dir", False),
            ("/v", "/v/new/one", False),
            ("/tmp/v", "/tmp/v/dir", False),
            ("/tmp/v", "/tmp", False),
            ("/work/v", "/work", False),
            ("/work/v", "/other", True),
            ("/tmp/v", "/tmp/other", True),
        ):
            with self.subTest(cwd):
                self.assertEqual(self.resolve(target, cwd, "/bin/tool").make_cwd, make)
        self.assertTrue(os.path.isdir(os.path.join(self.volume, "new/one")))
        with self.assertRaises(container.CannotRun):
            self.resolve("/v", "/v/plain", "/bin/tool")


class Json(unittest.TestCase):
    def test_the_sidecars_plan_is_read(self) -> None:
        if sys.version_info < (3, 11):
            self.skipTest("the sidecar's own modules need a newer Python")
        from slurmrest_adapter.domain import podplan

        data = base64.b64encode(ALL_BYTES).decode()
        made = podplan.PodPlan(
            "u", "n", "p", "c",
            (podplan.ContainerPlan("m", "/x.sif", mounts=(podplan.MountPlan("v", "/v", True, "s"),)),),
            runtime={"name": "apptainer"},
            volumes=(
                podplan.VolumePlan("v", (podplan.FilePlan("a", 0o400, data),)),
                podplan.VolumePlan("d", None, "Memory", 7),
            ),
        )  # fmt: skip
        parsed = plan.parse(json.loads(made.to_json()))
        self.assertEqual(parsed.containers[0].mounts, [plan.Mount("v", "/v", True, "s")])
        self.assertEqual(parsed.volumes[0].files, [plan.File("a", 0o400, ALL_BYTES)])
        self.assertEqual(parsed.volumes[1], plan.Volume("d", None, True, 7))
        self.assertNotIn(data, repr(made) + repr(made.volumes))


if __name__ == "__main__":
    unittest.main()
