#!/usr/bin/env python3
"""Measures the store of one round used by 1,024 workers of one launcher: the launcher's CPU time and the response
times.

usage: benchmarks/store.py [--workers N] [--operations N] [--ddprun FILE]

Each worker sets and reads its own keys; rank 0 sends PINGs meanwhile. The longest response to a PING is the longest
iteration of the launcher's event loop, plus the time until the launcher gets a CPU. Needs scripts/setup and a C
compiler.
"""

import argparse
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

from programs import ROOT, need

TICKS = os.sysconf("SC_CLK_TCK")
GIVE_UP = 120.0


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def run(ddprun, workers, operations, folder):
    program, figures = folder / "worker", folder / "figures"
    figures.touch()
    source = ROOT / "benchmarks/store_worker.c"
    subprocess.run(["cc", "-O2", "-static", "-o", program, source], check=True)
    per_worker = -(-operations // (2 * (workers - 1)))  # each iteration is a SET and a GET
    env = dict(os.environ, BENCH_FILE=str(figures), BENCH_OPERATIONS=str(per_worker), OMP_NUM_THREADS="1")
    command = [ddprun, "--standalone", f"--nproc-per-node={workers}", "--no-python", str(program)]
    launcher = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)
    cpu, end = 0.0, time.monotonic() + GIVE_UP
    try:
        while launcher.poll() is None:
            if time.monotonic() > end:
                sys.exit(f"store.py: not done after {GIVE_UP:.0f} s")
            cpu = cpu_seconds(launcher.pid)
            time.sleep(0.05)
    finally:
        launcher.kill()  # its workers exit with it
        launcher.wait()
    if launcher.returncode != 0:
        sys.exit(f"store.py: ddprun ended with {launcher.returncode}")
    rows = [tuple(map(int, line.split())) for line in figures.read_text().splitlines()]
    ping = next(longest for rank, longest, _ in rows if rank == 0)
    others = [(longest, wall) for rank, longest, wall in rows if rank != 0]
    return {
        "workers": workers,
        "operations": 2 * per_worker * (workers - 1),
        "all of it": f"{max(wall for _, wall in others) / 1e9:.2f} s",
        "launcher's CPU, start and end included": f"{cpu:.2f} s",
        "longest answer to a PING": f"{ping / 1e6:.1f} ms",
        "longest answer to a SET and GET": f"{max(longest for longest, _ in others) / 1e6:.1f} ms",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=1024, metavar="N", help="at least 2 (default 1024)")
    parser.add_argument("--operations", type=int, default=100_000, metavar="N", help="of all workers (default 100000)")
    parser.add_argument("--ddprun", default=str(ROOT / "bin/ddprun"), help="another build of ddprun")
    args = parser.parse_args()
    need(args.ddprun)
    if args.workers < 2:
        parser.error("--workers must be at least 2")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    with tempfile.TemporaryDirectory(prefix="ddprun_store_") as folder:
        row = run(args.ddprun, args.workers, args.operations, pathlib.Path(folder))
    print("| " + " | ".join(row) + " |")
    print("|" + "---|" * len(row))
    print("| " + " | ".join(map(str, row.values())) + " |")


if __name__ == "__main__":
    main()
