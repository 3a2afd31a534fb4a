"""Programs that benchmarks run. A missing program ends the benchmark with a message on how to build it."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def die(text):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {text}")


def need(*programs):
    for program in programs:
        if not os.access(program, os.X_OK):
            die(f"missing {program}: call scripts/setup first")


def build(*targets):
    """Builds the targets with Bazel. Returns the folder of its outputs."""
    bazel = os.environ.get("BAZEL", "bazel").split()
    cache = os.environ.get("DDPRUN_BAZEL_CACHE")
    options = ["--color=no", "--curses=no", *([f"--disk_cache={cache}"] if cache else [])]
    try:
        done = subprocess.run([*bazel, "build", *options, *targets], cwd=ROOT, capture_output=True, text=True)
    except OSError as error:
        die(f"can't build {' '.join(targets)}: {error}")
    if done.returncode != 0:
        die(f"can't build {' '.join(targets)}:\n{done.stderr[-2000:]}")
    return ROOT / ".bazel/bin"
