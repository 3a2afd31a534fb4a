#!/usr/bin/env python3
"""Measures how long training is interrupted by a failure, and how many steps are lost.

usage: benchmarks/recovery.py [--injections N] [--only WORD]... [--programs DIR]

Each case is a job of which one process is repeatedly killed with SIGKILL, each time a random while after the job has
recovered. The table shows medians and p99 (with 20 injections: the maximum) of the time from the kill to the end of the
next optimizer step, the parts of that time, and how many committed steps were repeated. Jobs under torchrun and jobs
without recovery resume from a snapshot of every 20th step. "Python, survivors" is a loop of ddprun.elastic. Needs
scripts/setup; Bazel builds the C++ examples.
"""

import argparse
import contextlib
import os
import pathlib
import queue
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from programs import ROOT, build, need, print_row, print_table, stop

DDPRUN = ROOT / "bin/ddprun"
GIVE_UP = 120.0  # seconds; timeout of each step
MODEL = ["--block-size=64", "--n-layer=2", "--n-head=4", "--n-embd=64", "--batch-size=8"]
SNAPSHOTS = ["--snapshot-every=20", "--log-every=1", "--steps=1000000"]
PARTS = ("rolled back", "re-form", "group", "state", "first step")

PID = re.compile(r"rank (\d+)(?: of \d+:)? pid (\d+)")
STEP = re.compile(r"step (\d+)\D.*loss")
RECOVERED = re.compile(r"rank (\d+): round (\d+) goes on after step (\d+)(?:; suspended at ([\d.]+) s, then(.*))?")


