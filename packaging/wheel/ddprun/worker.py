"""Connects a worker to ddprun: reports training progress, and tells whether the worker must stop.

    from ddprun import worker

    for step in range(first_step, steps):
        worker.report_progress(step, phase="forward")
        ...
        if worker.stop_requested() is not None:
            save_checkpoint()
            break

A worker can also keep its process when another one dies: see `keep_process`. ddprun.elastic does so for loops in
PyTorch.

Needs the standard library only, and costs microseconds a call. Under another launcher, or without one,
`report_progress` does nothing. docs/worker_protocol.md in the sources describes the protocol.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import math
import opcode
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import types
from typing import Any, Callable, NamedTuple, Optional

__all__ = [
    "Round",
    "Suspend",
    "keep_process",
    "next_round",
    "re_formed",
    "report_progress",
    "stop_requested",
    "suspend_requested",
    "suspended",
]

_MAX_LINE = 4096
_MAX_PHASE = 64
_REPORTS_PER_SECOND = 500.0
_DEFAULT_GRACE = 30.0  # seconds, as ddprun's --shutdown-timeout
_SEND_PATIENCE = 10.0  # seconds, for messages about rounds: the launcher reads immediately
_CONNECT_INTERVAL = 1.0  # seconds between attempts
_EXIT_PATIENCE = 1.0  # seconds by which notifying the launcher may delay an exit
_MAX_MESSAGE = 500
# Environment variables of a round, each with the field of a re-form message that provides its value.
_ROUND_VARIABLES = {
    "RANK": "rank",
    "WORLD_SIZE": "world_size",
    "LOCAL_WORLD_SIZE": "local_world_size",
    "GROUP_RANK": "group_rank",
    "GROUP_WORLD_SIZE": "group_world_size",
    "ROLE_RANK": "role_rank",
    "ROLE_WORLD_SIZE": "role_world_size",
    "MASTER_ADDR": "master_addr",
    "MASTER_PORT": "master_port",
    "TORCHELASTIC_RESTART_COUNT": "restart_count",
    "DDPRUN_ROUND": "round",
}

_encode = json.JSONEncoder(separators=(",", ":")).encode


def _number(value: float) -> Any:
    value = float(value)
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


class Suspend(NamedTuple):
    """The round is over: leave the process group, call `suspended`, then `next_round`."""

    round: int
    at_step_end: bool  # the step may be finished first, if possible
    reason: str
    blame: Optional[int]  # the rank that failed, if any


class Round(NamedTuple):
    """A round in which this process continues. Its other values are in os.environ."""

    round: int
    rank: int
    world_size: int
    state_source: Optional[int]  # the rank with the newest training state, as far as the launcher knows; None: no rank
    state_step: Optional[int]


def _wait(link: socket.socket, event: int, seconds: Optional[float] = None) -> None:
    """Waits for the event of the socket. Does not use select, which fails for descriptors from 1024 on."""
    poller = select.poll()
    poller.register(link, event)
    poller.poll(None if seconds is None else seconds * 1000)


def _script_frame() -> Optional[types.FrameType]:
    """Returns the frame of the script or module that this process runs."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    script = None
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals is vars(sys.modules["__main__"]):
            script = frame
        frame = frame.f_back
    return script


def _has_returned(frame: Optional[types.FrameType]) -> bool:
    """True if the script ended without an exception, including SystemExit: a frame stores its last instruction."""
    if frame is None or frame.f_globals is not vars(sys.modules["__main__"]):
        return False  # run by another script
    return opcode.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN_")


