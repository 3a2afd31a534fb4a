#!/usr/bin/env python3
"""Repeatedly kills the leader of several rendezvousd that share an etcd, while jobs form, fail and end.

    bazel build //launcher:ddprun //rendezvous/daemon:rendezvousd
    tests/rendezvous/ha/leader_kills.py [--kills 50] [--jobs 20] [--seed N] [--lease-ttl 3] [--bin .bazel/bin]

Needs etcd and etcdctl. Everything runs on this host: a real etcd of three members, three rendezvousd, and the launchers
of --jobs concurrent jobs of two nodes, one job after another (scripted_jobs.py): some succeed, some are restarted, some
fail for good, some lose a launcher. At random moments the leader is killed (SIGKILL), paused until another server leads
(SIGSTOP, SIGCONT) or terminated (SIGTERM), and then restarted as a follower. Prints the time until another server
leads, and until every launcher that had lost its server has reconnected. Exit code 1: something was lost or done twice;
the last lines say what, and the logs are kept.
"""

import argparse
import base64
import collections
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import scripted_jobs

SERVERS = 3
REMEMBERED = 1000  # ended jobs that a server keeps
LED = b"leads since revision "  # in a server's log
LOST = b"lost the rendezvous server"  # in a launcher's log, and then:
REACHED = b"reached the rendezvous server"
KINDS = {"killed": signal.SIGKILL, "paused": signal.SIGSTOP, "told to end": signal.SIGTERM}
ENDS_WITH = {"killed": -signal.SIGKILL, "paused": 1, "told to end": 0}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class TimedOut(Exception):
    pass


def log_of(process):
    """The contents of the process's log; read again only when it has grown."""
    try:
        if os.stat(process.log).st_size != len(process.written):
            with open(process.log, "rb") as file:
                process.written = file.read()
    except FileNotFoundError:
        pass
    return process.written


def wait(condition, what, patience=60):
    give_up = time.monotonic() + patience
    while not condition():
        if time.monotonic() > give_up:
            raise TimedOut(f"timed out after {patience} s waiting for {what}")
        time.sleep(0.02)


