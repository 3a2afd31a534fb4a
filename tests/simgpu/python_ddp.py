"""DistributedDataParallel over NCCL that saves each step and resumes: python_ddp.py CHECKPOINT [DIES_AT_STEP]

Rank 1 kills itself in the first attempt, at that step. Each rank prints its last loss with all digits.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist

STEPS = 8


def say(line):
    os.write(1, f"{line}\n".encode())  # one write, so that lines do not mix


def main():
    checkpoint, dies_at = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else STEPS
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 4)).to(device)
    ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
    first = 0
    if os.path.exists(checkpoint):
        saved = torch.load(checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
        say(f"rank {rank} resumes after step {first}")
    for step in range(first, STEPS):
        generator = torch.Generator().manual_seed(100 * step + rank)
        x, y = torch.randn(32, 16, generator=generator).to(device), torch.randn(32, 4, generator=generator).to(device)
        loss = torch.nn.functional.mse_loss(ddp(x), y)
        optimizer.zero_grad()
        loss.backward()
        if rank == 1 and step == dies_at and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        if rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1},
                       checkpoint + ".new")
            os.rename(checkpoint + ".new", checkpoint)
    say(f"rank {rank} ends with loss {loss.item():.9g}")
    dist.destroy_process_group()


main()
