#!/usr/bin/env python3
"""Trains an elastic job while its processes are killed, stopped and restarted, and checks invariants.

usage: tests/worker_runtime/elastic/elastic_soak.py [--minutes M | --faults N] [--seed S] [--only KIND]...

The job is elastic_gpt on several launchers of this machine, which may run with one node less, and a rendezvousd with a
state folder. Each fault is injected a random number of steps after the recovery from the previous one. First a job
without faults is measured; up to its last step, faults keep the number of workers, and losses must have the same bits.
Each node has a folder of its own for snapshots, and loses it in the fault "node of rank 0". At the end the job is
stopped by SIGTERM and resumed from its snapshot for a few steps. Exit code 1: an invariant was violated; the last lines
name it.
Build //examples/cpp:elastic_gpt, //launcher:ddprun and //rendezvous/daemon:rendezvousd first. Linux, standard library.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).absolute().parents[3]
# In a test, the programs are below ROOT.
BUILT = ROOT if (ROOT / "launcher/ddprun").exists() else ROOT / ".bazel/bin"
MARK = "DDPRUN_SOAK"  # in the environment of all started processes
STALL = 240.0  # seconds; timeout of a step or a recovery, also for a loaded machine
HEARTBEAT = 3.0  # seconds; the default of heartbeat_timeout
# Seconds after which a worker whose connecting was cancelled is rid of that thread: GlooBackend::kConnectTimeout and
# some for a loaded machine.
SETTLE = 90.0

FRESH = re.compile(r"\[default(\d+)\]:rank \d+ of \d+: pid (\d+)")
EVALUATION = re.compile(r"\[default\d+\]:step (\d+)  (\d+) ranks evaluate: loss (\S+)")
STEP = re.compile(r"\[default(\d+)\]:step (\d+)  epoch \d+  round (\d+)  rank (\d+) of (\d+) has loss (\S+)")


class Violation(Exception):
    pass


class History:
    """Checks the steps that workers report. Used only by the thread that reads the lines."""

    def __init__(self):
        self.steps = 0  # the largest committed step
        self.again = 0  # repeated steps
        self.compared = 0  # compared losses
        self.reference = {}  # (step, rank) -> loss, of the job without faults
        self.world = None  # world size of all rounds so far; 0 if it has changed
        self.last = {}  # (node, local rank) -> last (step, round) of the process
        self.first_steps = {}  # round -> first step of its ranks
        self.worlds = {}  # round -> world size
        self.ranks = collections.defaultdict(set)  # round -> ranks that made a step
        self.losses = {}  # (step, rank) -> (round, loss), the newest
        self.evaluations = {}  # steps -> loss

    def fresh(self, node, local_rank):
        self.last.pop((node, local_rank), None)

    def step(self, node, local_rank, step, round_, rank, world, loss):
        where = f"step {step} of round {round_}, node {node}, rank {rank}"
        before = self.last.get((node, local_rank))
        self.last[node, local_rank] = (step, round_)
        if before and before[1] > round_:
            raise Violation(f"{where}: the process has been in round {before[1]}")
        if before and step <= before[0]:
            raise Violation(f"{where}: the process has committed step {before[0]}, and lost it")
        if before and before[1] == round_ and step != before[0] + 1:
            raise Violation(f"{where}: the step before was {before[0]}")
        if round_ not in self.first_steps:
            if round_ < max(self.first_steps, default=0):
                return  # the process was stopped, and the others have left its round
            # All ranks take part in each step: none is more than one ahead of a survivor.
            if step < self.steps:
                raise Violation(f"{where}: step {self.steps} had been committed, only that one may be lost")
            self.again += self.steps - step + 1
            self.first_steps[round_] = step
            self.worlds[round_] = world
            self.world = world if self.world in (None, world) else 0
        elif not before or before[1] != round_:
            if step != self.first_steps[round_]:
                raise Violation(f"{where}: another rank of the round began with step {self.first_steps[round_]}")
        self.ranks[round_].add(rank)
        self.steps = max(self.steps, step)
        self.compare(where, step, round_, rank, world, loss)

    def evaluation(self, steps, world, loss):
        """An evaluation in which a rank dies is repeated, with the same result."""
        expected = self.evaluations.setdefault(steps, loss) if self.world == world else loss
        if expected != loss:
            raise Violation(f"after {steps} steps: an evaluation has {loss}, and another {expected}")
        self.compared += 1

    def compare(self, where, step, round_, rank, world, loss):
        expected = self.reference.get((step, rank)) if self.world == world else None
        if expected not in (None, loss):
            raise Violation(f"{where}: the loss is {loss}, and {expected} without faults")
        earlier = self.losses.get((step, rank))
        if earlier and all(self.worlds.get(r, world) == world for r in range(earlier[0], round_)):
            if earlier[1] != loss:
                raise Violation(f"{where}: the loss is {loss}, and was {earlier[1]} in round {earlier[0]}")
            self.compared += 1
        self.compared += expected is not None
        self.losses[step, rank] = (round_, loss)
        if step % 1000 == 0:
            self.losses = {key: value for key, value in self.losses.items() if key[0] > step - 1000}

    def whole(self, world):
        """Returns the newest round if all of `world` ranks have made a step in it."""
        newest = max(self.first_steps, default=0)
        return newest if len(self.ranks[newest]) == world else None


class Process:
    """A launcher or the server; `lines` receives its output as (self, line)."""

    def __init__(self, name, command, env, lines):
        self.name = name
        self.began = time.monotonic()
        self.expected = None  # exit code, once the process is to end
        self.workers = {}  # local rank -> pid
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.reader = threading.Thread(target=self.read, args=(lines,), daemon=True)
        self.reader.start()

    @property
    def pid(self):
        return self.process.pid

    def read(self, lines):
        for line in self.process.stdout:
            lines.put((self, line))
        lines.put((self, None))

    def kill(self, number):
        self.expected = -number if number == signal.SIGKILL else 128 + number
        self.process.send_signal(number)

    def wait(self):
        try:
            code = self.process.wait(timeout=STALL)
        except subprocess.TimeoutExpired:
            raise Violation(f"{self.name} did not end") from None
        if code != self.expected:
            raise Violation(f"{self.name} ended with {code} instead of {self.expected}")


class Job:
    def __init__(self, arguments, folder, log):
        self.arguments = arguments
        self.world = arguments.nodes * arguments.nproc
        self.folder = folder
        self.log = log
        self.lines = queue.SimpleQueue()
        self.history = History()
        self.nodes = []
        self.mark = f"{os.getpid()}.{folder.name}"
        self.env = dict(os.environ, OMP_NUM_THREADS="1", LOGLEVEL="INFO")
        self.env[MARK] = self.mark
        self.id = "soak"
        self.steps = 10**6  # more than any run makes
        self.port = 0
        self.of_rank_zero = None  # the node
        self.start_server()
        self.nodes = [self.start_node(number) for number in range(arguments.nodes)]

    def start_server(self):
        command = [self.arguments.rendezvousd, f"--listen=127.0.0.1:{self.port}", f"--state-dir={self.folder}/state"]
        self.server = Process("rendezvousd", command, self.env, self.lines)
        listens = self.port != 0
        while not listens:
            _, line = self.lines.get(timeout=STALL)
            if found := re.search(r"listening on \S+:(\d+)", line or ""):
                self.port = int(found[1])
                listens = True
            elif line is None:
                raise Violation("rendezvousd did not start")

    def start_node(self, number):
        least = max(1, self.arguments.nodes - 1)
        command = [self.arguments.ddprun, f"--nnodes={least}:{self.arguments.nodes}", "--max-restarts=1000000"]
        command += [f"--nproc-per-node={self.arguments.nproc}", f"--rdzv-endpoint=127.0.0.1:{self.port}"]
        # Chance may hit one rank or one node again and again.
        conf = "--rdzv-conf=is_host=0,max_failures_at_step=0,node_cooldown=0"
        command += [f"--rdzv-id={self.id}", conf, "--local-addr=127.0.0.1"]
        command += [f"--log-dir={self.folder}/logs", "--tee=3", "--no-python"]
        steps, folder = str(self.steps), str(self.folder_of(number))
        command += [word.replace("{folder}", folder).replace("{steps}", steps) for word in self.arguments.command]
        env = dict(self.env)
        if "SIMCUDA_DEVICES" in env:  # tests/simgpu: each node has GPUs of its own
            first = number * self.arguments.nproc
            env["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu) for gpu in range(first, first + self.arguments.nproc))
        return Process(f"node {number}", command, env, self.lines)

    def folder_of(self, number):
        """The disk of a node."""
        return self.folder / f"node{number}"

    def take(self, deadline):
        """Processes one line. Returns False if there is none until `deadline`."""
        try:
            source, line = self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return False
        if line is None:
            if source.expected is None:
                raise Violation(f"{source.name} ended by itself with {source.process.wait()}")
            return True
        self.log.write(f"{time.monotonic():.3f} {source.name} ({source.pid}): {line}")
        if found := FRESH.match(line):
            source.workers[int(found[1])] = int(found[2])
            self.history.fresh(source.pid, int(found[1]))
        elif found := STEP.match(line):
            local_rank, step, round_, rank, world = map(int, found.groups()[:5])
            if rank == 0:
                self.of_rank_zero = source
            self.history.step(source.pid, local_rank, step, round_, rank, world, found[6])
        elif found := EVALUATION.match(line):
            self.history.evaluation(int(found[1]), int(found[2]), found[3])
        return True

    def run_for(self, seconds):
        deadline = time.monotonic() + seconds
        while self.take(deadline):
            pass

    def run_until(self, what, holds):
        deadline = time.monotonic() + STALL
        while not holds():
            if not self.take(deadline):
                raise Violation(f"after {STALL:.0f} s: still waiting for {what}")

    def train(self, steps):
        self.run_until_step(self.history.steps + steps)

    def run_until_step(self, step):
        while self.history.steps < step:
            reached = self.history.steps
            self.run_until(f"a step after {reached}", lambda: self.history.steps > reached)

    def recover(self, since, dead):
        """Waits for a complete round after round `since`, and for the end of the dead workers."""
        self.run_until(
            f"{self.world} ranks in a round after {since}",
            lambda: (self.history.whole(self.world) or 0) > since,
        )
        for pid in dead:
            self.run_until(f"the end of worker {pid}", lambda: not alive(pid, self.mark))

    def stop(self):
        for node in self.nodes:
            node.kill(signal.SIGTERM)
        self.wait_for(self.nodes)

    def finish(self):
        """Resumes the stopped job for a few steps."""
        before, self.history = self.history.steps, History()
        self.id, self.steps = "finish", before + 20
        self.nodes = [self.start_node(number) for number in range(len(self.nodes))]
        for node in self.nodes:
            node.expected = 0
        self.wait_for(self.nodes)
        first, last = min(self.history.first_steps.values(), default=None), self.history.steps
        if (first, last) != (before + 1, self.steps):
            raise Violation(
                f"stopped after step {before}, resumed from step {first}, and ended after {last} of {self.steps}"
            )

    def wait_for(self, processes):
        for process in processes:
            process.wait()
            process.reader.join(timeout=STALL)
        while not self.lines.empty():
            self.take(0.0)

    def end(self):
        self.server.expected = 0
        self.server.process.send_signal(signal.SIGTERM)
        self.wait_for([self.server])
        if left := marked(self.mark):
            raise Violation("left running: " + "; ".join(f"{pid} {name(pid)}" for pid in left))

    def destroy(self):
        send(marked(self.mark), signal.SIGKILL, self.mark)


def alive(pid, mark):
    """Returns True if the process belongs to this job and is not a zombie."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return state not in "ZX" and f"{MARK}={mark}".encode() in environment
    except OSError:
        return False


