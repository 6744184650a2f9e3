"""Images: SIF files, references, a registry's answers, the store."""

import hashlib
import http.server
import json
import os
import struct
import tempfile
import threading
import unittest
from typing import Any, Dict, List, Optional, Tuple

from slurmrest_adapter.podrunner import images, registry, sif, volumes


def synthetic_sif(config: Optional[bytes], file_system: int = 1) -> bytes:
    """A SIF as the format describes it: header, two descriptors (one unused between), data."""
    size = 585
    table_at, data_at = 128, 128 + 3 * size

    def descriptor(kind: int, used: bool, offset: int, length: int, name: bytes, extra: bytes) -> bytes:
        fixed = struct.pack("<i?IIIqqqqqqq", kind, used, 1, 1, 0, offset, length, length, 0, 0, 0, 0)
        return (fixed + name.ljust(128, b"\0") + extra).ljust(size, b"\0")

    blob = config or b""
    table = descriptor(0x4006, config is not None, data_at, len(blob), b"oci-config.json", b"")
    table += descriptor(0x4004, False, 7, 7, b"old", struct.pack("<i", 1))
    table += descriptor(0x4004, True, 36864, 100, b"squashfs", struct.pack("<i", file_system))
    header = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0") + b"SIF_MAGIC\0" + b"01\0" + b"02\0"
    header = header.ljust(64, b"\0") + struct.pack("<8q", 0, 0, 0, 3, table_at, len(table), data_at, 100)
    return header + table + blob


class Sifs(unittest.TestCase):
    def setUp(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.addCleanup(self._directory.cleanup)
        self.path = os.path.join(self._directory.name, "x.sif")

    def read(self, data: bytes) -> sif.Sif:
        with open(self.path, "wb") as stream:
            stream.write(data)
        return sif.read(self.path)

    def test_configuration_and_offset(self) -> None:
        config = {"Env": ["A=\u00e9\n"], "Cmd": ["x"]}
        found = self.read(synthetic_sif(json.dumps(config).encode("utf-8")))
        self.assertEqual(found, sif.Sif(36864, config))

    def test_a_whole_oci_configuration(self) -> None:
        found = self.read(synthetic_sif(b'{"architecture":"amd64","config":{"Cmd":["x"]}}'))
        self.assertEqual(found.config, {"Cmd": ["x"]})

    def test_without(self) -> None:
        self.assertEqual(self.read(synthetic_sif(None, file_system=2)), sif.Sif(None, None))

    def test_broken_files(self) -> None:
        whole = synthetic_sif(b"{}")
        for data in (b"", b"x" * 500, whole[:128], whole[:400], synthetic_sif(b"{"), synthetic_sif(b"[]")):
            with self.subTest(size=len(data)), self.assertRaises(sif.SifError):
                self.read(data)

    def test_what_the_image_module_says(self) -> None:
        for data in (b"nothing", synthetic_sif(b"{")):
            with open(self.path, "wb") as stream:
                stream.write(data)
            with self.assertRaisesRegex(images.ImageError, "x.sif: "):
                images.inspect(self.path, None)
        with self.assertRaisesRegex(images.ImageError, "No such file"):
            images.inspect(self.path + "x", None)
        self.assertIsNone(images.inspect(self._directory.name, None).config)


class References(unittest.TestCase):
    def test_forms(self) -> None:
        digest = "sha256:" + "a" * 64
        cases = {
            "docker://127.0.0.1:5000/lab/busybox:1": ("127.0.0.1:5000", "lab/busybox", "1", ""),
            "docker://busybox": ("docker.io", "library/busybox", "latest", ""),
            "docker://nvidia/cuda:12.2": ("docker.io", "nvidia/cuda", "12.2", ""),
            "oras://localhost/x/y_z:v": ("localhost", "x/y_z", "v", ""),
            "docker://ghcr.io/a/b@" + digest: ("ghcr.io", "a/b", "latest", digest),
            "docker://ghcr.io/a/b:t@" + digest: ("ghcr.io", "a/b", "t", digest),
        }
        for text, expected in cases.items():
            self.assertEqual(tuple(registry.parse(text))[1:], expected, text)

    def test_digest_and_tag_are_never_given_together(self) -> None:
        reference = registry.parse("docker://h:1/a/b:t")
        self.assertEqual(reference.pinned("sha256:x"), "docker://h:1/a/b@sha256:x")

    def test_wrong_ones(self) -> None:
        for text in (
            "busybox",
            "http://x/y",
            "docker://",
            "docker://H/UPPER",
            "docker://h.io/a:b:c",
            "docker://h.io/a@sha256:xyz",
            "docker://h.io/../etc",
            "docker://h.io/a b",
        ):
            with self.subTest(text=text), self.assertRaises(ValueError):
                registry.parse(text)

    def test_challenges(self) -> None:
        found = registry.challenge('Bearer realm="https://a/t",service="s",scope="repository:x:pull"')
        self.assertEqual(found, {"realm": "https://a/t", "service": "s", "scope": "repository:x:pull"})
        self.assertIsNone(registry.challenge('Basic realm="x"'))


class Answering(http.server.BaseHTTPRequestHandler):
    """A small but real registry: /v2/<name>/manifests/<tag> by name, tokens for "private"."""

    seen: List[Tuple[str, str, str]] = []  # noqa: RUF012  ClassVar needs 3.6.1
    manifest = b'{"schemaVersion":2}'

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(False)

    def do_GET(self) -> None:
        self.answer(True)

    def answer(self, body: bool) -> None:
        authorization = self.headers.get("Authorization") or ""
        self.seen.append((self.command, self.path, authorization))
        server = "127.0.0.1:{}".format(self.headers.get("Host", "").rpartition(":")[2])
        if self.path.startswith("/token"):
            self.reply(200, {}, b'{"token":"anonymous"}', body)
        elif "/private/" in self.path and authorization != "Bearer anonymous":
            realm = 'Bearer realm="http://{}/token",service="r",scope="repository:private:pull"'.format(
                server
            )
            self.reply(401, {"WWW-Authenticate": realm}, b"{}", body)
        elif "/missing/" in self.path:
            words = b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'
            self.reply(404, {}, words, body)
        elif "/silent/" in self.path:
            self.reply(200, {}, self.manifest, body)
        elif "/odd/" in self.path:
            self.reply(200, {"Docker-Content-Digest": "../../x"}, self.manifest, body)
        else:
            if "application/vnd.oci.image.index.v1+json" not in (self.headers.get("Accept") or ""):
                self.reply(406, {}, b"", body)
                return
            self.reply(200, {"Docker-Content-Digest": "sha256:" + "b" * 64}, self.manifest, body)

    def reply(self, code: int, headers: Dict[str, str], content: bytes, body: bool) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)


