"""Sections of ddp.py on starting, memory, checkpoints and samplers: each takes a Setup and prints its table."""

import json
import pathlib
import re
import statistics
import subprocess
import time

from figures import milliseconds, print_table, show_ratio
from trainers import GIVE_UP, PYTHON, ROOT, Trainer, environment, resident_megabytes, say, started

CUDA_LIBRARY = re.compile(r"lib(torch_cuda|c10_cuda|cu[a-z]+|nccl|nv[a-zA-Z]+)[-_.]")


# ---- start ----


def launch(trainer, launcher, programs):
    """Seconds from the launcher's exec to rank 0's first completed step, and to the launcher's end."""
    flags = ["--standalone", f"--nproc-per-node={trainer.world}", "--no-python"]
    command = [*launcher, *flags, *trainer.command(programs), "--steps", "1"]
    began = time.monotonic()
    done = subprocess.run(
        command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=GIVE_UP
    )
    ended = time.monotonic()
    first = re.search(r'\{"first": ([0-9.]+)\}', done.stdout)
    if done.returncode != 0 or not first:
        raise RuntimeError(f"{trainer.name!r} did not make its first step:\n{done.stderr[-2000:]}")
    return float(first[1]) - began, ended - began


def start(setup):
    """Time from the launcher's exec to the first optimizer step, C++ and Python."""
    flags = setup.model_flags("gpt")
    ddprun = [str(setup.ddprun)]
    starts = {
        "Python under ddprun": (Trainer("Python", "Python", flags, setup.world), ddprun),
        "C++ under ddprun": (Trainer("C++", "C++", flags, setup.world), ddprun),
    }
    if not setup.quick:
        torchrun = [str(ROOT / ".venv/bin/torchrun")]
        starts["Python under torchrun"] = (Trainer("Python", "Python", flags), torchrun)
    times = {name: [] for name in starts}
    for i in range(setup.runs):
        for name in starts if i % 2 == 0 else reversed(starts):
            say(f"start {i + 1} of {setup.runs}: {name}")
            times[name].append(launch(*starts[name], setup.programs))
    say("")
    reference = [first for first, _ in times["Python under ddprun"]]
    rows = []
    for name, both in times.items():
        first = [one for one, _ in both]
        whole = statistics.median(one for _, one in both)
        seconds = [f"{one:.3f}" for one in (statistics.median(first), min(first), whole)]
        rows.append([name, *seconds[:2], show_ratio(first, reference), seconds[2]])
    print_table(
        f"Start: GPT, {setup.world} workers, exec of the launcher to the first completed optimizer step",
        ["", "s", "best s", "to Python under ddprun", "whole command, s"],
        rows,
        ["Aim: C++ at most 0.13 of Python under the same launcher."],
    )


# ---- memory ----


def cuda_libraries(pid):
    names = {pathlib.Path(line.split()[-1]).name for line in open(f"/proc/{pid}/maps") if "/" in line}
    return sorted(name for name in names if CUDA_LIBRARY.match(name))


def memory(setup):
    """Resident memory of a rank, and the CUDA libraries in it."""
    rows = []
    for model in ("mlp",) if setup.quick else ("mlp", "gpt"):
        figures = {}
        for language in ("Python", "C++"):
            trainer = Trainer(language, language, setup.model_flags(model), setup.world)
            # One after the other: PSS depends on which other processes share a page.
            with started([trainer], setup.programs, setup.folder) as ranks:
                pid = ranks[language].processes[0].pid
                figures[language] = (*resident_megabytes(pid), cuda_libraries(pid))
        for language, (resident, shared_out, libraries) in figures.items():
            theirs = figures["Python"]
            what = ", ".join(libraries) if len(libraries) <= 3 else f"{len(libraries)} libraries"
            cells = [f"{resident:.0f}", f"{shared_out:.0f}"]
            cells += [f"**{resident / theirs[0]:.2f}**", f"{shared_out / theirs[1]:.2f}", what or "none"]
            rows.append([model.upper(), language, *cells])
    print_table(
        f"Memory of rank 0 of {setup.world}, after some steps",
        ["", "", "VmRSS, MB", "PSS, MB", "VmRSS to Python", "PSS to Python", "CUDA in memory"],
        rows,
        [
            "Aim: PSS of C++ at most 0.20 (MLP) and 0.30 (GPT) of Python. libtorch_cpu of the CUDA wheel itself names "
            "libcudart and libcupti; libtorch_cuda and what it needs are loaded only for NCCL."
        ],
    )


