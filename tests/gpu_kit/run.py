#!/usr/bin/env python3
"""Runs what wants a real GPU on a machine that has one, in the order of what teaches most.

usage: run [--minutes=10] [--out=FOLDER] [--simulated] [--list] [PART...]

Needs Python with the PyTorch that the kit was built with, and a driver: no compiler, no network, no other package.
FOLDER (default: $OUT, else gpu_kit_results here) has at any moment
  results.json   all figures, failures and notes so far
  page.txt       the same to read, with the figures of the last run (last.json) beside today's
  logs.tgz       the output of all commands of the parts that ended
Exit code: 0 if no part failed, 1 if one did, 2 for a usage error. A part that is cut by its own limit or that was not
reached is no failure. --simulated runs on simulated devices, with their times as measured on a real one: for trying the
kit itself.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time

from harness import ALONE, BESIDE, DDPRUN, HERE, ROOT, Failure, Kit

RANKS = str(HERE / "ranks.py")

PROCESS = re.compile(r"rank (\d+) of \d+: pid (\d+)")
STEP = re.compile(r"step (\d+)  epoch \d+  round (\d+)  rank (\d+) of (\d+) has loss (\S+)")
RECOVERED = re.compile(r"rank (\d+): round (\d+) goes on after step \d+; suspended at ([\d.]+) s, then(.*)")
PHASE = re.compile(r"([a-z -]+?) \+([\d.]+) ms")
SPEED = re.compile(r"step +\d+/\d+ .* averaged over ranks (\S+)  \(([\d.]+) steps/s")


class Elastic:
    """A run of elastic_gpt of which processes are killed: its losses by step and rank, and its recoveries."""

    def __init__(self, part):
        self.part = part
        self.pids = {}  # rank -> pid
        self.losses = {}  # (step, rank) -> text
        self.again = 0  # steps that a rank made twice
        self.step = 0
        self.rounds = {}  # round -> rank -> phases
        self.kills = []  # times
        self.times = []  # times of rank 0's steps

    def hear(self, now, line):
        if found := PROCESS.search(line):
            self.pids[int(found[1])] = int(found[2])
        elif found := STEP.search(line):
            step, rank = int(found[1]), int(found[3])
            self.again += (step, rank) in self.losses
            self.losses[step, rank] = found[5]
            self.step = max(self.step, step)
            if rank == 0:
                self.times.append((step, now))
        elif found := RECOVERED.search(line):
            phases = {name.strip(): float(ms) for name, ms in PHASE.findall(found[4])}
            self.rounds.setdefault(int(found[2]), {})[int(found[1])] = {"suspended": float(found[3]), **phases}

    def kill(self, rank):
        now = time.monotonic()
        try:
            os.kill(self.pids[rank], signal.SIGKILL)
        except ProcessLookupError:  # not yet replaced after another kill
            return
        self.kills.append(now)

    def recoveries(self):
        """Phases of the slowest survivor of each round, in ms since its suspend request."""
        result = []
        for _, ranks in sorted(self.rounds.items()):
            slowest = max(ranks.values(), key=lambda phases: phases["suspended"] + phases["first step"] / 1e3)
            before = [kill for kill in self.kills if kill <= slowest["suspended"]]
            if before:
                told = 1e3 * (slowest["suspended"] - before[-1])
                result.append({"kill to suspend": told, **slowest, "kill to next step": told + slowest["first step"]})
        return result

    def phase_figures(self, name):
        recoveries = self.recoveries()
        for phase in ("kill to suspend", "rolled back", "re-form", "group", "state", "first step", "kill to next step"):
            values = [recovery[phase] for recovery in recoveries if phase in recovery]
            if values:
                self.part.figure(f"{name}: {phase}, ms", round(statistics.median(values)))

    def expect_same(self, reference, what):
        different = sorted(key for key in self.losses if reference.losses.get(key) != self.losses[key])
        missing = reference.losses.keys() - self.losses.keys()
        self.part.expect(not different, f"{what}: {len(different)} losses differ, first (step, rank) {different[:1]}")
        # A rank may have died after a step was committed and before it printed its loss.
        few = len(missing) <= len(self.kills)
        self.part.expect(few, f"{what}: {len(missing)} steps are missing, first {sorted(missing)[:3]}")
        self.part.expect(self.again == 0, f"{what}: {self.again} steps were made again")


def elastic(part, log, ranks, steps, flags=(), arguments=(), kills=0, seed=0, second=0.0, limit=60, **variables):
    """Trains, and kills a random rank at `kills` random steps; with `second`, another one within that many seconds."""
    program = [str(ROOT / "examples/cpp/elastic_gpt"), "--backend=nccl", f"--steps={steps}", f"--text={part.kit.text}"]
    program += [*model(part.kit), *arguments]
    chance, job = random.Random(seed), Elastic(part)
    command, environment = part.kit.job(ranks, program, ["--max-restarts=50", *flags])
    running = part.start(log, command, **environment, **variables)
    running.listeners.append(job.hear)
    places = sorted(chance.sample(range(steps // 10, steps - steps // 10), kills))
    timers = []
    deadline = time.monotonic() + min(limit, part.left())
    for number, place in enumerate(places):
        # Only after the recovery from the kill before: a step in a later round.
        while running.process.poll() is None and (job.step < place or len(job.rounds) < number):
            if time.monotonic() > deadline:
                break
            time.sleep(0.005)
        if running.process.poll() is not None or time.monotonic() > deadline or len(job.pids) < ranks:
            break
        time.sleep(chance.random() * 0.05)
        victim = chance.randrange(ranks)
        job.kill(victim)
        if second:
            other = (victim + 1 + chance.randrange(ranks - 1)) % ranks
            timers.append(threading.Timer(second * chance.random(), job.kill, [other]))
            timers[-1].start()
    running.finish(max(1, deadline - time.monotonic()))
    for timer in timers:
        timer.cancel()
    running.expect_success(log)
    part.expect(len(job.kills) >= kills, f"{log}: {len(job.kills)} of {kills} kills were made")
    return job


def has_nccl2():
    return tuple(map(int, importlib.metadata.version("torch").split(".")[:2])) >= (2, 15)


def model(kit):
    if kit.small:
        return ["--batch-size=4"]
    return ["--n-embd=256", "--n-layer=4", "--batch-size=16", "--block-size=128"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# ---- the parts ----


def facts(part):
    """Rates to pinned memory, and where the time of a new process goes."""
    ended = part.run("device", [sys.executable, RANKS, "facts"], 60)
    if not ended.reports():
        raise Failure(f"no CUDA: {ended.outcome()}")
    values = ended.reports()[0]
    known = ("device", "torch", "nccl")
    part.kit.results.update(lambda found: found["machine"].update({name: values[name] for name in known}))
    for name, value in values.items():
        if name not in (*known, "rank", "devices"):
            part.figure(name, value)
    for ranks in (1, 3):
        ended = part.ranks(f"start of {ranks}", ranks, [RANKS, "start"])
        ended.expect_success(f"start of {ranks} ranks")
        slowest = {}
        for report in ended.reports():
            for name, value in report.items():
                slowest[name] = max(value, slowest.get(name, 0))
        for name, value in slowest.items():
            if name != "rank":
                part.figure(f"{ranks} ranks: {name}", value)


def gtests(part):
    for test in ("nccl_test", "ddp_gpu_test"):
        ended = part.run(test, [str(ROOT / "tests/gpu" / test)], 90)
        for word, name in (("OK", "passed"), ("SKIPPED", "skipped"), ("FAILED", "failed")):
            names = set(re.findall(rf"\[ +{word} \] ([\w./]+) \(", ended.text()))
            part.figure(f"{test}: {name}", len(names))
            if word != "OK" and names:
                part.note(f"{test}: {name}: {' '.join(sorted(names))}")
        ended.expect_success(test)


def share(part):
    """Ranks on one device with an NCCL_HOSTID each, and without."""
    for ranks in (2, 4):
        ended = part.ranks(f"{ranks} ranks", ranks, [RANKS, "share"])
        ended.expect_success(f"{ranks} ranks")
        reports = ended.reports()
        for name in ("sum is right", "message is right"):
            right = [report[name] for report in reports if name in report]
            part.expect(right and all(right), f"{ranks} ranks: {name}: {right}")
        for name in ("communicator, ms", "all-reduce of 4 kB, ms", "all-reduce of 16 MB, ms"):
            part.figure(f"{ranks} ranks: {name}", max((report.get(name, 0) for report in reports), default=None))
        endings = [report["different_sizes"] for report in reports if "different_sizes" in report]
        part.figure(f"{ranks} ranks: different sizes end without an error", f"{len(endings)} of {ranks}")
    if part.kit.devices > 1:
        return
    command, _ = part.kit.job(1, [RANKS, "share"])
    ended = part.run("without", [command[0], "--standalone", "--nproc-per-node=2", RANKS, "share"], 40)
    refused = "Duplicate GPU detected" in ended.text()
    part.figure("without NCCL_HOSTID", "refused: Duplicate GPU" if refused else ended.outcome()[:60])


def recovery(part):
    """kill -9 at random moments: the bits of a training without failures, and the phases of the recovery."""
    ranks, steps = 3, 40 if part.kit.small else 200
    reference = elastic(part, "undisturbed", ranks, steps)
    if not reference.losses:
        return
    half = len(reference.times) // 2
    (first, began), (last, ended) = reference.times[half], reference.times[-1]
    part.figure("step, ms", round(1e3 * (ended - began) / max(1, last - first), 1))
    ways = {"cold": ((), {}), "--preload": (("--preload",), {})}
    if has_nccl2():
        ways["nccl2, --preload"] = (("--preload",), {"TORCH_DIST_USE_NCCL2": "1"})
    for seed, (name, (flags, variables)) in enumerate(ways.items(), 1):
        job = elastic(part, name, ranks, steps, flags, kills=2 if part.kit.small else 5, seed=seed, **variables)
        job.expect_same(reference, name)
        job.phase_figures(name)


def twice(part):
    """A second rank dies during the recovery from the first one."""
    ranks, steps = 3, 40 if part.kit.small else 150
    reference = elastic(part, "undisturbed", ranks, steps)
    job = elastic(part, "killed", ranks, steps, ("--preload",), kills=2, seed=11, second=1.5)
    job.expect_same(reference, "killed")
    part.figure("deaths", len(job.kills))
    part.figure("recoveries", len(job.rounds))


def node(part):
    """Two launchers with two ranks each; one of them is killed with its ranks, and none takes its place."""
    steps, jobs, commands, port = 60 if part.kit.small else 150, [], [], free_port()
    program = [str(ROOT / "examples/cpp/elastic_gpt"), "--backend=nccl", f"--steps={steps}", f"--text={part.kit.text}"]
    for number in range(2):
        flags = ["--nnodes=1:2", "--nproc-per-node=2", "--max-restarts=9", f"--rdzv-endpoint=127.0.0.1:{port}"]
        flags += ["--rdzv-id=kit", f"--rdzv-conf=is_host={int(number == 0)}", "--virtual-local-rank", "--no-python"]
        command = [DDPRUN, *flags, *program, *model(part.kit), "--keep-global-batch"]
        job = Elastic(part)
        commands.append(part.start(f"node {number}", command, **part.kit.sharing(2)))
        commands[-1].listeners.append(job.hear)
        jobs.append(job)
    if not commands[0].wait_for(rf"step {steps // 3} .* of 4 has"):
        raise Failure(f"no step {steps // 3} with 4 ranks: {commands[0].tail()}")
    jobs[0].kills.append(time.monotonic())
    commands[1].kill()  # its group; the ranks die with their launcher
    commands[0].finish()
    commands[0].expect_success("the survivors")
    part.expect(jobs[0].step == steps, f"the last step is {jobs[0].step} of {steps}")
    jobs[0].phase_figures("node lost")


def hold_points(part):
    """kill -9 at each named point of a step: the losses and the model of a training without failures."""
    program = str(ROOT / "tests/worker_runtime/elastic/elastic_program")

    def train(name, *more, flags=(), kill=None):
        with tempfile.TemporaryDirectory(dir=part.kit.work) as folder:
            arguments = ["--device=cuda", "--steps=8", "--evaluate=4", f"--folder={folder}", *more]
            command, environment = part.kit.job(2, [program, *arguments], ["--max-restarts=3", *flags])
            running = part.start(name, command, **environment)
            if kill is not None:
                if not running.wait_for("holding "):
                    raise Failure(f"{name}: the point was not reached: {running.tail()}")
                pids = dict(re.findall(r"rank (\d+) pid (\d+) begins", running.text()))
                began = time.monotonic()
                os.kill(int(pids[str(kill[0])]), kill[1])
            running.finish(40)
            running.expect_success(name)
            text = running.text()
            if kill is not None:
                done = [at for at, line in running.lines if re.match(r"step \d+ rank", line) and at > began]
                part.figure(f"{name}: to the next step, ms", round(1e3 * (done[0] - began)) if done else None)
            return set(re.findall(r"^(?:step|end) .*", text, re.MULTILINE))

    reference = train("undisturbed")
    part.expect(len(reference) == 18, f"undisturbed: {len(reference)} of 18 lines")
    points = ["1:0:forward", "0:3:forward", "1:3:backward", "0:4:reduced", "1:3:committed", "1:7:committed"]
    points += ["0:4:evaluation", "0:4:save"]
    for point in points:
        name = f"rank {point[0]} at {point[4:]} of step {point[2]}"
        lines = train(name, f"--hold={point}", kill=(int(point[0]), signal.SIGKILL))
        wrong = sorted(lines - reference)
        part.expect(not wrong, f"{name}: {wrong[:2]}")
        ends = {line for line in reference if line.startswith("end ")}
        part.expect(ends <= lines, f"{name}: the last models are not both there")
    name = "rank 1 stopped, time-out of 3 s"
    held = ("--timeout=3", "--hold=1:3:forward")
    lines = train(name, *held, flags=("--shutdown-timeout=2",), kill=(1, signal.SIGSTOP))
    part.expect(not lines - reference, f"{name}: {sorted(lines - reference)[:2]}")


def abort(part):
    """Python's own groups, without a launcher: a rank dies, the others abort their group and make another one."""
    for keep in (1, 0):
        kept = "old group kept" if keep else "old group dropped"
        world = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "KIT_OWN_STORE": "1"}
        world.update(part.kit.own_host_id() if part.kit.devices < 3 else {})
        ranks = []
        for rank in range(3):
            command = [sys.executable, RANKS, "abort", str(keep)]
            ranks.append(part.start(f"{kept} {rank}", command, **world, RANK=str(rank), LOCAL_RANK=str(rank)))
        for rank, running in enumerate(ranks):
            running.finish(30)
            if rank == 2:
                continue
            reports = running.reports()
            if reports:
                part.expect(reports[0]["sum is right"], f"{kept}: rank {rank}: the sum is wrong")
            for name, value in (item for report in reports for item in report.items() if "ms" in item[0]):
                part.figure(f"{kept}: rank {rank}: {name}", value)
            if running.code != 0:
                part.note(f"{kept}: rank {rank}: {running.outcome()}")