class _Link:
    """Connection of a process. Never blocks; once it is established, the first error closes it permanently.

    A signal handler may call a function that its thread is already executing: the lock is reentrant, and reads and
    writes of the socket are then left to the interrupted call.
    """

    def __init__(self, connects: bool, on_suspend: Optional[Callable[[Suspend], None]] = None) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.on_suspend = on_suspend  # if set, this process can re-form, and a thread listens
        self.suspend: Optional[Suspend] = None  # the newest one
        self.aborted = 0  # round of the last suspend for which on_suspend has returned
        self.answered = 0  # round of the last `suspended`
        self.round = 0  # the current round
        self.reform: Optional[dict[str, Any]] = None  # the newest one
        self.error: Optional[BaseException] = None  # raised by on_suspend
        self.socket: Optional[socket.socket] = None
        self.connect_at = -math.inf if connects else None  # time of the next attempt
        self.connecting = threading.Lock()
        self.sending = self.receiving = False
        self.unsent = b""  # rest of a partly sent line
        self.newest: Optional[dict[str, Any]] = None  # progress that could not be sent yet; replaced by a newer one
        self.received = b""
        self.stop_at: Optional[float] = None  # time.monotonic()
        self.reported: Optional[dict[str, Any]] = None  # last progress; None once the exit was reported
        self.script: Optional[types.FrameType] = None
        self.allowance = _REPORTS_PER_SECOND
        self.last_report = time.monotonic()

    def connect_if_due(self) -> None:
        # A signal handler that runs in between finds the lock taken, or has connected.
        due = self.connect_at
        if due is None or time.monotonic() < due or not self.connecting.acquire(blocking=False):
            return
        try:
            with self.lock:
                if self.connect_at is not None:
                    self.connect()
        finally:
            self.connecting.release()

    def connect(self) -> None:
        if self.connect_at == -math.inf:
            self.script = _script_frame()
            _await_exit()
        self.connect_at = None
        address = os.environ.get("DDPRUN_WORKER_LINK", "")
        try:
            rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
            self.round = int(os.environ.get("DDPRUN_ROUND", "0"))
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
        except BlockingIOError:
            # The backlog of the listener is full.
            self.connect_at = time.monotonic() + _CONNECT_INTERVAL
            link.close()
            return
        except OSError:
            link.close()
            return
        capabilities = ["progress", "stop"] + (["re-form"] if self.on_suspend else [])
        # Queued before the socket is set, so that the messages of a signal handler follow it.
        self.unsent = self.line(
            type="hello", version=3, rank=rank, local_rank=local_rank, pid=os.getpid(), capabilities=capabilities
        )
        self.socket = link
        self.flush()

    @staticmethod
    def line(**fields: Any) -> bytes:
        return _encode(fields).encode() + b"\n"

    def close(self) -> None:
        if self.socket is not None:
            if self.on_suspend:
                # Wakes the listening thread.
                with contextlib.suppress(OSError):
                    self.socket.shutdown(socket.SHUT_RDWR)
                self.changed.notify_all()
            self.socket.close()
        self.socket = None

    def hang_up(self) -> None:
        """Closes the connection, and waits until the launcher has closed it, as it accepts no new one before."""
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_WR)
                self.socket.settimeout(_SEND_PATIENCE)
                while self.socket.recv(_MAX_LINE):
                    pass
        self.close()

    def tell(self, patience: float = _SEND_PATIENCE, **fields: Any) -> None:
        """Sends a line that must not be dropped."""
        self.unsent += self.line(**fields)
        self.flush()
        give_up = time.monotonic() + patience
        while self.socket is not None and self.unsent:
            if time.monotonic() > give_up:
                return self.close()
            _wait(self.socket, select.POLLOUT, 1.0)
            self.flush()

    def listen(self) -> None:
        """Body of the listening thread; returns when the connection ends."""
        while True:
            with self.lock:
                link = self.socket
            if link is None:
                return
            # tell and report may send meanwhile; no other thread reads.
            with contextlib.suppress(OSError, ValueError):  # closed meanwhile
                _wait(link, select.POLLIN)
            with self.lock:
                self.receive()
                suspend = self.suspend
                done = max(self.aborted, self.answered)
            if suspend is None or suspend.at_step_end or suspend.round <= done:
                continue
            error = None
            try:
                self.on_suspend(suspend)
            except BaseException as raised:
                error = raised
            with self.lock:
                self.error = error
                self.aborted = suspend.round
                self.changed.notify_all()

    def flush(self) -> None:
        if self.sending:
            return
        self.sending = True
        try:
            while (link := self.socket) is not None and (self.unsent or self.newest):
                if not self.unsent and self.newest:
                    self.unsent, self.newest = self.line(**self.newest), None
                try:
                    self.unsent = self.unsent[link.send(self.unsent, socket.MSG_NOSIGNAL) :]
                except (BlockingIOError, InterruptedError):
                    return
                except OSError:
                    self.close()
        finally:
            self.sending = False

    def report(self, progress: dict[str, Any]) -> None:
        now = time.monotonic()
        earned = (now - self.last_report) * _REPORTS_PER_SECOND
        self.allowance = min(_REPORTS_PER_SECOND, self.allowance + earned)
        self.last_report = now
        self.newest = self.reported = progress
        if self.allowance >= 1:
            self.allowance -= 1
            self.flush()

    def receive(self) -> None:
        if self.receiving:
            return
        self.receiving = True
        try:
            while (link := self.socket) is not None:
                try:
                    data = link.recv(_MAX_LINE)
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
        finally:
            self.receiving = False

    def finish(self) -> None:
        """Called when the process exits. After an uncaught exception the last report is kept: it shows the position."""
        failed = getattr(sys, "last_type", None) is not None
        if self.socket is not None and self.reported is not None and not failed:
            self.newest = None
            # The argument of sys.exit is not available here.
            phase = "exiting" if _has_returned(self.script) else "finished"
            self.tell(_EXIT_PATIENCE, **{**self.reported, "phase": phase})
            self.reported = None

    def on_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            kind = message["type"]
            if kind == "stop":
                self.stop_at = time.monotonic() + max(0.0, float(message["deadline"]))
            elif not self.on_suspend:
                return
            elif kind == "suspend":
                blame, ends = message.get("blame"), bool(message.get("at_step_end"))
                self.suspend = Suspend(int(message["round"]), ends, str(message.get("reason", "")), blame)
            elif kind == "re-form" and all(name in message for name in _ROUND_VARIABLES.values()):
                self.reform = message
            self.changed.notify_all()
        except (ValueError, KeyError, TypeError):
            self.close()


