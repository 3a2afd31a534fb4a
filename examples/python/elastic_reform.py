"""A DDP loop that continues in the same process when another worker dies.

    export PYTHONPATH=packaging/wheel    # not where the wheel is installed
    bin/ddprun --standalone --nproc-per-node=2 --max-restarts=3 examples/python/elastic_reform.py

Kill a worker with SIGKILL: the others keep their processes, a replacement gets the training state from them, and no
step is lost.

Limits: Gloo only, and Linux. Buffers that the forward pass changes (BatchNorm's) would have to be saved and rolled back
with the step; this model has none. With more than two ranks the sums of gradients are bitwise reproducible only if
DDP's buckets are, which it lays out anew in each process group; this model fits into one bucket (1 MB). A rank that is
still connecting to the store of an ended round notices it only when the launcher kills it.
"""

import gc
import os
import socket
import sys
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from ddprun import worker


def stream_sockets():
    """The process's TCP connections: file descriptors by the kernel's name of the socket."""
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")
            if not name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(fd))) as connection:
                listens = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                internet = connection.family in (socket.AF_INET, socket.AF_INET6)
                if internet and connection.type == socket.SOCK_STREAM and not listens:
                    found[name] = int(fd)
        except OSError:
            pass  # closed meanwhile
    return found


class Group:
    """The process group of a round, which another thread can abort.

    Gloo's own abort does nothing. Therefore abort() shuts down the connections for which it waits: the group's own and,
    while the group is being formed, those to the store.
    """

    def __init__(self):
        self.before = set()  # sockets that existed before the group
        self.own = None  # the group's sockets; None: it is being formed
        self.left = threading.Event()
        self.left.set()

    def form(self):
        self.own = None
        self.before = set(stream_sockets())
        self.left.clear()
        dist.init_process_group("gloo")
        self.own = set(stream_sockets()) - self.before

    def abort(self, suspend):
        """Shuts the group's connections down until the main thread has left the group."""
        while True:
            for name, fd in stream_sockets().items():
                if name not in self.before if self.own is None else name in self.own:
                    try:
                        with socket.socket(fileno=os.dup(fd)) as connection:
                            connection.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass
            if self.left.wait(0.05):
                return

    def leave(self):
        if dist.is_initialized():
            dist.destroy_process_group()
        self.left.set()


class Training:
    """The training state, which is identical on all ranks after each step."""

    def __init__(self):
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.step = None  # optimizer steps; None: this process does not have the job's state yet

    def agree(self):
        """All ranks adopt the newest state that any rank has. Returns the rank that had it, or None."""
        steps = [None] * dist.get_world_size()
        dist.all_gather_object(steps, self.step)
        newest = max((step for step in steps if step is not None), default=None)
        if newest is None:
            self.step = 0  # here a job would read its checkpoint
            return None
        source = steps.index(newest)
        state = [(self.model.state_dict(), self.optimizer.state_dict()) if source == dist.get_rank() else None]
        dist.broadcast_object_list(state, src=source)
        if source != dist.get_rank():
            self.model.load_state_dict(state[0][0])
            self.optimizer.load_state_dict(state[0][1])
            self.step = newest
        return source

    def train(self, steps):
        """Trains until `steps` are done or the launcher ends the round."""
        model = DDP(self.model)
        while self.step < steps and worker.suspend_requested() is None:
            worker.report_progress(self.step)
            # Any process with this rank draws these numbers in this step.
            numbers = torch.Generator().manual_seed(self.step * 1000 + dist.get_rank())
            inputs = torch.randn(32, 64, generator=numbers)
            self.optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
            loss.backward()
            # No other rank is needed from here on: a step is done entirely or not at all.
            self.optimizer.step()
            self.step += 1
            line = f"rank {dist.get_rank()} pid {os.getpid()} step {self.step} loss {loss.item()!r}\n"
            print(line, end="", flush=True)


def main(steps):
    group = Group()
    worker.keep_process(on_suspend=group.abort)
    training = Training()
    while True:
        error = None
        try:
            group.form()
            source = training.agree()
            worker.re_formed(training.step, source)
            training.train(steps)
        except (RuntimeError, OSError) as failure:
            if isinstance(failure, torch.OutOfMemoryError):
                raise
            # Drop the traceback's references: DDP must be destroyed before its process group.
            error = failure.with_traceback(None)
        gc.collect()
        group.leave()
        if training.step == steps:
            worker.report_progress(training.step, phase="finished")
            return
        if not worker.suspended(training.step, error) or worker.next_round() is None:
            sys.exit(1)


if __name__ == "__main__":
    main(steps=int(sys.argv[1]) if len(sys.argv) > 1 else 10000)