def reform(part):
    """nccl2 re-formed in place, as a whole or by shrinking and growing, beside a new backend."""
    if not has_nccl2():
        part.note("this PyTorch has no nccl2")
        return "skipped"
    for way in ("new", "in place", "shrink and grow"):
        grow = {"TORCH_NCCL2_RECONFIGURE_SHRINK_GROW": "1"} if way == "shrink and grow" else {}
        ended = part.ranks(way, 3, [RANKS, "reform", way], **grow)
        ended.expect_success(way)
        reports = ended.reports()
        right = [report["sum is right"] for report in reports if "sum is right" in report]
        part.expect(right == [True] * 3, f"{way}: sum is right: {right}")
        for name in ("abort, ms", "re-formed, with the first all-reduce, ms"):
            part.figure(f"{way}: {name}", max((report[name] for report in reports if name in report), default=None))
    return None


def restart(part):
    """Python DDP: seconds to the first step, and from a kill to the first step of the restarted workers."""
    ways = {
        "torchrun": [sys.executable, "-m", "torch.distributed.run"],
        "ddprun": [DDPRUN],
        "ddprun --preload": [DDPRUN, "--preload"],
    }
    for ranks in (2,):
        for way, command in ways.items():
            times = part.kit.work / f"times {way}"
            flags = ["--standalone", f"--nproc-per-node={ranks}", "--max-restarts=2"]
            sharing = part.kit.own_host_id() if ranks > part.kit.devices else {}
            began = time.time()
            ended = part.run(way, [*command, *flags, RANKS, "restart"], 80, KIT_TIMES=str(times), **sharing)
            ended.expect_success(way)
            events = [line.split() for line in times.read_text().splitlines()] if times.exists() else []
            first = [float(at) for at, event, attempt, _ in events if event == "step" and attempt == "0"]
            again = [float(at) for at, event, attempt, _ in events if event == "step" and attempt == "1"]
            killed = [float(at) for at, event, *_ in events if event == "kill"]
            if len(first) == ranks:
                part.figure(f"{way}: start to first step, s", round(max(first) - began, 2))
            if killed and len(again) == ranks:
                part.figure(f"{way}: kill to first step, s", round(max(again) - killed[0], 2))
            part.expect(killed and len(again) == ranks, f"{way}: not all ranks were restarted")


