"""Runs the parts of the kit: their limits, their commands, and the results on disk (run.py has the parts)."""

import concurrent.futures
import datetime
import glob
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

HERE = pathlib.Path(sys.argv[0]).absolute().parent  # folder of run.py, which may be a link out of the kit
ROOT = HERE.parents[1]  # the kit, which has the layout of the source tree
DDPRUN = str(ROOT / "launcher/ddprun")
SMALLEST = 8  # seconds: a part that would have less is not started
LEFT_TO_WRITE = 3  # seconds at the end
ALONE, BESIDE = "alone", "beside"


class Cut(Exception):
    """The time of a part, or of the whole run, is over."""


class Failure(Exception):
    """A part cannot go on."""


def write_atomically(path, data):
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(data)
    os.replace(partial, path)


def shown(value):
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


class Results:
    """Everything that was found; on disk after each change. Thread-safe."""

    def __init__(self, folder, logs, last, minutes):
        self.folder, self.logs, self.last = folder, logs, last
        self.lock = threading.RLock()
        began = datetime.datetime.now().isoformat(" ", "seconds")
        self.found = {"began": began, "minutes": minutes, "state": "running", "machine": {}, "parts": {}}

    def update(self, change):
        with self.lock:
            change(self.found)
            write_atomically(self.folder / "results.json", json.dumps(self.found, indent=1).encode() + b"\n")
            write_atomically(self.folder / "page.txt", self.page().encode())

    def save_logs(self):
        with self.lock:
            partial = self.folder / "logs.tgz.partial"
            with tarfile.open(partial, "w:gz") as archive:
                archive.add(self.logs, "logs")
            os.replace(partial, self.folder / "logs.tgz")

    def page(self):
        found, parts = self.found, self.found["parts"]
        states = [part["state"] for part in parts.values()]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        machine = ", ".join(f"{name} {value}" for name, value in found["machine"].items())
        before = f"{self.last.get('machine', {}).get('device', '?')}, {self.last.get('began', '?')[:10]}"
        lines = [f"GPU kit of ddprun, {found['began']}, {found['state']}: {counts}", machine, f"Last run: {before}", ""]
        for name, part in parts.items():
            seconds = f" in {part['seconds']} s" if "seconds" in part else ""
            lines.append(f"{name}: {part['state']}{seconds} ({part['about']})")
            lines += [f"    FAILED: {failure}" for failure in part["failures"]]
            lines += [f"    {note}" for note in part["notes"]]
            old = self.last.get("parts", {}).get(name, {}).get("figures", {})
            names = list(part["figures"]) + [figure for figure in old if figure not in part["figures"]]
            if names:
                lines.append(f"    {'':60} {'last run':>14} {'today':>14}")
            for figure in names:
                today, earlier = part["figures"].get(figure, "-"), old.get(figure, "-")
                lines.append(f"    {figure:60} {shown(earlier):>14} {shown(today):>14}")
            lines.append("")
        return "\n".join(lines)


