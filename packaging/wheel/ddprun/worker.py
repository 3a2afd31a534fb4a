"""What a worker can tell ddprun, and ask it: where the training is, and whether it must stop.

    from ddprun import worker

    for step in range(first_step, steps):
        worker.report_progress(step, phase="forward")
        ...
        if worker.stop_requested() is not None:
            save_checkpoint()
            break

Needs the standard library only, and costs microseconds a call. Under another launcher, or without one,
`report_progress` does nothing. The protocol is in docs/worker_protocol.md of the sources.
"""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import socket
import struct
import threading
import time
from typing import Any, Optional

__all__ = ["report_progress", "stop_requested"]

_MAX_LINE = 4096
_MAX_PHASE = 64
_REPORTS_PER_SECOND = 500.0
_DEFAULT_GRACE = 30.0  # seconds, as ddprun's --shutdown-timeout

_encode = json.JSONEncoder(separators=(",", ":")).encode


def _number(value: float) -> Any:
    value = float(value)
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


class _Link:
    """A process's connection. Never blocks; the first error ends it for good."""

    def __init__(self, connect: bool) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.socket: Optional[socket.socket] = None
        self.unsent = b""  # the rest of a line of which a part has been sent
        self.newest: Optional[dict[str, Any]] = None  # progress that found no room; a newer one takes its place
        self.received = b""
        self.stop_at: Optional[float] = None  # of time.monotonic()
        self.allowance = _REPORTS_PER_SECOND
        self.last_report = time.monotonic()
        if connect:
            self.connect()

    def connect(self) -> None:
        address = os.environ.get("DDPRUN_WORKER_LINK", "")
        try:
            rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        except (KeyError, ValueError):
            return
        if not address.startswith("@"):
            return
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.setblocking(False)
            link.connect("\0" + address[1:])
            credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            if struct.unpack("3i", credentials)[1] != os.geteuid():
                raise OSError(errno.EPERM, "the listener is another user's")
        except OSError:
            link.close()
            return
        self.socket = link
        self.unsent = self.line(
            type="hello", version=1, rank=rank, local_rank=local_rank, pid=self.pid, capabilities=["progress", "stop"]
        )
        self.flush()

    @staticmethod
    def line(**fields: Any) -> bytes:
        return _encode(fields).encode() + b"\n"

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None

    def flush(self) -> None:
        while self.socket is not None and (self.unsent or self.newest):
            if not self.unsent and self.newest:
                self.unsent, self.newest = self.line(**self.newest), None
            try:
                self.unsent = self.unsent[self.socket.send(self.unsent, socket.MSG_NOSIGNAL) :]
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.close()

    def report(self, progress: dict[str, Any]) -> None:
        now = time.monotonic()
        earned = (now - self.last_report) * _REPORTS_PER_SECOND
        self.allowance = min(_REPORTS_PER_SECOND, self.allowance + earned)
        self.last_report = now
        self.newest = progress
        if self.allowance >= 1:
            self.allowance -= 1
            self.flush()

    def receive(self) -> None:
        while self.socket is not None:
            try:
                data = self.socket.recv(_MAX_LINE)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                return self.close()
            *lines, self.received = (self.received + data).split(b"\n")
            for line in lines:
                self.on_line(line)
            if len(self.received) >= _MAX_LINE:
                self.close()

    def on_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            if message["type"] == "stop":
                self.stop_at = time.monotonic() + max(0.0, float(message["deadline"]))
        except (ValueError, KeyError, TypeError):
            self.close()


_link: Optional[_Link] = None
_signalled_at: Optional[float] = None
_awaits_signal = False


def _of_this_process() -> _Link:
    global _link
    if _link is None:
        _link = _Link(connect=True)
    elif _link.pid != os.getpid():
        # A forked child (of a DataLoader ...) must not write to its parent's connection, and is not the worker.
        _link.close()
        _link = _Link(connect=False)
    return _link


def report_progress(
    step: int, *, samples: Optional[int] = None, phase: str = "", loss: Optional[float] = None
) -> None:
    """Tells the launcher that this worker is in `step`, so that the failure summary says where it was.

    `step` counts as the program likes, from 0; `samples` is how many this rank has trained on; `phase` is a word such
    as "forward", "backward" or "checkpoint". `loss` is a number, not a tensor: `loss.item()` waits for the GPU, so give
    it only where the program has it anyway.

    Never blocks and never fails because of the launcher: reports beyond 500 a second, or that find the launcher busy,
    give way to newer ones. Raises ValueError if `step` or `samples` is not from 0 to 2**63 - 1. Thread-safe.
    """
    fields: dict[str, Any] = {"type": "progress", "step": int(step)}
    if samples is not None:
        fields["samples"] = int(samples)
    if not all(0 <= count < 2**63 for count in (fields["step"], fields.get("samples", 0))):
        raise ValueError("step and samples must be from 0 to 2**63 - 1")
    if phase:
        phase = phase[:_MAX_PHASE]
        # Halves of surrogate pairs are not UTF-8.
        fields["phase"] = phase if phase.isascii() else phase.encode("utf-8", "replace").decode()
    if loss is not None:
        fields["loss"] = _number(loss)
    link = _of_this_process()
    with link.lock:
        if link.socket is not None:
            link.report(fields)


def _on_signal(_number: int, _frame: Any) -> None:
    global _signalled_at
    if _signalled_at is None:
        _signalled_at = time.monotonic()


def _await_signal() -> None:
    global _awaits_signal
    if _awaits_signal or threading.current_thread() is not threading.main_thread():
        return
    _awaits_signal = True
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_signal)


def _grace() -> float:
    try:
        grace = float(os.environ["DDPRUN_STOP_GRACE"])
    except (KeyError, ValueError):
        return _DEFAULT_GRACE
    return grace if grace >= 0 else _DEFAULT_GRACE


def stop_requested() -> Optional[float]:
    """Seconds until this worker is killed, if the job is being stopped; else None.

    The first call, from the main thread, makes the process wait for SIGTERM instead of ending by it, unless a handler
    is set: call it once before the first step, and regularly from then on. Ranks learn of a stop at different times:
    agree on it (all_reduce) before acting on it in a step that others take part in.
    """
    _await_signal()
    link = _of_this_process()
    with link.lock:
        link.receive()
        stop_at = link.stop_at
    if stop_at is None and _signalled_at is not None:
        stop_at = _signalled_at + _grace()
    return None if stop_at is None else max(0.0, stop_at - time.monotonic())