def python(part):
    """A loop of ddprun.elastic with deaths at named points of a step: survivors, steps and bits."""
    program = [str(ROOT / "tests/python_elastic/trainer.py"), "mlp", "4"]
    runs, points = [], ["1:3:forward", "0:9:reduce", "1:12:update", "0:20:backward"]
    for kill in ("", ",".join(points)):
        name = "kills" if kill else "undisturbed"
        killed = part.kit.work / f"python {name}"
        killed.mkdir()
        variables = {"KILL": kill, "KILLED": str(killed), "PYTHONPATH": str(ROOT / "packaging/wheel")}
        ended = part.ranks(name, 2, program, ["--max-restarts=9", "--preload"], DEVICE="cuda", **variables)
        ended.expect_success(name)
        made, pids, times = {}, set(), []
        for at, line in ended.lines:
            if found := re.match(r"rank (\d) pid (\d+) step (\d+) loss (\S+)", line):
                made[found[1], found[3]] = found[4]
                pids.add(found[2])
                times.append(at)
        runs.append(made)
        dead = len(points) if kill else 0
        part.expect(len(pids) <= 2 + dead, f"{name}: {len(pids)} processes made steps, of 2 ranks and {dead} deaths")
        part.expect(len(list(killed.iterdir())) == dead, f"{name}: not all {dead} points were reached")
        gaps = [after - before for before, after in zip(times, times[1:])]
        part.figure(f"{name}: longest time between two steps, ms", 1e3 * max(gaps, default=0))
    different = [place for place, loss in runs[1].items() if runs[0].get(place) != loss]
    part.expect(not different, f"{len(different)} losses differ, first (rank, step) {different[:1]}")
    part.expect(len(runs[1]) >= len(runs[0]) - len(points), f"{len(runs[1])} of {len(runs[0])} steps were made")