class Job:
    """The processes of one job, with their output as (time of arrival, process number, line)."""

    def __init__(self, env):
        self.env = env
        self.lines = queue.SimpleQueue()
        self.pids = {}  # rank -> pid
        self.step = 0  # the largest reported step
        self.processes = []

    def start(self, command):
        process = subprocess.Popen(
            command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        threading.Thread(target=self.read, args=(len(self.processes), process.stdout), daemon=True).start()
        self.processes.append(process)

    def start_server(self):
        """Returns the port once the server listens: a launcher started sooner would retry a second later or more."""
        self.start([str(ROOT / "bin/rendezvousd"), "--listen=127.0.0.1:0"])
        deadline = time.monotonic() + GIVE_UP
        while True:
            _, _, line = self.next(deadline)
            if found := re.search(r"listening on \S+:(\d+)", line):
                return int(found[1])

    def read(self, number, pipe):
        for line in pipe:
            self.lines.put((time.monotonic(), number, line))

    def next(self, deadline):
        """Returns the next line, after recording the pid in it, if any."""
        try:
            at, number, line = self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise RuntimeError("the job makes no progress") from None
        if found := PID.search(line):
            self.pids[int(found[1])] = int(found[2])
        return at, number, line

    def run_until_step(self, step):
        deadline = time.monotonic() + GIVE_UP
        while self.step < step:
            _, _, line = self.next(deadline)
            if found := STEP.search(line):
                self.step = max(self.step, int(found[1]))


@contextlib.contextmanager
def job(commands=()):
    env = dict(os.environ, OMP_NUM_THREADS="1", LOGLEVEL="ERROR", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    env.update(PYTHONPATH=str(ROOT / "packaging/wheel"), PYTHON_EXEC=str(ROOT / ".venv/bin/python"))
    started = Job(env)
    try:
        for command in commands:
            started.start(command)
        yield started
    finally:
        stop(started.processes)


class Injection:
    def __init__(self):
        self.total = 0.0  # seconds from the kill to the end of the next step
        self.told = None  # from the kill to the survivors' suspend
        self.parts = {}  # name -> seconds from the suspend
        self.lost = 0


def recovered_by_survivors(running, killed, survivors):
    """After a kill at `killed`: waits until `survivors` (numbered by their new ranks) have reported their recovery."""
    result = Injection()
    before = running.step
    deadline = time.monotonic() + GIVE_UP
    left = set(survivors)
    while left:
        _, _, line = running.next(deadline)
        if (found := STEP.search(line)) and "goes on" not in line:
            running.step = max(running.step, int(found[1]))
        found = RECOVERED.search(line)
        if not found or found[4] is None or int(found[1]) not in left:
            continue
        left.discard(int(found[1]))
        suspended = float(found[4])
        parts = {name: float(ms) / 1e3 for name, ms in re.findall(r"([a-z -]+?) \+([\d.]+) ms", found[5])}
        parts = {name.strip(): value for name, value in parts.items()}
        total = suspended - killed + parts["first step"]
        if total > result.total:
            result.total, result.told, result.parts = total, suspended - killed, parts
        result.lost = max(result.lost, before - int(found[3]))
    return result


def resumed_from_snapshot(running, killed, _):
    """After a kill at `killed`: waits for the first step completed by restarted workers."""
    result = Injection()
    before = running.step
    deadline = time.monotonic() + GIVE_UP
    begun = False
    while True:
        at, _, line = running.next(deadline)
        if PID.search(line):
            begun = True
        if begun and (found := STEP.search(line)) and "resumed" not in line and "snapshot" not in line:
            running.step = int(found[1])
            result.total = at - killed
            result.lost = max(0, before - (running.step - 1))
            return result


def joined_survivors(running, killed, survivors):
    """After a kill at `killed`: waits for the first step of the process that replaces the dead one."""
    result = Injection()
    before = running.step
    deadline = time.monotonic() + GIVE_UP
    known = set(running.pids.values())
    while True:
        at, _, line = running.next(deadline)
        found = STEP.search(line)
        if not found:
            continue
        running.step = max(running.step, int(found[1]))
        if int(PID.search(line)[2]) not in known:
            result.total = at - killed
            result.lost = max(0, before - int(found[1]))
            return result


def kill_workers(commands, world, injections, recovered):
    """Kills random ranks of one job; `recovered` waits for its next step."""
    results = []
    with job(commands) as running:
        running.run_until_step(25)
        while len(results) < injections:
            running.run_until_step(running.step + random.randint(25, 45))
            if len(running.pids) < world:
                raise RuntimeError(f"only ranks {sorted(running.pids)} have reported their pid")
            victim = random.randrange(world)
            survivors = {rank: pid for rank, pid in running.pids.items() if rank != victim}
            killed = time.monotonic()
            os.kill(running.pids[victim], signal.SIGKILL)
            results.append(recovered(running, killed, survivors))
            if recovered != resumed_from_snapshot and any(running.pids[rank] != pid for rank, pid in survivors.items()):
                raise RuntimeError("a survivor was restarted")
    return results


def lose_nodes(worker, injections):
    """Three nodes with one worker each on this host; kills the launcher and the worker of one."""
    results = []
    while len(results) < injections:
        with job() as running:
            # The server runs separately, as it would otherwise be killed with its launcher.
            port = running.start_server()
            server = [f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-id=recovery{port}"]
            flags = ["--nnodes=2:3", "--nproc-per-node=1", *server]
            for _ in range(3):
                running.start([str(DDPRUN), *flags, "--max-restarts=100", *worker])
            running.run_until_step(random.randint(30, 60))
            victim = random.randrange(3)
            pid = running.pids[victim]
            launcher = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            killed = time.monotonic()
            os.kill(launcher, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            results.append(recovered_by_survivors(running, killed, {0, 1}))
    return results


def one_node(world, worker, *flags):
    job = ["--standalone", f"--nproc-per-node={world}", "--max-restarts=1000"]
    return [[str(DDPRUN), *job, *flags, *worker]]


def p99(values):
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]


def ms(values):
    return f"{1e3 * statistics.median(values):.0f} ({1e3 * p99(values):.0f})"


def row(name, results):
    cells = [name, str(len(results)), ms([r.total for r in results])]
    if results[0].told is None:
        cells += ["-"] * (1 + len(PARTS))
    else:
        cells.append(ms([r.told for r in results]))
        before = [0.0] * len(results)
        for part in PARTS:
            at = [r.parts.get(part, b) for r, b in zip(results, before)]
            cells.append(ms([a - b for a, b in zip(at, before)]))
            before = at
    lost = [r.lost for r in results]
    cells.append(f"{statistics.median(lost):.0f} ({max(lost)})")
    print_row(cells)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--injections", type=int, default=20, help="kills in each case (20)")
    parser.add_argument("--only", action="append", help="cases with this word in their name; may be repeated")
    parser.add_argument("--programs", help="folder of the C++ examples; else Bazel builds them")
    arguments = parser.parse_args()
    need(DDPRUN, ROOT / "bin/rendezvousd", ROOT / ".venv/bin/torchrun")
    examples = ("elastic_gpt", "train_gpt")
    if arguments.programs:
        programs = pathlib.Path(arguments.programs).absolute()
    else:
        programs = build(*[f"//examples/cpp:{name}" for name in examples]) / "examples/cpp"
    need(*[programs / name for name in examples])
    injections = arguments.injections

    with tempfile.TemporaryDirectory() as folder:

        def trainer(program, name):
            return [*program, *MODEL, *SNAPSHOTS, f"--snapshot={folder}/{name}"]

        elastic = trainer(["--no-python", str(programs / "elastic_gpt")], "elastic")[:-1]
        loop = [str(ROOT / "examples/python/elastic_train.py"), "1000000"]
        cases = {}
        for world in (2, 4):
            cases[f"survivors: {world} ranks"] = lambda world=world: kill_workers(
                one_node(world, elastic), world, injections, recovered_by_survivors
            )
            cases[f"survivors, --preload: {world} ranks"] = lambda world=world: kill_workers(
                one_node(world, elastic, "--preload"), world, injections, recovered_by_survivors
            )
        for world in (2, 4, 8):
            for flags in ((), ("--preload",)):
                cases[f"Python, survivors{''.join(f', {flag}' for flag in flags)}: {world} ranks"] = (
                    lambda world=world, flags=flags: kill_workers(
                        one_node(world, loop, *flags), world, injections, joined_survivors
                    )
                )
        cases["survivors, shrinking: 1 node of 3"] = lambda: lose_nodes(elastic, injections)
        for world in (2, 4):
            plain = trainer(["--no-python", str(programs / "train_gpt")], f"plain{world}")
            cases[f"restart: {world} ranks"] = lambda world=world, plain=plain: kill_workers(
                one_node(world, plain), world, injections, resumed_from_snapshot
            )
            torchrun = str(ROOT / ".venv/bin/torchrun")
            script = trainer([str(ROOT / "examples/python/train_gpt.py")], f"python{world}")
            cases[f"Python, restart, --preload: {world} ranks"] = lambda world=world, script=script: kill_workers(
                one_node(world, script, "--preload"), world, injections, resumed_from_snapshot
            )
            cases[f"torchrun, Python: {world} ranks"] = lambda world=world, script=script: kill_workers(
                [[torchrun, "--standalone", f"--nproc-per-node={world}", "--max-restarts=1000", *script]],
                world,
                injections,
                resumed_from_snapshot,
            )
        print_table(("case", "kills", "kill to next step, ms", "kill to suspend", *PARTS, "steps lost"), [])
        for name, run in cases.items():
            if arguments.only and not any(word in name for word in arguments.only):
                continue
            try:
                row(name, run())
            except (RuntimeError, OSError) as error:
                print(f"| {name} | {error} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
