#!/usr/bin/env python3
"""How long a takeover takes: kills the leader of several rendezvousd with one etcd, again and again, while jobs run.

    bazel build //launcher:ddprun //rendezvous/daemon:rendezvousd
    benchmarks/leader_kills.py [--kills 20] [--jobs 10] [--nodes 2] [--lease-ttl 3] [--bin .bazel/bin]

Needs etcd and etcdctl. All on this host: a real etcd of three members, three rendezvousd, and the jobs' launchers, whose
workers sleep. For each kill it measures, from SIGKILL, until another server leads and until every launcher has reached it
again, and prints median and worst. At the end no worker may have been started twice.
"""

import argparse
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time


REACHED = "reached the rendezvous server"  # in a launcher's log, once after each loss


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


class Cluster:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.processes = []
        self.etcd = self.start_etcd()
        self.ports = [free_port() for _ in range(3)]
        self.servers = [None] * 3
        self.lives = 0
        for index in range(3):
            self.start_server(index)
            if index == 0:
                self.wait(lambda: self.leader() == 0, "a first leader")

    def start(self, argv, name, **environment):
        log = open(os.path.join(self.folder, name), "w")
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                   env={**os.environ, **environment})
        log.close()
        process.log = os.path.join(self.folder, name)
        self.processes.append(process)
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
        put = ["etcdctl", "--command-timeout=2s", "put", "ready", "yes"]
        environment = {**os.environ, "ETCDCTL_API": "3", "ETCDCTL_ENDPOINTS": ",".join(clients)}
        self.wait(lambda: subprocess.run(put, env=environment, capture_output=True).returncode == 0, "etcd")
        return ",".join(client.removeprefix("http://") for client in clients)

    def start_server(self, index):
        self.lives += 1
        self.servers[index] = self.start(
            [f"{self.options.bin}/rendezvous/daemon/rendezvousd", f"--listen=127.0.0.1:{self.ports[index]}",
             f"--etcd={self.etcd}", f"--lease-ttl={self.options.lease_ttl}"], f"server{index}-{self.lives}")

    def leader(self):
        for index, server in enumerate(self.servers):
            if server and server.poll() is None and "leads since revision" in read(server.log):
                return index
        return None

    def endpoints(self):
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def wait(self, condition, what, patience=60):
        give_up = time.monotonic() + patience
        while not condition():
            if time.monotonic() > give_up:
                sys.exit(f"leader_kills: timed out waiting for {what}; logs in {self.folder}")
            time.sleep(0.01)

    def stop(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
        for process in self.processes:
            process.wait()


def run(options, folder):
    cluster = Cluster(options, folder)
    try:
        starts = os.path.join(folder, "starts")
        launchers = []
        for job in range(options.jobs):
            for node in range(options.nodes):
                launchers.append(cluster.start(
                    [f"{options.bin}/launcher/ddprun", f"--nnodes={options.nodes}", "--nproc-per-node=1",
                     f"--rdzv-endpoint={cluster.endpoints()}", f"--rdzv-id=job{job}", "--no-python", "sh", "-c",
                     f"echo {job} $RANK >>{starts}; exec sleep 100000"], f"job{job}-{node}"))
        expected = options.jobs * options.nodes
        cluster.wait(lambda: read(starts).count("\n") == expected, "all workers")
        elected, reached = [], []
        for number in range(1, options.kills + 1):
            old = cluster.leader()
            count = [read(launcher.log).count(REACHED) for launcher in launchers]
            cluster.servers[old].send_signal(signal.SIGKILL)
            cluster.servers[old].wait()
            killed = time.monotonic()
            cluster.wait(lambda: cluster.leader() is not None, "a new leader")
            elected.append(time.monotonic() - killed)
            cluster.wait(lambda: all(read(launcher.log).count(REACHED) > before
                                     for launcher, before in zip(launchers, count)), "all launchers")
            reached.append(time.monotonic() - killed)
            cluster.start_server(old)
            print(f"kill {number}: led after {elected[-1]:.2f} s, all launchers back after {reached[-1]:.2f} s",
                  flush=True)
        restarted = read(starts).count("\n") - expected
        print(f"{options.kills} kills, {options.jobs} jobs of {options.nodes} nodes, lease {options.lease_ttl} s: "
              f"another server led after {statistics.median(elected):.2f} s (median), {max(elected):.2f} s (worst); "
              f"all launchers were back after {statistics.median(reached):.2f} s, {max(reached):.2f} s (worst); "
              f"{restarted} workers restarted")
        return 0 if restarted == 0 else 1
    finally:
        cluster.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--lease-ttl", type=int, default=3)
    parser.add_argument("--bin", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".bazel", "bin"))
    options = parser.parse_args()
    for program in ("etcd", "etcdctl"):
        if shutil.which(program) is None:
            sys.exit(f"leader_kills: {program} is not installed (Debian: etcd-server, etcd-client)")
    folder = tempfile.mkdtemp(prefix="leader-kills-")
    status = run(options, folder)
    if status == 0:
        shutil.rmtree(folder)
    return status


if __name__ == "__main__":
    sys.exit(main())
