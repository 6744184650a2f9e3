"""The files of names: the node's own lines, then the pod's."""

import os
import tempfile
import unittest
from typing import Any

from slurmrest_adapter.podrunner import names, plan


def planned(**values: Any) -> plan.Plan:
    data = {
        "schema": 1,
        "uid": "u",
        "namespace": "n",
        "name": "p",
        "hostname": "pod",
        "runtime": {"name": "apptainer"},
        "containers": [{"name": "c", "image": "/x.sif"}],
    }
    data.update(values)
    return plan.parse(data)


class Hosts(unittest.TestCase):
    def test_the_nodes_lines_then_the_pods(self) -> None:
        made = planned(host_aliases=[["10.0.0.1", ["a", "b.c"]]])
        self.assertEqual(
            names.hosts(made, "127.0.0.1 localhost\n\n", "10.9.8.7"),
            "127.0.0.1 localhost\n10.9.8.7\tpod\n10.0.0.1\ta\tb.c\n",
        )

    def test_a_node_without_the_file(self) -> None:
        text = names.hosts(planned(), "", "10.9.8.7")
        self.assertIn("127.0.0.1\tlocalhost\n", text)

    def test_the_files(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            mounts = names.write(planned(), directory, True)
            self.assertEqual(
                [each.target for each in mounts], ["/etc/hosts", "/etc/resolv.conf", "/etc/hostname"]
            )
            with open(mounts[2].source) as stream:
                self.assertEqual(stream.read(), "pod\n")
            self.assertEqual(os.stat(mounts[0].source).st_mode & 0o777, 0o644)
            targets = [each.target for each in names.write(planned(), directory, False)]
            self.assertNotIn("/etc/hostname", targets)


class Resolver(unittest.TestCase):
    NODE = "# a word\nnameserver 10.0.0.1\nsearch a b\noptions ndots:1 rotate\n"

    def text(self, node: bool, **values: Any) -> str:
        dns = planned(dns=dict(values, node=node)).dns
        return names.resolver(dns, self.NODE)

    def test_the_nodes_own_is_not_touched(self) -> None:
        self.assertEqual(names.resolver(None, self.NODE), self.NODE)

    def test_joined(self) -> None:
        text = self.text(
            True, nameservers=["10.0.0.1", "10.0.0.2"], searches=["b", "c"], options=["ndots:5", "x"]
        )
        self.assertEqual(
            text, "nameserver 10.0.0.1\nnameserver 10.0.0.2\nsearch a b c\noptions ndots:5 rotate x\n"
        )

    def test_alone(self) -> None:
        self.assertEqual(self.text(False, nameservers=["10.0.0.2"]), "nameserver 10.0.0.2\n")

    def test_no_more_than_the_library_reads(self) -> None:
        text = self.text(True, nameservers=["10.0.0.{}".format(number) for number in range(2, 5)])
        self.assertEqual(text.count("nameserver"), 3)


class Wrong(unittest.TestCase):
    def test_plans(self) -> None:
        for values in ({"host_aliases": [["x"]]}, {"dns": 1}, {"dns": {"searches": "a"}}):
            with self.assertRaises(plan.PlanError):
                planned(**values)
