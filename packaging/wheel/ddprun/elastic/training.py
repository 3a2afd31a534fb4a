"""The training loop's side: `Worker`, which `init` returns, and `Step`.

The script is at one of these places, and may communicate only where that can be repeated:

    before the first step   any collective; on a rank that replaces another one it needs no other rank
    within a step           until the optimizer's step, which commits; all of it is repeated if the round ends
    within `Worker.retry`   the function is called again if the round ends
    elsewhere               an error, as a rank that dies there could not be replaced

When the round ends, a collective raises GroupLost. `with step:` takes the exception and undoes the step, and the
iterator of the batches enters the next round (`Worker._enter`): the ranks exchange their positions through the store,
connect, and a rank that is behind, or new, gets the state of one with the largest position. As a step commits without
communication after its last gradient arrived, positions differ by one step at most.

At the end of an epoch and in `retry` all ranks exchange where they are (`_Place`). A rank whose collective takes long
publishes its place in the store and looks at those of the others. So ranks that draw different numbers of batches, or
take different branches, end with an error instead of a hang.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
import warnings
from datetime import timedelta
from typing import Any, Callable, Iterator, NamedTuple, Optional

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import AllgatherOptions
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ddprun import worker as link

from . import reducers
from .batches import END, Batches, mix, seed_all
from .groups import BACKEND, Group
from .rounds import GroupLost, Round, prepare_nccl
from .state import Position, State, optimizers_of, parts

_REPORT_INTERVAL = 0.1  # seconds between reports of steps
_STOPPED = 143  # exit code after a stop request, as of SIGTERM
_ACTIVITIES = ("a step", "the end of an epoch", "worker.retry")
_STEP, _END_OF_EPOCH, _RETRY = range(len(_ACTIVITIES))


class RanksDiffer(RuntimeError):
    """The ranks don't do the same, or don't have the same state. Never taken for the end of a round."""


class _Place(NamedTuple):
    """Where a rank is; equal on all ranks in each collective."""

    activity: int  # index of _ACTIVITIES
    step: int
    epoch: int
    batch: int

    def __str__(self) -> str:
        return f"{_ACTIVITIES[self.activity]} (epoch {self.epoch}, {self.batch} batches drawn, {self.step} steps done)"


def _compare(places: list[_Place]) -> None:
    if any(place != places[0] for place in places):
        each = ", ".join(f"rank {rank} at {place}" for rank, place in enumerate(places))
        raise RanksDiffer(
            f"the ranks are at different places: {each}. All ranks must draw equally many batches and take the same "
            "branches"
        )


class Step:
    """An attempt at a step, for `with step:`. An optimizer's step ends it; without one the next batch continues it.

    `number`: optimizer steps before this one in the training, from 0.
    `batch`: batches before this one in the epoch, from 0; like enumerate's, but also right in a process that begins in
    the middle of an epoch, and when a batch comes again. For accumulation, for example.
    """

    def __init__(self, worker: Worker, number: int, batch: int) -> None:
        self.number, self.batch = number, batch
        self._worker = worker

    def __enter__(self) -> Step:
        self._worker._begin_step()
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], traceback: Any) -> bool:
        return self._worker._end_step(error)


class Worker:
    """This process's part in the training. Made by `init`, once in a process; for the main thread only."""

    def __init__(
        self,
        backend: Optional[str],
        seed: Optional[int],
        timeout: timedelta,
        checkpoint: Optional[str],
        save_every: int,
    ) -> None:
        self._seed, self._folder, self._save_every = seed, checkpoint, save_every
        self._ddps: list[DistributedDataParallel] = []
        self._synced_ddps: list[DistributedDataParallel] = []  # their buffers are rank 0's
        self._state: Optional[State] = None
        self._groups: list[Group] = []
        self._drawn = 0  # batches of the current step
        self._in_step = self._updating = self._in_body = self._in_retry = self._begun = False
        self._settled = True  # nothing was committed since the state was last offered
        self._report_at = 0.0  # time.monotonic() of the next report of a step
        self._failed = False  # the script has raised an error in a step
        self._synced: Optional[list[tuple[torch.Tensor, int]]] = None
        self._calls = (0, 0)  # epoch, and calls of `retry` in it
        self._activity = _STEP  # the latest
        self._stalled: Optional[list[Any]] = None  # places of all ranks, when they were last seen waiting
        self._joined = False  # this process has the state of its round
        self._survived = False  # this process was in an earlier round
        self._error: Optional[Exception] = None  # the reason to leave the round
        self.elastic = False  # the process survives the death of others
        self._layouts: list[reducers.Layout] = []  # DDP's buckets, as of the last step
        self._rebuilt: dict[int, reducers.Layout] = {}  # new ones, which the current step commits; by number of the DDP
        self._loop: tuple[int, Any, Optional[Batches]] = (-1, None, None)  # epoch, loader and its batches
        if "RANK" not in os.environ:
            os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT="0")
        self.uses_nccl = backend != "gloo" and torch.cuda.is_available() and dist.is_nccl_available()
        if self.uses_nccl:
            prepare_nccl()
        self.round = Round()
        self.elastic = link.keep_process(lambda suspend: self.round.cut(suspend.reason))
        link.stop_requested()  # handles SIGTERM from here on
        if self.elastic:
            dist.Backend.register_backend(BACKEND, self._make_group, extended_api=True, devices=["cpu", "cuda"])
            rank, size = self.round.rank, self.round.size
            dist.init_process_group(BACKEND, store=dist.HashStore(), rank=rank, world_size=size, timeout=timeout)
        elif self.round.size == 1:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)
        else:
            dist.init_process_group(backend, timeout=timeout)
        if seed is not None:
            seed_all(mix(seed))  # the same on all ranks
        register_optimizer_step_pre_hook(lambda optimizer, *_: self._before_update(optimizer))

    # ---- for the script ----

    @property
    def rank(self) -> int:
        return self.round.rank

    @property
    def world_size(self) -> int:
        return self.round.size

    def ddp(self, module: torch.nn.Module, **options: Any) -> DistributedDataParallel:
        """Returns DistributedDataParallel(module, **options) for this worker. Parameters become rank 0's at the start.

        With `broadcast_buffers`, the default, buffers become rank 0's at the end of each step, instead of at the
        beginning of the next one.
        """
        synced = options.pop("broadcast_buffers", True)
        ddp = DistributedDataParallel(module, init_sync=False, **options)
        ddp.broadcast_buffers = False
        self._ddps.append(ddp)
        if synced:
            self._synced_ddps.append(ddp)
        return ddp

    def state(self, model: torch.nn.Module, optimizer: Any, **others: Any) -> State:
        """Declares what the ranks have in common; call it once, before `epochs`.

        `optimizer` is one or a list. `others` are objects with state_dict and load_state_dict, such as a scheduler, a
        GradScaler or an averaged model; None is ignored. Everything that the training changes must be in it, or be a
        function of it. Modules may change only after the optimizer's step, except for their buffers.
        """
        if self._state is not None:
            raise RuntimeError("worker.state: call it once; give it all models and optimizers")
        for value in (model, *others.values()):
            if isinstance(value, DistributedDataParallel) and not any(value is ddp for ddp in self._ddps):
                raise ValueError("worker.state: use worker.ddp(module) instead of DistributedDataParallel(module)")
        others = {name: value for name, value in others.items() if value is not None}
        self._state = State(model, optimizers_of(optimizer), others)
        for value in others.values():
            if isinstance(value, torch.amp.GradScaler):
                self._watch(value)
        return self._state

    def epochs(self, count: int) -> Iterator[int]:
        """Yields the epochs from the current one on, from 0 to `count` - 1."""
        state = self._known_state()
        self._enter()
        self._begun = True
        while state.epoch < count:
            self._calls = (state.epoch, 0)
            yield state.epoch
            state.epoch, state.batch = state.epoch + 1, 0
        self._calls = (state.epoch, 0)
        self.retry(lambda: None)  # until all ranks are here, one that dies is replaced
        if self._folder is not None:
            self._save()
        self._report("finished")

    def steps(self, loader: Any) -> Iterator[tuple[Step, Any]]:
        """Yields the rest of the epoch's batches, each with a step; a batch comes again if its step was not committed.

        `loader` is a DataLoader or any other iterable, which must yield equally many batches on all ranks, and the same
        ones if it is iterated again in the same epoch. `set_epoch` of its sampler is called.
        """
        state = self._known_state()
        if not self._begun:
            raise RuntimeError("worker.steps: call it within `for epoch in worker.epochs(...)`")
        batches = self._batches_of(loader)
        state.mark()  # changes that the script made between two epochs are not undone
        while True:
            self._enter()
            if state.ended >= state.epoch:
                break
            batches.forget(state.batch)
            batch = batches.batch(state.epoch, state.batch + self._drawn)
            if batch is END:
                self._drop_batches()
                with self._recovering():
                    self._agree_on(_END_OF_EPOCH)
                    state.ended = state.epoch
                    break
                continue
            self._drawn += 1
            self._in_body = True
            try:
                yield Step(self, state.step or 0, state.batch + self._drawn - 1), batch
            except GeneratorExit:  # the script has left the loop
                if not self._failed:
                    state.ended = state.epoch
                    self._drop_batches()
                    self._settle()
                raise
            finally:
                self._in_body = False
            self._settle()

    def retry(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a function that communicates, between two epochs; again if the round ends before all ranks are done.

        For evaluations, for example. The function must change nothing of the state, and return the same picklable value
        on all ranks: a rank that is replaced after it gets the value from another one.
        """
        state = self._known_state()
        if not self._begun or self._in_body or self._in_step:
            raise RuntimeError(
                "worker.retry: call it within `for epoch in worker.epochs(...)` but outside of the loop over the "
                "batches, or after both: a rank that replaces another one begins after a step, and would not call it"
            )
        key, self._calls = self._calls, (self._calls[0], self._calls[1] + 1)
        while True:
            with self._recovering():
                self._enter()
                if key in state.results:
                    return state.results[key]
                self._reseed(4, *key)
                self._agree_on(_RETRY)
                self._report("evaluation")
                self._in_retry = True
                try:
                    result = function(*args, **kwargs)
                    self.round.settle(self.note_wait)
                finally:
                    self._in_retry = False
                self._agree_on(_RETRY)
                state.results[key] = result
                return result

    # ---- steps ----

    def _begin_step(self) -> None:
        state = self._known_state()
        self._in_step = True
        self._reseed(0, state.step or 0, self._drawn)
        self._activity = _STEP
        if time.monotonic() >= self._report_at:  # each report wakes the launcher
            self._report("forward")

    def _before_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Performs the last communication of a step, as its first optimizer begins."""
        if not self._begun:
            return
        state = self._known_state()
        name = type(optimizer).__name__
        if not any(optimizer is known for known in state.optimizers):
            raise RuntimeError(
                f"{name}.step: worker.state does not know this optimizer, so its update could not be repeated or sent "
                "to other ranks. Give worker.state a list: optimizer=[first, second]"
            )
        if not self._in_step:
            raise RuntimeError(f"{name}.step outside of `with step:`: an update must be part of a step")
        if self._updating:
            return
        for i, ddp in enumerate(self._ddps):
            if ddp.reducer._rebuild_buckets():  # the next forward would do it
                self._rebuilt[i] = reducers.layout(ddp)
        self._synced = self._sync_buffers() if self._synced_ddps else None
        self.round.settle(self.note_wait)
        self._updating = True

    def _end_step(self, error: Optional[BaseException]) -> bool:
        self._in_step = False
        if error is None:
            if self._updating:
                self._commit()
            return False
        updating, self._updating = self._updating, False
        if not isinstance(error, Exception) or not self._lost(error):
            if isinstance(error, RuntimeError) and not (self.elastic or updating) and link.stop_requested() is not None:
                self._stop()  # a rank that has stopped closed its connections
            self._failed = True
            return False
        if updating:
            raise RuntimeError("the round ended after the optimizer's step: it can't be undone") from error
        self._note_loss(error)
        return True

    def _commit(self) -> None:
        self._known_state().advance(self._drawn)
        self._drawn = 0
        self._updating = self._settled = False
        for i, layout in self._rebuilt.items():
            self._layouts[i] = layout
        self._rebuilt.clear()
        self.round.forget_completed()

    def _settle(self) -> None:
        """Offers the state to other ranks, after a step and what the script does behind it in the loop's body."""
        state = self._known_state()
        if not self._settled:
            self._settled = True
            state.mark(self._synced)
            self._synced = None
            state.offer()
            if self._folder is not None and (state.step or 0) % self._save_every == 0:
                self._save()
        if self._drawn == 0 and link.stop_requested() is not None:
            self._stop()

    def _batches_of(self, loader: Any) -> Batches:
        epoch, known, batches = self._loop
        if epoch == self._known_state().epoch:
            raise RuntimeError("worker.steps: only one loop over batches in each epoch")
        if known is not loader or batches is None:
            batches = Batches(loader, self._seed, self.round.rank)
        self._loop = (self._known_state().epoch, loader, batches)
        return batches

    def _drop_batches(self) -> None:
        """Drops the batches for which no optimizer has made a step, at the end of an epoch."""
        if self._drawn:
            warnings.warn(
                f"ddprun.elastic: dropped the last {self._drawn} batches of epoch {self._known_state().epoch}, as the "
                "epoch ended before an optimizer's step",
                stacklevel=3,
            )
            self._known_state().rollback()
            self._drawn = 0

    def _watch(self, scaler: torch.amp.GradScaler) -> None:
        """Lets a step commit in the scaler's step, which may skip that of the optimizer."""
        scale_and_step = scaler.step

        def step(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            self._before_update(optimizer)
            return scale_and_step(optimizer, *args, **kwargs)

        scaler.step = step

    def _sync_buffers(self) -> Optional[list[tuple[torch.Tensor, int]]]:
        """Sets the buffers to rank 0's. Returns copies with the buffers' versions if these are all of the state's."""
        buffers = [buffer for ddp in self._synced_ddps for buffer in ddp.module.buffers()]
        if not buffers or self.round.size == 1:
            return None
        flat = reducers.flatten(buffers)
        for values in flat.values():
            self._broadcast(values, 0)
        copies = reducers.unflatten(flat, buffers)
        if self.round.rank != 0:
            with torch.no_grad():
                torch._foreach_copy_(buffers, copies)
        if [id(b) for b in buffers] != [id(b) for b in self._known_state().buffers]:
            return None
        return [(values, buffer._version) for values, buffer in zip(copies, buffers)]

    def _reseed(self, *place: int) -> None:
        if self._seed is not None:
            seed_all(mix(self._seed, *place, self.round.rank))

    # ---- what groups ask (groups.Owner) ----

    def check_collective(self, name: str) -> None:
        if self._updating:
            raise RuntimeError(
                f"{name} after the optimizer's step within a step: if a rank died now, the update could not be undone. "
                "Communicate before optimizer.step()"
            )
        if self._begun and not self._in_step and not self._in_retry:
            raise RuntimeError(
                f"{name} outside of a step: if a rank died now, its replacement would not take part. Communicate in "
                "`with step:` before optimizer.step(), or between two epochs in worker.retry(function)"
            )

    def stands_alone(self) -> bool:
        if self._joined:
            return False
        if self._survived:
            raise GroupLost("this rank has not joined the round yet")
        return any(record is not None for record in self.round.exchange(None))

    def _make_group(self, options: Any, _backend_options: Any) -> Group:
        group = Group(self, options)
        self._groups.append(group)
        return group

    # ---- rounds ----

    def _lost(self, error: Optional[Exception] = None) -> bool:
        """True if the round is over. Errors of other groups than ours never end a round."""
        if not self.elastic or isinstance(error, RanksDiffer):
            return False
        if isinstance(error, (GroupLost, dist.DistBackendError)):
            return True
        return self.round.over is not None or link.suspend_requested() is not None

    def _note_loss(self, error: Exception) -> None:
        # Without the traceback, whose frames hold tensors.
        self._error = RuntimeError(f"{type(error).__name__}: {error}")

    @contextlib.contextmanager
    def _recovering(self) -> Iterator[None]:
        """Takes errors that are due to the end of the round."""
        try:
            yield
        except Exception as error:
            if not self._lost(error):
                raise
            self._note_loss(error)

    def _enter(self) -> None:
        """Returns when this process is in a round and has its state."""
        while not self._joined or self._lost():
            if self._lost():
                self._next_round()
            with self._recovering():
                self._join()
                self._joined = True

    def _next_round(self) -> None:
        state = self._known_state()
        if self._drawn and state.step is not None:
            state.rollback()
        self._drawn = 0
        self._stalled = None
        self._rebuilt.clear()
        for group in self._groups:
            group.disconnect()
        self.round.leave()
        error, self._error = self._error, None
        size = self.round.size
        if not link.suspended(state.step, error) or link.next_round() is None:
            self._stop()
        self._joined, self._survived = False, state.step is not None
        self.round = Round()
        suspend = link.suspend_requested()
        if suspend is not None and not suspend.at_step_end:
            self.round.cut(suspend.reason)
        if self.round.size != size:
            raise RuntimeError(
                f"the job has {self.round.size} ranks instead of {size}: ddprun.elastic does not support that yet. "
                "Use a fixed number of nodes"
            )

    def _join(self) -> None:
        """Agrees with all ranks on the state that they continue with, and gets or sends it."""
        state = self._known_state()
        if not self._layouts:
            self._layouts = [reducers.layout(ddp) for ddp in self._ddps]
        if not self.elastic:
            if self.round.rank == 0:
                self._begin_job()
            self._transfer(0, list(range(1, self.round.size)))
            return
        records = self.round.exchange(state.position())
        positions = [None if record is None else Position(*record) for record in records]
        newest = max((position for position in positions if position is not None), default=None)
        if newest is None:  # a new job
            source, takers = 0, list(range(1, len(positions)))
            if self.round.rank == 0:
                self._begin_job()
        else:
            source = positions.index(newest)
            takers = [rank for rank, its in enumerate(positions) if its is None or its.step < newest.step]
        if self._survived:
            self._remake_reducers(self._layouts)
        self._transfer(source, takers)
        if newest is not None:
            # Who has the same step has gone on by itself since then, except for what needed all ranks.
            if any(position != newest for position in positions):
                state.ended, state.results = self._broadcast_object((state.ended, state.results), source)
            self._compare_digests()
        link.re_formed(state.step or 0, None if newest is None else source)

    def _begin_job(self) -> None:
        state = self._known_state()
        if state.step is not None:
            return
        if self._folder is None or not state.load(self._folder):
            state.step = 0
            state.mark()
            state.offer()

    def _remake_reducers(self, layouts: list[reducers.Layout]) -> None:
        for ddp, layout in zip(self._ddps, layouts):
            reducers.remake(ddp, layout)
        self._layouts = layouts

    def _transfer(self, source: int, takers: list[int]) -> None:
        """Sends the state of `source` to the `takers`. All ranks call it."""
        state, rank = self._known_state(), self.round.rank
        if not takers:
            return
        packed, tensors = state.pack() if rank == source else (None, [])
        specs = [(tensor.shape, tensor.dtype, self.uses_nccl and tensor.is_cuda) for tensor in tensors]
        packed, specs, layouts = self._broadcast_object((packed, specs, self._layouts), source)
        received: list[torch.Tensor] = [torch.empty(0)] * len(specs)
        # A rank that is a step behind keeps its own state until it has all of the newer one.
        for indices, elements, dtype, on_gpu in parts(specs):
            device = torch.device("cuda" if on_gpu else "cpu")
            if rank == source:
                flat = torch.cat([tensors[i].detach().reshape(-1).to(device) for i in indices])
            else:
                flat = torch.empty(elements, dtype=dtype, device=device)
            self._broadcast(flat, source)
            if rank in takers:
                for i, piece in zip(indices, flat.split([specs[i][0].numel() for i in indices])):
                    received[i] = piece.reshape(specs[i][0]).clone() if len(indices) > 1 else piece.view(specs[i][0])
        if rank in takers:
            self.round.settle(self.note_wait)
            for i, (shape, dtype, _) in enumerate(specs):
                if shape.numel() == 0:
                    received[i] = torch.empty(shape, dtype=dtype)
            if layouts != self._layouts:
                self._remake_reducers(layouts)
            state.unpack(packed, received)

    def _compare_digests(self) -> None:
        state = self._known_state()
        work, digests = self._all_gather([state.digest()])
        work.wait()
        values = [int(digest) for digest in digests]
        if len(set(values)) > 1:
            ranks = ", ".join(f"rank {rank}: {value:016x}" for rank, value in enumerate(values))
            raise RanksDiffer(
                f"the ranks' training states differ after step {state.step} ({ranks}): parameters or the optimizer's "
                "state were changed outside of the optimizer's step, or differently on each rank"
            )

    # ---- places ----

    def _place(self) -> _Place:
        state = self._known_state()
        return _Place(self._activity, state.step or 0, state.epoch, state.batch + self._drawn)

    def _agree_on(self, activity: int) -> None:
        """Waits until all ranks are at this place. Raises an error if one is at another place."""
        self._activity = activity
        if self.round.size > 1:
            work, places = self._all_gather(list(self._place()))
            work.wait()
            _compare([_Place(*place.tolist()) for place in places])

    def note_wait(self) -> None:
        """Tells the launcher that this rank waits for others, so that it does not look like the one that hangs."""
        if self._begun:
            self._report("sync")

    def check_stall(self) -> None:
        """Raises an error if all ranks wait, at different places, and have done so at the last question, too."""
        if not self._joined:
            return
        waiting = self.round.publish([*self._place()])
        if None not in waiting and waiting == self._stalled:
            _compare([_Place(*place) for place in waiting])
        self._stalled = waiting

    def end_stall(self) -> None:
        self._stalled = None
        self.round.publish(None)

    # ---- collectives of this module ----

    def _collective(self, name: str, *args: Any) -> dist.Work:
        group = dist.group.WORLD
        return group.collective(name, *args) if isinstance(group, Group) else getattr(group, name)(*args)

    def _broadcast(self, tensor: torch.Tensor, source: int) -> None:
        if self.round.size > 1:
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = source, 0
            self._collective("broadcast", [tensor], options).wait()

    def _broadcast_object(self, value: Any, source: int) -> Any:
        if self.round.size == 1:
            return value
        data = pickle.dumps(value) if self.round.rank == source else b""
        size = torch.tensor([len(data)])
        self._broadcast(size, source)
        tensor = torch.empty(int(size), dtype=torch.uint8)
        if self.round.rank == source:
            tensor.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        self._broadcast(tensor, source)
        return value if self.round.rank == source else pickle.loads(tensor.numpy().tobytes())

    def _all_gather(self, values: list[int]) -> tuple[dist.Work, list[torch.Tensor]]:
        tensor = torch.tensor(values)
        gathered = list(torch.empty(self.round.size, len(values), dtype=torch.int64).unbind())
        return self._collective("allgather", [gathered], [tensor], AllgatherOptions()), gathered

    # ---- checkpoints and the end ----

    def _save(self) -> None:
        if self.round.rank == 0 and self._folder is not None:
            self._report("checkpoint")
            self._known_state().save(self._folder)

    def _report(self, phase: str) -> None:
        link.report_progress(self._known_state().step or 0, phase=phase)
        self._report_at = time.monotonic() + _REPORT_INTERVAL if phase == "forward" else 0.0

    def _stop(self) -> None:
        """Ends the process because the job is being stopped. Its state is that after the last step."""
        if self._known_state().step is not None:
            self._save()
        sys.exit(_STOPPED)

    def _known_state(self) -> State:
        if self._state is None:
            raise RuntimeError("call worker.state(model=..., optimizer=...) before the first epoch")
        return self._state