class Cluster:
    """etcd and the servers. Any thread may start processes; the rest belongs to the thread that kills leaders."""

    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.processes = set()
        self.etcd = ""
        self.ports = [free_port() for _ in range(SERVERS)]
        self.servers = [None] * SERVERS
        self.expected_to_end = None
        self.lives = 0
        self.ended_alone = 0  # servers that exited without being killed

    def begin(self):
        self.etcd = self.start_etcd()
        for index in range(SERVERS):
            self.start_server(index)
            wait(lambda: self.leader() is not None, "a first leader")

    def start(self, argv, name, **environment):
        path = os.path.join(self.folder, name)
        with open(path, "w") as log:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                       env={**os.environ, **environment})
        process.log = path
        process.written = b""
        process.epoch = 0
        self.processes.add(process)
        return process

    def start_etcd(self):
        clients = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
        peers = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
        cluster = ",".join(f"e{i}={peer}" for i, peer in enumerate(peers))
        for i in range(3):
            self.start(["etcd", "--name", f"e{i}", "--data-dir", f"{self.folder}/data{i}",
                        "--listen-client-urls", clients[i], "--advertise-client-urls", clients[i],
                        "--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i],
                        "--initial-cluster", cluster, "--logger", "zap", "--log-level", "warn"], f"etcd{i}")
        endpoints = ",".join(client.removeprefix("http://") for client in clients)
        wait(lambda: self.etcdctl(endpoints, "put", "ready", "yes").returncode == 0, "etcd")
        return endpoints

    def etcdctl(self, endpoints, *arguments):
        return subprocess.run(["etcdctl", "--command-timeout=2s", *arguments], capture_output=True, text=True,
                              env={**os.environ, "ETCDCTL_API": "3", "ETCDCTL_ENDPOINTS": endpoints})

    def start_server(self, index):
        self.lives += 1
        self.servers[index] = self.start(
            [f"{self.options.bin}/rendezvous/daemon/rendezvousd", f"--listen=127.0.0.1:{self.ports[index]}",
             f"--etcd={self.etcd}", f"--lease-ttl={self.options.lease_ttl}", "--log-level=INFO"],
            f"server{index}-{self.lives}")

    def epoch(self, server):
        """The etcd revision since which a server leads; 0: it does not lead, or has exited."""
        if server.epoch == 0:
            _, led, rest = log_of(server).partition(LED)
            server.epoch = int(rest.split(b";")[0]) if b";" in rest else 0
        return server.epoch if server.poll() is None else 0

    def leader(self):
        """The index of the leader, or None. Restarts servers that exited unexpectedly, as a service manager would."""
        for index, server in enumerate(self.servers):
            if server and server is not self.expected_to_end and server.poll() is not None:
                self.ended_alone += 1
                self.start_server(index)
        epochs = [self.epoch(server) if server else 0 for server in self.servers]
        return epochs.index(max(epochs)) if max(epochs) > 0 else None

    def replace_leader(self, kind, all_connected):
        """Returns the seconds until another server leads, and until `all_connected`; the old one then follows."""
        wait(lambda: self.leader() is not None, "a leader")
        index = self.leader()
        old = self.expected_to_end = self.servers[index]
        before = self.epoch(old)
        old.send_signal(KINDS[kind])
        told = time.monotonic()
        wait(lambda: (leader := self.leader()) is not None and self.epoch(self.servers[leader]) > before,
             "another leader")
        led = time.monotonic() - told
        if kind == "paused":
            old.send_signal(signal.SIGCONT)
        try:
            code = old.wait(30)
        except subprocess.TimeoutExpired:
            code = None
        if code != ENDS_WITH[kind]:
            raise TimedOut(f"{old.log}: a leader that was {kind} ended with {code}, not {ENDS_WITH[kind]}")
        wait(all_connected, "all launchers to reach a server")
        connected = time.monotonic() - told
        self.start_server(index)
        self.expected_to_end = None
        return led, connected

    def endpoints(self):
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def kept_jobs(self):
        """Jobs with a record in etcd: (names of live jobs, number of ended jobs)."""
        answer = self.etcdctl(self.etcd, "get", "--prefix", "/ddprun/jobs/", "--write-out=json").stdout
        live, ended = [], 0
        for pair in json.loads(answer).get("kvs", []):
            # A StoredRecord (proto/state.proto): varint `saved_at_ms`, varint `ended` if it is not 0, the rest.
            value = base64.b64decode(pair["value"])
            field = 1
            while value[field] & 0x80:
                field += 1
            if value[0] == 0x08 and value[field + 1] == 0x10:
                ended += 1
            else:
                live.append(base64.b64decode(pair["key"]).decode())
        return live, ended

    def stop(self):
        for process in list(self.processes):
            if process.poll() is None:
                process.kill()
            process.wait()


class Slot(threading.Thread):
    """Runs one job after another until `last` is set."""

    def __init__(self, number, cluster, options, last):
        super().__init__(daemon=True)
        self.number = number
        self.cluster = cluster
        self.ddprun = f"{options.bin}/launcher/ddprun"
        self.rng = random.Random(f"{options.seed}/{number}")
        self.last = last
        self.job = None
        self.done = []

    def run(self):
        while not self.last.is_set():
            name = f"job{self.number}-{len(self.done)}"
            self.job = scripted_jobs.Job(name, scripted_jobs.draw_script(self.rng), self.cluster, self.ddprun, self.rng)
            self.job.run()
            self.cluster.processes.difference_update(self.job.launchers)
            self.done.append(self.job)

    def connected(self):
        """True if no live launcher of its job has lost its server without reaching one again."""
        for launcher in list(self.job.launchers) if self.job else []:
            log = log_of(launcher)
            if launcher.poll() is None and log.count(LOST) > log.count(REACHED):
                return False
        return True


