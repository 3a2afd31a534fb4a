"""The main part of scripts/demo, which runs once everything is built.

usage: run_demo.py [--launcher FILE]      FILE: bin/ddprun, or another launcher with torchrun's flags

Exit status: 0 if the worker's death, the restart from the snapshot, the falling loss, the sample and the successful
exit of both launchers were all seen; 1 if not; 130 after Ctrl-C.
"""

import argparse
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
STEPS, SNAPSHOT_EVERY = 400, 50
VICTIM_RANK = NODES * WORKERS - 1
LOSS_AIM = 2.2  # a model that only knows the character frequencies stays above 3
TIME_LIMIT = 170.0  # seconds; the documentation promises three minutes


def say(text):
    print(f"\n==> {text}", flush=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Demo:
    """Runs the launchers, prints their output prefixed with the node's name, and records what happened."""

    def __init__(self, launcher, folder):
        self.launcher = launcher
        self.snapshot = os.path.join(folder, "snapshots")
        self.lines = queue.Queue()  # (node, line), then (node, None) at the end of a node's output
        self.nodes = []
        self.pids = {}  # pids of the newest attempt, by rank
        self.losses = []  # averaged over ranks, as printed
        self.saved = self.resumed = 0
        self.killed = self.restarted = self.sampled = False

    def command(self, port):
        return [
            self.launcher,
            f"--nnodes={NODES}",
            f"--nproc-per-node={WORKERS}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{port}",
            "--rdzv-id=demo",
            "--max-restarts=3",
            "--no-python",
            str(ROOT / "bin" / "train_gpt"),
            f"--steps={STEPS}",
            f"--snapshot={self.snapshot}",
            f"--snapshot-every={SNAPSHOT_EVERY}",
        ]

    def start(self):
        command = self.command(free_port())
        # One thread per worker, because the four workers share this machine's cores.
        env = dict(os.environ, OMP_NUM_THREADS="1")
        say(f"Training a small GPT on {NODES} nodes with {WORKERS} workers each; both nodes are on this machine.")
        print(f"Each node runs:  {shlex.join(command).replace(str(ROOT) + '/', '')}", flush=True)
        for i in range(NODES):
            # A separate session: Ctrl-C reaches only this program, which then stops the launchers.
            node = subprocess.Popen(
                command,
                cwd=ROOT,
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

    def watch(self):
        """Follows the output to its end. Returns False if that took too long."""
        deadline = time.monotonic() + TIME_LIMIT
        open_outputs = NODES
        while open_outputs:
            try:
                i, line = self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                say(f"This takes longer than {TIME_LIMIT:.0f} s; stopping.")
                return False
            if line is None:
                open_outputs -= 1
                continue
            print(f"[node {i}] {line}", flush=True)
            self.note(line)
        for node in self.nodes:
            node.wait()
        return True

    def note(self, line):
        if m := re.match(r"rank (\d+) of \d+: pid (\d+) .*restarts so far (\d+)", line):
            self.pids[int(m[1])] = int(m[2])
            self.restarted |= self.killed and int(m[3]) > 0
        elif m := re.match(r"snapshot of step (\d+) saved", line):
            self.saved = int(m[1])
            if not self.killed and self.saved >= STEPS // 2:
                self.kill()
        elif m := re.match(r"resumed from the snapshot: step (\d+)", line):
            self.resumed = int(m[1])
            say(f"The workers have restarted, and rank 0 has loaded the snapshot: step {self.resumed} instead of 0.")
        elif m := re.match(r"step +(\d+)/.* averaged over ranks ([\d.]+|nan)", line):
            self.losses.append((int(m[1]), float(m[2])))
        elif line.startswith("--- end of sample ---"):
            self.sampled = True

    def kill(self):
        pid = self.pids[VICTIM_RANK]
        say(f"Half-way. Killing rank {VICTIM_RANK} without a warning: kill -9 {pid}")
        self.killed = True
        os.kill(pid, signal.SIGKILL)

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

    def judge(self, in_time):
        first = self.losses[0] if self.losses else (0, float("nan"))
        last = self.losses[-1] if self.losses else (0, float("nan"))
        codes = [node.returncode for node in self.nodes]
        checks = [
            (self.killed, "a worker was killed half-way"),
            (self.restarted, "all workers were started again"),
            (self.resumed >= STEPS // 2, f"they went on from the snapshot, at step {self.resumed}"),
            (
                last[0] == STEPS and last[1] < LOSS_AIM and last[1] < first[1],
                f"the loss (averaged over ranks) fell from {first[1]:.2f} at step {first[0]} to {last[1]:.2f} "
                f"at step {last[0]}; asked for: below {LOSS_AIM}",
            ),
            (self.sampled, "the model wrote some text"),
            (in_time and codes == [0] * NODES, f"both launchers ended well (exit codes {codes})"),
        ]
        say("What happened:")
        for good, text in checks:
            print(f"  {'yes' if good else 'NO '}  {text}")
        return all(good for good, _ in checks)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher", default=str(ROOT / "bin" / "ddprun"))
    args = parser.parse_args()

    def stop_by_signal(number, frame):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop_by_signal)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ddprun_demo_") as folder:
        demo = Demo(args.launcher, folder)
        in_time = False
        try:
            demo.start()
            in_time = demo.watch()
        except KeyboardInterrupt:
            say("Stopping the launchers.")
            return 130
        finally:
            demo.stop()
    good = demo.judge(in_time)
    say(f"The demo {'went well' if good else 'FAILED'} and took {time.monotonic() - began:.0f} s.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
