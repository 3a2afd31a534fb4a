#!/usr/bin/env python3
"""Compares ddprun with torchrun: time and memory of launching, of replacing a killed worker, and of idling.

usage: benchmarks/launch.py [--runs N] [--only WORD]...

Every measurement alternates between the two launchers, so that both see the same machine; the table shows medians.
Needs scripts/setup and a C compiler; the Python standard library is enough.
"""

import contextlib
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from programs import ROOT, compile_c, flags, free_port, need, print_table, read_flags, read_starts, stop

LAUNCHERS = {"torchrun": [str(ROOT / ".venv/bin/torchrun")], "ddprun": [str(ROOT / "bin/ddprun")]}
KILLS_PER_JOB = 3
IDLE_SECONDS = 10.0
GIVE_UP = 120.0  # seconds; timeout of each step


class Bench:
    def __init__(self, runs, folder):
        self.runs = runs
        self.folder = pathlib.Path(folder)
        self.rows = []
        self.measure = compile_c("measure", folder)
        self.worker = compile_c("first_instruction", folder)
        # torchrun warns if OMP_NUM_THREADS is unset.
        self.env = dict(os.environ, OMP_NUM_THREADS="1", LOGLEVEL="ERROR")

    # ---- launching ----

    def launch(self, launcher, *flags):
        """One run of `true`: (seconds, MB)."""
        figures = self.folder / "figures"
        command = [self.measure, str(figures), *LAUNCHERS[launcher], *flags, "--no-python", "true"]
        subprocess.run(command, env=self.env, check=True, stdin=subprocess.DEVNULL, timeout=GIVE_UP)
        wall, resident, _ = figures.read_text().split()
        return int(wall) / 1e9, int(resident) / 1024

    def launch_two_nodes(self, launcher):
        """Runs both nodes of a job on this host, started together: seconds until both have exited."""
        flags = self.two_node_flags()
        command = [*LAUNCHERS[launcher], *flags, "--no-python", "true"]
        began = time.monotonic()
        nodes = [subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL) for _ in range(2)]
        codes = [node.wait(timeout=GIVE_UP) for node in nodes]
        if any(codes):
            raise RuntimeError(f"{launcher}: a node of two ended with {codes}")
        return time.monotonic() - began

    @staticmethod
    def two_node_flags():
        port = free_port()
        rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-id=bench{port}"]
        return ["--nnodes=2", "--nproc-per-node=2", *rendezvous]

    # ---- a job that stays up ----

    @contextlib.contextmanager
    def job(self, launcher, nodes):
        """Starts a job with 2 workers per node and yields (launchers, file of first instructions)."""
        path = self.folder / f"begun_{launcher}_{time.monotonic_ns()}"
        path.touch()
        flags = ["--standalone", "--nproc-per-node=2"] if nodes == 1 else self.two_node_flags()
        command = [*LAUNCHERS[launcher], *flags, "--max-restarts=100", "--no-python", self.worker]
        env = dict(self.env, BENCH_FILE=str(path))
        launchers = [
            subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for _ in range(nodes)
        ]
        try:
            self.wait_for(path, lambda begun: len(begun) == 2 * nodes, launchers)
            yield launchers, path
        finally:
            stop(launchers)

    def wait_for(self, path, enough, launchers):
        end = time.monotonic() + GIVE_UP
        while not enough(begun := read_starts(path)):
            if time.monotonic() > end or any(p.poll() is not None for p in launchers):
                raise RuntimeError(f"the job did not come up: {begun}")
            time.sleep(0.002)
        return begun

    def replace(self, launcher, nodes):
        """Kills the last rank KILLS_PER_JOB times: seconds from SIGKILL to its replacement's first instruction."""
        result = []
        with self.job(launcher, nodes) as (launchers, path):
            world = 2 * nodes
            for attempt in range(1, KILLS_PER_JOB + 1):
                newest = read_starts(path)[-world:]
                pid = next(pid for _, pid, rank in newest if rank == world - 1)
                time.sleep(0.3)  # let the last restart settle
                killed = time.monotonic_ns()
                os.kill(pid, signal.SIGKILL)
                begun = self.wait_for(path, lambda b: len(b) >= world * (attempt + 1), launchers)
                # Its rank identifies the replacement, whether ranks were renumbered or not.
                again = next(ns for ns, _, rank in begun[world * attempt :] if rank == world - 1)
                result.append((again - killed) / 1e9)
        return result

    def wake_ups(self, launcher):
        """Voluntary context switches per second of all the launcher's threads while its workers sleep."""
        with self.job(launcher, 1) as (launchers, _):
            time.sleep(1.0)  # let the start settle
            began = self.voluntary_switches(launchers[0].pid)
            time.sleep(IDLE_SECONDS)
            return (self.voluntary_switches(launchers[0].pid) - began) / IDLE_SECONDS

    @staticmethod
    def voluntary_switches(pid):
        total = 0
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for line in (task / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    total += int(line.split()[1])
        return total

    # ---- the table ----

    def compare(self, what, unit, aim, runs, one):
        """Runs `one(launcher)` alternately; it returns a number or a list of them, in `unit`'s base."""
        values = {launcher: [] for launcher in LAUNCHERS}
        for i in range(runs):
            for launcher in LAUNCHERS if i % 2 == 0 else reversed(LAUNCHERS):
                print(f"\r{what}: run {i + 1} of {runs}, {launcher}        ", end="", file=sys.stderr, flush=True)
                value = one(launcher)
                values[launcher].extend(value if isinstance(value, list) else [value])
        print("\r" + " " * 90 + "\r", end="", file=sys.stderr, flush=True)
        self.add(what, unit, aim, values)

    def add(self, what, unit, aim, values):
        theirs, ours = (statistics.median(values[launcher]) for launcher in LAUNCHERS)
        ratio = f"{theirs / ours:.1f}" if ours > 0 else "-"
        self.rows.append((what, show(theirs, unit), show(ours, unit), ratio, aim))

    def run(self, wanted):
        runs = self.runs
        if wanted("start"):
            times, sizes = ({launcher: [] for launcher in LAUNCHERS} for _ in range(2))

            def standalone(launcher):
                seconds, megabytes = self.launch(launcher, "--standalone", "--nproc-per-node=2")
                sizes[launcher].append(megabytes)
                times[launcher].append(seconds)
                return seconds

            self.compare("start: one node, 2 workers of `true`", "s", "ratio >= 50", runs, standalone)
            self.add("start: resident memory of that launcher", "MB", "ddprun <= 25 MB", sizes)
        if wanted("64"):
            self.compare(
                "64: one node, 64 workers of `true`",
                "s",
                "ratio >= 10",
                max(1, runs // 2),
                lambda launcher: self.launch(launcher, "--standalone", "--nproc-per-node=64")[0],
            )
        if wanted("two"):
            self.compare("two: two nodes on one host, 2 workers each", "s", "ratio >= 30", runs, self.launch_two_nodes)
        if wanted("kill"):
            jobs = max(1, -(-runs // KILLS_PER_JOB))
            for nodes, aim in ((1, "ddprun <= 15 ms"), (2, "ddprun <= 30 ms")):
                self.compare(
                    f"kill: SIGKILL -> replacement runs, {nodes} node{'s' if nodes > 1 else ''}",
                    "s",
                    aim,
                    jobs,
                    lambda launcher, nodes=nodes: self.replace(launcher, nodes),
                )
        if wanted("idle"):
            self.compare(
                f"idle: wake-ups a second over {IDLE_SECONDS:.0f} s", "/s", "only heartbeats", 1, self.wake_ups
            )


def show(value, unit):
    if unit == "s":
        return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"
    return f"{value:.1f} {unit}"


def main():
    parser = flags(__doc__, "ddprun")
    parser.add_argument("--runs", type=int, default=7, metavar="N", help="pairs of runs per row (default 7)")
    parser.add_argument(
        "--only", action="append", choices=["start", "64", "two", "kill", "idle"], help="only these rows"
    )
    args = read_flags(parser, runs=1)
    LAUNCHERS["ddprun"] = [args.ddprun]
    need(*[command[0] for command in LAUNCHERS.values()])
    with tempfile.TemporaryDirectory(prefix="ddprun_bench_") as folder:
        bench = Bench(args.runs, folder)
        try:
            bench.run(lambda word: not args.only or word in args.only)
        finally:
            if bench.rows:
                print_table(("what (medians)", "torchrun", "ddprun", "ratio", "aim"), bench.rows)


if __name__ == "__main__":
    main()
