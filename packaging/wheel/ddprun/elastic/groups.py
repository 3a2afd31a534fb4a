"""The process group that outlives the rounds.

The script's process groups are Python objects (`Group`) that forward each collective to a Gloo or NCCL group of the
current round, which is connected at the first collective. So DDP keeps its reference.
`Group.collective` is the only way in: it asks the owner whether the collective is allowed here, and it lets a waiting
caller go when the round ends.
"""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import Any, Iterator, Optional, Protocol

import torch
import torch.distributed as dist

from .rounds import LONG, GroupLost, Round

BACKEND = "ddprun"
_SLICE = timedelta(milliseconds=25)  # a wait for a hanging operation notices the end of the round this late
_GRACE = 0.025  # seconds that an operation gets to end by itself once its connections are shut down
_STALL = 10.0  # seconds until a wait asks its owner whether it can end ...
_STALL_INTERVAL = 5.0  # ... and seconds between such questions

_COLLECTIVES = (
    "allreduce allreduce_coalesced broadcast allgather _allgather_base all_gather_single reduce reduce_scatter "
    "_reduce_scatter_base reduce_scatter_single allgather_coalesced allgather_into_tensor_coalesced "
    "all_gather_single_coalesced alltoall alltoall_base all_to_all_single barrier gather gather_single "
    "reduce_scatter_tensor_coalesced reduce_scatter_single_coalesced scatter"
).split()
_MESSAGES = "send recv recv_anysource".split()


class Owner(Protocol):
    """The training loop, as far as a group needs to know it."""

    round: Round
    uses_nccl: bool  # for tensors on GPUs

    def check_collective(self, name: str) -> None:
        """Raises if a collective is not allowed at this point of the script."""

    def stands_alone(self) -> bool:
        """True if this process replaces another one and has not joined the survivors yet."""

    def note_wait(self) -> None:
        """Called once by a wait for other ranks that takes long."""

    def check_stall(self) -> None:
        """Called while a wait is very long. Raises if it can't end."""

    def end_stall(self) -> None:
        """Called after a very long wait."""


class _Work(dist.Work):
    """A Gloo operation. Waiting for it ends with the round, even where Gloo's operation does not."""

    def __init__(self, owner: Owner, inner: dist.Work) -> None:
        super().__init__()
        self._owner, self._round, self._inner = owner, owner.round, inner

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        inner, round_ = self._inner, self._round
        began = time.monotonic()
        long, question = began + LONG, began + _STALL
        stalled = False
        while True:
            completed = inner.is_completed()
            try:
                inner.wait(timedelta(0) if completed else _SLICE)
                break
            except RuntimeError as error:
                if completed:
                    raise round_.lost(error) from error
                if inner.is_completed():
                    continue  # right after the slice; well or not
                if round_.over is not None and time.monotonic() > round_.cut_at + _GRACE:
                    raise GroupLost(round_.over) from None
            if time.monotonic() > long:
                long = math.inf
                self._owner.note_wait()
            if round_.over is None and time.monotonic() > question:
                question, stalled = time.monotonic() + _STALL_INTERVAL, True
                self._owner.check_stall()
        if stalled:
            self._owner.end_stall()
        return True

    def get_future(self) -> torch.futures.Future:
        # At the end of backward, DDP waits for this future in C++, where nothing can interrupt it. The callback is
        # queued before DDP's, so that wait has returned or raised by then.
        try:
            torch.autograd.Variable._execution_engine.queue_callback(self.wait)
        except RuntimeError:
            pass  # not within backward
        return self._inner.get_future()

    def is_completed(self) -> bool:
        return self._inner.is_completed()

    def exception(self) -> Any:
        return self._inner.exception()

    def result(self) -> list[torch.Tensor]:
        return self._inner.result()

    def source_rank(self) -> int:
        return self._inner.source_rank()

    def synchronize(self) -> None:
        self.wait()


class _Message(_Work):
    """A send or receive, whose connection Gloo closes if a wait for it times out."""

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return self._round.interruptibly(self._inner.wait)


class _Done(dist.Work):
    """A collective that needed no other rank."""

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> torch.futures.Future:
        future: torch.futures.Future = torch.futures.Future()
        future.set_result([])
        return future


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _gpu_of(args: tuple[Any, ...]) -> Optional[torch.device]:
    return next((tensor.device for tensor in _tensors(args) if tensor.is_cuda), None)