def marked(mark):
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and alive(pid, mark)]


def name(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:80]
    except OSError:
        return "?"


class Faults:
    """Each method injects one kind of fault and returns the workers that must have ended after the recovery."""

    def __init__(self, job, rng):
        self.job = job
        self.rng = rng
        self.spared = 0  # node that is spared for some time, so that its resources can be compared
        self.left = []  # kinds that are not used yet in this pass

    KEEPING = ("worker", "two workers", "second while recovering", "worker stopped", "server", "worker and server")
    ALL = (*KEEPING, "node stopped", "launcher", "node leaves", "node of rank 0", "storm")

    def draw(self, kinds):
        if not set(self.left) & set(kinds):
            self.left = self.rng.sample(kinds, len(kinds))
        kind = next(kind for kind in self.left if kind in kinds)
        self.left.remove(kind)
        return kind

    def inject(self, kind):
        return getattr(self, kind.replace(" ", "_"))()

    def node(self):
        return self.rng.choice([n for n in range(len(self.job.nodes)) if n != self.spared])

    def workers(self, count):
        """Draws workers, except local rank 0 of the spared node, which keeps the state."""
        all_ = [(n, r) for n, node in enumerate(self.job.nodes) for r in node.workers if (n, r) != (self.spared, 0)]
        chosen = self.rng.sample(all_, min(count, len(all_)))
        return [self.job.nodes[n].workers[r] for n, r in chosen]

    def send(self, pids, number):
        return send(pids, number, self.job.mark)

    def kill(self, pids):
        return self.send(pids, signal.SIGKILL)

    def worker(self):
        return self.kill(self.workers(1))

    def two_workers(self):
        return self.kill(self.workers(2))

    def second_while_recovering(self):
        first, *second = self.workers(2)
        self.kill([first])
        self.job.run_for(self.rng.uniform(0.0, 1.0))
        return [first, *self.kill(second)]

    def worker_stopped(self):
        pids = self.send(self.workers(1), signal.SIGSTOP)
        self.job.run_for(self.rng.uniform(0.05, 1.5))
        self.send(pids, signal.SIGCONT)
        return []

    def server(self):
        job = self.job
        job.server.kill(signal.SIGKILL)
        job.server.wait()
        job.run_for(self.rng.choice([0.0, self.rng.uniform(0.0, 2.0)]))
        job.start_server()
        return []

    def worker_and_server(self):
        gone = self.worker()
        self.server()
        return gone

    def node_stopped(self):
        node = self.job.nodes[self.node()]
        pids = self.send([node.pid, *node.workers.values()], signal.SIGSTOP)
        self.job.run_for(HEARTBEAT + self.rng.uniform(0.5, 3.0))
        self.send(pids, signal.SIGCONT)
        return []

    def launcher(self):
        return self.end_launcher(self.node(), signal.SIGKILL)

    def node_leaves(self):
        return self.end_launcher(self.node(), signal.SIGTERM)

    def node_of_rank_0(self):
        """Kills the node at once, with its workers and its disk. The one that takes its place is empty."""
        n = self.job.nodes.index(self.job.of_rank_zero)
        self.kill(list(self.job.nodes[n].workers.values()))
        return self.end_launcher(n, signal.SIGKILL, keeps_disk=False)

    def storm(self):
        """Injects several faults without waiting for a recovery. The first one ends the round."""
        gone = self.inject(self.rng.choice(("worker", "two workers", "launcher")))
        for _ in range(self.rng.randint(2, 4)):
            self.job.run_for(self.rng.uniform(0.0, 1.0))
            gone += self.inject(self.rng.choice(("worker", "two workers", "worker stopped", "server", "launcher")))
        return gone

    def end_launcher(self, n, number, keeps_disk=True):
        node = self.job.nodes[n]
        node.kill(number)
        node.wait()
        if not keeps_disk:
            shutil.rmtree(self.job.folder_of(n), ignore_errors=True)
        self.job.run_for(self.rng.choice([0.0, self.rng.uniform(0.0, 3.0)]))
        self.job.nodes[n] = self.job.start_node(n)
        return list(node.workers.values())


