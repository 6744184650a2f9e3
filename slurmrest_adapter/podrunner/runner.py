"""One run of a container: its image, its process, its log, its record."""

import fcntl
import os
import signal
import time
from typing import Any, Callable, Dict, List, Optional

from . import (
    apptainer,
    assemble,
    container,
    exact,
    gpus,
    message,
    nvidia,
    process,
    roots,
    sandbox,
    usage,
    volumes,
)
from .light import suppress
from .logs import CriLog, clear
from .loop import Loop
from .plan import ContainerPlan, Plan

IMAGE_FAILED = 125
_FATAL_CODE = 255  # Apptainer's, when it could not start the program
_FATAL_BYTES = 8192
_F_SETPIPE_SZ, _PIPE_BYTES = 1031, 256 * 1024
_DRAIN_SECONDS = 2.0  # for output after the end, if somebody still holds the pipes
# A TERM that arrives before the program runs is lost in Apptainer, so it waits until it does.
_START_SECONDS = 3.0
_START_STEP_SECONDS = 0.05


class Owner:
    """What a container tells of itself to; the supervisor."""

    def changed(self) -> None:
        """The record has changed."""
        raise NotImplementedError

    def worked(self) -> None:
        """A container did its work, or ran for long."""
        raise NotImplementedError


class Context:
    """What all containers of the pod share."""

    def __init__(
        self,
        plan: Plan,
        pod: str,
        sandbox_directory: Optional[str],
        allotment: gpus.Allotment,
        directories: Dict[str, str],
        local: volumes.Local,
        loop: Loop,
        owner: Owner,
    ) -> None:
        self.plan = plan
        self.pod = pod
        self.sandbox = sandbox_directory
        self.allotment = allotment
        self.directories = directories
        self.local = local
        self.loop = loop
        self.owner = owner
        self.children: Dict[int, Runner] = {}
        self.roots = roots.Roots(plan, sandbox_directory, loop)
        # In a sandbox the kernel ends all with the runner.
        self.guard = process.Guard() if sandbox_directory is None else None