def kill_leaders(cluster, slots, options):
    """Returns the times of the takeovers by kind, each as a pair (led, connected)."""
    rng = random.Random(options.seed)
    times = collections.defaultdict(list)
    for number in range(1, options.kills + 1):
        kind = list(KINDS)[number - 1] if number <= len(KINDS) else rng.choices(list(KINDS), [3, 1, 1])[0]
        # A job that has lost a node needs a leader that lives for 3/2 heartbeat timeouts (protocol 4.5), here 4.5 s. If
        # every leader is killed sooner, such a job cannot continue.
        time.sleep(rng.uniform(0, 12))
        led, connected = cluster.replace_leader(kind, lambda: all(slot.connected() for slot in slots))
        times[kind].append((led, connected))
        jobs = sum(len(slot.done) for slot in slots)
        print(f"takeover {number}, leader {kind}: another led after {led:.2f} s, all launchers back after "
              f"{connected:.2f} s; {jobs} jobs have ended", flush=True)
    return times


def judge(cluster, jobs):
    """Prints a line for each invariant; returns True if all hold."""
    wrong = collections.defaultdict(list)
    for job in jobs:
        for invariant, text in job.wrong:
            wrong[scripted_jobs.INVARIANTS[invariant]].append(text)
    live, ended = cluster.kept_jobs()
    in_etcd = f"etcd holds the last {REMEMBERED} ended jobs, and no live one"
    wrong[in_etcd] += [f"{key} lives" for key in live]
    if ended != min(len(jobs), REMEMBERED):
        wrong[in_etcd].append(f"{ended} ended jobs in etcd, {len(jobs)} were run")
    for rule in [*scripted_jobs.INVARIANTS.values(), in_etcd]:
        print(f"{'FAILED' if wrong[rule] else 'holds '}  {rule}")
        for text in wrong[rule]:
            print(f"          {text}")
    return not any(wrong.values())


def report(times, jobs, cluster, options):
    print(f"{options.kills} takeovers, {options.jobs} jobs of 2 nodes at a time, lease {options.lease_ttl} s, "
          f"seed {options.seed}:")
    for kind, pairs in times.items():
        led, back = ([f"{of(column):.2f} s" for of in (statistics.median, max)] for column in zip(*pairs))
        print(f"  leader {kind} {len(pairs)} times: another led after {led[0]} (worst {led[1]}), all launchers were "
              f"back after {back[0]} (worst {back[1]})")
    kinds = collections.Counter(job.script.kind for job in jobs)
    print(f"{len(jobs)} jobs ended: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) +
          f"; {sum(job.script.charges for job in jobs)} restarts, {sum(job.extra_rounds for job in jobs)} rounds that "
          f"were formed again without one, {cluster.ended_alone} servers ended by themselves")


def run(options, folder):
    cluster = Cluster(options, folder)
    last = threading.Event()
    slots = [Slot(number, cluster, options, last) for number in range(options.jobs)]
    times, trouble = {}, ""
    try:
        cluster.begin()
        for slot in slots:
            slot.start()
        times = kill_leaders(cluster, slots, options)
        last.set()
        wait(lambda: cluster.leader() is not None and not any(slot.is_alive() for slot in slots), "the last jobs",
             2 * scripted_jobs.LIMIT)
        jobs = [job for slot in slots for job in slot.done]
        report(times, jobs, cluster, options)
        return 0 if judge(cluster, jobs) else 1
    except TimedOut as error:
        trouble = str(error)
        print(f"leader_kills: {trouble}", file=sys.stderr)
        return 1
    finally:
        last.set()
        cluster.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=20, help="at a time")
    parser.add_argument("--seed", type=int, default=random.randrange(1000000))
    parser.add_argument("--lease-ttl", type=int, default=3)
    parser.add_argument("--bin", default=".bazel/bin", help="folder of Bazel's outputs")
    options = parser.parse_args()
    for program in ("etcd", "etcdctl"):
        if shutil.which(program) is None:
            sys.exit(f"leader_kills: {program} is not installed (Debian: etcd-server, etcd-client)")
    for program in ("rendezvous/daemon/rendezvousd", "launcher/ddprun"):
        if not os.access(f"{options.bin}/{program}", os.X_OK):
            sys.exit(f"leader_kills: missing {options.bin}/{program}: build it first")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = tempfile.mkdtemp(prefix="leader-kills-")
    print(f"seed {options.seed}; logs in {folder} unless all holds", flush=True)
    status = run(options, folder)
    if status == 0:
        shutil.rmtree(folder)
    return status


if __name__ == "__main__":
    sys.exit(main())
