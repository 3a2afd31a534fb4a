#!/usr/bin/env python3
"""One rendezvousd and N real launchers on this host: measures how a job of N nodes forms and restarts.

usage: benchmarks/scale.py [--nodes N]... [--hogs N] [--hold SECONDS] [--limit SECONDS]

Each launcher is `ddprun --nnodes=N --nproc-per-node=1` with the default heartbeats; its worker records its start time
and waits. The job forms, idles for a while, loses one worker by SIGKILL, restarts, and is stopped. The table has one
row for each N. All processes are killed at the end in any case. Needs scripts/setup, a C compiler and about 15 MB for
each launcher.
"""

import contextlib
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from programs import compile_c, cpu_seconds, flags, kill_all, need, print_table, raise_file_limit

MB_PER_LAUNCHER = 15
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
COLUMNS = (
    ("nodes", "nodes"),
    ("running", "last start to all running"),
    ("restarted", "death to all restarted"),
    ("rounds", "rounds"),
    ("joins", "joins"),
    ("lost", "lost nodes"),
    ("cut", "cut off"),
    ("fds", "server's descriptors"),
    ("cpu", "server's CPU"),
    ("launchers_cpu", "launchers' CPU"),
    ("stopped", "SIGTERM to all ended"),
)


class Late(Exception):
    """The time limit is exceeded."""


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def children():
    """Child processes of this one, including adopted ones (see PR_SET_CHILD_SUBREAPER)."""
    found = []
    for task in pathlib.Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def kill_everything():
    """Sends SIGKILL to all descendants until none is left."""
    while pids := children():
        kill_all(pids)


