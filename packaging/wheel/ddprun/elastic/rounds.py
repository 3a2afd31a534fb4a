"""Connections of this process in one round of the job.

A round has its own store, which the launcher serves, and its own Gloo groups. Ranks first exchange a small record
through the store (`Round.exchange`): where they listen, and how far their training state is. Then they connect.

`Round.cut` ends a round from any thread. Gloo can't abort a collective, so it shuts down the round's sockets: the
operations of this process fail, and so do those of its peers, which see closed connections. Gloo leaves an operation
hanging if it had received part of a message, until its timeout; `Round.leave` gives operations a moment and leaves such
ones behind.

CUDA tensors use NCCL, whose groups `Round.cut` aborts. Their operations run on the GPU, behind the script's back: an
aborted one ends there as if it had succeeded, so `Round.settle` waits for them before a step commits.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import stat
import threading
import time
from collections import deque
from datetime import timedelta
from typing import Any, Callable, Iterator, Optional

import torch
import torch.distributed as dist

_STORE_PATIENCE = timedelta(minutes=30)  # for ranks that still import PyTorch, or read a checkpoint
_CONNECT_TIMEOUT = timedelta(seconds=12)  # Gloo waits five times as long
_GRACE = 0.05  # seconds in which Gloo usually ends operations whose connections were shut down
_LAUNCH_WAIT = 1.0  # seconds that an abort of NCCL waits for an operation that is being launched
_ABORT_WAIT = 5.0  # seconds that this process waits for the end of an abort
LONG = 1.0  # seconds until a wait for other ranks is a long one
_NCCL_LIMIT = 20  # seconds to connect; less than --shutdown-timeout, after which the launcher replaces this process

# PyTorch ends the process when NCCL reports an error, unless these say otherwise. It reads them once.
_NCCL_ENVIRONMENT = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "2",  # the watchdog aborts the communicator only
    "TORCH_NCCL_ENABLE_MONITORING": "0",  # a second watchdog, which would end the process anyway
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1",
    "TORCH_NCCL_NONBLOCKING_TIMEOUT": str(_NCCL_LIMIT),
}


class GroupLost(RuntimeError):
    """The round is over: a rank died, or the launcher ended the round. The step will be repeated."""


def _sockets() -> Iterator[tuple[socket.socket, bool]]:
    """Yields duplicates of this process's TCP sockets, each with True if it listens."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.stat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as copy:
                if copy.type == socket.SOCK_STREAM and copy.family in (socket.AF_INET, socket.AF_INET6):
                    yield copy, bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _listening() -> set[tuple[str, int]]:
    return {copy.getsockname()[:2] for copy, listens in _sockets() if listens}


def _devices() -> list[Any]:
    """Gloo devices as init_process_group chooses them."""
    gloo = dist.ProcessGroupGloo
    interfaces = os.environ.get("GLOO_SOCKET_IFNAME", "")
    if interfaces:
        return [gloo.create_device(interface=name) for name in interfaces.split(",")]
    return [gloo.create_default_device()]


def prepare_nccl() -> None:
    """Lets this process live when NCCL fails. Call it before the first group. Raises RuntimeError if it can't."""
    if not hasattr(dist.ProcessGroupNCCL, "get_error"):
        raise RuntimeError(f'PyTorch {torch.__version__} reports no errors of NCCL: use elastic.init(backend="gloo")')
    if os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "1":  # the launcher's default
        del os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"]
    for name, value in _NCCL_ENVIRONMENT.items():
        os.environ.setdefault(name, value)


