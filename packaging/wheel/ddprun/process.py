"""The launcher as a child process of Python."""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import sys
from types import FrameType
from typing import Any, Callable, Mapping, Optional, Sequence

from . import debugged_worker

# Signals that the launcher handles.
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Signals that a terminal sends to the whole foreground process group.
_OF_A_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
_LOOK_INTERVAL = 0.2  # seconds, only without pidfds


def program() -> str:
    """Returns the path of the ``ddprun`` program that was installed with this package; within `ddprun exec`, of that
    one.

    Raises FileNotFoundError if it does not exist.
    """
    if os.environ.get("DDPRUN_PROGRAM"):
        return os.environ["DDPRUN_PROGRAM"]
    site = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # PREFIX/lib/pythonX.Y/site-packages, the target folder of `pip install --target`, PREFIX/lib/ddprun_python or a
    # source tree's packaging/wheel, and the folder beside a built program.
    places = ["../../../bin", "bin", "../../bin", ".."]
    candidates = [os.path.normpath(os.path.join(site, place, "ddprun")) for place in places]
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise FileNotFoundError(f"ddprun was not found at {' or '.join(candidates)}: reinstall ddprun")


def environment(starts_python: bool = True) -> dict[str, str]:
    """Returns the environment of a launcher whose workers run in this interpreter, as with torchrun, and, if it starts
    them, with this process's debugger."""
    variables = dict(os.environ)
    if sys.executable:
        variables["DDPRUN_PYTHON"] = sys.executable
    python = debugged_worker.python_for_workers() if starts_python else None
    if python is not None:
        variables["PYTHON_EXEC"] = python
        variables["PET_PRELOAD"] = "none"  # unless the command line has --preload
    return variables


def run(args: Optional[Sequence[str]] = None) -> int:
    """Runs ``ddprun`` with the arguments `args` (default: ``sys.argv[1:]``) and returns its exit code.

    Like ``torch.distributed.run.main``, it takes a list: ``run(["--standalone", "--nproc-per-node=2", "train.py"])``.
    Workers run in this interpreter, unless PYTHON_EXEC names another. The launcher is a separate process and writes to
    this process's standard output and error, regardless of ``sys.stdout``.

    If called from the main thread, it forwards SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 to the launcher
    while it runs, and returns when the launcher has ended: 128 + signal if a signal ended the job. If called from
    another thread, it does not handle signals. If this process ends first, the launcher receives SIGTERM.

    Raises TypeError if `args` is a single string, and OSError if the program can't be started.
    """
    if isinstance(args, str):
        raise TypeError("args is a list of arguments, not one string: use shlex.split()")
    arguments = sys.argv[1:] if args is None else [os.fspath(arg) for arg in args]
    return Launcher(program(), arguments, environment()).run()


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


