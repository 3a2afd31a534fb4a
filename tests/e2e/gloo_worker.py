"""A plain DDP-style worker: joins by env://, sums the ranks, and may be told to die in some attempts.

    gloo_worker.py [--die RANK:ATTEMPT:HOW]... [--late RANK:FILE]

HOW is kill, raise or an exit code. The late rank begins when FILE exists.
"""

import argparse
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--die", action="append", default=[])
    parser.add_argument("--late")
    arguments = parser.parse_args()
    if arguments.late:
        who, file = arguments.late.split(":")
        while os.environ["RANK"] == who and not os.path.exists(file):
            time.sleep(0.05)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    for _ in range(3):
        total = torch.tensor([float(rank)])
        dist.all_reduce(total)
        assert total.item() == world * (world - 1) / 2, total
    sys.stdout.write(f"attempt={attempt} rank={rank}/{world} sum={total.item():.0f} .\n")
    sys.stdout.flush()
    for text in arguments.die:
        who, when, how = text.split(":")
        if (rank, attempt) == (int(who), int(when)):
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "raise":
                # torch may abort a process that ends with a group of its own, which would hide the exception.
                dist.destroy_process_group()
                raise RuntimeError("the weights are not finite")
            os._exit(int(how))
        if when == str(attempt) and how == "raise":
            signal.pause()  # so that no rank but that one has anything to report
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