class Runner(roots.Asker):
    """Starts a container once and follows it to its end, at which `ended` is called.

    `code` is its exit code, None while it has none and if the pod ended before it could start.
    `again` tells that it ran before, which makes this a restart.
    """

    def __init__(
        self,
        context: Context,
        plan: ContainerPlan,
        record: Dict[str, Any],
        again: bool,
        ended: Callable[["Runner"], None],
    ) -> None:
        self._context = context
        self.container = plan
        self._record = record
        self._again = again
        self._tell = ended
        self.code: Optional[int] = None
        self.image_failed = False
        self.running = False  # its program was started
        self._over = False
        self._retired = False
        self._pid: Optional[int] = None
        self._exact: Optional[exact.Container] = None
        self._ended: Optional[process.Ended] = None
        self._log: Optional[CriLog] = None
        self._pipes: Dict[str, int] = {}
        self._stderr = b""
        self._end = b""  # of its output
        self._words: Optional[str] = None  # the file with its last words
        self._quiet = True  # nothing came on stdout
        self._started = 0.0
        self._term_wanted = False
        self._root = ""
        self._notes: List[str] = []

    def begin(self) -> None:
        """Have the image brought; the container starts when it is there."""
        self._context.roots.want(self.container, self)

    def retire(self) -> None:
        """What has not started never will."""
        self._retired = True
        if self._context.roots.forgo(self):
            self._never_started()

    def pulling(self) -> None:
        """See `roots.Asker`."""
        self._record["reason"] = "Pulling"
        self._context.owner.changed()

    def brought(self, told: roots.Told) -> None:
        """See `roots.Asker`."""
        self._root = told.root
        if self._retired:
            self._context.roots.release(self._root)
            self._never_started()
            return
        if not told.root:
            self.image_failed = True
            self._fail(IMAGE_FAILED, told.reason, told.message)
            return
        self._record["image_id"] = told.image_id
        self._start(told.root, told.config)

    def terminate(self) -> None:
        """TERM, as soon as the program runs."""
        if self._pid is not None and self._ended is None and not self._term_wanted:
            self._term_wanted = True
            self._term_when_started()

    def kill(self) -> None:
        """KILL: with Apptainer's process the container's PID namespace ends, and all that is in it."""
        if self._pid is not None and self._ended is None:
            process.kill(self._pid, signal.SIGKILL)

    def flush(self) -> None:
        """Write output that waits for its newline, so that a sudden end loses little."""
        if self._log is not None:
            self._log.flush()

    def sampled(self, seconds: float, size: int) -> bool:
        """What its processes use, as `usage.take` answers it; whether the record has changed."""
        return usage.note(self._record, seconds, size)

    def child_ended(self, pid: int, status: int, seconds: float) -> None:
        """One of our processes was reaped, which with all below it used a processor for `seconds`."""
        if self._context.guard is not None:
            self._context.guard.ended(pid)
        usage.total(self._record, seconds)
        self._ended = process.decode(status)
        begun, self._exact = self._exact, None
        if begun is not None:
            try:
                self._ended = exact.ended(begun, status)
            except container.CannotRun as problem:
                self._fail(problem.code, "ContainerCannotRun", str(problem))
                return
        self._record["finished_at"] = round(time.time(), 3)
        self._context.loop.after(_DRAIN_SECONDS, self._drained)
        self._finish_if_done()

    def _start(self, root: str, config: Optional[Dict[str, Any]]) -> None:
        context, plan = self._context, self.container
        self._record["restart_count"] += self._again
        try:
            try:
                indices = gpus.container_indices(context.allotment, plan.gpus)
            except IndexError:
                raise container.CannotRun(
                    container.START_FAILED,
                    "gpus: position {} is asked for, but Slurm allotted {}".format(
                        max(plan.gpus), len(context.allotment.indices)
                    ),
                )
            self._record["gpus"] = indices
            gpu_env = gpus.environment(context.allotment, plan.gpus)
            mounts = volumes.bind(plan.mounts, context.directories, context.local.everywhere)
            # Apptainer's own /dev, which is all there is without a sandbox, takes no file of ours.
            if context.sandbox is not None or not plan.message_path.startswith("/dev/"):
                self._words = message.bind(plan.message_path, self._own("messages"), mounts)
            start = container.resolve(plan, config, root, gpu_env, mounts, context.sandbox is not None)
            self._notes = start.notes
            self._spawn(start, root, config is not None, mounts)
        except container.CannotRun as problem:
            self._fail(problem.code, "ContainerCannotRun", str(problem))
        except (OSError, volumes.VolumeError) as error:
            self._fail(container.START_FAILED, "ContainerCannotRun", str(error))

    def _spawn(self, start: container.Start, root: str, oci: bool, mounts: List[volumes.Bound]) -> None:
        context = self._context
        directory = os.path.join(context.pod, "logs", self.container.name)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        clear(directory, self._record["restart_count"])
        path = os.path.join(directory, "{}.log".format(self._record["restart_count"]))
        self._log = CriLog(path, context.plan.log_size, context.plan.log_files)
        out, out_writer = os.pipe()
        err, err_writer = os.pipe()
        for pipe in (out, err):
            with suppress(OSError):  # the user has too many already
                fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE_BYTES)
        devices = gpus.devices(context.allotment, self.container.gpus)
        try:
            if context.sandbox is not None:
                driver = nvidia.bring(start.env, devices)
                place = self._place(context.sandbox, root, oci, devices, mounts + driver)
                # Here, because the containers share it and start at the same time.
                for bound in mounts:
                    if bound.target.startswith("/dev/"):
                        volumes.mount_point(
                            place.dev, bound.target[len("/dev/") :], os.path.isdir(bound.source)
                        )
                self._exact = exact.spawn(start, place, out_writer, err_writer)
                self._pid = self._exact.pid
            else:
                empty = os.path.join(context.pod, sandbox.EMPTY)
                os.makedirs(empty, mode=0o755, exist_ok=True)
                driver = nvidia.bring({}, devices)  # Apptainer has its own words for where libraries are
                argv, env = apptainer.call(
                    start,
                    apptainer.Place(root, empty, context.plan.hostname, devices, oci, mounts + driver),
                )
                watch = context.guard.watch if context.guard is not None else None
                self._pid = process.spawn(argv, env, out_writer, err_writer, watch)
        finally:
            os.close(out_writer)
            os.close(err_writer)
        context.children[self._pid] = self
        self._pipes = {"stdout": out, "stderr": err}
        context.loop.read(out, lambda data: self._output("stdout", data))
        context.loop.read(err, lambda data: self._output("stderr", data))
        self._started = time.monotonic()
        self.running = True
        self._record.update(state="running", reason="", started_at=round(time.time(), 3))
        context.owner.changed()

    def _place(
        self, inside: str, root: str, oci: bool, devices: List[str], mounts: List[volumes.Bound]
    ) -> assemble.Place:
        plan = self.container
        upper = self._context.local.upper(plan)
        if upper is not None and os.path.lexists(upper):
            # What the run before wrote to its root; a worker removes it, which may take long.
            old = "{}.{}".format(upper, self._record["restart_count"])
            os.rename(upper, old)
            process.worker(lambda: volumes.remove(old))
        return assemble.Place(
            root=root,
            area=os.path.join(inside, sandbox.ROOTS, plan.name + ".area"),
            init=os.path.join(inside, sandbox.INIT),
            upper=upper,
            read_only=plan.read_only_root,
            dev=sandbox.dev_of(inside, plan.name, devices),
            hostname=self._context.plan.hostname,
            oci=oci,
            mounts=mounts,
        )

    def _output(self, stream: str, data: bytes) -> None:
        if not data:
            self._pipes.pop(stream, None)
            self._finish_if_done()
            return
        if stream == "stdout":
            self._quiet = False
        elif len(self._stderr) < _FATAL_BYTES:
            self._stderr += data
        if self.container.message_policy == message.FROM_LOGS:
            self._end = (self._end + data[-message.LOG_LONGEST :])[-message.LOG_LONGEST :]
        if self._log is not None:
            self._log.feed(stream, data)

    def _drained(self) -> None:
        self._drop_pipes()
        self._finish_if_done()

    def _drop_pipes(self) -> None:
        for descriptor in list(self._pipes.values()):
            self._context.loop.drop(descriptor)
        self._pipes = {}

    def _finish_if_done(self) -> None:
        if self._ended is None or self._pipes or self._over:
            return
        ended = self._ended
        plain = self._context.sandbox is None
        if plain and ended.code == _FATAL_CODE and self._quiet and len(self._stderr) < _FATAL_BYTES:
            problem = container.fatal(self._stderr)
            if problem is not None:
                self._fail(problem.code, "ContainerCannotRun", str(problem))
                return
        # Apptainer answers 128+s for a program that died of a signal; only ours are certain then.
        number = ended.signal or ended.code - 128
        if ended.signal or (plain and self._term_wanted and number in (signal.SIGTERM, signal.SIGKILL)):
            self._record["signal"] = int(number)
        fallback = ended.code != 0 and self.container.message_policy == message.FROM_LOGS
        words = message.read(self._words, self._end if fallback else None)
        self._close(ended.code, "Completed" if ended.code == 0 else "Error", words)

    def _fail(self, code: int, reason: str, words: str) -> None:
        if not self._over:
            self._close(code, reason, words)

    def _close(self, code: int, reason: str, words: str) -> None:
        self.code = code
        self._over = True
        self._drop_pipes()
        if self._log is not None:
            if self._log.lost:
                self._notes.append("{} bytes of its log could not be written".format(self._log.lost))
            self._log.close()
            self._log = None
        for note in self._notes:
            print("{}: {}".format(self.container.name, note), flush=True)
        # A container's own words stand alone: who reads them may take them for what it wrote.
        words = words or "; ".join(self._notes)
        self._record.update(state="terminated", reason=reason, exit_code=code, message=words)
        if self._record["finished_at"] is None:
            self._record["finished_at"] = round(time.time(), 3)
        self._context.roots.release(self._root)
        self._tell(self)

    def _never_started(self) -> None:
        """The pod ended first: nothing is left to wait for."""
        if not self._over:
            self._over = True
            self._tell(self)

    def _own(self, kind: str) -> str:
        """A path for something of this container, on memory where there is a sandbox."""
        return os.path.join(self._context.sandbox or self._context.pod, kind, self.container.name)

    def _term_when_started(self) -> None:
        if self._pid is None or self._ended is not None:
            return
        target: Optional[int] = self._pid
        if self._context.sandbox is not None:
            target = exact.main_pid(self._pid)
        elif time.monotonic() - self._started < _START_SECONDS and not self._program_runs(self._pid):
            target = None
        if target is None:
            self._context.loop.after(_START_STEP_SECONDS, self._term_when_started)
        else:
            process.kill(target, signal.SIGTERM)

    @staticmethod
    def _program_runs(pid: int) -> bool:
        starter = process.program_of(pid)
        programs = [process.program_of(below) for below in process.descendants(pid)]
        return any(program is not None and program != starter for program in programs)
