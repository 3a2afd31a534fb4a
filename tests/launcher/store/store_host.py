"""Starts the store_host program and communicates with it."""

import subprocess


class StoreHost:
    def __init__(self, program):
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self._process.stdout.readline().split()[1])

    def ask(self, line):
        """Sends one command (see store_host_main.cc) and returns the answer."""
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    @property
    def pid(self):
        return self._process.pid

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self._process.stdin.close()
        status = self._process.wait(timeout=60)
        self._process.stdout.close()
        assert status == 0, f"store_host ended with {status}"
