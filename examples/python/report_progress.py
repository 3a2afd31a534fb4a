"""A training loop that reports its progress to ddprun, and saves when the job is stopped.

    PYTHONPATH=packaging/wheel bin/ddprun --standalone --nproc-per-node=2 examples/python/report_progress.py

(without PYTHONPATH if the wheel is installed). Kill a worker: the failure summary names the step and phase it was in.
Stop the launcher with Ctrl-C: the workers save first.
"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from ddprun import worker


def stop_requested():
    """Returns the same answer on all ranks, which learn of a stop at different times."""
    stop = torch.tensor(worker.stop_requested() is not None, dtype=torch.int32)
    dist.all_reduce(stop, op=dist.ReduceOp.MAX)
    return bool(stop)


def main(steps):
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        if stop_requested():
            worker.report_progress(step, phase="checkpoint")
            if dist.get_rank() == 0:
                torch.save(model.module.state_dict(), "snapshot.pt")
                print(f"saved before step {step}\n", end="", flush=True)
            break
        worker.report_progress(step, phase="forward")
        inputs = torch.randn(32, 64)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        worker.report_progress(step, phase="backward", loss=loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0:
            print(f"rank {dist.get_rank()} trains\n", end="", flush=True)
    worker.report_progress(steps, phase="finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(steps=int(sys.argv[1]) if len(sys.argv) > 1 else 10000)
