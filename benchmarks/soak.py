#!/usr/bin/env python3
"""Checks that one rendezvousd with --state-dir does not grow while ten thousand jobs run one after another.

usage: benchmarks/soak.py [--jobs N]

Jobs have two launchers, all in one process with real gRPC streams (benchmarks/fleet/soak_main.cc); 50 jobs run at a
time, and every second one restarts once. Prints the server's memory, descriptors, threads and the size of its state
folder ten times. The server remembers a bounded number of ended jobs (1,000), so nothing may grow once twice as many
have ended: exit code 1 if something does. Only the history in the state folder fills until it has 100,000 events, those
of some 33,000 jobs. Needs scripts/setup; Bazel builds the launchers' program, or --soak names it.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from programs import build, flags, need, print_row, print_table, server

SETTLED = 2000  # jobs
WINDOW = 5  # samples


def look_at(pid, folder):
    """The server's memory in KB, its descriptors and threads, and the size of its state folder in KB."""
    status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    size = sum(path.stat().st_size for path in pathlib.Path(folder).iterdir())
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    return int(status["VmRSS"].split()[0]), descriptors, int(status["Threads"]), size // 1024


def find_growth(samples, jobs):
    """Lists what grew after the server had settled, beyond normal variation. `samples`: (jobs ended, values)."""
    settled = [values for ended, values in samples if ended >= min(SETTLED, jobs // 2)]
    if len(settled) < 2 * WINDOW:
        return ["too few jobs to tell"]
    # Minima, because some connections may just be closing in a sample.
    first, last = (tuple(map(min, zip(*part))) for part in (settled[:WINDOW], settled[-WINDOW:]))
    history = 0.5 * min(jobs, 33_000)
    allowed = (first[0] * 1.1 + 4096, first[1] + 8, first[2] + 4, first[3] + history + 1024)
    names = ("memory (KB)", "descriptors", "threads", "state folder (KB)")
    return [f"{name}: {a} to {b}" for name, a, b, most in zip(names, first, last, allowed) if b > most]


def main():
    parser = flags(__doc__, "rendezvousd")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--soak", help="the launchers' program, already built")
    args = parser.parse_args()
    need(args.rendezvousd)
    soak = args.soak or build("//benchmarks/fleet:soak") / "benchmarks/fleet/soak"
    samples = []
    with tempfile.TemporaryDirectory(prefix="ddprun_soak_") as folder:
        with server(args.rendezvousd, "--log-level=WARNING", f"--state-dir={folder}") as (process, address):
            command = [soak, f"--server={address}", f"--jobs={args.jobs}"]
            launchers = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            print_table(("jobs ended", "memory (KB)", "descriptors", "threads", "state folder (KB)"), [])
            shown = 0
            for line in launchers.stdout:
                jobs = int(line.split()[1])
                samples.append((jobs, look_at(process.pid, folder)))
                if jobs >= shown + args.jobs / 10 or jobs >= args.jobs:
                    shown = jobs
                    print_row((jobs, *samples[-1][1]))
            failed = launchers.wait() != 0
    growth = find_growth(samples, args.jobs)
    for line in growth:
        print(f"soak.py: growth: {line}", file=sys.stderr)
    sys.exit(1 if failed or growth else 0)


if __name__ == "__main__":
    main()