def frameworks(part):
    """Frameworks that are installed, each without and with a kill; whether the results have the same bits is a figure,
    as some of their kernels add in any order."""
    programs = {
        "accelerate_ddp": ["accelerate"], "lightning_trainer": ["lightning"], "lightning_fabric": ["lightning"],
        "transformers_trainer": ["transformers", "accelerate"],
    }  # fmt: skip
    ranks, found = min(2, part.kit.devices), False  # Lightning wants a device for each rank
    for name, modules in programs.items():
        if any(importlib.util.find_spec(module) is None for module in modules):
            part.note(f"{name}: {' and '.join(modules)} not installed")
            continue
        found, results = True, []
        for kill in ({}, {"ECOSYSTEM_KILL": "1"}):
            out = part.kit.work / f"{name} {len(kill)}"
            out.mkdir()
            program = [str(ROOT / f"tests/ecosystem/programs/{name}.py")]
            environment = {"ECOSYSTEM_OUT": str(out), "ECOSYSTEM_GPU": "1", **kill}
            ended = part.ranks(f"{name} {len(kill)}", ranks, program, ["--max-restarts=1"], **environment)
            ended.expect_success(f"{name}{' with a kill' if kill else ''}")
            results.append([path.read_text() for path in sorted(out.glob("result.*"))])
            part.expect(len(results[-1]) == ranks, f"{name}: {len(results[-1])} of {ranks} ranks have a result")
            if kill and (out / "killed").exists():
                steps = [float(path.read_text()) for path in out.glob("first_step.1.*")]
                if steps:
                    killed = float((out / "killed").read_text())
                    part.figure(f"{name}: kill to first step, s", round(max(steps) - killed, 2))
        part.figure(f"{name}: same bits after a kill", "yes" if results[0] == results[1] else "no")
    return None if found else "skipped"


