"""The images' root file systems: each is brought by one worker and mounted once for all who ask together.

A FUSE server for each container of the same image would be most of the memory that the runner needs, and
a worker for each most of the time of a pod with many containers.
"""

import marshal
import os
import signal
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import process, sandbox, syscalls
from .loop import Loop
from .plan import ContainerPlan, Plan

# An event of a worker is its length in so many bytes, then a dict by `marshal`.
_LENGTH = 4


class Told(NamedTuple):
    """How an image was brought.

    Attributes:
        root: the directory that is its root file system; empty if it cannot be had.
        image_id: its digest in a registry.
        config: its OCI configuration if it has one.
        reason, message: why it cannot be had.
    """

    root: str
    image_id: Optional[str] = None
    config: Optional[Dict[str, Any]] = None
    reason: str = ""
    message: str = ""


class Asker:
    """Who wants an image; a container."""

    def pulling(self) -> None:
        """A registry is being asked for the image's content."""
        raise NotImplementedError

    def brought(self, told: Told) -> None:
        """The image is there, or cannot be had."""
        raise NotImplementedError


class _Work:
    """One worker and who waits for it."""

    def __init__(self) -> None:
        self.askers: List[Asker] = []
        self.pid = -1
        self.data = b""
        self.pulls = False
        self.mount = ""


class Roots:
    """Brings root file systems; `directory` is the sandbox, None where nothing can be mounted."""

    def __init__(self, plan: Plan, directory: Optional[str], loop: Loop) -> None:
        self._plan = plan
        self._loop = loop
        self._directory = directory
        self._works: Dict[Tuple[str, str], _Work] = {}
        self._users: Dict[str, int] = {}  # of what is mounted
        self._mounted: Dict[str, str] = {}  # an image's path → where
        self._count = 0

    def want(self, container: ContainerPlan, asker: Asker) -> None:
        """Bring the image of a container; `asker.brought` is called once, unless it forgoes it."""
        key = (container.image, container.pull_policy)
        work = self._works.get(key)
        if work is None:
            work = self._works[key] = self._begin(key, container)
        elif work.pulls:
            asker.pulling()
        work.askers.append(asker)

    def forgo(self, asker: Asker) -> bool:
        """Stop bringing it if nobody else waits for it; whether `asker` had waited."""
        for key, work in list(self._works.items()):
            if asker in work.askers:
                work.askers.remove(asker)
                if not work.askers:
                    del self._works[key]
                    process.kill(work.pid, signal.SIGKILL, group=True)
                return True
        return False

    def release(self, root: str) -> None:
        """One user less of a root; with the last one what is mounted there goes."""
        if root in self._users:
            self._users[root] -= 1
            self._tidy()

    def _begin(self, key: Tuple[str, str], container: ContainerPlan) -> _Work:
        work = _Work()
        reader, writer = os.pipe()
        if self._directory is not None:
            self._count += 1
            work.mount = os.path.join(self._directory, sandbox.ROOTS, "image-{}".format(self._count))

        def bring() -> None:
            from . import rootfs  # here, so that what it needs ends with the worker

            rootfs.work(self._plan, container, work.mount or None, self._mounted, writer)

        work.pid = process.worker(bring)
        os.close(writer)
        self._loop.read(reader, lambda data: self._told(key, work, data))
        return work

    def _told(self, key: Tuple[str, str], work: _Work, data: bytes) -> None:
        work.data += data
        while len(work.data) >= _LENGTH:
            end = _LENGTH + int.from_bytes(work.data[:_LENGTH], "little")
            if len(work.data) < end:
                break
            event = marshal.loads(work.data[_LENGTH:end])
            work.data = work.data[end:]
            self._event(key, work, event)
        if not data and self._works.get(key) is work:
            words = "the process that brings the image ended; see runner.log"
            self._done(key, work, Told("", reason="ErrImagePull", message=words))

    def _event(self, key: Tuple[str, str], work: _Work, event: Dict[str, Any]) -> None:
        if event["event"] == "pulling":
            work.pulls = True
            for asker in list(work.askers):
                asker.pulling()
            return
        del event["event"]
        path = event.pop("path", None)
        told = Told(**event)
        if path is not None and told.root == work.mount:
            self._mounted[path] = told.root
            self._users[told.root] = 0
        self._done(key, work, told)

    def _done(self, key: Tuple[str, str], work: _Work, told: Told) -> None:
        del self._works[key]
        if told.root in self._users:
            self._users[told.root] += len(work.askers)
        for asker in work.askers:
            asker.brought(told)
        self._tidy()

    def _tidy(self) -> None:
        """Unmount what nobody uses, unless a worker may be about to answer with it."""
        if self._works:
            return
        for path, root in list(self._mounted.items()):
            if self._users[root] <= 0:
                del self._mounted[path], self._users[root]
                try:
                    syscalls.unmount(root)
                except OSError as error:
                    print(str(error), flush=True)


def tell(pipe: int, **event: Any) -> None:
    """Write one event of a worker."""
    data = marshal.dumps(event)
    view = memoryview(len(data).to_bytes(_LENGTH, "little") + data)
    while view:
        view = view[os.write(pipe, view) :]