_link = _Link(connects=True)
_signalled_at: Optional[float] = None
_awaits_signal = False


def _after_fork() -> None:
    """Detaches a child of a worker (of a DataLoader ...), which must not write to its parent's connection."""
    global _link
    if _link.socket is not None:
        _link.socket.close()
    _link = _Link(connects=_link.connect_at == -math.inf)


os.register_at_fork(after_in_child=_after_fork)


def _of_this_process() -> _Link:
    _link.connect_if_due()
    return _link


def _await_exit() -> None:
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)
    # Also before Python waits for threads; available since Python 3.9.
    with contextlib.suppress(AttributeError, RuntimeError):
        threading._register_atexit(_at_exit)  # type: ignore[attr-defined]


def _at_exit() -> None:
    link = _of_this_process()
    with link.lock:
        link.finish()


def report_progress(
    step: int, *, samples: Optional[int] = None, phase: str = "", loss: Optional[float] = None
) -> None:
    """Reports to the launcher that this worker is in `step`, for the failure summary and hang detection.

    `step` is counted by the program, from 0; `samples` is the number this rank has trained on; `phase` is a word such
    as "forward", "backward" or "checkpoint". `loss` is a number, not a tensor: `loss.item()` waits for the GPU, so pass
    it only if the program has the value anyway.

    Report rare activities, such as a checkpoint, as a phase of their own, and "finished" after the last step: later
    activities never count as a hang. A process that exits reports that automatically. If its script has ended and the
    process has not exited five minutes after the last report, the launcher names it. After ten minutes, unless it is
    busy, the launcher kills it and counts it as succeeded. Progress that threads report while they save restarts
    these times.

    Never blocks and never fails because of the launcher: reports beyond 500 a second, or while the launcher is busy,
    are replaced by newer ones. Raises ValueError if `step` or `samples` is not from 0 to 2**63 - 1. Thread-safe.
    """
    fields: dict[str, Any] = {"type": "progress", "step": int(step)}
    if samples is not None:
        fields["samples"] = int(samples)
    if not all(0 <= count < 2**63 for count in (fields["step"], fields.get("samples", 0))):
        raise ValueError("step and samples must be from 0 to 2**63 - 1")
    if phase:
        phase = phase[:_MAX_PHASE]
        # Unpaired surrogates are not valid UTF-8.
        fields["phase"] = phase if phase.isascii() else phase.encode("utf-8", "replace").decode()
    if loss is not None:
        fields["loss"] = _number(loss)
    link = _of_this_process()
    with link.lock:
        if link.socket is not None:
            link.report(fields)


def _on_signal(number: int, _frame: Any) -> None:
    global _signalled_at
    if _signalled_at is None:
        _signalled_at = time.monotonic()
    if number == signal.SIGINT:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # for the second Ctrl-C


def _await_signal() -> None:
    global _awaits_signal
    if _awaits_signal or threading.current_thread() is not threading.main_thread():
        return
    _awaits_signal = True
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_signal)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _on_signal)


def _grace() -> float:
    try:
        grace = float(os.environ["DDPRUN_STOP_GRACE"])
    except (KeyError, ValueError):
        return _DEFAULT_GRACE
    return grace if grace >= 0 else _DEFAULT_GRACE