class Part:
    """One part while it runs: its limit, its commands and what it found."""

    def __init__(self, name, about, kit, deadline):
        self.name, self.kit, self.deadline = name, kit, deadline
        self.began = time.monotonic()
        self.mine = {"state": "running", "about": about, "figures": {}, "failures": [], "notes": []}
        kit.results.update(lambda found: found["parts"].update({name: self.mine}))

    def left(self):
        left = self.deadline - time.monotonic()
        if left <= 0 or self.kit.stopping.is_set():
            raise Cut
        return left

    def figure(self, name, value):
        self.kit.results.update(lambda _: self.mine["figures"].update({name: value}))

    def note(self, text):
        self.kit.results.update(lambda _: self.mine["notes"].append(text))

    def fail(self, text):
        self.kit.results.update(lambda _: self.mine["failures"].append(text))

    def expect(self, condition, text):
        if not condition:
            self.fail(text)

    def end(self, state):
        def change(_):
            self.mine["state"] = "failed" if self.mine["failures"] else state
            self.mine["seconds"] = round(time.monotonic() - self.began, 1)

        self.kit.results.update(change)
        self.kit.results.save_logs()

    def start(self, log, command, **environment):
        """Starts a command whose output goes to a pipe; it is killed at the part's end at the latest."""
        self.left()
        process = subprocess.Popen(
            command, env={**self.kit.environment, **environment}, cwd=ROOT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        return Command(self, f"{self.name} {log}", process)

    def run(self, log, command, limit=60, **environment):
        """Runs a command to its end; returns it. Raises Cut at the part's deadline, but not at the command's limit."""
        started = self.start(log, command, **environment)
        started.finish(limit)
        return started

    def ranks(self, log, count, program, flags=(), limit=60, **environment):
        command, more = self.kit.job(count, program, flags)
        return self.run(log, command, limit, **{**more, **environment})


class Command:
    """A running command, with its output so far as (time, line)."""

    def __init__(self, part, name, process):
        self.part, self.process = part, process
        self.lines = []
        self.began = time.monotonic()
        self.seconds = 0.0
        self.code = None  # "limit" if it was killed at its limit
        self.listeners = []
        self.changed = threading.Condition()
        self.log = open(part.kit.logs / (re.sub(r"[^A-Za-z0-9]+", "_", name) + ".log"), "w", encoding="utf-8")
        part.kit.commands.add(self)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            now = time.monotonic()
            self.log.write(f"{now - self.began:8.3f} {line}")
            with self.changed:
                self.lines.append((now, line.rstrip("\n")))
                self.changed.notify_all()
            for listener in list(self.listeners):
                listener(now, line)
        self.log.close()

    def wait_for(self, pattern, limit=60):
        """The first match of `pattern` in the output; None at the limit or at the end of the output."""
        deadline = time.monotonic() + min(limit, self.part.left())
        with self.changed:
            while True:
                for _, line in self.lines:
                    if found := re.search(pattern, line):
                        return found
                if time.monotonic() > deadline or not self.reader.is_alive():
                    return None
                self.changed.wait(0.2)

    def finish(self, limit=60):
        try:
            self.code = self.process.wait(min(limit, self.part.left()))
        except subprocess.TimeoutExpired:
            self.kill()
            self.code = "limit"
            self.part.left()
        except Cut:
            self.kill()
            raise
        self.reader.join(5)
        self.seconds = round(time.monotonic() - self.began, 2)
        self.part.kit.commands.discard(self)
        return self.code

    def kill(self):
        """The launcher first: its workers die with it."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def text(self):
        with self.changed:
            return "\n".join(line for _, line in self.lines)

    def tail(self, count=3):
        return " | ".join(line.strip()[:200] for line in self.text().splitlines()[-count:])

    def expect_success(self, what):
        self.part.expect(self.code == 0, f"{what}: {self.outcome()}")
        return self.code == 0

    def outcome(self):
        return f"{'killed at its limit' if self.code == 'limit' else f'exit code {self.code}'}: {self.tail()}"

    def reports(self):
        """The values of lines "KIT {JSON}"."""
        found = re.finditer(r"KIT (\{.*\})", self.text())
        return [json.loads(match[1]) for match in found]


class Kit:
    """The machine, the table of parts, and the commands that run."""

    def __init__(self, options, parts):
        """`parts`: name -> (what it shows, function, limit in seconds, ALONE or BESIDE)."""
        self.options, self.parts = options, parts
        self.end = time.monotonic() + 60 * options.minutes - LEFT_TO_WRITE
        self.stopping = threading.Event()
        self.commands = set()
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="gpu_kit."))
        self.logs = self.work / "logs"
        self.logs.mkdir()
        self.devices = len(glob.glob("/dev/nvidia[0-9]*"))
        self.small = options.simulated
        if options.simulated:
            self.devices = int(os.environ.get("SIMCUDA_DEVICES", "1"))
        self.environment = self.make_environment()
        options.out.mkdir(parents=True, exist_ok=True)
        last = json.loads((HERE / "last.json").read_text())
        self.results = Results(options.out, self.logs, last, options.minutes)
        self.text = self.work / "text.txt"
        self.write_text()

    def make_environment(self):
        site = pathlib.Path(importlib.util.find_spec("torch").origin).parents[1]
        libraries = [site / "torch/lib", *sorted(site.glob("nvidia/*/lib"))]
        environment = dict(os.environ)
        for name in [name for name in environment if name.startswith(("PET_", "NCCL_", "TORCH_NCCL", "DDPRUN_"))]:
            del environment[name]
        libraries = [str(folder) for folder in libraries] + [environment.get("LD_LIBRARY_PATH", "")]
        environment.update(
            LD_LIBRARY_PATH=":".join(filter(None, libraries)),
            DDPRUN_NCCL_LIBRARY=str(ROOT / "worker_runtime/process_group/nccl_plugin/libddprun_nccl.so"),
            PYTHON_EXEC=sys.executable, PATH=f"{os.path.dirname(sys.executable)}:{environment['PATH']}",
            PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1" if self.small else "2",
            TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",  # else torchrun's restarted ranks may read the old NCCL id
            NCCL_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", NCCL_DEBUG="WARN",
            CUBLAS_WORKSPACE_CONFIG=":4096:8", TEST_TMPDIR=str(self.work),
        )  # fmt: skip
        if self.options.simulated:
            simulation = ROOT / "tests/simgpu"
            libraries = ("cuda/libcudart.so.13", "cuda/libcuda.so.1", "nccl/libnccl.so.2")
            environment.update(
                LD_PRELOAD=":".join(str(simulation / library) for library in libraries),
                SIMCUDA_OPS=str(simulation / "aten/libsimops.so"), SIMCUDA_DEVICES=str(self.devices),
                SIMCUDA_CALIBRATED="1", SIMNCCL_ANY_SIZE="1", SIMOPS_MAX_GFLOP="10",
            )  # fmt: skip
        return environment

    def write_text(self):
        """Something to learn from: Python's own library, which every machine with Python has."""
        text, library = bytearray(), pathlib.Path(os.__file__).parent
        for path in sorted(library.glob("*.py")):
            text += path.read_bytes().decode(errors="ignore").encode("ascii", "ignore")
            if len(text) > 1_000_000:
                break
        self.text.write_bytes(text)

    def job(self, count, program, flags=()):
        """The command of `count` ranks on one node, and variables for it. Ranks that share a device see it as their
        only one, and have an NCCL_HOSTID each."""
        python = program[0].endswith(".py")
        command = [DDPRUN, "--standalone", f"--nproc-per-node={count}", *flags]
        environment = {}
        if count > self.devices:
            command.append("--virtual-local-rank")
            environment = self.sharing(count)
        return [*command, *([] if python else ["--no-python"]), *program], environment

    def sharing(self, count):
        visible = ",".join(str(i % self.devices) for i in range(count))
        return {"CUDA_VISIBLE_DEVICES": visible, **self.own_host_id()}

    def own_host_id(self):
        return {"LD_PRELOAD": f"{self.environment.get('LD_PRELOAD', '')}:{HERE / 'libhostid.so'}".lstrip(":")}

    def run_part(self, name):
        about, function, limit, _ = self.parts[name]
        left = self.end - time.monotonic()
        if self.stopping.is_set() or left < SMALLEST:
            empty = {"state": "not reached", "about": about, "figures": {}, "failures": [], "notes": []}
            self.results.update(lambda found: found["parts"].update({name: empty}))
            return
        part = Part(name, about, self, time.monotonic() + min(limit, left))
        state = "ended"
        try:
            state = function(part) or "passed"
        except Cut:
            state = "cut"
        except Failure as failure:
            part.fail(str(failure))
        except Exception as error:  # pylint: disable=broad-except
            part.fail(f"the kit itself: {type(error).__name__}: {error}")
        for command in [command for command in self.commands if command.part is part]:
            command.kill()
            self.commands.discard(command)
        part.end(state)
        print(f"{name}: {part.mine['state']} in {part.mine['seconds']} s", flush=True)

    def run(self, names):
        """Parts that measure times run alone, in their place; neighbours in the table that do not, side by side."""
        self.results.update(lambda found: found["machine"].update(self.machine()))
        with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 5)) as pool:
            running = []
            for name in names:
                if self.parts[name][3] == ALONE:
                    concurrent.futures.wait(running)
                    self.run_part(name)
                else:
                    running.append(pool.submit(self.run_part, name))
        state = "stopped" if self.stopping.is_set() else "ended"
        self.results.update(lambda found: found.update(state=state))
        self.results.save_logs()
        return any(part["state"] == "failed" for part in self.results.found["parts"].values())

    def machine(self):
        release = dict(re.findall(r'^(\w+)="?([^"\n]*)', pathlib.Path("/etc/os-release").read_text(), re.MULTILINE))
        facts = {"devices": self.devices, "cores": os.cpu_count(), "system": release.get("PRETTY_NAME", "?")}
        facts["C library"] = os.confstr("CS_GNU_LIBC_VERSION")
        if shutil.which("nvidia-smi") and not self.options.simulated:
            query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            facts["driver"] = subprocess.run(query, capture_output=True, text=True).stdout.split("\n")[0]
        return facts

    def stop(self, *_):
        self.stopping.set()
        for command in list(self.commands):
            command.kill()
