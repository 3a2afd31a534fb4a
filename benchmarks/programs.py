"""Helpers that the benchmarks share. A missing program ends the benchmark with a message on how to build it."""

import argparse
import contextlib
import os
import pathlib
import resource
import signal
import socket
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


def compile_c(name, folder):
    """Compiles benchmarks/NAME.c into the folder. Returns the path of the program."""
    program = f"{folder}/{name}"
    subprocess.run(["cc", "-O2", "-static", "-o", program, ROOT / f"benchmarks/{name}.c"], check=True)
    return program


def flags(doc, *programs):
    """An argument parser, with an option for another build of each of these programs of bin/."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    for name in programs:
        parser.add_argument(f"--{name}", default=str(ROOT / "bin" / name), help=f"another build of {name}")
    return parser


def read_flags(parser, **least):
    """Parses the command line. `least`: smallest valid values by option."""
    args = parser.parse_args()
    for name, value in least.items():
        if getattr(args, name) < value:
            parser.error(f"--{name} must be at least {value}")
    return args


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def server(rendezvousd, *options):
    """Runs a rendezvousd on a free port; yields its process and its address. SIGKILL ends it."""
    command = [rendezvousd, "--listen=127.0.0.1:0", *options]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        yield process, process.stdout.readline().split()[-1]
    finally:
        process.kill()
        process.wait()


def stop(processes, patience=40):
    """Sends SIGTERM, and SIGKILL to those that are still alive after `patience` seconds."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def kill_all(pids):
    """Sends SIGKILL to these children and waits for them."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def cpu_seconds(pid):
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def raise_file_limit():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


def read_starts(path):
    """[(ns, pid, rank)] of the workers that have written their line to BENCH_FILE."""
    return [tuple(map(int, line.split())) for line in path.read_text().splitlines() if len(line.split()) == 3]


def print_row(cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def print_table(head, rows):
    print_row(head)
    print("|" + "---|" * len(head))
    for row in rows:
        print_row(row)