def stop_requested() -> Optional[float]:
    """Returns the seconds until this worker is killed, if the job is being stopped; else None.

    The first call, from the main thread, makes the process wait for SIGTERM and the first SIGINT (Ctrl-C) instead of
    ending by it, unless a handler is set: call it once before the first step, and regularly from then on. A second
    SIGINT raises KeyboardInterrupt. Ranks learn of a stop at different times: agree on it (all_reduce) before acting on
    it in a step that other ranks take part in. May be called from a signal handler.
    """
    _await_signal()
    link = _of_this_process()
    with link.lock:
        if not link.on_suspend:
            link.receive()
        stop_at = link.stop_at
    if stop_at is None and _signalled_at is not None:
        stop_at = _signalled_at + _grace()
    return None if stop_at is None else max(0.0, stop_at - time.monotonic())


def keep_process(on_suspend: Callable[[Suspend], None]) -> bool:
    """Announces to the launcher that this process can continue in the next round when its round ends.

    When another worker fails, this one is suspended instead of being stopped: its loop leaves the process group, calls
    `suspended` and `next_round`, and forms the group of that round. Once per process, before its first group.

    `on_suspend` is called by a thread of this module as soon as the round is over, except while the step may still be
    finished (`Suspend.at_step_end`). It has to abort the collective in which the main thread may be blocked. Its
    exceptions are raised by the next call of `next_round`.

    Returns True if the launcher supports this; otherwise the worker is stopped and restarted as usual.
    """
    global _link
    with _link.lock:
        _link.connect_at = None
        _link.hang_up()
    _link = _Link(connects=True, on_suspend=on_suspend)
    give_up = time.monotonic() + _SEND_PATIENCE
    _link.connect_if_due()
    while _link.connect_at is not None and time.monotonic() < give_up:
        time.sleep(0.05)
        _link.connect_if_due()
    _link.connect_at = None  # the launcher must know before the first group is formed whether the process is kept
    if _link.socket is None:
        return False
    threading.Thread(target=_link.listen, name="ddprun-worker", daemon=True).start()
    return True


def suspend_requested() -> Optional[Suspend]:
    """Returns the reason why this process must leave its round, or None.

    Call it at the end of each step; ranks learn of it at different times.
    """
    link = _of_this_process()
    with link.lock:
        return link.suspend if link.suspend and link.suspend.round >= link.round else None


def suspended(step: Optional[int], error: Optional[BaseException] = None) -> bool:
    """Informs the launcher that this process has left its group and is ready for the next round.

    `step` is the number of optimizer steps that are completely contained in its training state; None: it has no state.
    With an `error`, the launcher may not know of a failure: it is then first asked for a new round, and this call waits
    until the round is over. Returns False if the process can't continue: it is being stopped, or there is no launcher.
    """
    link = _of_this_process()
    with link.lock:
        if not _is_over(link) and error is not None:
            text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:_MAX_MESSAGE]
            link.tell(type="failed", round=link.round, message=text.decode("utf-8", "ignore"))
        while link.socket is not None and link.stop_at is None and not _is_over(link):
            link.changed.wait()
        if link.socket is None or link.stop_at is not None:
            return False
        fields: dict[str, Any] = {"type": "suspended", "round": link.round}
        if step is not None:
            fields["step"] = int(step)
        link.answered = link.round
        link.tell(**fields)
        return link.socket is not None


def _is_over(link: _Link) -> bool:
    """True if the process's round is over and `on_suspend` has finished, if it was needed."""
    suspend = link.suspend
    if suspend is None or suspend.round < link.round:
        return False
    return suspend.at_step_end or link.aborted >= suspend.round


def next_round() -> Optional[Round]:
    """Waits for the next round and sets its variables (RANK, WORLD_SIZE, MASTER_ADDR ...) in os.environ.

    Returns None if the process is being stopped, or the launcher is gone.
    """
    link = _of_this_process()
    with link.lock:
        error, link.error = link.error, None
        if error is not None:
            raise error
        while link.reform is None or int(link.reform["round"]) <= link.round:
            if link.socket is None or link.stop_at is not None:
                return None
            link.changed.wait()
        reform = link.reform
        link.round = int(reform["round"])
    for variable, field in _ROUND_VARIABLES.items():
        os.environ[variable] = str(reform[field])
    source, step = reform.get("state_source"), reform.get("state_step")
    return Round(int(reform["round"]), int(reform["rank"]), int(reform["world_size"]), source, step)


def re_formed(step: int, source: Optional[int] = None) -> None:
    """Informs the launcher that this process has the group and the training state of its round.

    `step` is the committed step, `source` the rank that the state came from; None: no rank had one.
    """
    link = _of_this_process()
    fields: dict[str, Any] = {"type": "re-formed", "round": link.round, "step": int(step)}
    if source is not None:
        fields["source"] = int(source)
    with link.lock:
        link.tell(**fields)