class Round:
    """One round, as described by RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and DDPRUN_ROUND in the environment.

    The main thread uses it; `cut` may be called by any thread.
    """

    def __init__(self) -> None:
        self.number = int(os.environ.get("DDPRUN_ROUND", "0"))
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.over: Optional[str] = None  # the reason
        self.cut_at = 0.0  # time.monotonic()
        self._master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        self._store: Optional[dist.Store] = None
        self._devices: list[Any] = []
        self._addresses: set[tuple[str, int]] = set()  # where the Gloo devices of all ranks listen
        self._records: Optional[list[Any]] = None
        self._groups: list[Any] = []
        self._works: deque[dist.Work] = deque()  # Gloo's operations that were not seen completed, oldest first
        self._waiting: set[threading.Event] = set()
        self._nccl: list[Any] = []  # connected backends that were not aborted
        self._connecting: list[Any] = []
        self._launching = threading.Lock()
        self._aborting = threading.Lock()

    def exchange(self, record: Any) -> list[Any]:
        """Publishes a JSON value to all ranks and returns those of all, by rank. Later calls return the same."""
        if self._records is None:
            self._records = self.interruptibly(lambda: self._exchange(record))
        return self._records

    def publish(self, value: Any) -> list[Any]:
        """Publishes another JSON value, and returns the latest ones of all ranks, by rank; None: none. Never waits."""
        prefix = f"ddprun.elastic/{self.number}/waiting"
        store = self._store
        assert store is not None
        try:
            store.set(f"{prefix}/{self.rank}", json.dumps(value))
            keys = [f"{prefix}/{rank}" for rank in range(self.size)]
            return [json.loads(store.get(key)) if store.check([key]) else None for key in keys]
        except RuntimeError as error:
            raise self.lost(error) from error

    def connect(self, name: str, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroup:
        """Makes a Gloo group of `size` ranks, after `exchange`. The name is the same on all of its ranks."""
        group = self.interruptibly(lambda: self._connect(name, rank, size, timeout))
        self._groups.append(group)
        return group

    def connect_nccl(self, name: str, rank: int, size: int, timeout: timedelta, device: torch.device) -> Any:
        """Makes an NCCL backend of `size` ranks for a GPU, after `exchange`."""
        nccl = self.interruptibly(lambda: self._connect_nccl(name, rank, size, timeout, device))
        self._groups.append(nccl)
        return nccl

    def launch(self, function: Callable[[], dist.Work]) -> dist.Work:
        """Starts an operation of NCCL. An abort waits meanwhile: PyTorch would poll the aborted communicator."""
        with self._launching:
            if self.over is not None:
                raise GroupLost(self.over)
            return function()

    def settle(self, note_wait: Callable[[], None]) -> None:
        """Returns when all operations of NCCL have ended well. Calls `note_wait` once if that takes long."""
        nccl = list(self._nccl)
        if nccl:
            event = torch.cuda.Event()
            event.record()
            long = time.monotonic() + LONG
            while not event.query():
                time.sleep(50e-6)
                if time.monotonic() > long:
                    note_wait()
                    break
            torch.cuda.synchronize()
        if self.over is not None:
            raise GroupLost(self.over)
        for backend in nccl:
            if (error := backend.get_error()).name != "SUCCESS":
                raise self.lost(RuntimeError(f"NCCL failed: {error.name}"))

    def track(self, work: dist.Work) -> None:
        """Remembers an operation for `leave`, and forgets older ones that have completed."""
        self.forget_completed()
        self._works.append(work)

    def forget_completed(self) -> None:
        """Lets go of completed operations, which hold their tensors."""
        while self._works and self._works[0].is_completed():
            self._works.popleft()

    def cut(self, reason: str) -> None:
        """Ends the round: all operations and waits of this process and its peers fail. Thread-safe."""
        if self.over is None:
            self.cut_at, self.over = time.monotonic(), reason
        for event in list(self._waiting):
            event.set()
        for copy, listens in _sockets():
            with contextlib.suppress(OSError):
                local, remote = copy.getsockname()[:2], copy.getpeername()[:2]
                ours = local in self._addresses or remote in self._addresses or remote[1] == self._master[1]
                if ours and not listens:
                    copy.shutdown(socket.SHUT_RDWR)
        self._abort_nccl()

    def lost(self, error: Exception) -> GroupLost:
        """Cuts the round because of an error of one of its operations."""
        self.cut(str(error))
        return GroupLost(self.over)

    def leave(self) -> None:
        """Drops the groups. An operation that Gloo does not end may hold its tensors for longer."""
        self.cut("this rank has left the round")
        while self._works and time.monotonic() < self.cut_at + _GRACE:
            with contextlib.suppress(RuntimeError):
                self._works[0].wait(timedelta(milliseconds=5))
            self.forget_completed()
        # Destructors wait for Gloo's threads.
        garbage: list[Any] = [self._works, self._groups, self._devices, self._store]
        self._works, self._groups, self._devices, self._store = deque(), [], [], None
        threading.Thread(target=garbage.clear, name="ddprun-discard", daemon=True).start()

    def _abort_nccl(self) -> None:
        # PyTorch aborts a communicator that is being connected only after its limit. None of its operations runs.
        while self._connecting:
            threading.Thread(target=self._connecting.pop().abort, name="ddprun-abort", daemon=True).start()
        if not self._aborting.acquire(timeout=_ABORT_WAIT):
            return
        launched = self._launching.acquire(timeout=_LAUNCH_WAIT) if self._nccl else False
        try:
            while self._nccl:
                self._nccl.pop().abort()
        finally:
            if launched:
                self._launching.release()
            self._aborting.release()

    def _exchange(self, record: Any) -> list[Any]:
        store = dist.TCPStore(*self._master, is_master=False, wait_for_workers=False, timeout=_STORE_PATIENCE)
        self._store = store
        before = _listening()
        self._devices = _devices()
        own = sorted(_listening() - before)
        self._addresses.update(own)
        prefix = f"ddprun.elastic/{self.number}"
        store.set(f"{prefix}/{self.rank}", json.dumps([own, record]))
        records = []
        for rank in range(self.size):
            addresses, its_record = json.loads(store.get(f"{prefix}/{rank}"))
            self._addresses.update((host, port) for host, port in addresses)
            records.append(its_record)
        return records

    def _connect(self, name: str, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroup:
        store = dist.PrefixStore(f"ddprun.elastic/{self.number}/{name}", self._store)
        options = dist.ProcessGroupGloo._Options()
        options._devices, options._timeout = self._devices, _CONNECT_TIMEOUT
        gloo = dist.ProcessGroupGloo(store, rank, size, options)
        gloo._set_default_timeout(timeout)
        group = dist.ProcessGroup(store, rank, size)
        group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            group._register_backend(torch.device(device), dist.ProcessGroup.BackendType.GLOO, gloo)
        return group

    def _connect_nccl(self, name: str, rank: int, size: int, timeout: timedelta, device: torch.device) -> Any:
        torch.cuda.set_device(device)
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        options.config.blocking = 0  # creation of a blocking communicator can't be aborted
        store = dist.PrefixStore(f"ddprun.elastic/{self.number}/{name}/nccl", self._store)
        nccl = dist.ProcessGroupNCCL(store, rank, size, options)
        self._connecting.append(nccl)
        # The first operation connects.
        work = nccl.allreduce([torch.zeros(1, device=device)], dist.AllreduceOptions())
        while not work.is_completed() and self.over is None:
            time.sleep(0.001)
        with self._launching:
            if self.over is None:
                self._connecting.remove(nccl)
                self._nccl.append(nccl)
        return nccl

    def interruptibly(self, function: Callable[[], Any]) -> Any:
        """Runs a blocking call on another thread, which is left behind if the round ends meanwhile."""
        done, results = threading.Event(), queue.SimpleQueue()

        def call() -> None:
            try:
                results.put((function(), None))
            except BaseException as error:
                results.put((None, error))
            done.set()

        self._waiting.add(done)
        try:
            if self.over is None:
                threading.Thread(target=call, name="ddprun-connect", daemon=True).start()
                done.wait()
        finally:
            self._waiting.discard(done)
        if self.over is not None:
            raise GroupLost(self.over)
        result, error = results.get()
        if error is not None:
            raise self.lost(error) from error
        return result