def memory(part):
    """The replacement of a worker that held 70 % of the device's memory takes as much at once."""
    ended = part.ranks("70 percent", 1, [RANKS, "memory"], ("--max-restarts=3",))
    ended.expect_success("70 percent")
    for report in ended.reports():
        part.figure(f"free after {report['restarts']} restarts, %", round(100 * report["free"] / report["total"]))


def examples(part):
    folder = part.kit.work / "examples"
    for name, more, ending in (
        ("basic_ddp", (), "the parameters' sum is "),
        ("checkpoint_ddp", (f"--folder={folder}",), "the same parameters"),
        ("elastic_toy", (), " made its step"),
    ):
        ended = part.ranks(name, 2, [str(ROOT / f"examples/cpp/{name}"), "--backend=nccl", *more])
        if ended.expect_success(name):
            part.expect(ended.text().count(ending) == 2, f"{name}: not two ranks say {ending!r}")


def count(part):
    """--nproc-per-node=gpu and auto count the devices in /dev."""
    simulated = []
    if part.kit.options.simulated:
        simulated = [str(ROOT / "tests/simgpu/device_files.sh"), str(part.kit.devices)]
    for value in ("gpu", "auto"):
        command = [*simulated, DDPRUN, "--standalone", f"--nproc-per-node={value}", "--no-python"]
        ended = part.run(value, [*command, "sh", "-c", "echo of $WORLD_SIZE"], 20)
        if simulated and ended.code == 77:
            part.note("this machine allows no mount namespaces, for simulated files in /dev")
            return "skipped"
        counted = re.findall(r"of (\d+)", ended.text())
        part.figure(f"--nproc-per-node={value}", int(counted[0]) if counted else None)
        part.expect(counted == [str(part.kit.devices)] * part.kit.devices, f"{value}: {ended.outcome()}")
    command = [*simulated, DDPRUN, "--standalone", "--nproc-per-node=gpu", "--no-python", "true"]
    ended = part.run("none visible", command, 20, CUDA_VISIBLE_DEVICES="")
    part.expect(ended.code == 2, f"no device visible: {ended.outcome()}")
    return None


