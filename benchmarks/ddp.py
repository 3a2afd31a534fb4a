#!/usr/bin/env python3
"""Compares training with the C++ worker runtime and in Python: steps, start, memory, checkpoints, samplers.

usage: benchmarks/ddp.py [--runs N] [--only SECTION]... [--quick]

Prints markdown tables of medians and of ratios. The programs compared are alive at the same time and run some steps in
turn, and ratios are taken within a turn, so that other load on the machine affects both sides. Needs scripts/setup.
Builds its programs with Bazel ($BAZEL, default "bazel") unless --programs names their folder.
"""

import dataclasses
import pathlib
import sys
import tempfile

from programs import ROOT, build, flags, need, read_flags

sys.path.insert(0, str(ROOT / "benchmarks" / "ddp"))
import other_sections  # noqa: E402
import step_sections  # noqa: E402
from trainers import PYTHON  # noqa: E402

SECTIONS = {
    "step": step_sections.step,
    "start": other_sections.start,
    "memory": other_sections.memory,
    "buckets": step_sections.buckets,
    "hook": step_sections.hook,
    "checkpoint": other_sections.checkpoint,
    "sampler": other_sections.sampler,
    "zero": step_sections.zero,
}
EMBEDDING = ("--vocab", "20000", "--width", "64", "--block", "32", "--batch", "32")
TINY_GPT = ("--layers", "1", "--heads", "2", "--width", "32", "--block", "16")


@dataclasses.dataclass(frozen=True)
class Setup:
    runs: int
    quick: bool
    programs: pathlib.Path  # folder of the compiled programs
    ddprun: pathlib.Path
    folder: str  # for files of this run

    @property
    def rounds(self):
        """Rounds of steps, which are cheaper than runs of whole programs."""
        return self.runs if self.quick else 2 * self.runs + 1

    @property
    def world(self):
        return 1 if self.quick else 2

    @property
    def gpt_sizes(self):
        return TINY_GPT if self.quick else ()

    def model_flags(self, model):
        sizes = {"gpt": self.gpt_sizes, "cnn": ("--batch", "16"), "embedding": EMBEDDING}
        return ("--model", model, *sizes.get(model, ()))

    def steps(self, model):
        """Steps per round. The MLP stays below 800 in total: later moments of dead units are subnormal, so slow."""
        if self.quick:
            return 3
        return min(40, 780 // self.rounds) if model == "mlp" else 8


def main():
    parser = flags(__doc__)
    parser.add_argument(
        "--runs", type=int, default=7, metavar="N", help="runs of each program; rounds of steps are 2 N + 1"
    )
    parser.add_argument("--only", action="append", choices=list(SECTIONS), help="only these sections")
    parser.add_argument(
        "--quick", action="store_true", help="smallest sizes, one run: a smoke test without meaningful times"
    )
    parser.add_argument("--programs", type=pathlib.Path, help="folder of the compiled programs")
    parser.add_argument("--ddprun", type=pathlib.Path, default=ROOT / "bin/ddprun", help="another build of ddprun")
    args = read_flags(parser, runs=1)
    need(PYTHON, args.ddprun)
    programs = (args.programs or build("//benchmarks/ddp/...") / "benchmarks/ddp").resolve()
    with tempfile.TemporaryDirectory(prefix="ddprun_bench_") as folder:
        setup = Setup(1 if args.quick else args.runs, args.quick, programs, args.ddprun.resolve(), folder)
        for name, section in SECTIONS.items():
            if not args.only or name in args.only:
                section(setup)


if __name__ == "__main__":
    main()
