#!/usr/bin/env python3
"""Compares a DDP training step of the C++ worker runtime with the same step in Python.

usage: benchmarks/ddp_step.py [--rounds N] [--model NAME]... [--quick]

Prints a markdown table of times and ratios for each model. The trainers compared are alive at the same time and run
some steps in turn, and ratios are taken within a round, so that other load on the machine affects both sides. Their
losses must agree. Needs scripts/setup; Bazel builds the C++ trainer unless --trainer names it.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from programs import ROOT, build, flags, free_port, need, print_table, read_flags

PYTHON = str(ROOT / ".venv/bin/python")
TIMEOUT = 300.0  # seconds for an answer that usually takes a few
WARM_UP_STEPS = 10
WORLD = 2
AIMS = {"mlp": "0.25", "gpt": "0.85", "cnn": "0.85", "embedding": "0.50"}
SIZES = {
    "cnn": ("--batch", "16"),
    "embedding": ("--vocab", "20000", "--width", "64", "--block", "32", "--batch", "32"),
}
BEST = ("--optimizer", "fused", "--bucket-view", "--static-graph")
DEFAULTS_OF_PYTHON = "Python, defaults"
VIEWS_OF_PYTHON, COPIES_OF_PYTHON = "Python, bucket views", "Python, batched copies"
TRAINERS = {
    DEFAULTS_OF_PYTHON: ("Python", ()),
    VIEWS_OF_PYTHON: ("Python", BEST),
    COPIES_OF_PYTHON: ("Python", ("--optimizer", "fused", "--batched-copy", "--static-graph")),
    "Python, compiled": ("Python", (*BEST, "--compile")),
    "C++, defaults": ("C++", ()),
    "C++, best on Gloo": ("C++", BEST),
    "C++, best": ("C++", (*BEST, "--hook", "shared-memory")),
}


class Ranks:
    """The ranks of one trainer. They read commands from standard input, and exit when it is closed."""

    def __init__(self, name, command, world, folder):
        self.name = name
        self.log = pathlib.Path(folder) / f"log{time.monotonic_ns()}"
        self.medians = []  # seconds of rank 0's steps, by round
        self.cpu = []  # CPU seconds per step of all ranks, by round
        shared = dict(
            os.environ,
            OMP_NUM_THREADS="1",
            PYTHONDONTWRITEBYTECODE="1",
            TORCH_CPP_LOG_LEVEL="ERROR",
            WORLD_SIZE=str(world),
            LOCAL_WORLD_SIZE=str(world),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(free_port()),
            GLOO_SOCKET_IFNAME="lo",
        )
        with self.log.open("w") as log:
            self.processes = [
                subprocess.Popen(
                    command,
                    env=dict(shared, RANK=str(rank), LOCAL_RANK=str(rank)),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                )
                for rank in range(world)
            ]

    def steps(self, count):
        """Trains `count` steps on all ranks; returns one answer per rank."""
        for process in self.processes:
            try:
                process.stdin.write(f"{count}\n".encode())
                process.stdin.flush()
            except BrokenPipeError:
                self.fail("exited")
        return [json.loads(self.read_line(process)) for process in self.processes]

    def measure(self, count):
        answers = self.steps(count)
        # Skip the first step of a round: the caches still hold the data of other trainers.
        self.medians.append(statistics.median(answers[0]["seconds"][1:] or answers[0]["seconds"]))
        self.cpu.append(sum(answer["cpu"] for answer in answers) / count)

    def read_line(self, process):
        end, line = time.monotonic() + TIMEOUT, b""
        while not line.endswith(b"\n"):
            if not select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                self.fail(f"has not answered for {TIMEOUT:.0f} s")
            read = os.read(process.stdout.fileno(), 1 << 20)
            if not read:
                self.fail("ended without an answer")
            line += read
        return line

    def fail(self, what):
        raise RuntimeError(f"trainer {self.name!r} {what}; log:\n{self.log.read_text()[-2000:]}")

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


def say(text):
    """Prints progress if stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"\r{text[:100]:<100}" + ("" if text else "\r"), end="", file=sys.stderr, flush=True)