def checkpoint(part):
    """Five checkpoints in a row; a step that waits for one shows as a gap between two lines."""
    size = ["--n-embd=64"] if part.kit.small else ["--n-embd=1024", "--n-layer=7", "--n-head=8", "--batch-size=4"]
    every = 6 if part.kit.small else 40
    for name, more in {"asynchronous": ["--async-snapshot"], "synchronous": []}.items():
        with tempfile.TemporaryDirectory(dir=part.kit.work) as folder:
            more = [*more, *size, f"--snapshot={folder}", f"--snapshot-every={every}"]
            job = elastic(part, name, 1, 5 * every + 4, arguments=more)
            sizes = [sum(file.stat().st_size for file in saved.rglob("*")) for saved in pathlib.Path(folder).iterdir()]
        gaps = {step: 1e3 * (at - before) for (_, before), (step, at) in zip(job.times, job.times[1:])}
        if not gaps:
            continue
        part.figure(f"{name}: a checkpoint, MB", round(max(sizes, default=0) / 1e6))
        part.figure(f"{name}: median step, ms", round(statistics.median(gaps.values()), 1))
        for number in range(1, 6):
            near = [gaps[step] for step in range(number * every, number * every + 3) if step in gaps]
            part.figure(f"{name}: longest step at checkpoint {number}, ms", round(max(near), 1) if near else None)


def speed(part):
    """C++ and Python side by side, one rank: steps per second, and the last loss."""
    sizes = {
        "small": ["--batch=8", "--block-size=128", "--n-layer=4", "--n-head=4", "--n-embd=128"],
        "large": ["--batch=32", "--block-size=256", "--n-layer=8", "--n-head=8", "--n-embd=512"],
    }
    steps = {"small": 600, "large": 200}
    if part.kit.small:
        sizes, steps = {"small": ["--batch=2", "--block-size=32", "--n-layer=1", "--n-head=2", "--n-embd=32"]}, {}
    trainers = {"C++": [str(ROOT / "examples/cpp/train_gpt"), "--backend=nccl"]}
    trainers["Python"] = [str(ROOT / "examples/python/train_gpt.py")]
    for size, arguments in sizes.items():
        last, rates = {}, {"C++": [], "Python": []}
        for turn in range(1 if part.kit.small else 2):
            for name, trainer in trainers.items():
                total = steps.get(size, 20)
                more = [*arguments, f"--steps={total}", f"--log-every={total // 2}", f"--text={part.kit.text}"]
                ended = part.ranks(f"{size} {name} {turn}", 1, [*trainer, "--sample=0", *more], limit=90)
                found = SPEED.findall(ended.text())
                if ended.expect_success(f"{size} {name}") and found:
                    last[name] = float(found[-1][0])
                    rates[name].append(float(found[-1][1]))
                    part.figure(f"{size}: {name}, steps/s", max(rates[name]))
                    part.figure(f"{size}: {name}, last loss", last[name])
        if len(last) == 2:
            near = abs(last["C++"] - last["Python"]) <= 0.02
            part.expect(near, f"{size}: the last losses differ: {last}")