class Job:
    """A job of `nodes` launchers and its server. Use as a context manager."""

    def __init__(self, args, nodes, folder, worker):
        self.args = args
        self.nodes = nodes
        self.folder = pathlib.Path(folder)
        self.worker = worker
        self.began = self.folder / "began"
        self.began.touch()
        self.server_log = self.folder / "rendezvousd.log"
        self.launcher_log = self.folder / "ddprun.log"
        self.launchers = []
        self.running = {}  # rank: (ns, pid) of the newest worker
        self.read_to = 0
        self.row = {"nodes": str(nodes), "fds": 0}

    def start_server(self):
        # The port is printed to stdout; the log goes to stderr.
        self.server = subprocess.Popen(
            [self.args.rendezvousd, "--listen=127.0.0.1:0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.server_log.open("ab"),
            text=True,
            preexec_fn=die_with_parent,
        )
        line = self.server.stdout.readline()
        self.endpoint = line.split()[-1]

    def start_launchers(self):
        rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint={self.endpoint}", "--rdzv-id=scale"]
        command = [self.args.ddprun, f"--nnodes={self.nodes}", "--nproc-per-node=1", "--max-restarts=3", *rendezvous]
        command += ["--no-python", self.worker]
        env = dict(os.environ, BENCH_FILE=str(self.began), OMP_NUM_THREADS="1")
        with self.launcher_log.open("ab") as log:
            for _ in range(self.nodes):
                self.launchers.append(
                    subprocess.Popen(
                        command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent
                    )
                )
                self.look()
        self.last_start = time.monotonic_ns()

    def look(self):
        """Reads new lines of the workers, and the server's number of descriptors."""
        with self.began.open() as file:
            file.seek(self.read_to)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self.read_to += len(whole)
        for line in whole.splitlines():
            ns, pid, rank = map(int, line.split())
            self.running[rank] = (ns, pid)
        with contextlib.suppress(OSError):
            self.row["fds"] = max(self.row["fds"], len(os.listdir(f"/proc/{self.server.pid}/fd")))

    def wait_until_all_run(self, since=0):
        """Waits until N live workers have started after `since`; returns when (ns) the last one started."""
        while True:
            self.look()
            new = [(ns, pid) for ns, pid in self.running.values() if ns > since]
            if len(new) == self.nodes and all(os.path.exists(f"/proc/{pid}") for _, pid in new):
                return max(ns for ns, _ in new)
            if ended := [p.poll() for p in self.launchers if p.poll() is not None]:
                raise RuntimeError(f"{len(ended)} launchers exited unexpectedly, the first with {ended[0]}")
            time.sleep(0.05)

    def measure(self):
        self.start_server()
        self.start_launchers()
        self.note("running", self.wait_until_all_run() - self.last_start)
        end = time.monotonic() + self.args.hold
        while time.monotonic() < end:
            self.look()
            time.sleep(0.25)
        self.wait_until_all_run()
        killed = time.monotonic_ns()
        os.kill(self.running[self.nodes // 2][1], signal.SIGKILL)
        self.note("restarted", self.wait_until_all_run(since=killed) - killed)
        self.row["launchers_cpu"] = f"{sum(cpu_seconds(p.pid) for p in self.launchers):.1f} s"
        self.stop()

    def stop(self):
        began = time.monotonic_ns()
        for launcher in self.launchers:
            launcher.send_signal(signal.SIGTERM)
        for launcher in self.launchers:
            launcher.wait()
        self.note("stopped", time.monotonic_ns() - began)

    def note(self, what, ns):
        self.row[what] = f"{ns / 1e9:.2f} s"
        print(f"{self.nodes} nodes: {dict(COLUMNS)[what]}: {self.row[what]}", file=sys.stderr)

    def finish_row(self):
        """Adds the counts found in the logs of the server and the launchers."""
        self.row["cpu"] = f"{cpu_seconds(self.server.pid):.1f} s"
        log = self.server_log.read_text(errors="replace")
        self.row["rounds"] = len(re.findall(r": round \d+ assigned to", log))
        self.row["joins"] = len(re.findall(r"\) joined$", log, re.M))
        self.row["lost"] = len(re.findall(r"nothing was heard from it", log))
        self.row["cut"] = self.launcher_log.read_text(errors="replace").count("cut off from the rendezvous server")


def start_hogs(per_core):
    """Starts busy loops on each core, each in its own session and thus its own scheduling group."""
    for core in sorted(os.sched_getaffinity(0)) * per_core:
        subprocess.Popen(
            [sys.executable, "-c", "while True: pass"],
            start_new_session=True,
            preexec_fn=lambda core=core: (die_with_parent(), os.sched_setaffinity(0, {core})),
        )


def run_one(args, nodes, worker):
    def late(*_):
        raise Late(f"not done after {args.limit:.0f} s")

    signal.signal(signal.SIGALRM, late)
    with tempfile.TemporaryDirectory(prefix="ddprun_scale_") as folder:
        job = Job(args, nodes, folder, worker)
        signal.setitimer(signal.ITIMER_REAL, args.limit)
        try:
            start_hogs(args.hogs)
            job.measure()
        except (Late, RuntimeError) as problem:
            job.row.setdefault("running", f"never: {len(job.running)} began; {problem}")
            job.row.setdefault("restarted", f"{problem}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            job.finish_row()
            kill_everything()
            if args.keep_logs:
                for log in (job.server_log, job.launcher_log):
                    (pathlib.Path(args.keep_logs) / f"{nodes}_{log.name}").write_bytes(log.read_bytes())
        return job.row


def check_memory(nodes):
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable"))
    if free < nodes * MB_PER_LAUNCHER:
        sys.exit(f"scale.py: {nodes} launchers need some {nodes * MB_PER_LAUNCHER} MB; {free} MB are available")


def main():
    parser = flags(__doc__, "ddprun", "rendezvousd")
    parser.add_argument(
        "--nodes", type=int, action="append", metavar="N", help="launchers; repeatable (300, 600, 1000)"
    )
    parser.add_argument(
        "--hogs", type=int, default=0, metavar="N", help="run N busy loops on each core meanwhile"
    )
    parser.add_argument("--hold", type=float, default=5, metavar="S", help="seconds to leave the job alone (default 5)")
    parser.add_argument("--limit", type=float, default=120, metavar="S", help="timeout of a row (default 120)")
    parser.add_argument("--keep-logs", metavar="DIR", help="copy the logs of server and launchers there")
    args = parser.parse_args()
    need(args.ddprun, args.rendezvousd)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    raise_file_limit()
    rows = []
    try:
        with tempfile.TemporaryDirectory(prefix="ddprun_scale_") as folder:
            worker = compile_c("first_instruction", folder)
            for nodes in args.nodes or [300, 600, 1000]:
                check_memory(nodes)
                rows.append(run_one(args, nodes, worker))
    finally:
        kill_everything()
        if rows:
            print_table([title for _, title in COLUMNS], [[row.get(key, "") for key, _ in COLUMNS] for row in rows])


if __name__ == "__main__":
    main()