class Registries(unittest.TestCase):
    def setUp(self) -> None:
        self.server = http.server.HTTPServer(("127.0.0.1", 0), Answering)
        self.host = "127.0.0.1:{}".format(self.server.server_address[1])
        thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(self.server.shutdown)
        del Answering.seen[:]

    def digest(self, name: str) -> str:
        reference = registry.parse("docker://{}/{}:1".format(self.host, name))
        return registry.digest_of(reference, [self.host])

    def test_one_request(self) -> None:
        self.assertEqual(self.digest("plain"), "sha256:" + "b" * 64)
        self.assertEqual([seen[0] for seen in Answering.seen], ["HEAD"])

    def test_a_digest_needs_none(self) -> None:
        reference = registry.parse("docker://{}/x@sha256:{}".format(self.host, "c" * 64))
        self.assertEqual(registry.digest_of(reference, [self.host]), "sha256:" + "c" * 64)
        self.assertEqual(Answering.seen, [])

    def test_an_anonymous_token(self) -> None:
        self.assertEqual(self.digest("private"), "sha256:" + "b" * 64)
        self.assertIn("scope=repository%3Aprivate%3Apull", Answering.seen[1][1])

    def test_the_registrys_words(self) -> None:
        with self.assertRaisesRegex(registry.RegistryError, "MANIFEST_UNKNOWN: manifest unknown") as caught:
            self.digest("missing")
        self.assertEqual(caught.exception.status, 404)

    def test_without_the_header_the_content_is_hashed(self) -> None:
        self.assertEqual(self.digest("silent"), "sha256:" + hashlib.sha256(Answering.manifest).hexdigest())

    def test_a_digest_that_is_a_path_is_refused(self) -> None:
        with self.assertRaisesRegex(registry.RegistryError, "no valid digest"):
            self.digest("odd")

    def test_nobody_there(self) -> None:
        reference = registry.parse("docker://127.0.0.1:1/x:1")
        with self.assertRaisesRegex(registry.RegistryError, "refused"):
            registry.digest_of(reference, ["127.0.0.1:1"])

    def test_https_unless_told(self) -> None:
        with self.assertRaises(registry.RegistryError):
            registry.digest_of(registry.parse("docker://{}/plain:1".format(self.host)), [])
        self.assertEqual(Answering.seen, [])


class Stores(unittest.TestCase):
    def setUp(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.addCleanup(self._directory.cleanup)
        self.base = self._directory.name

    def test_an_own_directory(self) -> None:
        path = volumes.own_directory(self.base)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o700)
        self.assertEqual(volumes.own_directory(self.base), path)
        os.chmod(path, 0o770)
        with self.assertRaisesRegex(volumes.VolumeError, "open to other users"):
            volumes.own_directory(self.base)
        os.rmdir(path)
        os.symlink(self.base, path)
        with self.assertRaisesRegex(volumes.VolumeError, "not a directory"):
            volumes.own_directory(self.base)
        with self.assertRaisesRegex(volumes.VolumeError, "No such file"):
            volumes.own_directory(self.base + "/none")

    def test_references_are_remembered(self) -> None:
        store = images.Store(self.base)
        self.assertIsNone(store.remembered("docker://h/a:1"))
        store.remember("docker://h/a:1", "sha256:1")
        store.remember("docker://h/a:1", "sha256:2")
        self.assertEqual(store.remembered("docker://h/a:1"), "sha256:2")

    def test_one_at_a_time(self) -> None:
        store = images.Store(self.base)
        inside = []
        most = []

        def enter() -> None:
            with store.locked("sha256:1"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

        threads = [threading.Thread(target=enter) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(most, [1] * 8)

    def test_scratch_goes_away_whatever_its_modes(self) -> None:
        os.makedirs(os.path.join(self.base, "tmp-sha256-1", "left by a killed pull"))
        with images.scratch(self.base, "sha256:1") as directory:
            self.assertEqual(os.listdir(directory), [])
            os.makedirs(os.path.join(directory, "a", "b"))
            os.chmod(os.path.join(directory, "a"), 0)
        self.assertEqual(os.listdir(self.base), [])
