"""Calls PyTorch's launcher in the ways of other packages. Prints the same with and without `ddprun exec`."""

import os
import sys
import tempfile
import time

import torch
import torch.distributed.run as run
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher import LaunchConfig, elastic_launch

WORKER = """
import os, sys
rank = int(os.environ["RANK"])
if sys.argv[1] == "print":
    os.write(1, f"rank {rank} of {os.environ['WORLD_SIZE']}, {sys.argv[1:]}, {os.environ['MASTER_PORT']}\\n".encode())
elif rank == 1:
    if sys.argv[1] == "exit": sys.exit(7)
    os.kill(os.getpid(), 9)
else:
    import time
    time.sleep(600)
"""


def reduce(x, fails=False):
    torch.distributed.init_process_group("gloo")
    if fails and torch.distributed.get_rank() == 1:
        raise ValueError("not a number")
    if fails:
        time.sleep(600)  # PyTorch's launcher might take the error of a collective for the cause
    tensor = torch.full((2,), float(x + torch.distributed.get_rank()))
    torch.distributed.all_reduce(tensor)
    return tensor


def show_failure(name, call):
    try:
        call()
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        message = failure.message
        message = message.get("message", "") if isinstance(message, dict) else ""
        print(name, rank, failure.local_rank, failure.exitcode, failure.pid > 0, message, flush=True)


def main(folder):
    script = os.path.join(folder, "worker.py")
    with open(script, "w") as file:
        file.write(WORKER)

    # As Accelerate does: a parsed command line whose attributes are changed afterwards.
    args = run.get_args_parser().parse_args([script, "print", "--standalone"])
    args.nproc_per_node = "2"
    args.master_port = sys.argv[1]
    run.run(args)
    # As Fabric does.
    run.main(["--nproc_per_node=1", "--nnodes=1", f"--master_port={sys.argv[1]}", script, "print"])
    for way in ("exit", "kill"):
        show_failure(way, lambda: run.main(["--standalone", "--nproc_per_node=2", script, way]))
    for method in ("spawn", "fork"):
        config = LaunchConfig(
            1, 1, 2, run_id="x", rdzv_backend="c10d", rdzv_endpoint="localhost:0", start_method=method, max_restarts=0
        )
        print(method, elastic_launch(config, reduce)(3), flush=True)
        show_failure(method, lambda: elastic_launch(config, reduce)(3, True))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
