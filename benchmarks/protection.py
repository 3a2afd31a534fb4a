#!/usr/bin/env python3
"""Measures what credentials and a state folder add to the launch of a job.

usage: benchmarks/protection.py [--runs N]

One rendezvousd of each kind runs at the same time. A job of two nodes on this host, running `true`, is launched on each
of them in turn. The table shows medians, and the median difference to the plain server in the same turn. The state
folders are in $TMPDIR: put that on a real disk. Needs scripts/setup and the openssl command.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from programs import ROOT, flags, need, print_table, stop

GIVE_UP = 120.0  # seconds; timeout of each job


def make_certificates(folder):
    """Creates ca.crt, and node.crt with node.key for 127.0.0.1, used by servers and launchers."""

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt")
    names = ["-subj", "/CN=node", "-addext", "subjectAltName=IP:127.0.0.1"]
    openssl("req", *key, *names, "-keyout", "node.key", "-out", "node.csr")
    ca = ["-CA", "ca.crt", "-CAkey", "ca.key", "-copy_extensions", "copy"]
    openssl("x509", "-req", "-in", "node.csr", *ca, "-days", "2", "-out", "node.crt")


class Kind:
    """A running rendezvousd, with the credentials that launchers need for it."""

    def __init__(self, name, launcher_flags=(), server_flags=()):
        self.name = name
        self.launcher_flags = list(launcher_flags)
        command = [str(ROOT / "bin/rendezvousd"), "--listen=127.0.0.1:0", *launcher_flags, *server_flags]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.endpoint = self.server.stdout.readline().split()[-1]
        self.seconds = []

    def launch(self, job):
        rendezvous = [f"--rdzv-endpoint={self.endpoint}", f"--rdzv-id={job}", "--rdzv-conf=is_host=false"]
        command = [str(ROOT / "bin/ddprun"), "--nnodes=2", "--nproc-per-node=2", *rendezvous, *self.launcher_flags]
        command += ["--no-python", "true"]
        began = time.monotonic()
        nodes = [subprocess.Popen(command, stdin=subprocess.DEVNULL) for _ in range(2)]
        codes = [node.wait(timeout=GIVE_UP) for node in nodes]
        if any(codes):
            raise RuntimeError(f"{self.name}: a node ended with {codes}")
        self.seconds.append(time.monotonic() - began)


def main():
    parser = flags(__doc__)
    parser.add_argument("--runs", type=int, default=50, help="jobs on each server")
    runs = parser.parse_args().runs
    need(ROOT / "bin/ddprun", ROOT / "bin/rendezvousd")
    os.environ.update(LOGLEVEL="ERROR", OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "token").write_text("0123456789abcdef0123456789abcdef\n")
        (folder / "token").chmod(0o600)
        make_certificates(folder)
        (folder / "node.key").chmod(0o600)
        token = [f"--token-file={folder}/token"]
        tls = [f"--tls-cert={folder}/node.crt", f"--tls-key={folder}/node.key", f"--tls-ca={folder}/ca.crt"]
        kinds = []
        try:
            kinds.append(Kind("nothing"))
            kinds.append(Kind("token", token))
            kinds.append(Kind("mTLS", tls))
            kinds.append(Kind("state folder", server_flags=[f"--state-dir={folder}/state"]))
            kinds.append(Kind("all", token + tls, [f"--state-dir={folder}/state-of-all"]))
            for run in range(runs + 1):  # the first one warms up
                for kind in kinds[run % len(kinds) :] + kinds[: run % len(kinds)]:
                    kind.launch(f"job{run}")
        finally:
            stop([kind.server for kind in kinds])
    rows = []
    for kind in kinds:
        more = statistics.median(a - b for a, b in zip(kind.seconds[1:], kinds[0].seconds[1:]))
        rows.append((kind.name, f"{statistics.median(kind.seconds[1:]) * 1e3:.1f}", f"{more * 1e3:+.1f}"))
    print_table((f"two nodes x 2 `true` on one host, median of {runs}", "ms", "more than nothing, ms"), rows)


if __name__ == "__main__":
    sys.exit(main())
