#!/usr/bin/env python3
"""Measures one rendezvousd with N launchers without workers, all in one process, each with a real gRPC stream.

usage: benchmarks/fleet.py [--nodes N]... [--c10d N]... [--state-dir]
       benchmarks/fleet.py --watched ROUNDS [--scrape-every S] [--nodes N]...

Unlike scale.py, which starts whole launchers, this measures the server alone, with thousands of launchers. Prints a row
for each N. With --c10d N, N processes also rendezvous as torchrun's agents do, at a TCPStore in this process: they are
forked with everything imported, so that only the rendezvous is measured. --watched measures the cost of the page and
the metrics instead: pairs of a plain server and one with --http, with one client reading the events as the
page does and another one scraping the metrics. All processes are killed at the end. Needs scripts/setup; Bazel
builds the launchers' program, or --fleet names it.
"""

import contextlib
import os
import pathlib
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from programs import build, die, flags, kill_all, need, print_table, raise_file_limit, server

PORT_BYTES = 8  # width of a port as text, padded with spaces
# Servers of --watched with their flags; the others are compared with the first one.
WATCHED = {
    "plain": [],
    "page and metrics": ["--http=127.0.0.1:0"],
}
COLUMNS = (
    ("nodes", "launchers", "{:.0f}"),
    ("all_but_one_joined_ms", "all but one joined (ms)", "{:.0f}"),
    ("last_join_to_all_assigned_ms", "last join to all assigned (ms)", "{:.1f}"),
    ("failure_to_all_told_ms", "one fails to all told (ms)", "{:.1f}"),
    ("failure_to_all_assigned_ms", "... to all assigned (ms)", "{:.1f}"),
    ("beats_per_second", "heartbeats/s", "{:.0f}"),
    ("steady_cpu_percent", "server's CPU meanwhile (% of a core)", "{:.2f}"),
    ("server_mb", "server's memory (MB)", "{:.1f}"),
    ("kb_per_launcher", "per launcher (KB)", "{:.1f}"),
    ("end_to_all_finished_ms", "end of the job to all finished (ms)", "{:.0f}"),
)


class Watchers:
    """HTTP clients of a server, in threads of this process: one reads the events, one scrapes the metrics."""

    def __init__(self, url, scrape_every):
        self.url = url
        self.scrape_every = scrape_every
        self.over = threading.Event()
        self.events = 0
        self.scrapes = 0
        stream = urllib.request.urlopen(f"{url}/api/v1/events")
        self.threads = [threading.Thread(target=self.read_events, args=(stream,)), threading.Thread(target=self.scrape)]
        for thread in self.threads:
            thread.start()

    def read_events(self, stream):
        with contextlib.suppress(OSError, ValueError):
            for line in stream:
                self.events += line.startswith(b"data:")

    def scrape(self):
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/metrics") as answer:
                self.scrapes += len(answer.read()) > 0
            if self.over.wait(self.scrape_every):
                return

    def join(self):
        """Call after the server has ended."""
        self.over.set()
        for thread in self.threads:
            thread.join()


@contextlib.contextmanager
def watched_server(args, options=()):
    """Runs a rendezvousd with these options; yields its process, its address, and with --http its Watchers."""
    with tempfile.TemporaryDirectory(prefix="ddprun_fleet_") as folder:
        options = list(options)
        if args.state_dir:
            options.append(f"--state-dir={folder}")
        watchers = None
        try:
            with server(args.rendezvousd, "--log-level=WARNING", *options) as (process, first):
                ends = [first]
                if any(option.startswith("--http") for option in options):
                    ends.append(process.stdout.readline().split()[-1])
                    port = next(end for end in ends if ":" not in end)
                    watchers = Watchers(f"http://127.0.0.1:{port}", args.scrape_every)
                yield process, next(end for end in ends if ":" in end), watchers
        finally:
            if watchers:
                watchers.join()


