"""ddprun launches distributed PyTorch training like torchrun.

The commands `ddprun` and `rendezvousd` are native programs. This package starts ddprun from Python:
``python -m ddprun`` or :func:`run`.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Optional, Sequence

__all__ = ["program", "run"]

# Signals that the launcher handles.
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Signals that a terminal sends to the whole foreground process group.
_OF_A_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def program() -> str:
    """Returns the path of the ``ddprun`` program that was installed with this package.

    Raises FileNotFoundError if it does not exist.
    """
    package = os.path.dirname(os.path.abspath(__file__))
    site = os.path.dirname(package)
    # PREFIX/lib/pythonX.Y/site-packages, else the target folder of `pip install --target`.
    prefix = os.path.dirname(os.path.dirname(os.path.dirname(site)))
    candidates = [os.path.join(folder, "bin", "ddprun") for folder in (prefix, site)]
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    raise FileNotFoundError(f"ddprun was not found at {' or '.join(candidates)}: reinstall the ddprun wheel")


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    # As with torchrun, workers run in this interpreter, unless the user names another.
    if sys.executable:
        environment.setdefault("PYTHON_EXEC", sys.executable)
    return environment


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


def run(args: Optional[Sequence[str]] = None) -> int:
    """Runs ``ddprun`` with the arguments `args` (default: ``sys.argv[1:]``) and returns its exit code.

    Like ``torch.distributed.run.main``, it takes a list: ``run(["--standalone", "--nproc-per-node=2", "train.py"])``.
    Workers run in this interpreter. The launcher is a separate process and writes to this process's standard output
    and error, regardless of ``sys.stdout``.

    If called from the main thread, it forwards SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 to the launcher
    while it runs, and returns when the launcher has ended: 128 + signal if a signal ended the job. If called from
    another thread, it does not handle signals. If this process ends first, the launcher receives SIGTERM.

    Raises TypeError if `args` is a single string, and OSError if the program can't be started.
    """
    if isinstance(args, str):
        raise TypeError("args is a list of arguments, not one string: use shlex.split()")
    arguments = sys.argv[1:] if args is None else [os.fspath(arg) for arg in args]
    path = program()
    environment = _environment()
    environment["DDPRUN_ENDS_WITH_PROCESS"] = str(os.getpid())
    sys.stdout.flush()
    sys.stderr.flush()

    # A second signal kills the workers at once, so each signal must arrive only once. In the foreground of a terminal
    # the launcher is in this process's group and the terminal signals both. Otherwise the launcher has a group of its
    # own: signals to this process's group (from a batch system) do not reach it, only forwarded ones do.
    at_terminal = _in_foreground()
    seen: set[int] = set()
    pending: list[int] = []
    child = 0

    def forward(number: int, frame: Optional[FrameType]) -> None:
        first = number not in seen
        seen.add(number)
        if at_terminal and number in _OF_A_TERMINAL and first:
            return
        if child:
            os.kill(child, number)
        else:
            pending.append(number)

    previous = {}
    try:
        for number in _FORWARDED:
            handler = signal.getsignal(number)
            # Ignored signals (nohup) stay ignored in the launcher, and handlers set by C code could not be restored.
            if handler is signal.SIG_IGN or handler is None:
                continue
            try:
                signal.signal(number, forward)
            except ValueError:  # not in the main thread
                break
            previous[number] = handler
        child = os.posix_spawn(
            path,
            [path, *arguments],
            environment,
            setpgroup=os.getpgrp() if at_terminal else 0,
            # Python ignores these two signals; programs must not inherit that.
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )
        for early in pending:
            os.kill(child, early)
        # WNOWAIT: keeps the process id reserved until no more signals are sent to it.
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        ended, child = child, 0
        _, status = os.waitpid(ended, 0)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code