# ---- sampler ----


def sampler(setup):
    """DistributedSampler: an epoch of one rank of 8."""
    rows = []
    for samples in (10**4,) if setup.quick else (10**7, 10**8):
        programs = {
            "Python": [PYTHON, str(ROOT / "benchmarks/ddp/sampler.py"), str(samples)],
            "C++": [str(setup.programs / "sampler"), str(samples)],
        }
        runs = 1 if samples > 10**7 else min(setup.runs, 5)
        # Memory of a list of n Python integers and of the tensor it is made from.
        skipped = samples * 56 > available_bytes()
        if skipped:
            del programs["Python"]
        answers = {language: [] for language in programs}
        for _ in range(runs):
            for language, command in programs.items():
                say(f"sampler: {samples} samples in {language}")
                done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
                answers[language].append(json.loads(done.stdout))
        if len({answer["sum"] for one in answers.values() for answer in one}) != 1:
            raise RuntimeError(f"the samplers do not give the same indices: {answers}")
        seconds = {name: [answer["seconds"] for answer in one] for name, one in answers.items()}
        for name, one in answers.items():
            ratio = "-" if skipped else show_ratio(seconds[name], seconds["Python"])
            size = statistics.median(answer["megabytes"] for answer in one)
            median = statistics.median(seconds[name])
            rows.append([f"10^{len(str(samples)) - 1}", name, f"{median:.3f}", ratio, f"{size:.0f}"])
        if skipped:
            rows.append([f"10^{len(str(samples)) - 1}", "Python", "skipped: not enough memory", "-", "-"])
    say("")
    print_table(
        "DistributedSampler: an epoch of one rank of 8, shuffled",
        ["samples", "", "s", "to Python", "peak memory, MB"],
        rows,
        ["The same indices: their sums are compared."],
    )


def available_bytes():
    for line in open("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


# ---- checkpoint ----


def checkpoint(setup):
    """How long saving blocks the training loop: in the background, in the foreground, and with Python's torch.save."""
    rows = []
    for name, flags, steps in checkpoint_models(setup):
        folder = pathlib.Path(setup.folder) / name.replace(" ", "_")
        folder.mkdir()
        flags = (*flags, "--checkpoints", str(folder))
        trainers = [Trainer(language, language, flags, setup.world) for language in ("Python", "C++")]
        kinds = {
            "torch.save": ("Python", "plain"),
            "torch.save, fsync, rename": ("Python", "durable"),
            "C++, synchronous": ("C++", "sync"),
            "C++, asynchronous": ("C++", "async"),
        }
        usual, saves = {}, {kind: [] for kind in kinds}
        with started(trainers, setup.programs, setup.folder) as ranks:
            for i in range(setup.runs + 1):  # the first save creates folder and buffers
                for kind, (language, word) in kinds.items():
                    say(f"checkpoint {i} of {setup.runs}: {name}, {kind}")
                    usual[language] = statistics.median(ranks[language].ask(f"steps {steps}")[0]["seconds"])
                    answer = ranks[language].ask(f"save {word} {steps}")[0]
                    # Additional time that the steps after the save take, compared with those before.
                    answer["slower"] = sum(answer["seconds"]) - usual[language] * steps
                    if i > 0:
                        saves[kind].append(answer)
        say("")
        for kind, answers in saves.items():
            held, slower = (statistics.median(a[key] for a in answers) for key in ("held", "slower"))
            size = answers[0]["bytes"] / 1e6
            cells = [f"{size:.1f}", milliseconds(held), milliseconds(max(a["held"] for a in answers))]
            rows.append([name, kind, *cells, milliseconds(max(0.0, slower))])
    print_table(
        f"Checkpoints: how long rank 0 of {setup.world} is held",
        ["", "", "MB", "held, ms", "longest, ms", "lost by the next steps, ms"],
        rows,
        [
            "Weights and AdamW's moments. torch.save alone leaves the file in the page cache, and no older one if it "
            "fails."
        ],
    )


def checkpoint_models(setup):
    """(name, flags, steps that follow a save)."""
    if setup.quick:
        return [("tiny GPT", setup.model_flags("gpt"), 2)]
    large = ("--model", "gpt", "--layers", "6", "--width", "512", "--heads", "8", "--batch", "1")
    return [("GPT", setup.model_flags("gpt"), 8), ("19 M parameters", large, 4)]