def read_cpu_ms(pid):
    """CPU time of all threads of a process."""
    return sum(int(file.read_text().split()[0]) for file in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6


def run_fleet(args, nodes, options=()):
    with watched_server(args, options) as (process, address, watchers):
        command = [args.fleet, f"--server={address}", f"--nodes={nodes}", f"--pid={process.pid}"]
        command += [f"--hold={args.hold}", f"--limit={args.limit}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        row = {"nodes": float(nodes), "server_cpu_ms": read_cpu_ms(process.pid)}
        for line in done.stdout.splitlines():
            name, value = line.split()
            row[name] = float(value)
        if done.returncode != 0:
            print(f"fleet.py: {nodes} launchers: incomplete measurement", file=sys.stderr)
        if watchers and (watchers.events < nodes or watchers.scrapes == 0):
            die(f"only {watchers.events} events and {watchers.scrapes} scrapes were read; there are {nodes} launchers")
        return row


def compare_watched(args, nodes):
    """Runs each kind once per round, in rotating order. Prints medians, and ratios with quartiles."""
    kinds = list(WATCHED)
    rounds = []
    for number in range(args.watched):
        begin = number % len(kinds)
        rounds.append({kind: run_fleet(args, nodes, WATCHED[kind]) for kind in kinds[begin:] + kinds[:begin]})
    plain = kinds[0]
    for key, title in (("last_join_to_all_assigned_ms", "last join to all assigned (ms)"),
                       ("server_cpu_ms", "server's CPU, whole run (ms)")):
        complete = [rows for rows in rounds if all(key in row for row in rows.values())]
        for kind in kinds if complete else []:
            median = statistics.median(rows[kind][key] for rows in complete)
            ratios = [rows[kind][key] / rows[plain][key] for rows in complete]
            low, middle, high = statistics.quantiles(ratios) if len(ratios) > 1 else ratios * 3
            ratio = "" if kind == plain else f"{middle:.3f} ({low:.3f} to {high:.3f})"
            print(f"| {nodes} | {title} | {kind} | {median:.1f} | {ratio} | {len(complete)} |", flush=True)


def c10d_agent(index, nodes, port, go, told):
    """One of torchrun's agents up to its rank; runs in its own process."""
    from torch.distributed import TCPStore
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

    store = TCPStore("127.0.0.1", int(os.read(port, PORT_BYTES)), is_master=False, wait_for_workers=False)
    handler = DynamicRendezvousHandler.from_backend(
        "fleet", store, C10dRendezvousBackend(store, "fleet"), nodes, nodes, local_addr="127.0.0.1"
    )
    os.write(told, f"ready {index} 0\n".encode())
    os.read(go, 1)
    handler.next_rendezvous()
    os.write(told, f"ranked {index} {time.monotonic_ns()}\n".encode())
    signal.pause()  # keep its heartbeat thread alive, as an agent would


class Lines:
    """Reads lines that other processes write to a pipe."""

    def __init__(self, fd):
        self.fd = fd
        self.rest = b""

    def read(self, count, limit):
        """The next `count` lines, each as a list of words; fewer if they do not arrive within `limit` seconds."""
        lines = []
        end = time.monotonic() + limit
        while len(lines) < count:
            whole, newline, rest = self.rest.partition(b"\n")
            if newline:
                lines.append(whole.decode().split())
                self.rest = rest
            elif select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                self.rest += os.read(self.fd, 65536)
            else:
                break
        return lines


def run_c10d(nodes, limit):
    """Returns the time from the start signal to the last agent's rank, as text."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # avoids a line from each agent about the name of its address
    from torch.distributed import TCPStore
    import torch.distributed.elastic.rendezvous.dynamic_rendezvous  # noqa: F401: before the forks

    port_read, port_write = os.pipe()
    go_read, go_write = os.pipe()
    told_read, told_write = os.pipe()
    told = Lines(told_read)
    pids = []
    try:
        for index in range(nodes):
            pid = os.fork()
            if pid == 0:
                try:
                    c10d_agent(index, nodes, port_read, go_read, told_write)
                finally:
                    os._exit(1)
            pids.append(pid)
        # After the forks, because it starts a thread.
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(port_write, f"{store.port:{PORT_BYTES}}".encode() * nodes)
        ready = len(told.read(nodes, limit))
        if ready < nodes:
            return f"after {limit:.0f} s only {ready} of them were connected to the store"
        began = time.monotonic_ns()
        os.write(go_write, b"." * nodes)
        ranked = [int(ns) for _, _, ns in told.read(nodes, limit)]
        if len(ranked) < nodes:
            return f"after {limit:.0f} s only {len(ranked)} of them had ranks"
        return f"{(max(ranked) - began) / 1e6:.0f} ms"
    finally:
        kill_all(pids)
        for fd in (port_read, port_write, go_read, go_write, told_read, told_write):
            os.close(fd)


def main():
    parser = flags(__doc__, "rendezvousd")
    parser.add_argument("--nodes", type=int, action="append", metavar="N", help="launchers; repeatable (200, 1000)")
    parser.add_argument("--c10d", type=int, action="append", default=[], metavar="N", help="also torchrun's rendezvous")
    parser.add_argument("--hold", type=float, default=20, metavar="S", help="seconds of heartbeats alone (default 20)")
    parser.add_argument("--limit", type=float, default=120, metavar="S", help="timeout of a row (default 120)")
    parser.add_argument("--state-dir", action="store_true", help="run the server with --state-dir")
    parser.add_argument("--watched", type=int, metavar="ROUNDS", help="measure the cost of page and metrics")
    parser.add_argument("--scrape-every", type=float, default=1, help="scrape interval in s (1; Prometheus: 15)")
    parser.add_argument("--fleet", metavar="FILE", help="the launchers' program, instead of building it")
    args = parser.parse_args()
    need(args.rendezvousd)
    args.fleet = args.fleet or str(build("//benchmarks/fleet") / "benchmarks/fleet/fleet")
    raise_file_limit()
    if args.watched:
        print("| launchers | | server | median | of plain (quartiles) | rounds |\n|---|---|---|---|---|---|")
        for nodes in args.nodes or [200, 1000]:
            compare_watched(args, nodes)
        return
    rows = [run_fleet(args, nodes) for nodes in args.nodes or [200, 1000]]
    cells = [[shape.format(row[key]) if key in row else "-" for key, _, shape in COLUMNS] for row in rows]
    print_table([title for _, title, _ in COLUMNS], cells)
    for nodes in args.c10d:
        result = run_c10d(nodes, args.limit)
        print(f"torchrun's rendezvous (c10d), {nodes} agents: all begin to all have ranks: {result}")


if __name__ == "__main__":
    main()
