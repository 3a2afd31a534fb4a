#!/usr/bin/env python3
"""Measures a plain DDP script under torchrun, ddprun and ddprun --preload: time to the first optimizer step, time from
kill -9 of a worker to the next step, and proportional memory (PSS) of the whole job.

usage: benchmarks/python_start.py [--runs N] [--workers N]...

Every round runs each of the three once, one after the other, so that all see the same machine; the table shows medians
and the range. Needs scripts/setup; the Python standard library is enough.
"""

import argparse
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from programs import ROOT, need, print_row, print_table, read_starts, stop

PYTHON = ROOT / ".venv/bin/python"
DDPRUN = os.environ.get("DDPRUN", str(ROOT / "bin/ddprun"))
LAUNCHERS = {
    "torchrun": [str(ROOT / ".venv/bin/torchrun")],
    "ddprun": [DDPRUN, "--preload=none"],
    "ddprun --preload": [DDPRUN, "--preload=auto"],
}
KILLS_PER_JOB = 2
GIVE_UP = 300.0  # seconds; timeout of each wait

TRAINER = """
import os
import signal
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
inputs, labels = torch.randn(16, 64), torch.randint(0, 10, (16,))
torch.nn.functional.cross_entropy(model(inputs), labels).backward()
optimizer.step()
with open(os.environ["BENCH_FILE"], "a") as file:
    file.write(f"{time.monotonic_ns()} {os.getpid()} {dist.get_rank()}\\n")
signal.pause()
"""


class Job:
    """A job whose workers wait after their first step."""

    def __init__(self, launcher, workers, folder):
        self.workers = workers
        self.steps_file = pathlib.Path(tempfile.mkstemp(dir=folder)[1])
        script = pathlib.Path(folder) / "trainer.py"
        script.write_text(TRAINER)
        env = dict(
            os.environ,
            OMP_NUM_THREADS="1",
            LOGLEVEL="ERROR",
            PYTHON_EXEC=str(PYTHON),
            BENCH_FILE=str(self.steps_file),
            # Without it torchrun's next attempt reads the addresses of the killed one.
            TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
        )
        flags = ["--standalone", f"--nproc-per-node={workers}", "--max-restarts=100", str(script)]
        self.began = time.monotonic_ns()
        self.process = subprocess.Popen(
            [*LAUNCHERS[launcher], *flags], env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def steps(self):
        return read_starts(self.steps_file)

    def wait_for_round(self, number):
        """Steady-clock time at which the last worker of this round completed its step."""
        end = time.monotonic() + GIVE_UP
        while len(self.steps()) < self.workers * number:
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError(f"round {number} did not come: {self.steps()}")
            time.sleep(0.005)
        return max(ns for ns, _, _ in self.steps()[: self.workers * number])

    def start(self):
        return (self.wait_for_round(1) - self.began) / 1e9

    def restart(self, number):
        time.sleep(1.0)  # let the last restart settle
        pid = next(pid for _, pid, rank in self.steps()[-self.workers :] if rank == self.workers - 1)
        killed = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)
        return (self.wait_for_round(number) - killed) / 1e9

    def memory(self):
        """Proportional set size in MB of the launcher and all its descendants."""
        parents = {}
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
            except OSError:
                pass
        total = 0
        for pid in parents:
            ancestor = pid
            while ancestor not in (0, self.process.pid):
                ancestor = parents.get(ancestor, 0)
            if ancestor == self.process.pid:
                rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        return total / 1024


def import_alone():
    began = time.monotonic()
    subprocess.run([PYTHON, "-c", "import torch, torch.distributed, torch._dynamo"], check=True)
    return time.monotonic() - began


def text(values, unit, digits):
    median = statistics.median(values)
    return f"{median:.{digits}f} {unit} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="rounds (3)")
    parser.add_argument("--workers", type=int, action="append", help="workers on this node (2 and 8)")
    arguments = parser.parse_args()
    need(PYTHON, DDPRUN, *[command[0] for command in LAUNCHERS.values()])
    print_table(("workers", *LAUNCHERS, "import alone"), [])
    with tempfile.TemporaryDirectory() as folder:
        import_alone()  # warms the page cache
        for workers in arguments.workers or [2, 8]:
            starts, restarts, memory = ({name: [] for name in LAUNCHERS} for _ in range(3))
            imports = []
            for run in range(arguments.runs):
                imports.append(import_alone())
                for name in LAUNCHERS:
                    job = Job(name, workers, folder)
                    try:
                        starts[name].append(job.start())
                        memory[name].append(job.memory())
                        for kill in range(KILLS_PER_JOB):
                            restarts[name].append(job.restart(kill + 2))
                    finally:
                        stop([job.process], 60)
                    print(f"round {run + 1} of {arguments.runs}: {workers} workers, {name}", file=sys.stderr)
            rows = {
                "to the first step": (starts, "s", 2, text(imports, "s", 2)),
                "kill -9 to the next": (restarts, "s", 2, ""),
                "PSS": (memory, "MB", 0, ""),
            }
            for row, (values, unit, digits, last) in rows.items():
                print_row((f"{workers}: {row}", *(text(values[name], unit, digits) for name in LAUNCHERS), last))


if __name__ == "__main__":
    main()
