#!/usr/bin/env python3
"""Compares ddprun with torchrun on SLURM: from sbatch to the first optimizer step, on 2 nodes with 2 workers each.

usage: benchmarks/slurm.py [--runs N]

Needs a SLURM cluster with two free nodes, and scripts/setup. On any machine where the tests of tests/slurm run, this
starts a temporary one for the command:

    ON_CLUSTER='.venv/bin/python benchmarks/slurm.py' bazel run //tests/slurm:on_cluster

Runs alternate between the launchers, so that both see the same machine; the table shows medians.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from programs import ROOT, flags, need, print_table, read_flags

WORKERS = 4
GIVE_UP = 300.0  # seconds for a job

SBATCH = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
"""

# The script lines below the #SBATCH lines. torchrun's follow PyTorch's tutorial, as one script.
SCRIPTS = {
    "torchrun": """export MASTER_ADDR=$(scontrol show hostname ${SLURM_NODELIST} | head -n 1)
srun torchrun --nnodes=2 --nproc_per_node=2 \\
  --rdzv_id=100 --rdzv_backend=c10d \\
  --rdzv_endpoint=$MASTER_ADDR:29400 \\
  train.py
""",
    "ddprun": """srun ddprun --nproc-per-node=2 train.py
""",
    "ddprun --preload": """srun ddprun --nproc-per-node=2 --preload train.py
""",
}

# A minimal training, which records when its process started and when its first step is done.
TRAIN = """
import os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

with open("/proc/self/stat") as f:
    ticks = int(f.read().rpartition(")")[2].split()[19])
began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(10, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
model(torch.randn(20, 10)).sum().backward()
optimizer.step()
with open("times", "a") as f:
    f.write(f"{began} {time.time()}\\n")
dist.destroy_process_group()
"""


def run(launcher, folder):
    """One job: seconds from sbatch to the start of the last worker's process, and to the end of the last first step."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
    (folder / "train.py").write_text(TRAIN)
    script = folder / "job.sh"
    script.write_text(SBATCH + SCRIPTS[launcher])
    path = f"{ROOT}/bin:{ROOT}/.venv/bin:{os.environ['PATH']}"
    env = dict(os.environ, PATH=path, VIRTUAL_ENV=str(ROOT / ".venv"), OMP_NUM_THREADS="1")
    began = time.time()
    command = ["sbatch", "--wait", "--output=out", "--exclusive", str(script)]
    code = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, timeout=GIVE_UP).returncode
    times, out = folder / "times", folder / "out"
    workers = [tuple(map(float, line.split())) for line in times.read_text().splitlines()] if times.exists() else []
    if code != 0 or len(workers) != WORKERS:
        raise RuntimeError(f"{launcher}: the job ended with {code}:\n{out.read_text() if out.exists() else ''}")
    return tuple(max(worker[i] for worker in workers) - began for i in range(2))


def main():
    parser = flags(__doc__)
    parser.add_argument("--runs", type=int, default=7, metavar="N", help="runs of each (default 7)")
    args = read_flags(parser, runs=1)
    need(ROOT / "bin/ddprun", ROOT / ".venv/bin/torchrun")
    figures = {launcher: [] for launcher in SCRIPTS}
    # All nodes must see the working folder.
    with tempfile.TemporaryDirectory(prefix="ddprun_bench_", dir=os.getcwd()) as folder:
        for i in range(args.runs):
            for launcher in list(SCRIPTS)[:: 1 if i % 2 == 0 else -1]:
                print(f"\rrun {i + 1} of {args.runs}, {launcher}        ", end="", file=sys.stderr, flush=True)
                figures[launcher].append(run(launcher, folder))
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr, flush=True)
    rows = []
    for i, what in enumerate(["all workers run", "all workers have made their first step"]):
        medians = [statistics.median(run[i] for run in figures[launcher]) for launcher in SCRIPTS]
        rows.append((what, *(f"{median:.2f} s" for median in medians)))
    lines = [len(script.splitlines()) for script in SCRIPTS.values()]
    rows.append(("lines that the user writes, without those for SLURM", *lines))
    print_table(("medians of sbatch until ...", *SCRIPTS), rows)


if __name__ == "__main__":
    main()
