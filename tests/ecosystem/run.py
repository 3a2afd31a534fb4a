"""Runs programs of the PyTorch ecosystem under torchrun, `ddprun --preload=none` and `ddprun --preload=auto`.

For each program, results must be bitwise equal, and environments equal except for the variables in EXPLAINED. In a
second run, in which a worker is killed with SIGKILL after the third of six steps, the result after the restart must
equal that of the first run. Failures of torchrun's own runs are printed, but do not fail the test.

A name of REACHED is a command that starts torchrun in its own way: it runs as it is, and within `ddprun exec`, without
and with PET_PRELOAD=auto.

The last line is "N passed, N failed", with ", N skipped" if any were; a program counts as one.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
WAYS = ("torchrun", "none", "auto")
TITLES = {"torchrun": "torchrun", "none": "ddprun", "auto": "ddprun --preload"}

# Modules that each program needs besides torch. QUICK needs none and is part of the tests of every change.
QUICK = ("tcp_store", "dcp", "fsdp2", "dtensor", "record")
NEEDS = {
    **dict.fromkeys(QUICK, ()),
    "stateful_loader": ("torchdata",),
    "lightning_trainer": ("lightning",),
    "lightning_fabric": ("lightning",),
    "accelerate_ddp": ("accelerate",),
    "transformers_trainer": ("transformers", "accelerate"),
    "torchft_ddp": ("torchft",),
    "deepspeed_zero": ("deepspeed",),
}
# Name -> the module that starts torchrun, the script that it starts, and its command. All get PET_MAX_RESTARTS=1, which
# PyTorch's parser reads, because some have no flag for it.
REACHED = {
    "torchrun": ("torch", "dcp", "torchrun --nproc-per-node=2 {script}"),
    "python_m_run": ("torch", "dcp", "{python} -m torch.distributed.run --nproc-per-node=2 {script}"),
    "accelerate_launch": (
        "accelerate",
        "accelerate_ddp",
        "accelerate launch --multi_gpu --num_processes=2 --num_machines=1 --mixed_precision=no --dynamo_backend=no"
        " --max_restarts=1 {script}",
    ),
    "accelerate_trainer": (
        "transformers",
        "transformers_trainer",
        "accelerate launch --multi_gpu --num_processes=2 --num_machines=1 --mixed_precision=no --dynamo_backend=no"
        " --max_restarts=1 {script}",
    ),
    "fabric_run": (
        "lightning",
        "lightning_fabric",
        "fabric run --accelerator=cpu --strategy=ddp --devices=2 {script}",
    ),
    # The line of torchtitan's run_train.sh, with another module.
    "torchtitan_line": (
        "torch",
        "fsdp2",
        "env PYTORCH_ALLOC_CONF=expandable_segments:True torchrun --nproc_per_node=2 --rdzv_backend c10d"
        " --rdzv_endpoint=localhost:0 --local-ranks-filter 0 --role rank --tee 3 -m {module}",
    ),
    # The commands that `llamafactory-cli train` and `swift sft` run, with another script.
    "llamafactory_line": (
        "torch",
        "dcp",
        "torchrun --nnodes 1 --node_rank 0 --nproc_per_node 2 --master_addr 127.0.0.1 --master_port {port} {script}"
        " x.yaml",
    ),
    "swift_line": ("torch", "dcp", "{python} -m torch.distributed.run --nproc_per_node 2 {script} --model x"),
    # The real packages, which exclude each other's versions: run.py with an environment that has one of them.
    "swift_sft": ("swift", "", "{python} {programs}/real_command.py swift"),
    "llamafactory_cli": ("llamafactory", "", "{python} {programs}/real_command.py llamafactory"),
    "notebook_launcher": ("accelerate", "notebook_launcher", "{python} {script}"),
    "jupyter": ("ipykernel", "notebook_launcher", "{python} {programs}/jupyter_kernel.py {script}"),
}
WITHOUT_KILL = ("tcp_store", "record")
# Programs that fail intentionally, with the words that the launcher's summary must contain.
FAILING = {"record": "ValueError: the recorded words"}

# Variables that may differ between torchrun and ddprun, with the reason (docs/frameworks.md). OWN ones exist only under
# ddprun.
EXPLAINED = {
    "MASTER_ADDR": "torchrun --standalone gives localhost, ddprun the address that the store listens on",
    "MASTER_PORT": "a free port of this run",
    "TORCHELASTIC_RUN_ID": "made up for this run",
    "TORCHELASTIC_ERROR_FILE": "a file of this run; ddprun's without a log folder has no name on disk",
    "JPY_PARENT_PID": "of this run",
    "PET_MAX_RESTARTS": "ddprun does not pass on variables of launchers",
    "PWD": "the shell of ddprun exec's torchrun corrects it, because this program has not",
}
OWN = re.compile("DDPRUN_")
# The folders of `ddprun exec`.
FOLDERS = re.compile(r"[^:]*/ddprun/in_place/(bin|site):?")
# Variables that differ from one run to the next.
OF_ONE_RUN = {
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_ERROR_FILE",
    "DDPRUN_LAUNCHER_ID",
    "DDPRUN_WORKER_LINK",
    "JPY_PARENT_PID",
    "PWD",
}

# Differences between two outputs of the same program.
VARYING = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{20,}"), "ID"),
    (re.compile(r"\d+(\.\d+)?(e-\d+)?"), "N"),
    (re.compile(r"/\S+"), "PATH"),
)
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT\S+Z (INFO|WARNING|ERROR) ")


class Run:
    """One run of a program, after it has ended."""

    def __init__(self, folder, command, environment, limit):
        folder.mkdir(parents=True)
        self.folder = folder
        environment = {**environment, "ECOSYSTEM_OUT": str(folder)}
        self.began = time.time()
        with open(folder / "output", "wb") as output:
            process = subprocess.Popen(
                command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                self.code = process.wait(limit)
            except subprocess.TimeoutExpired:
                self.code = None
                os.kill(process.pid, signal.SIGTERM)
                try:
                    process.wait(40)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        self.output = (folder / "output").read_text(errors="replace")
        self.results = {path.suffix: json.loads(path.read_text()) for path in sorted(folder.glob("result.*"))}

    def describe(self):
        return "did not end" if self.code is None else f"exit code {self.code}"

    def worker_environment(self, rank):
        file = self.folder / f"environment.0.{rank}"
        return json.loads(file.read_text()) if file.exists() else None

    def seconds_to_first_step(self):
        return self._first_step(0, self.began)

    def seconds_from_kill(self):
        killed = self.folder / "killed"
        return self._first_step(1, float(killed.read_text())) if killed.exists() else None

    def _first_step(self, attempt, began):
        prepared = self.folder / "began"  # written by a program that prepares something before it trains
        if attempt == 0 and prepared.exists():
            began = prepared.stat().st_mtime
        times = [float(path.read_text()) for path in self.folder.glob(f"first_step.{attempt}.*")]
        return max(times) - began if len(times) == 2 else None

    def lines(self):
        """Counts the lines of the workers' output, without numbers and paths."""
        counted = collections.Counter()
        for line in self.output.splitlines():
            if LOG_LINE.match(line):
                continue
            for pattern, name in VARYING:
                line = pattern.sub(name, line)
            if line.strip():
                counted[line.strip()] += 1
        return counted


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def command_of(way, options, program):
    if program in REACHED:
        _, name, command = REACHED[program]
        words = command.format(
            script=PROGRAMS / f"{name}.py", module=name, python=options.python, programs=PROGRAMS, port=free_port()
        )
        return [*([] if way == "torchrun" else [options.ddprun, "exec", "--"]), *words.split()]
    flags = ["--standalone", "--nproc-per-node=2", "--max-restarts=1" if program not in FAILING else "--max-restarts=0"]
    script = str(PROGRAMS / f"{program}.py")
    if way == "torchrun":
        return [options.python, "-m", "torch.distributed.run", *flags, script]
    return [options.ddprun, *flags, f"--preload={way}", script]