def ratio(ours, theirs):
    """Quartiles of the ratios of each round; of fewer than three rounds, the median."""
    ratios = [a / b for a, b in zip(ours, theirs)]
    if len(ratios) < 3:
        return f"**{statistics.median(ratios):.2f}**"
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{low:.2f} **{middle:.2f}** {high:.2f}"


def milliseconds(seconds):
    return f"{seconds * 1e3:.2f}" if seconds < 0.1 else f"{seconds * 1e3:.0f}"


@dataclasses.dataclass(frozen=True)
class Run:
    model: str
    trainer: pathlib.Path  # the C++ one
    world: int
    rounds: int
    steps: int  # per round
    folder: str  # for logs
    compiles: bool  # uses torch.compile, too, whose first step takes long

    def command(self, language, more):
        python = [PYTHON, str(ROOT / "benchmarks/ddp/step_trainer.py")]
        program = python if language == "Python" else [str(self.trainer)]
        return [*program, "--model", self.model, *SIZES.get(self.model, ()), *more]

    def start(self, trainers):
        """Starts the ranks of each trainer, one trainer after the other, and compares their losses."""
        losses = {}
        for name, (language, more) in TRAINERS.items():
            if "--compile" in more and not self.compiles:
                continue
            say(f"first steps of {name}")
            trainers.append(Ranks(name, self.command(language, more), self.world, self.folder))
            losses[name] = statistics.mean(answer["loss"] for answer in trainers[-1].steps(WARM_UP_STEPS))
        if max(losses.values()) - min(losses.values()) > 1e-4 * max(losses.values()):
            raise RuntimeError(f"the trainers are not equivalent: their losses are {losses}")

    def measure(self, trainers):
        """Each trainer runs its steps once per round; every round begins with another one."""
        for i in range(self.rounds):
            first = i % len(trainers)
            for trainer in trainers[first:] + trainers[:first]:
                say(f"round {i + 1} of {self.rounds}: {trainer.name}")
                trainer.measure(self.steps)

    def show(self, trainers):
        by_name = {trainer.name: trainer for trainer in trainers}
        defaults = by_name[DEFAULTS_OF_PYTHON]
        # Which of the two is faster depends on the model.
        candidates = [by_name[VIEWS_OF_PYTHON], by_name[COPIES_OF_PYTHON]]
        best = min(candidates, key=lambda ranks: statistics.median(ranks.medians))
        to_best = f"to the best Python ({best.name})"
        print(f"### Step time: {self.model.upper()}, {self.world} rank{'s' if self.world > 1 else ''}\n")
        print_table(
            ("", "ms", "best ms", "to Python's defaults", to_best, "CPU to Python's defaults"),
            [
                (
                    trainer.name,
                    milliseconds(statistics.median(trainer.medians)),
                    milliseconds(min(trainer.medians)),
                    ratio(trainer.medians, defaults.medians),
                    ratio(trainer.medians, best.medians),
                    ratio(trainer.cpu, defaults.cpu),
                )
                for trainer in trainers
            ],
        )
        print(f"\nAim: C++, best, to the best Python at most {AIMS[self.model]}.\n", flush=True)

    def run(self):
        trainers = []
        try:
            self.start(trainers)
            self.measure(trainers)
            say("")
            self.show(trainers)
        finally:
            for trainer in trainers:
                trainer.close()


def main():
    parser = flags(__doc__)
    parser.add_argument("--rounds", type=int, default=11, metavar="N")
    parser.add_argument("--model", action="append", choices=list(AIMS), help="only these models")
    parser.add_argument("--quick", action="store_true", help="one rank, one round: a test that it runs")
    parser.add_argument("--trainer", type=pathlib.Path, help="the C++ trainer")
    args = read_flags(parser, rounds=1)
    need(PYTHON)
    trainer = args.trainer or build("//benchmarks/ddp:step_trainer") / "benchmarks/ddp/step_trainer"
    world, rounds = (1, 1) if args.quick else (WORLD, args.rounds)
    with tempfile.TemporaryDirectory(prefix="ddprun_bench_") as folder:
        for model in args.model or AIMS:
            # The MLP stays below 800 steps in total: later moments of dead units are subnormal, so slow.
            steps = 3 if args.quick else min(40, 780 // rounds) if model == "mlp" else 8
            Run(model, trainer.resolve(), world, rounds, steps, folder, compiles=not args.quick).run()


if __name__ == "__main__":
    main()
