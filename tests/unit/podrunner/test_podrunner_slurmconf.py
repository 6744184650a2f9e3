"""What is read of a node's slurm.conf."""

import os
import tempfile
import unittest
import unittest.mock

from slurmrest_adapter.podrunner import slurmconf


class KillWait(unittest.TestCase):
    def read(self, text: str) -> float:
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "slurm.conf")
            with open(path, "wb") as stream:
                stream.write(text.encode("latin-1"))
            return slurmconf.kill_wait({"SLURM_CONF": path})

    def test_as_sites_write_it(self) -> None:
        for text, seconds in (
            ("KillWait=2\n", 2.0),
            ("# KillWait=3\nkillwait = 4 # not 5\n", 4.0),
            ("UnkillableStepTimeout=60\nKILLWAIT=120", 120.0),
            ("KillWait=6\nKillWait=7\n", 7.0),
            ("\xe9\nKillWait=0\n", 0.0),
            ("NoKillWait=1\nKillWait=\nKillWait=x\nKillWait", 30.0),
            ("", 30.0),
        ):
            self.assertEqual(self.read(text), seconds, text)

    def test_no_such_file(self) -> None:
        with unittest.mock.patch.object(slurmconf, "_PLACES", ("/nowhere/slurm.conf",)):
            self.assertEqual(slurmconf.kill_wait({"SLURM_CONF": "/none"}), 30.0)
            self.assertEqual(slurmconf.kill_wait({}), 30.0)


if __name__ == "__main__":
    unittest.main()
