"""Workers forked from this process, for start_method="fork": functions need no pickling then, and modules no second
import.

This process forks the launcher-to-be, which forks the server before it executes ddprun. The server keeps this process's
state, and forks the workers of every round; worker_contract/fork_protocol.h describes its messages.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import signal
import socket
import sys
import time
import traceback
import warnings
from typing import Any, Callable, Iterable, Mapping, NoReturn, Sequence

_PR_SET_PDEATHSIG = 1
_MAX_MESSAGE = 8 << 20
# Signals whose handlers in the caller are not for the workers.
_HELD = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}


def start_launcher(
    command: Sequence[str],
    environment: Mapping[str, str],
    group: int,
    streams: Mapping[int, int],
    mask: Iterable[int],
    work: Callable[[], None],
) -> int:
    """Starts the launcher, whose workers call `work`, and returns its process id. `streams`: its descriptors;
    `mask`: its signal mask. REQUIRES: all signals are blocked."""
    ours, servers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns that other threads are lost, which the caller wants.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
            if pid != 0:
                return pid
            try:
                launcher = os.getpid()
                server = os.fork()
                if server == 0:
                    ours.close()
                    _serve(servers, launcher, work)
                os.setpgid(0, group)
                for target, fd in streams.items():
                    os.dup2(fd, target)
                os.set_inheritable(ours.fileno(), True)
                for number in (signal.SIGPIPE, signal.SIGXFSZ):
                    signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                os.execve(command[0], command, {**environment, "DDPRUN_FORKED_SERVER": f"{ours.fileno()} {server}"})
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(127)
    finally:
        ours.close()
        servers.close()


def _send(channel: socket.socket, *fields: object) -> None:
    channel.sendall(b"\0".join(os.fsencode(str(field)) for field in fields))


def _receive(channel: socket.socket) -> tuple[list[str], list[int]]:
    fds = array.array("i")
    message, ancillary, _, _ = channel.recvmsg(_MAX_MESSAGE, socket.CMSG_SPACE(3 * fds.itemsize))
    for _, _, data in ancillary:
        fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return [os.fsdecode(field) for field in message.split(b"\0")] if message else [], list(fds)


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def _serve(channel: socket.socket, launcher: int, work: Callable[[], None]) -> NoReturn:
    os.setsid()
    _die_with(launcher)
    batch: list[tuple[list[str], list[int]]] = []
    while True:
        fields, fds = _receive(channel)
        if not fields:
            os._exit(0)
        if fields[0] == "setup":
            _send(channel, "ready", "0.00")
        elif fields[0] == "start":
            batch.append((fields[1:], fds))
        else:
            _fork_workers(channel, launcher, batch, work)
            for _, fds in batch:
                for fd in fds:
                    os.close(fd)
            batch = []


def _fork_workers(
    channel: socket.socket, launcher: int, batch: list[tuple[list[str], list[int]]], work: Callable[[], None]
) -> None:
    """Forks workers as children of the launcher, which adopts them when the intermediate process has exited."""
    gate, keeper = os.pipe()
    between = os.fork()
    if between == 0:
        for fields, fds in batch:
            try:
                forked = os.fork()
            except OSError as error:
                _send(channel, "unforked", fields[0], error.strerror)
                continue
            if forked == 0:
                os.close(keeper)
                os.read(gate, 1)
                os.close(gate)
                for _, others in batch:
                    for fd in others if others is not fds else ():
                        os.close(fd)
                _work(channel, launcher, fields, fds, work)
        os._exit(0)
    os.close(gate)
    os.waitpid(between, 0)
    os.close(keeper)


def _work(
    channel: socket.socket, launcher: int, fields: list[str], fds: list[int], work: Callable[[], None]
) -> NoReturn:
    ticket, cpus, *entries = fields
    os.setsid()
    if cpus:
        os.sched_setaffinity(0, map(int, cpus.split(",")))
    # Only now, because the signal is sent when the parent that forked this process exits.
    _die_with(launcher)
    _send(channel, "started", ticket, os.getpid())
    channel.close()
    *streams, gate = fds
    if not os.read(gate, 1):
        os._exit(128 + signal.SIGKILL)
    os.close(gate)
    for target, fd in enumerate(streams, 1):
        os.dup2(fd, target)
        os.close(fd)
    # The caller's may be a notebook's.
    for fd, name in ((1, "stdout"), (2, "stderr")):
        stream = open(fd, "w", buffering=1, closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(entry.split("=", 1) for entry in entries)
    # Only effective when libraries are loaded, which has happened.
    for name in ("LD_PRELOAD", "OMP_NUM_THREADS"):
        os.environ.pop(name, None)
        if name in before:
            os.environ[name] = before[name]
    for number in _HELD:
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os._exit(_call(work))


def _call(work: Callable[[], None]) -> int:
    """Calls it as multiprocessing does in a forked process, and returns the exit code."""
    import multiprocessing

    def record() -> None:
        try:
            work()
        except Exception as error:
            _write_error(error)
            raise

    process: Any = multiprocessing.get_context("fork").Process(target=record)
    return process._bootstrap()


def _write_error(error: Exception) -> None:
    """Writes the error file as PyTorch's @record does. The crash library is not loaded into forked processes."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    report = {
        "message": f"{type(error).__name__}: {error}",
        "extraInfo": {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))},
    }
    with open(path, "w") as file:
        json.dump({"message": report}, file)
