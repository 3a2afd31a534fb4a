"""Reports of the programs to the runner (../run.py): their environment, the end of each step, and their result."""
import hashlib
import json
import os
import pathlib
import signal
import time

PROGRAMS = pathlib.Path(__file__).resolve().parent
OUT = pathlib.Path(os.environ["ECOSYSTEM_OUT"])
CHECKPOINTS = OUT / "checkpoints"
RANK = int(os.environ["RANK"])
ATTEMPT = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
ON_GPU = "ECOSYSTEM_GPU" in os.environ
STEPS = 6
SAVE_EVERY = 2

(OUT / f"environment.{ATTEMPT}.{RANK}").write_text(json.dumps(dict(os.environ)))


def step_done(step):
    """Steps count from 1. In a run with a kill, the last rank dies after step 3: the others wait for it in step 4, so
    what was saved after step 2 is whole and nothing newer exists."""
    first = OUT / f"first_step.{ATTEMPT}.{RANK}"
    if not first.exists():
        first.write_text(repr(time.time()))
    if "ECOSYSTEM_KILL" in os.environ and ATTEMPT == 0 and RANK == WORLD_SIZE - 1 and step == 3:
        (OUT / "killed").write_text(repr(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)


def to_save(step):
    return step % SAVE_EVERY == 0 and step < STEPS


def latest():
    """The newest saved step, 0 if there is none."""
    return max((int(path.name.split("_")[1].split(".")[0]) for path in CHECKPOINTS.glob("step_*")), default=0)


def digest(parameters):
    hashed = hashlib.sha256()
    for tensor in parameters:
        hashed.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return hashed.hexdigest()[:16]


def result(**values):
    """Reports a result that must not depend on the launcher. Floats are compared bit by bit."""
    texts = {name: value.hex() if isinstance(value, float) else value for name, value in values.items()}
    (OUT / f"result.{RANK}").write_text(json.dumps(texts))
    print(f"rank {RANK}: {texts}\n", end="")
