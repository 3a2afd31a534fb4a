"""Trainers that are kept alive side by side and run a few steps in turn."""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import select
import signal
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = str(ROOT / ".venv/bin/python")
GIVE_UP = 300.0  # seconds; timeout of an answer that usually takes a few
WARM_UP_STEPS = 10


@dataclasses.dataclass(frozen=True)
class Trainer:
    name: str
    language: str  # "C++" or "Python"
    flags: tuple = ()
    world: int = 2
    trains_alike: bool = True  # False: its losses may differ from those of the others

    def command(self, programs):
        if self.language == "Python":
            return [PYTHON, str(ROOT / "benchmarks/ddp" / "step_trainer.py"), *self.flags]
        return [str(programs / "step_trainer"), *self.flags]


@dataclasses.dataclass
class Place:
    """Where ranks run: by default all on this host, over the loopback interface."""

    address: str = "127.0.0.1"
    interface: str = "lo"
    prefixes: tuple = ((),)  # prefixes of the command, by rank; the last one applies to all further ranks

    def prefix(self, rank):
        return list(self.prefixes[min(rank, len(self.prefixes) - 1)])


LOOPBACK = Place()


def free_port():
    """A port below the ephemeral range, because PyTorch binds it only seconds later."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", random.randrange(20000, 32000)))
            return s.getsockname()[1]


def environment():
    return dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", TORCH_CPP_LOG_LEVEL="ERROR")


class Ranks:
    """The ranks of one trainer. They read commands from standard input, and exit when it is closed."""

    def __init__(self, trainer, programs, folder, place=LOOPBACK):
        self.trainer = trainer
        self.log = pathlib.Path(folder) / f"log{time.monotonic_ns()}"
        self.processes = []
        shared = dict(
            environment(),
            WORLD_SIZE=str(trainer.world),
            LOCAL_WORLD_SIZE=str(trainer.world),
            MASTER_ADDR=place.address,
            MASTER_PORT=str(free_port()),
            GLOO_SOCKET_IFNAME=place.interface,
        )
        with self.log.open("w") as log:
            for rank in range(trainer.world):
                self.processes.append(
                    subprocess.Popen(
                        [*place.prefix(rank), *trainer.command(programs)],
                        env=dict(shared, RANK=str(rank), LOCAL_RANK=str(rank)),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                    )
                )

    def ask(self, command):
        """Sends a command to all ranks; returns one answer per rank."""
        for process in self.processes:
            try:
                process.stdin.write(f"{command}\n".encode())
                process.stdin.flush()
            except BrokenPipeError:
                self.fail("is gone")
        return [json.loads(self.read_line(process)) for process in self.processes]

    def read_line(self, process):
        end, line = time.monotonic() + GIVE_UP, b""
        while not line.endswith(b"\n"):
            if not select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                self.fail(f"has not answered for {GIVE_UP:.0f} s")
            read = os.read(process.stdout.fileno(), 1 << 20)
            if not read:
                self.fail("ended without an answer")
            line += read
        return line

    def fail(self, what):
        raise RuntimeError(f"trainer {self.trainer.name!r} {what}; log:\n{self.log.read_text()[-2000:]}")

    def close(self):
        for process in self.processes:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
            process.stdout.close()


@contextlib.contextmanager
def started(trainers, programs, folder, place=LOOPBACK):
    """{name: Ranks} of live trainers that have completed their first steps with the same losses."""
    ranks = {}
    try:
        losses = {}
        for trainer in trainers:
            # One after the other: measurements at the start (measure_bucket_cap) must not be disturbed.
            say(f"first steps of {trainer.name}")
            ranks[trainer.name] = Ranks(trainer, programs, folder, place)
            answers = ranks[trainer.name].ask(f"steps {WARM_UP_STEPS}")
            losses[trainer.name] = statistics.mean(answer["loss"] for answer in answers)
        alike = [losses[trainer.name] for trainer in trainers if trainer.trains_alike]
        if alike and max(alike) - min(alike) > 1e-4 * max(alike):
            raise RuntimeError(f"the trainers are not equivalent: their losses are {losses}")
        yield ranks
    finally:
        say("")
        for one in ranks.values():
            one.close()


@dataclasses.dataclass
class Steps:
    """Results of a trainer's rounds, in seconds; the medians are over the steps of rank 0 in one round."""

    medians: list = dataclasses.field(default_factory=list)
    cpu: list = dataclasses.field(default_factory=list)  # per step, all ranks together

    @property
    def median(self):
        return statistics.median(self.medians)

    @property
    def best(self):
        return min(self.medians)

    def add(self, answers, count):
        # Skip the first step of a round: the caches still hold the data of other trainers.
        self.medians.append(statistics.median(answers[0]["seconds"][1:] or answers[0]["seconds"]))
        self.cpu.append(sum(answer["cpu"] for answer in answers) / count)


def in_turn(ranks, rounds, steps):
    """{name: Steps}: every trainer runs `steps` steps per round; the order rotates."""
    result = {name: Steps() for name in ranks}
    names = list(ranks)
    for i in range(rounds):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            say(f"round {i + 1} of {rounds}: {name}")
            result[name].add(ranks[name].ask(f"steps {steps}"), steps)
    say("")
    return result


def resident_megabytes(pid):
    """(VmRSS, PSS): all of the process's pages, and the same with each shared page divided by its users."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    resident = int(re.search(r"^VmRSS:\s+(\d+)", status, re.MULTILINE)[1])
    shared_out = int(re.search(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)[1])
    return resident / 1024, shared_out / 1024


def say(text):
    """Prints progress if stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"\r{text[:100]:<100}" + ("" if text else "\r"), end="", file=sys.stderr, flush=True)
