"""A DDP loop that loses no step when a worker dies.

    export PYTHONPATH=packaging/wheel    # not where the wheel is installed
    bin/ddprun --standalone --nproc-per-node=2 --max-restarts=3 examples/python/elastic_train.py

Kill a worker with SIGKILL: the other one keeps its process, a replacement gets the training state from it, and the
losses are those of an undisturbed run, bit for bit. Under torchrun or plain Python the same script runs, too;
with a checkpoint (the second argument, a folder) it then resumes where it was stopped or killed.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from ddprun import elastic

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000


def say(text):
    print(text + "\n", end="", flush=True)  # one write, so that lines of several ranks do not mix


def main():
    worker = elastic.init(seed=1, checkpoint=sys.argv[2] if len(sys.argv) > 2 else None)
    inputs = torch.randn(512, 64, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    sampler = DistributedSampler(data, worker.world_size, worker.rank)
    loader = DataLoader(data, batch_size=32, sampler=sampler)

    net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 1))
    model = worker.ddp(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    worker.state(model=net, optimizer=optimizer, scheduler=scheduler)

    def evaluate():
        x, y = data[worker.rank :: worker.world_size]
        net.eval()
        with torch.no_grad():
            error = nn.functional.mse_loss(net(x), y)
        net.train()
        dist.all_reduce(error)
        return error.item() / worker.world_size

    for epoch in worker.epochs(EPOCHS):
        for step, (x, y) in worker.steps(loader):
            with step:
                loss = nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                say(f"rank {worker.rank} pid {os.getpid()} step {step.number} loss {loss.item()!r}")
        scheduler.step()
        error = worker.retry(evaluate)
        if worker.rank == 0:
            say(f"epoch {epoch} error {error:.4f}")


if __name__ == "__main__":
    main()
