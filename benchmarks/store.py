#!/usr/bin/env python3
"""Measures the store of a round with 1,024 workers of one launcher: the launcher's CPU time and response times.

usage: benchmarks/store.py [--workers N] [--operations N] [--ddprun FILE]

Each worker sets and reads its own keys; rank 0 sends PINGs meanwhile. The longest response to a PING is the longest
iteration of the launcher's event loop, plus the time until the launcher gets a CPU. Needs scripts/setup and a C
compiler.
"""

import os
import pathlib
import subprocess
import tempfile
import time

from programs import compile_c, cpu_seconds, die, flags, need, print_table, raise_file_limit, read_flags

GIVE_UP = 120.0


def run(ddprun, workers, operations, folder):
    program, figures = compile_c("store_worker", folder), folder / "figures"
    figures.touch()
    per_worker = -(-operations // (2 * (workers - 1)))  # each iteration is a SET and a GET
    env = dict(os.environ, BENCH_FILE=str(figures), BENCH_OPERATIONS=str(per_worker), OMP_NUM_THREADS="1")
    command = [ddprun, "--standalone", f"--nproc-per-node={workers}", "--no-python", program]
    launcher = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)
    cpu, end = 0.0, time.monotonic() + GIVE_UP
    try:
        while launcher.poll() is None:
            if time.monotonic() > end:
                die(f"not done after {GIVE_UP:.0f} s")
            cpu = max(cpu, cpu_seconds(launcher.pid))
            time.sleep(0.05)
    finally:
        launcher.kill()  # its workers exit with it
        launcher.wait()
    if launcher.returncode != 0:
        die(f"ddprun ended with {launcher.returncode}")
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
    parser = flags(__doc__, "ddprun")
    parser.add_argument("--workers", type=int, default=1024, metavar="N", help="at least 2 (default 1024)")
    parser.add_argument("--operations", type=int, default=100_000, metavar="N", help="of all workers (default 100000)")
    args = read_flags(parser, workers=2)
    need(args.ddprun)
    raise_file_limit()
    with tempfile.TemporaryDirectory(prefix="ddprun_store_") as folder:
        row = run(args.ddprun, args.workers, args.operations, pathlib.Path(folder))
    print_table(row, [row.values()])


if __name__ == "__main__":
    main()
