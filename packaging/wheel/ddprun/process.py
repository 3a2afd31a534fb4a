"""The launcher as a child process of Python."""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import sys
from types import FrameType
from typing import Any, Callable, Mapping, Optional, Sequence

# Signals that the launcher handles.
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Signals that a terminal sends to the whole foreground process group.
_OF_A_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


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


def environment() -> dict[str, str]:
    """Returns the environment of a launcher whose workers run in this interpreter, as with torchrun."""
    variables = dict(os.environ)
    if sys.executable:
        variables["DDPRUN_PYTHON"] = sys.executable
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
    are forked from this process and call it."""

    def __init__(
        self,
        path: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        pumped: bool = False,
        work: Optional[Callable[[], None]] = None,
    ) -> None:
        self.command = [path, *arguments]
        self.environment = {**environment, "DDPRUN_ENDS_WITH_PROCESS": str(os.getpid())}
        self.pumped = pumped
        self.work = work
        self.signals: set[int] = set()  # that this process has received meanwhile
        self._child = 0

    def run(self) -> int:
        """Returns the exit code. Forwards signals as `ddprun.run` does."""
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
            streams = self._start(os.getpgrp() if at_terminal else 0)
            for early in pending:
                os.kill(self._child, early)
            if streams:
                self._pump(streams)
            # WNOWAIT: keeps the process id reserved until no more signals are sent to it.
            os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOWAIT)
            ended, self._child = self._child, 0
            _, status = os.waitpid(ended, 0)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        code = os.waitstatus_to_exitcode(status)
        return 128 - code if code < 0 else code

    def _start(self, group: int) -> dict[int, Any]:
        """Starts the launcher in this process group, and returns the pipes to pump, with their destinations."""
        streams: dict[int, Any] = {}
        theirs: dict[int, int] = {}
        if self.pumped:
            for number, stream in ((1, sys.stdout), (2, sys.stderr)):
                ours, end = os.pipe()
                streams[ours] = stream
                theirs[number] = end
        try:
            if self.work is None:
                self._child = os.posix_spawn(
                    self.command[0],
                    self.command,
                    self.environment,
                    file_actions=[(os.POSIX_SPAWN_DUP2, end, number) for number, end in theirs.items()],
                    setpgroup=group,
                    # Python ignores these two signals; programs must not inherit that.
                    setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
                )
            else:
                from . import forking

                self._child = forking.start_launcher(self.command, self.environment, group, theirs, self.work)
        except OSError:
            for end in streams:
                os.close(end)
            raise
        finally:
            for end in theirs.values():
                os.close(end)
        return streams

    def _pump(self, streams: dict[int, Any]) -> None:
        """Copies until the launcher has ended; processes that it left running may keep the pipes open."""
        decoders = {fd: codecs.getincrementaldecoder("utf-8")("replace") for fd in streams}
        ended = os.pidfd_open(self._child)
        try:
            with selectors.DefaultSelector() as selector:
                for fd in (ended, *streams):
                    selector.register(fd, selectors.EVENT_READ)
                while streams:
                    ready = [key.fd for key, _ in selector.select()]
                    if ready == [ended]:
                        break
                    for fd in ready:
                        if fd == ended:
                            continue
                        data = os.read(fd, 1 << 16)
                        stream = streams[fd]
                        stream.write(decoders[fd].decode(data, final=not data))
                        stream.flush()
                        if not data:
                            selector.unregister(fd)
                            os.close(fd)
                            del streams[fd]
        finally:
            for fd in (ended, *streams):
                os.close(fd)
