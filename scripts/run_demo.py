#!/usr/bin/env python3
"""The main part of scripts/demo, which runs once everything is built.

usage: run_demo.py [--launcher FILE] [--program FILE]      bin/ddprun and bin/elastic_gpt, or others

Two launchers on this machine play two nodes, with two workers each. A worker, a node and both nodes are killed.
Exit status: 0 if everything that is promised was seen; 1 if not; 130 after Ctrl-C.
"""

import argparse
import contextlib
import os
import pathlib
import queue
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NODES, WORKERS = 2, 2
WORLD = NODES * WORKERS
STEPS, SNAPSHOT_EVERY = 400, 50
KILL_WORKER, REFERENCE, KILL_NODE, KILL_ALL = 100, 200, 220, 320  # steps
SHOWN_EVERY = 20  # steps
LOSS_AIM = 2.2  # a model that only knows the character frequencies stays above 3
TIME_LIMIT = 170.0  # seconds; the documentation promises three minutes


def say(text):
    print(f"\n==> {text}", flush=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Job:
    """Two launchers and what their workers print."""

    def __init__(self, options, snapshots=None):
        self.pids = {}  # (node, rank at the start) -> pid
        self.steps = {}  # pid of the launcher, rank -> steps in the order in which they were printed
        self.losses = {}  # (step, rank) -> text
        self.newest = 0  # step
        self.round = 0
        self.lines = queue.Queue()  # (node, line), then (node, None)
        port = free_port()
        env = dict(os.environ, OMP_NUM_THREADS="1")  # the workers share this machine's cores
        self.nodes = []
        for i in range(NODES):
            command = [options.launcher, f"--nnodes=1:{NODES}", f"--nproc-per-node={WORKERS}"]
            command += [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=demo", f"--rdzv-conf=is_host={int(i == 0)}"]
            command += ["--max-restarts=3", "--no-python", options.program, f"--steps={STEPS}"]
            if snapshots:
                command += [f"--snapshot={snapshots}", f"--snapshot-every={SNAPSHOT_EVERY}"]
            if snapshots and i == 0:
                print(f"Each node runs:  {shlex.join(command).replace(str(ROOT) + '/', '')}", flush=True)
            # A separate session: Ctrl-C reaches only this program, which then stops the launchers.
            node = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self.nodes.append(node)
            threading.Thread(target=self.read, args=(i, node), daemon=True).start()

    def read(self, i, node):
        for line in node.stdout:
            self.lines.put((i, line.rstrip("\n")))
        self.lines.put((i, None))

    def run_until(self, deadline, reached=lambda: False, quiet=False):
        """Reads lines until `reached`, or to the end of all output. Returns False at the deadline."""
        ended = sum(node.poll() is not None and node.stdout.closed for node in self.nodes)
        while not reached() and ended < NODES:
            try:
                i, line = self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                say(f"This takes longer than {TIME_LIMIT:.0f} s; stopping.")
                return False
            if line is None:
                self.nodes[i].stdout.close()
                ended += 1
            elif self.note(i, line) and not quiet:
                print(f"[node {i}] {line}", flush=True)
        return True

    def note(self, i, line):
        """Returns True if the line is to be shown."""
        if m := re.match(r"rank (\d+) of \d+: pid (\d+), restarts so far", line):
            self.pids[i, int(m[1])] = int(m[2])
        elif m := re.match(r"step (\d+)  epoch \d+  round (\d+)  rank (\d+) of \d+ has loss (\S+)", line):
            step, rank = int(m[1]), int(m[3])
            self.newest = max(self.newest, step)
            self.round = max(self.round, int(m[2]))
            self.steps.setdefault((i, rank), []).append(step)
            self.losses[step, rank] = m[4]
            return rank == 0 and step % SHOWN_EVERY == 0
        return True

    def kill(self, pids):
        """Kills them with SIGKILL. Returns the time."""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return time.monotonic()

    def stop(self):
        """Stops the remaining processes, first with SIGTERM, then with SIGKILL."""
        for node in self.nodes:
            if node.poll() is None:
                node.terminate()
        end = time.monotonic() + 10
        for node in self.nodes:
            try:
                node.wait(timeout=max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()


class Demo:
    def __init__(self, options, folder):
        self.options = options
        self.snapshots = os.path.join(folder, "snapshots")
        self.deadline = time.monotonic() + TIME_LIMIT
        self.checks = []  # (good, text)
        self.jobs = []

    def job(self, snapshots=None):
        self.jobs.append(Job(self.options, snapshots))
        return self.jobs[-1]

    def check(self, good, text):
        self.checks.append((good, text))

    def run(self):
        """Returns False if it took too long."""
        say("First a job without failures, to compare with.")
        calm = self.job()
        if not calm.run_until(self.deadline, lambda: calm.newest > REFERENCE, quiet=True):
            return False
        calm.stop()
        say(f"Training a small GPT on {NODES} nodes with {WORKERS} workers each; both nodes are on this machine.")
        job = self.job(self.snapshots)
        return self.kill_a_worker(job, calm) and self.kill_a_node(job) and self.kill_both_nodes(job)

    def recover(self, job, killed_at):
        """Waits for a step of the next round. Returns a text; None: at the deadline."""
        before = job.round
        if not job.run_until(self.deadline, lambda: job.round > before):
            return None
        return f"step {job.newest} followed {time.monotonic() - killed_at:.2f} s later"

    def kill_a_worker(self, job, calm):
        if not job.run_until(self.deadline, lambda: job.newest >= KILL_WORKER):
            return False
        before = dict(job.pids)
        victim = max(before)
        say(f"Step {job.newest}. Killing a worker: kill -9 {before[victim]}")
        recovered = self.recover(job, job.kill([before[victim]]))
        if recovered is None or not job.run_until(self.deadline, lambda: job.newest > REFERENCE):
            return False
        kept = [key for key in before if job.pids[key] == before[key]]
        self.check(
            len(kept) == WORLD - 1 and victim not in kept,
            f"a worker was killed: {len(kept)} of {WORLD} kept their processes, and {recovered}",
        )
        self.check_no_step_lost(job)
        both = [key for key in calm.losses if key in job.losses and key[0] <= REFERENCE]
        equal = sum(calm.losses[key] == job.losses[key] for key in both)
        self.check(
            equal == len(both) >= WORLD * (REFERENCE - 1) - 1,
            f"{equal} of {len(both)} losses up to step {REFERENCE} are those of the job without failures, bit for bit",
        )
        return True

    def kill_a_node(self, job):
        if not job.run_until(self.deadline, lambda: job.newest >= KILL_NODE):
            return False
        before = dict(job.pids)
        say(f"Step {job.newest}. Killing node 1: its launcher and its workers")
        node = [job.nodes[1].pid, *(pid for (i, _), pid in before.items() if i == 1)]
        recovered = self.recover(job, job.kill(node))
        if recovered is None or not job.run_until(self.deadline, lambda: job.newest >= KILL_ALL):
            return False
        self.check(
            job.pids == before,
            f"node 1 was killed: the workers of node 0 kept their processes, and {recovered}",
        )
        self.check_no_step_lost(job)
        return True

    def check_no_step_lost(self, job):
        """Node 0's processes are killed last. One of them may have got a step's result from another."""
        mine = [steps for (i, _), steps in job.steps.items() if i == 0]
        ascend = all(a < b for steps in mine for a, b in zip(steps, steps[1:]))
        made = sorted(set().union(*mine))
        self.check(ascend and made == list(range(1, made[-1] + 1)), "no step was lost or repeated")

    def kill_both_nodes(self, job):
        say(f"Step {job.newest}. Killing node 0 as well, and starting both again")
        reached = job.newest
        at = job.kill([job.nodes[0].pid, *(pid for (i, _), pid in job.pids.items() if i == 0)])
        job.stop()
        again = self.job(self.snapshots)
        if not again.run_until(self.deadline, lambda: again.newest > 0):
            return False
        took, first = time.monotonic() - at, again.newest
        if not again.run_until(self.deadline):
            return False
        again.stop()
        self.check(
            first > reached - SNAPSHOT_EVERY and first % SNAPSHOT_EVERY == 1,
            f"both nodes were killed after step {reached}: the job began again with step {first}, after its newest "
            f"checkpoint, {took:.2f} s later",
        )
        last = [float(again.losses[STEPS, r]) for r in range(WORLD) if (STEPS, r) in again.losses]
        mean = sum(last) / max(1, len(last))
        self.check(
            len(last) == WORLD and mean < LOSS_AIM,
            f"after {STEPS} steps the mean loss is {mean:.2f}; asked for: below {LOSS_AIM}",
        )
        codes = [node.returncode for node in again.nodes]
        self.check(codes == [0] * NODES, f"both launchers ended well (exit codes {codes})")
        return True

    def stop(self):
        for job in self.jobs:
            # The workers of a killed launcher end on their own; this is for a demo that is interrupted in between.
            for (i, _), pid in job.pids.items():
                if job.nodes[i].poll() == -signal.SIGKILL:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
            job.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher", default=str(ROOT / "bin" / "ddprun"))
    parser.add_argument("--program", default=str(ROOT / "bin" / "elastic_gpt"))
    options = parser.parse_args()

    def stop_by_signal(number, frame):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop_by_signal)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ddprun_demo_") as folder:
        demo = Demo(options, folder)
        in_time = False
        try:
            in_time = demo.run()
        except KeyboardInterrupt:
            say("Stopping the launchers.")
            return 130
        finally:
            demo.stop()
    say("What happened:")
    for good, text in demo.checks:
        print(f"  {'yes' if good else 'NO '}  {text}")
    good = in_time and all(good for good, _ in demo.checks)
    say(f"The demo {'went well' if good else 'FAILED'} and took {time.monotonic() - began:.0f} s.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