def base_environment(options):
    environment = dict(os.environ)
    for name in [name for name in environment if name.startswith("PET_")]:
        del environment[name]
    environment.update(
        PYTHON_EXEC=options.python, LOGLEVEL="INFO", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
        PYTHONDONTWRITEBYTECODE="1", NO_COLOR="1",
    )  # fmt: skip
    # scripts/ecosystem has built the extensions here that DeepSpeed builds at its first start.
    environment.update(TORCH_EXTENSIONS_DIR=f"{sys.prefix}/torch_extensions", DS_ACCELERATOR="cpu")
    environment["PATH"] = f"{sys.prefix}/bin:{environment['PATH']}"
    return environment


def compare_environments(a, b, allowed, own=None):
    """The variables that differ without a reason."""
    problems = []
    for name in sorted(a.keys() | b.keys()):
        if name in allowed or name == "ECOSYSTEM_OUT" or (own and own.match(name) and name not in a):
            continue
        if a.get(name) != FOLDERS.sub("", b.get(name, "")) and a.get(name) != b.get(name):
            problems.append(f"{name}: {a.get(name)!r} and {b.get(name)!r}")
    return problems


def missing_module(options, program):
    for module in NEEDS[program] if program in NEEDS else REACHED[program][:1]:
        probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        if subprocess.run([options.python, "-c", probe], check=False).returncode != 0:
            return module
    return None


