"""The smallest elastic training script: two linear layers, one optimizer step.

    bin/ddprun --standalone --nproc-per-node=2 examples/python/toy_elastic.py

Start it on several machines with --nnodes and --rdzv-endpoint; the script stays the same.
"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(torch.relu(self.net1(x)))


def main():
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} starts on {device} with {dist.get_backend()}\n", end="")

    model = DDP(ToyModel().to(device), device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(torch.randn(20, 10, device=device)), torch.randn(20, 5, device=device))
    loss.backward()
    optimizer.step()

    print(f"rank {dist.get_rank()} made its step, its own loss was {loss.item():.3f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
