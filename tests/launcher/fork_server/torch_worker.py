"""Trains briefly with torch.distributed, loads data in child processes, and prints results that must not depend on how
the worker was started. The first argument selects the action."""
import faulthandler
import os
import random
import sys

import numpy
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DataLoader, TensorDataset

RANK = int(os.environ["RANK"])


def say(*words):
    sys.stdout.write(" ".join(str(word) for word in (f"rank {RANK}:", *words)) + "\n")


def train():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(3):
        loss = model(torch.full((4, 8), float(RANK + step))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say("step", step, "loss", loss.item().hex())
    dist.destroy_process_group()


def load():
    for context in ("fork", "spawn", "forkserver"):
        loader = DataLoader(
            TensorDataset(torch.arange(32.0)), batch_size=4, num_workers=2, multiprocessing_context=context
        )
        say(context, sum(batch.sum().item() for (batch,) in loader))


def compile_function():
    # Disables inductor's trial builds for the processor and its precompiled header, which take minutes on a busy
    # machine: the first process builds them, and others wait at the header's file lock.
    options = {"cpp.vec_isa_ok": False, "cpp_cache_precompile_headers": False}
    compiled = torch.compile(lambda x: (x * 2).relu().sum(), options=options)
    say("compiled", compiled(torch.ones(8)).item())


def draw():
    """Each loader process draws its own numbers."""
    dist.init_process_group("gloo")
    for draw in (numpy.random.random, random.random, torch.initial_seed, lambda: torch.rand(1).item()):
        drawn = [None] * dist.get_world_size()
        dist.all_gather_object(drawn, draw())
        say("different", len(set(drawn)), "threads", torch.get_num_threads())
    dist.destroy_process_group()


def environment():
    """All variables except those that vary between runs."""
    of_this_run = {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"}
    of_this_run |= {"DDPRUN_LAUNCHER_ID", "DDPRUN_WORKER_LINK"}
    say(sorted(item for item in os.environ.items() if item[0] not in of_this_run))


@record
def fail():
    if RANK == 1:
        raise ValueError("recorded")
    dist.init_process_group("gloo")


if __name__ == "__main__":
    # Half of the test's timeout: prints where it hangs.
    faulthandler.dump_traceback_later(60, repeat=True)
    functions = (train, load, compile_function, draw, environment, fail)
    {function.__name__.removesuffix("_function"): function for function in functions}[sys.argv[1]]()
