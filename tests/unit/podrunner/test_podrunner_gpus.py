"""GPUs: what Slurm allotted, what of it a container sees and is told."""

import os
import tempfile
import unittest
from typing import List

from slurmrest_adapter.podrunner import gpus


def allotted(names: List[str], **environ: str) -> gpus.Allotment:
    """What is found where /dev has files of these names."""
    with tempfile.TemporaryDirectory() as dev:
        for name in names:
            with open(os.path.join(dev, name), "w"):
                pass
        return gpus.allotted(environ, dev)


def seen(found: gpus.Allotment, *positions: int) -> List[str]:
    """The names in the /dev of a container with the GPUs at these positions."""
    return [os.path.basename(path) for path in gpus.devices(found, positions)]


class Files(unittest.TestCase):
    NODE = ["nvidia{}".format(index) for index in range(11)] + ["nvidiactl", "nvidia-uvm", "null"]

    def told(self, found: gpus.Allotment, *positions: int) -> str:
        values = gpus.environment(found, list(positions))
        self.assertEqual(set(values), set(gpus.VARIABLES))
        self.assertEqual(len(set(values.values())), 1)
        return values["CUDA_VISIBLE_DEVICES"]

    def test_each_container_sees_its_own_and_counts_them_from_0(self) -> None:
        found = allotted(self.NODE, SLURM_JOB_GPUS="1,3,9-10", CUDA_VISIBLE_DEVICES="0,1,2,3")
        common = ["nvidiactl", "nvidia-uvm"]
        for positions, names, told in (
            ((0,), ["nvidia1"], "0"),
            ((1,), ["nvidia3"], "0"),
            ((1, 2), ["nvidia3", "nvidia9"], "0,1"),
            ((0, 1, 2, 3), ["nvidia1", "nvidia3", "nvidia9", "nvidia10"], "0,1,2,3"),
        ):
            self.assertEqual((seen(found, *positions), self.told(found, *positions)), (names + common, told))
        self.assertEqual(gpus.container_indices(found, [1]), ["3"])

    def test_slurms_order_is_kept(self) -> None:
        found = allotted(self.NODE, SLURM_JOB_GPUS="10,2")
        self.assertEqual(seen(found, 0, 1)[:2], ["nvidia10", "nvidia2"])
        self.assertEqual(self.told(found, 0, 1), "1,0")

    def test_none(self) -> None:
        found = allotted(self.NODE)
        self.assertEqual((found.indices, found.files, found.common, seen(found)), ([], [], [], []))
        self.assertEqual(self.told(found), "")
        with self.assertRaises(IndexError):
            gpus.environment(found, [0])
        other = allotted(self.NODE, SLURM_JOB_GPUS="1")
        self.assertEqual((seen(other), self.told(other)), ([], ""))


class Others(unittest.TestCase):
    """Where no file can be told from another, all are seen and Slurm's own values stand."""

    def test_devices_of_another_kind(self) -> None:
        found = allotted(["kfd", "dri", "nvidia0"], SLURM_JOB_GPUS="0,2", ROCR_VISIBLE_DEVICES="0,2")
        self.assertEqual((found.files, seen(found, 1)), ([], ["kfd", "dri", "nvidia0"]))
        self.assertEqual(gpus.environment(found, [1])["ROCR_VISIBLE_DEVICES"], "2")
        self.assertEqual(seen(found), [])

    def test_parts_of_gpus(self) -> None:
        """Part 1 may lie on GPU 0, whatever file has its number."""
        node = ["nvidia0", "nvidia1", "nvidiactl", "nvidia-caps"]
        found = allotted(node, SLURM_JOB_GPUS="0,1", CUDA_VISIBLE_DEVICES="MIG-a,MIG-b")
        self.assertEqual((found.files, sorted(seen(found, 1))), ([], sorted(node)))
        self.assertEqual(gpus.environment(found, [1])["CUDA_VISIBLE_DEVICES"], "MIG-b")


class Lists(unittest.TestCase):
    def test_lists(self) -> None:
        self.assertEqual(gpus.expand("0,2-4"), ["0", "2", "3", "4"])
        self.assertEqual(gpus.expand(""), [])


if __name__ == "__main__":
    unittest.main()
