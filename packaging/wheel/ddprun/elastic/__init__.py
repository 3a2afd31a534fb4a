"""Lets a PyTorch training loop survive the death of other ranks, in the same process and without losing a step.

    import ddprun.elastic as elastic

    worker = elastic.init(seed=1)                            # instead of dist.init_process_group
    model = worker.ddp(net)                                  # instead of DistributedDataParallel(net)
    state = worker.state(model=net, optimizer=optimizer, scheduler=scheduler)
    for epoch in worker.epochs(3):
        for step, (x, y) in worker.steps(loader):
            with step:                                       # repeated if a rank dies before its update
                loss_of(model(x), y).backward()
                optimizer.step()                             # commits the step
                scheduler.step()
                optimizer.zero_grad()
        accuracy = worker.retry(evaluate)                    # what communicates between epochs

Under ddprun, the survivors of a failure keep their processes, and a replacement gets the training state from them.
Under another launcher, or none, the same script restarts from its checkpoint, if it has one. Collectives use Gloo, and
NCCL for tensors on GPUs.

docs/python.md in the sources has the rules that a loop must keep. Needs PyTorch 2.6 or newer, and Linux.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Optional

from .rounds import GroupLost
from .state import State
from .training import RanksDiffer, Step, Worker

__all__ = ["GroupLost", "RanksDiffer", "State", "Step", "Worker", "init"]


def init(
    backend: Optional[str] = None,
    seed: Optional[int] = 0,
    timeout: timedelta = timedelta(minutes=10),
    checkpoint: Optional[str] = None,
    save_every: int = 100,
) -> Worker:
    """Initializes torch.distributed and returns this process's worker. Call it once, instead of init_process_group.

    `backend`: "gloo", for all tensors; None: NCCL for tensors on GPUs, if there are any, and Gloo for others. As in any
    script, `torch.cuda.set_device` chooses the GPU of this process.
    `seed`: random numbers (PyTorch's, NumPy's and Python's) depend on it, the place in the training and the rank only;
    until the first epoch they are the same on all ranks. None leaves them alone; a rank that replaces another one then
    draws other numbers.
    `timeout`: limit for a collective, and so for the time by which ranks may be late. With Gloo, memory of a collective
    whose peer has died may stay in use for as long.
    `checkpoint`: a folder, to which rank 0 writes the state every `save_every` steps, at a stop request and at the end,
    and from which it reads it at the start, unless another rank holds the state. All ranks should have access to it.

    Raises RuntimeError if a process group exists already.
    """
    if backend not in (None, "gloo"):
        raise ValueError(f'elastic.init: backend is "gloo" or None, and not {backend!r}')
    if save_every < 1:
        raise ValueError("save_every must be at least 1")
    return Worker(backend, seed, timeout, checkpoint, save_every)