class Program:
    """The runs of one program, its errors and notes."""

    def __init__(self, name, options, folder):
        self.name = name
        self.options = options
        self.folder = folder / name
        self.problems, self.notes = [], []
        self.runs, self.kills = {}, {}

    def run(self):
        environment = base_environment(self.options)
        for way in self.options.ways:
            command = command_of(way, self.options, self.name)
            self.runs[way] = Run(self.folder / way, command, self.variables(way, environment), self.options.limit)
            self.judge_end(way, self.runs[way])
        self.compare_results()
        self.compare_worker_environments()
        self.compare_output()
        if self.name in WITHOUT_KILL or not self.options.kill:
            return
        for way in self.options.ways:
            command = command_of(way, self.options, self.name)
            killing = {**self.variables(way, environment), "ECOSYSTEM_KILL": "1"}
            self.kills[way] = Run(self.folder / f"{way}_killed", command, killing, self.options.limit)
            self.judge_kill(way)

    def variables(self, way, environment):
        if self.name not in REACHED:
            return environment
        more = {"PET_MAX_RESTARTS": "1", "PYTHONPATH": str(PROGRAMS)}
        return {**environment, **more, **({"PET_PRELOAD": "auto"} if way == "auto" else {})}

    def say(self, way, words):
        (self.notes if way == "torchrun" else self.problems).append(f"{TITLES[way]}: {words}")

    def judge_end(self, way, run):
        if run.code != (1 if self.name in FAILING else 0):
            self.say(way, run.describe())
        elif self.name in FAILING and FAILING[self.name] not in run.output:
            self.say(way, f"the summary lacks {FAILING[self.name]!r}")
        for warning in re.findall(r" WARNING .*--preload: (.*)", run.output):
            self.notes.append(f"--preload: {warning}")

    def compare_results(self):
        reference = self.runs[self.options.ways[0]]
        for way in self.options.ways[1:]:
            if self.runs[way].results != reference.results:
                self.problems.append(f"{TITLES[way]}: {self.runs[way].results} where {reference.results} is right")
        if len(reference.results) != 2:
            self.problems.append("no result")

    def compare_worker_environments(self):
        for rank in (0, 1):
            found = {way: self.runs[way].worker_environment(rank) for way in self.options.ways}
            if None in found.values():
                continue
            unexplained = []
            if "torchrun" in found and "none" in found:
                unexplained += compare_environments(found["torchrun"], found["none"], EXPLAINED.keys(), OWN)
            if "none" in found and "auto" in found:
                unexplained += compare_environments(found["none"], found["auto"], OF_ONE_RUN)
            self.problems += [f"rank {rank}: {difference}" for difference in unexplained]

    def compare_output(self):
        if "none" not in self.runs or "auto" not in self.runs or self.name in FAILING:
            return
        none, auto = self.runs["none"].lines(), self.runs["auto"].lines()
        for line in sorted(none.keys() | auto.keys()):
            if none[line] != auto[line]:
                self.notes.append(f"printed {none[line]} times, with --preload {auto[line]}: {line[:120]}")

    def judge_kill(self, way):
        run = self.kills[way]
        if run.seconds_from_kill() is None:
            self.say(way, f"no step after kill -9 ({run.describe()})")
        elif run.code != 0:
            self.say(way, f"after kill -9: {run.describe()}")
        elif run.results != self.runs[way].results:
            self.say(way, f"after kill -9: {run.results} where {self.runs[way].results} is right")

    def row(self):
        def cells(seconds):
            return [f"{value:.1f}" if value is not None else "-" for value in seconds]

        first = cells(run.seconds_to_first_step() for run in self.runs.values())
        again = cells(run.seconds_from_kill() for run in self.kills.values()) or ["-"] * len(first)
        outcome = "failed" if self.problems else "same"
        return f"| {self.name} | {outcome} | {' | '.join(first)} | {' | '.join(again)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch and the frameworks")
    parser.add_argument("--ddprun", required=True)
    parser.add_argument("--ways", default=",".join(WAYS), type=lambda text: text.split(","))
    parser.add_argument("--quick", action="store_true", help="only what needs nothing but torch")
    parser.add_argument("--no-kill", dest="kill", action="store_false")
    parser.add_argument("--limit", type=float, default=240, help="seconds for one run")
    parser.add_argument("--keep", help="keep what the programs wrote in this folder")
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    options.ddprun = os.path.abspath(options.ddprun)
    names = options.programs or (QUICK if options.quick else [*NEEDS, *REACHED])
    folder = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="ecosystem"))
    passed = failed = skipped = 0
    rows = []
    for name in names:
        lacking = missing_module(options, name)
        if lacking:
            print(f"{name}: skipped, {lacking} is not installed", flush=True)
            skipped += 1
            continue
        program = Program(name, options, folder)
        program.run()
        rows.append(program.row())
        passed, failed = passed + (not program.problems), failed + bool(program.problems)
        print(f"{name}: {'FAILED' if program.problems else 'passed'}", flush=True)
        for line in [*program.problems, *(f"note: {note}" for note in program.notes)]:
            print(f"    {line}", flush=True)
    titles = [TITLES[way] for way in options.ways]
    header = [*(f"{title}: first step" for title in titles), *(f"{title}: after kill -9" for title in titles)]
    print("| program | result | " + " | ".join(header) + " |")
    print("|---" * (2 + len(header)) + "|")
    print("\n".join(rows))
    if not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    # A script that calls this one writes the closing line itself.
    if os.environ.get("DDPRUN_TOTALS_FILE"):
        pathlib.Path(os.environ["DDPRUN_TOTALS_FILE"]).write_text(f"{passed} {failed} {skipped}\n")
    else:
        print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
