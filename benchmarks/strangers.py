#!/usr/bin/env python3
"""Measures one rendezvousd while unauthenticated clients hold idle connections: its memory, and how fast jobs start.

usage: benchmarks/strangers.py [--connections N] [--streams N] [--plain N] [--seconds S]

Opens N connections with some idle HTTP/2 streams of Rendezvous.Session each, and some that never send anything, all
from 127.0.0.2. Connections that the server closes are reopened at once, as long as the benchmark runs. Meanwhile jobs
of one real launcher each are started one after the other. Needs scripts/setup, and an open-files limit above the number
of connections.
"""

import multiprocessing
import os
import pathlib
import selectors
import socket
import statistics
import subprocess
import threading
import time

from programs import cpu_seconds, die, flags, need, print_table, raise_file_limit, server

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, SETTINGS, END_HEADERS = 1, 4, 4


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def text(value):
    return bytes((len(value),)) + value


def session_streams(count):
    """Bytes that open `count` calls of Rendezvous.Session; fields are literals without indexing (RFC 7541, 6.2.2)."""
    block = b"\x83\x86"  # :method POST, :scheme http
    block += b"\x04" + text(b"/ddprun.v1.Rendezvous/Session")
    block += b"\x01" + text(b"localhost")
    block += b"\x0f\x10" + text(b"application/grpc")  # content-type
    block += b"\x00" + text(b"te") + text(b"trailers")
    return b"".join(frame(HEADERS, END_HEADERS, 2 * i + 1, block) for i in range(count))


class Strangers(multiprocessing.Process):
    """Holds the connections, in a separate low-priority process, as another host's would be."""

    def __init__(self, port, connections, streams, plain):
        super().__init__(daemon=True)
        self.port = port
        self.greeting = PREFACE + frame(SETTINGS, 0, 0, b"") + session_streams(streams)
        self.wanted = [self.greeting] * connections + [b""] * plain
        self.opened, self.closed = multiprocessing.Value("q", 0), multiprocessing.Value("q", 0)

    def open(self, greeting):
        s = socket.socket()
        s.setblocking(False)
        s.bind(("127.0.0.2", 0))
        s.connect_ex(("127.0.0.1", self.port))
        self.selector.register(s, selectors.EVENT_READ | selectors.EVENT_WRITE, (greeting, False))
        self.opened.value += 1

    def serve(self, s, events, greeting, greeted):
        """Returns False if the server has closed the connection."""
        try:
            if events & selectors.EVENT_WRITE and not greeted:
                if greeting:
                    s.send(greeting)  # fits an empty send buffer
                self.selector.modify(s, selectors.EVENT_READ, (greeting, True))
            return not events & selectors.EVENT_READ or s.recv(1 << 16) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def run(self):
        os.nice(10)
        self.selector = selectors.DefaultSelector()
        for i, greeting in enumerate(self.wanted):
            self.open(greeting)
            if i % 64 == 0:
                self.turn(0)
        while True:
            self.turn(None)

    def turn(self, timeout):
        for key, events in self.selector.select(timeout):
            if not self.serve(key.fileobj, events, *key.data):
                self.selector.unregister(key.fileobj)
                key.fileobj.close()
                self.closed.value += 1
                self.open(key.data[0])


def resident_mb(pid):
    line = next(l for l in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if l.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def launch(args, port, number):
    """Seconds from a launcher's start to its exit, with a worker that does nothing; None if it failed."""
    command = [args.ddprun, "--nnodes=1", "--nproc-per-node=1", f"--rdzv-endpoint=127.0.0.1:{port}"]
    command += ["--rdzv-conf=is_host=0", f"--rdzv-id=good{number}", "--no-python", "true"]
    began = time.monotonic()
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    except subprocess.TimeoutExpired:
        return None
    return time.monotonic() - began if ended.returncode == 0 else None


def launches(args, port, seconds, first):
    took, end = [], time.monotonic() + seconds
    while not took or time.monotonic() < end:
        took.append(launch(args, port, first + len(took)))
    good = sorted(t for t in took if t is not None)
    if not good:
        return f"none of {len(took)}"
    return f"{statistics.median(good) * 1e3:.0f} ms, at most {good[-1] * 1e3:.0f}; {len(good)} of {len(took)}"


def main():
    parser = flags(__doc__, "ddprun", "rendezvousd")
    parser.add_argument("--connections", type=int, default=1005, metavar="N", help="with streams (default 1005)")
    parser.add_argument("--streams", type=int, default=100, metavar="N", help="on each of them (default 100)")
    parser.add_argument("--plain", type=int, default=0, metavar="N", help="connections that say nothing (default 0)")
    parser.add_argument("--seconds", type=float, default=20, metavar="S", help="how long (default 20)")
    args = parser.parse_args()
    need(args.ddprun, args.rendezvousd)
    if (files := raise_file_limit()) < args.connections + args.plain + 100:
        die(f"the open-files limit {files} is too low")
    with server(args.rendezvousd, "--log-level=ERROR") as (process, address):
        port = int(address.rpartition(":")[2])
        alone = launches(args, port, 2, 0)
        memory_before, cpu_before = resident_mb(process.pid), cpu_seconds(process.pid)
        strangers = Strangers(port, args.connections, args.streams, args.plain)
        strangers.start()
        began, peak = time.monotonic(), 0.0
        while strangers.opened.value < len(strangers.wanted) and time.monotonic() < began + args.seconds:
            peak = max(peak, resident_mb(process.pid))
            time.sleep(0.05)
        watch = threading.Thread(target=lambda: meanwhile.append(launches(args, port, args.seconds, 1000)))
        meanwhile = []
        watch.start()
        while watch.is_alive():
            peak = max(peak, resident_mb(process.pid))
            watch.join(0.05)
        cpu = cpu_seconds(process.pid) - cpu_before
        took = time.monotonic() - began
        strangers.kill()
        strangers.join()
        after = launches(args, port, 2, 2000)
        rows = [
            ("connections with streams", str(args.connections)),
            ("streams", str(args.connections * args.streams)),
            ("connections without", str(args.plain)),
            ("opened in all, closed by the server", f"{strangers.opened.value}, {strangers.closed.value}"),
            ("server's memory before, at most", f"{memory_before:.0f} MB, {peak:.0f} MB"),
            ("server's CPU", f"{cpu:.1f} s of {took:.0f} s"),
            ("a launcher's job alone", alone),
            ("a launcher's job meanwhile", meanwhile[0]),
            ("a launcher's job afterwards", after),
        ]
        print_table(("", ""), rows)


if __name__ == "__main__":
    main()