class Group(dist.ProcessGroup):
    """A process group of the script; rank and size are those of the current round. For the threads of the script."""

    def __init__(self, owner: Owner, options: Any) -> None:
        super().__init__(options.group_rank, options.group_size)
        self._owner, self._key, self._timeout = owner, options.group_id, options.timeout
        self._ranks = list(options.global_ranks_in_group)  # empty: all ranks
        self._inner: Optional[dist.ProcessGroup] = None
        self._nccl: Any = None
        self._name = self._description = ""
        self._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)

    def getRank(self) -> int:
        rank = self._owner.round.rank
        return self._ranks.index(rank) if self._ranks else rank

    def getSize(self) -> int:
        return len(self._ranks) if self._ranks else self._owner.round.size

    def getBackendName(self) -> str:
        return BACKEND

    # c10d keeps these in a group's backends, of which this object has none.
    def _set_group_name(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    group_name = property(getGroupName)

    def _set_group_desc(self, text: str) -> None:
        self._description = text

    def getGroupDesc(self) -> str:
        return self._description

    group_desc = property(getGroupDesc)

    def _get_backend(self, device: torch.device) -> Any:
        return self._connected()._get_backend(device)

    def disconnect(self) -> None:
        """Lets go of the group of a round that is over."""
        self._inner = self._nccl = None

    def checked(self, name: str, *args: Any, **kwargs: Any) -> dist.Work:
        """Starts a collective of the script."""
        self._owner.check_collective(name)
        if self._owner.stands_alone():
            return _alone(name, self.getSize(), args)
        return self.collective(name, *args, **kwargs)

    def collective(self, name: str, *args: Any, **kwargs: Any) -> dist.Work:
        """Starts a collective. Raises GroupLost if the round is over."""
        round_ = self._owner.round
        inner = self._connected()
        if self._owner.uses_nccl and (device := _gpu_of(args)) is not None:
            return self._on_gpu(device, name, args, kwargs)
        try:
            work = getattr(inner, name)(*args, **kwargs)
        except RuntimeError as error:
            raise round_.lost(error) from error
        if name in _MESSAGES:
            return _Message(self._owner, work)
        round_.track(work)
        return _Work(self._owner, work)

    def _on_gpu(self, device: torch.device, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dist.Work:
        round_ = self._owner.round
        if self._nccl is None:
            self._nccl = round_.connect_nccl(self._key, self.getRank(), self.getSize(), self._timeout, device)
        nccl = self._nccl
        try:
            return round_.launch(lambda: getattr(nccl, name)(*args, **kwargs))
        except dist.DistBackendError as error:
            raise round_.lost(error) from error

    def _connected(self) -> dist.ProcessGroup:
        round_ = self._owner.round
        if round_.over is not None:
            raise GroupLost(round_.over)
        if self._inner is None:
            self._inner = round_.connect(self._key, self.getRank(), self.getSize(), self._timeout)
        return self._inner


def _define(name: str) -> None:
    def call(self: Group, *args: Any, **kwargs: Any) -> dist.Work:
        return self.checked(name, *args, **kwargs)

    call.__name__ = name
    setattr(Group, name, call)


for _name in (*_COLLECTIVES, *_MESSAGES):
    if hasattr(dist.ProcessGroup, _name):
        _define(_name)


def _alone(name: str, size: int, args: tuple[Any, ...]) -> dist.Work:
    """Performs a collective as if all ranks had this rank's values.

    A process that replaces another one prepares its training (the constructor of DDP, for example) while the others,
    which did that long ago, wait for it at a step.
    """
    with torch.no_grad():
        if name in ("allreduce", "allreduce_coalesced"):
            operation = getattr(args[1], "reduceOp", args[1]) if len(args) > 1 else dist.ReduceOp.SUM
            if operation == dist.ReduceOp.SUM:
                for tensor in args[0]:
                    tensor.mul_(size)
        elif name == "allgather":
            for outputs, tensor in zip(args[0], args[1]):
                for output in outputs:
                    output.copy_(tensor)
        elif name in ("_allgather_base", "all_gather_single"):
            args[0].view(size, -1).copy_(args[1].reshape(1, -1))
        elif name not in ("broadcast", "barrier"):
            raise RuntimeError(
                f"{name} before the first step: a rank that replaces another one can't take part in it. "
                "Use all_reduce, all_gather, broadcast or barrier there, or call it within a step"
            )
    return _Done()