class Launcher:
    """One run of the program `path`. `pumped`: its output goes through sys.stdout and sys.stderr. `work`: its workers
    are forked from this process and call it. `folder`: the launcher removes it if this process is killed."""

    def __init__(
        self,
        path: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        pumped: bool = False,
        work: Optional[Callable[[], None]] = None,
        folder: str = "",
    ) -> None:
        self.command = [path, *arguments]
        self.environment = {**environment, "DDPRUN_ENDS_WITH_PROCESS": f"{os.getpid()} {folder}".rstrip()}
        self.pumped = pumped
        self.work = work
        self.signals: set[int] = set()  # signals that this process has received meanwhile
        self._child = 0
        self._streams: dict[int, Any] = {}  # the pipes from which its output is copied, each with stream and decoder
        self._ending = False

    def run(self) -> int:
        """Returns the exit code. Forwards signals as `ddprun.run` does. An exception (of sys.stdout.write, say) leaves
        this function when the job has ended."""
        sys.stdout.flush()
        sys.stderr.flush()

        # A second signal kills the workers at once, so each signal must arrive only once. In the foreground of a
        # terminal the launcher is in this process's group and the terminal signals both. Otherwise the launcher has a
        # group of its own: signals to this process's group (from a batch system) do not reach it, only forwarded ones
        # do.
        at_terminal = _in_foreground()
        pending: list[int] = []

        def forward(number: int, frame: Optional[FrameType]) -> None:
            first = number not in self.signals
            self.signals.add(number)
            if at_terminal and number in _OF_A_TERMINAL and first:
                return
            if self._child:
                os.kill(self._child, number)
            else:
                pending.append(number)

        previous = {}
        try:
            for number in _FORWARDED:
                handler = signal.getsignal(number)
                # Ignored signals (nohup) stay ignored in the launcher, and handlers set by C code could not be
                # restored.
                if handler is signal.SIG_IGN or handler is None:
                    continue
                try:
                    signal.signal(number, forward)
                except ValueError:  # not in the main thread
                    break
                previous[number] = handler
            try:
                self._start(os.getpgrp() if at_terminal else 0)
                for early in pending:
                    os.kill(self._child, early)
                status = self._wait()
            except BaseException:
                self._end()
                raise
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        code = os.waitstatus_to_exitcode(status)
        return 128 - code if code < 0 else code

    def _start(self, group: int) -> None:
        """Starts the launcher in this process group."""
        theirs: dict[int, int] = {}
        # No signal handler that raises may run between the start and the assignment of the process id.
        mask = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        try:
            if self.pumped:
                for number, stream in ((1, sys.stdout), (2, sys.stderr)):
                    ours, theirs[number] = os.pipe()
                    self._streams[ours] = stream, codecs.getincrementaldecoder("utf-8")("replace")
            if self.work is None:
                self._child = os.posix_spawn(
                    self.command[0],
                    self.command,
                    self.environment,
                    file_actions=[(os.POSIX_SPAWN_DUP2, end, number) for number, end in theirs.items()],
                    setpgroup=group,
                    setsigmask=mask,
                    # Python ignores these two signals; programs must not inherit that.
                    setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
                )
            else:
                from . import forking

                self._child = forking.start_launcher(self.command, self.environment, group, theirs, mask, self.work)
        finally:
            for end in theirs.values():
                os.close(end)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _wait(self) -> int:
        """Copies the output until the launcher has ended, and returns its status."""
        self._pump()
        # WNOWAIT: keeps the process id reserved until no more signals are sent to it.
        os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOWAIT)
        ended, self._child = self._child, 0
        return os.waitpid(ended, 0)[1]

    def _end(self) -> None:
        """Ends the job after an exception. As with signals of a user, a second one kills the workers at once."""
        self._ending = True
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            try:
                if self._child:
                    os.kill(self._child, number)
                    self._wait()
            except BaseException:
                continue
            break
        self._close_streams()

    def _pump(self) -> None:
        """Copies until the launcher has ended; processes that it left running may keep the pipes open."""
        try:
            ended = os.pidfd_open(self._child)
        except (AttributeError, OSError):  # an old kernel or C library, or a container that forbids it
            ended = -1
        try:
            with selectors.DefaultSelector() as selector:
                for fd in (ended, *self._streams):
                    if fd >= 0:
                        selector.register(fd, selectors.EVENT_READ)
                while self._streams:
                    ready = [key.fd for key, _ in selector.select(_LOOK_INTERVAL if ended < 0 else None)]
                    if ready == [ended] or (not ready and self._has_ended()):
                        break
                    for fd in ready:
                        if fd != ended and not self._copy(fd):
                            selector.unregister(fd)
                            os.close(fd)
                            del self._streams[fd]
        finally:
            if ended >= 0:
                os.close(ended)
        self._close_streams()

    def _has_ended(self) -> bool:
        return os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def _copy(self, fd: int) -> bool:
        """Copies what has come, and returns False at the end."""
        stream, decoder = self._streams[fd]
        data = os.read(fd, 1 << 16)
        text = decoder.decode(data, final=not data)
        try:
            try:
                stream.write(text)
            except UnicodeEncodeError as error:  # no reason to end a job
                stream.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
            stream.flush()
        except Exception:
            if not self._ending:
                raise
        return bool(data)

    def _close_streams(self) -> None:
        while self._streams:
            os.close(self._streams.popitem()[0])