def send(pids, number, mark):
    """Signals processes of the job only: the pid of a dead worker may have been reused."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            if alive(pid, mark):
                os.kill(pid, number)
    return pids


class Resources:
    """Descriptors, threads and memory of each process while the job is complete."""

    WARM = 3  # samples of the warm-up; later growth is a leak
    ENOUGH = 8  # samples of a process to detect leaks

    def __init__(self):
        self.samples = collections.defaultdict(list)  # (what, pid) -> [(fds, threads, RSS in KiB)]

    def sample(self, job):
        processes = [("rendezvousd", job.server.pid)]
        for node in job.nodes:
            processes += [("launcher", node.pid), *(("worker", pid) for pid in node.workers.values())]
        for what, pid in processes:
            with contextlib.suppress(OSError):
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                number = {key: int(re.search(rf"^{key}:\s+(\d+)", status, re.M)[1]) for key in ("Threads", "VmRSS")}
                self.samples[what, pid].append((len(os.listdir(f"/proc/{pid}/fd")), number["Threads"], number["VmRSS"]))

    def print(self):
        """Prints the longest lived processes of each kind."""
        print(f"{'process':12} {'pid':>8} {'faults lived':>12} {'fds':>12} {'threads':>12} {'RSS, MiB':>16}")
        for kind in ("rendezvousd", "launcher", "worker"):
            of_kind = sorted((len(s), pid) for (what, pid), s in self.samples.items() if what == kind)
            for count, pid in reversed(of_kind[-3:]):
                all_ = self.samples[kind, pid]
                first, last = all_[min(self.WARM, count - 1)], all_[-1]
                pairs = [f"{a} -> {b}" for a, b in zip(first[:2], last[:2])]
                memory = f"{first[2] / 1024:7.1f} -> {last[2] / 1024:.1f}"
                print(f"{kind:12} {pid:8} {count:12} {pairs[0]:>12} {pairs[1]:>12} {memory}")

    def grown(self):
        """Returns a line for each process that grew."""
        lines = []
        for (kind, pid), all_ in self.samples.items():
            if len(all_) < self.ENOUGH:
                continue
            # Minima of the first and the last third after the warm-up ignore temporary descriptors and threads.
            third = max(1, (len(all_) - self.WARM) // 3)
            then = [min(column) for column in zip(*all_[self.WARM : self.WARM + third])]
            now = [min(column) for column in zip(*all_[-third:])]
            for word, a, b, most in zip(("fds", "threads", "KiB"), then, now, (6, 4, 0.25 * then[2] + 8192)):
                if b - a > most:
                    lines.append(f"{kind} {pid} grew from {a} to {b} {word} in {len(all_)} samples")
        return lines


def measure(arguments, log):
    """Runs a job without faults: its losses, and steps per second of its second half."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(arguments, pathlib.Path(folder), log)
        try:
            job.run_until_step(arguments.reference // 2)
            began, half = time.monotonic(), job.history.steps
            job.run_until_step(arguments.reference)
            rate = (job.history.steps - half) / (time.monotonic() - began)
            job.stop()
            job.end()
        finally:
            job.destroy()
    if job.history.world != job.world:
        return {}, {}, rate  # the machine was so loaded that it lost a node
    return {key: loss for key, (_, loss) in job.history.losses.items()}, job.history.evaluations, rate


def soak(arguments, folder, log):
    rng = random.Random(arguments.seed)
    reference, evaluations, ideal = measure(arguments, log)
    print(f"without faults: {ideal:.1f} steps/s", flush=True)
    job = Job(arguments, folder, log)
    history = job.history
    history.reference, history.evaluations = reference, evaluations
    faults, resources, counts = Faults(job, rng), Resources(), collections.Counter()
    allowed = arguments.only or Faults.ALL
    keeping = [kind for kind in allowed if kind in Faults.KEEPING]  # the number of workers
    slowest = (0.0, "")
    violations = []
    began, begin_step = time.monotonic(), 0
    try:
        job.recover(0, [])
        began, begin_step = time.monotonic(), history.steps
        while not ended(arguments, sum(counts.values()), began):
            if sum(counts.values()) % 20 == 0:
                faults.spared = rng.randrange(len(job.nodes))
            job.train(rng.randint(1, arguments.steps_between))
            # In a short run some faults must remain for the other kinds.
            keep = history.steps < arguments.reference and (not arguments.faults or sum(counts.values()) < len(keeping))
            kind = faults.draw(keeping if keep and keeping else allowed)
            counts[kind] += 1
            round_, at = history.whole(job.world) or 0, time.monotonic()
            print(f"{at - began:8.1f} s  step {history.steps}  round {round_}  {kind}", flush=True)
            gone = faults.inject(kind)
            # A short stop or the death of the server need not end the round.
            if kind in ("worker stopped", "server"):
                job.train(3)
                job.recover(0, gone)
            else:
                job.recover(round_, gone)
            job.train(2)
            job.recover(0, [])
            slowest = max(slowest, (time.monotonic() - at, kind))
            resources.sample(job)
        settled = time.monotonic() + SETTLE
        while resources.grown() and time.monotonic() < settled:
            job.train(20)
            resources.sample(job)
        took, steps = time.monotonic() - began, history.steps - begin_step
        job.stop()
        if any("{steps}" in word for word in arguments.command):
            job.finish()
        job.end()
    except Violation as violation:
        violations.append(str(violation))
        took, steps = time.monotonic() - began, history.steps - begin_step
    finally:
        job.destroy()
    resources.print()
    violations += resources.grown()
    print(f"faults: {sum(counts.values())} (" + ", ".join(f"{kind} {n}" for kind, n in counts.most_common()) + ")")
    print(f"steps: {steps} in {took:.1f} s, {history.again} made again; {history.compared} losses compared")
    print(f"goodput: {steps / took:.1f} steps/s, {100 * steps / took / ideal:.0f} % of {ideal:.1f} without faults")
    print(f"slowest recovery, with the fault and two steps: {slowest[0]:.1f} s ({slowest[1]})")
    return violations


def ended(arguments, injected, began):
    if arguments.faults:
        return injected >= arguments.faults
    return time.monotonic() - began >= 60 * arguments.minutes


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults are injected (10)")
    parser.add_argument("--faults", type=int, default=0, help="how many faults instead")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the faults; it is printed")
    parser.add_argument("--only", action="append", choices=Faults.ALL, help="this kind of fault; may be repeated")
    parser.add_argument("--nodes", type=int, default=3, help="launchers (3)")
    parser.add_argument("--nproc", type=int, default=1, help="workers of each (1)")
    parser.add_argument("--reference", type=int, default=300, help="steps of the job without faults (300)")
    parser.add_argument(
        "--steps-between", type=int, default=60, help="steps from a recovery to the next fault, at most (60)"
    )
    parser.add_argument(
        "command",
        nargs="*",
        help="after --: a program that prints what elastic_gpt does; {folder}, of the node, and {steps} are replaced",
    )
    arguments = parser.parse_args()
    arguments.ddprun = str(BUILT / "launcher/ddprun")
    arguments.rendezvousd = str(BUILT / "rendezvous/daemon/rendezvousd")
    if arguments.nodes < 2:
        parser.error("--nodes must be at least 2")
    if not arguments.command:
        model = ["--block-size=32", "--n-layer=1", "--n-head=2", "--n-embd=32", "--batch-size=4", "--dropout=0.1"]
        snapshots = ["--snapshot={folder}/snapshots", "--snapshot-every=200"]
        evaluations = ["--held-out=16", "--evaluate-every=15"]
        program = str(BUILT / "examples/cpp/elastic_gpt")
        arguments.command = [program, *model, *snapshots, *evaluations, "--steps={steps}"]
    return arguments


def main():
    arguments = read_arguments()
    print(f"seed {arguments.seed}", flush=True)
    # Bazel keeps the outputs of failed tests.
    outputs = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="soak-", dir=os.environ.get("TEST_TMPDIR")))
    log = pathlib.Path(outputs or folder) / "soak.log"
    with log.open("w") as file:
        try:
            violations = soak(arguments, folder, file)
        except Violation as violation:
            violations = [f"without faults: {violation}"]
    for violation in violations:
        print(f"VIOLATED (seed {arguments.seed}, log {log}): {violation}")
    if violations:
        return 1
    print("all held")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