def several(part):
    """Runs a rank on each of several devices, at 2, 4 and 8."""
    if part.kit.devices < 2:
        part.note("this machine has one device")
        return "skipped"
    for ranks in (n for n in (2, 4, 8) if n <= part.kit.devices):
        ended = part.ranks(f"collectives of {ranks}", ranks, [RANKS, "share"])
        ended.expect_success(f"collectives of {ranks}")
        for name in ("communicator, ms", "all-reduce of 4 kB, ms", "all-reduce of 16 MB, ms"):
            values = [report[name] for report in ended.reports() if name in report]
            part.figure(f"{ranks} devices: {name}", max(values, default=None))
        steps = 40 if part.kit.small else 150
        reference = elastic(part, f"undisturbed {ranks}", ranks, steps)
        job = elastic(part, f"killed {ranks}", ranks, steps, ("--preload",), kills=2, seed=ranks)
        job.expect_same(reference, f"{ranks} devices")
        job.phase_figures(f"{ranks} devices")
    ended = part.run("one rank with two devices", [str(ROOT / "examples/cpp/model_parallel"), "--spawn=1"], 60)
    ended.expect_success("one rank with two devices")
    return None


# In the order of what teaches most. Name: (what it shows, function, limit in seconds, may others run beside it).
PARTS = {
    "facts": ("the machine, rates, where a process's start goes", facts, 100, ALONE),
    "share": ("several ranks on one device", share, 110, ALONE),
    "recovery": ("kill -9 at random moments, by phases", recovery, 150, ALONE),
    "checkpoint": ("five checkpoints of 1 GB in a row", checkpoint, 90, ALONE),
    "gtests": ("tests/gpu", gtests, 150, BESIDE),
    "points": ("kill -9 at each named point, and a time-out", hold_points, 150, BESIDE),
    "twice": ("a second death during a recovery", twice, 90, BESIDE),
    "node": ("a node lost", node, 70, BESIDE),
    "abort": ("abort of a group in Python", abort, 70, BESIDE),
    "reform": ("nccl2 re-formed in place, or made anew", reform, 90, BESIDE),
    "examples": ("the examples over NCCL", examples, 90, BESIDE),
    "count": ("--nproc-per-node=gpu", count, 40, BESIDE),
    "restart": ("Python DDP restarted, beside torchrun", restart, 150, ALONE),
    "python": ("a loop of ddprun.elastic with deaths at named points", python, 90, ALONE),
    "frameworks": ("Accelerate, Lightning and Transformers with a kill", frameworks, 150, ALONE),
    "speed": ("C++ and Python side by side", speed, 200, ALONE),
    "memory": ("the device's memory after a kill", memory, 60, ALONE),
    "several": ("several devices", several, 300, ALONE),
}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="when the run ends at the latest (10)")
    default = pathlib.Path(os.environ.get("OUT") or "gpu_kit_results")
    parser.add_argument("--out", type=pathlib.Path, default=default, help="folder of the results")
    parser.add_argument("--simulated", action="store_true", help="one simulated device, or SIMCUDA_DEVICES of them")
    parser.add_argument("--list", action="store_true", help="print the parts")
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all")
    options = parser.parse_args(arguments)
    options.out = options.out.absolute()
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]}: the parts are {' '.join(PARTS)}")
    if options.list:
        for name, (about, _, limit, _) in PARTS.items():
            print(f"{name:12} {about} (at most {limit} s)")
        sys.exit(0)
    if importlib.util.find_spec("torch") is None:
        parser.error(f"{sys.executable} has no torch: PYTHON=/path/to/python selects another one")
    built = HERE / "built.json"
    if built.exists():
        wanted = json.loads(built.read_text())["torch"]
        found = importlib.metadata.version("torch").partition("+")[0]
        if found != wanted:
            parser.error(f"the kit was built with torch {wanted}, and {sys.executable} has {found}")
    return options


def main():
    options = parse(sys.argv[1:])
    kit = Kit(options, PARTS)
    if not kit.devices:
        print("run: this machine has no /dev/nvidia0 (--simulated tries the kit without one)", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, kit.stop)
    try:
        failed = kit.run(options.parts or list(PARTS))
    finally:
        shutil.rmtree(kit.work, ignore_errors=True)
    print(kit.results.page())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
