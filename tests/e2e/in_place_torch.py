"""Calls PyTorch's launcher in the ways of other packages: in_place_torch.py DDPRUN.

Does so in two processes, without and within `ddprun exec`, which must print the same. For PyTorch from 2.6 on.
"""

import contextlib
import dataclasses
import inspect
import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

WORKER = """
import os, signal, sys, time
rank, (way, *more) = int(os.environ["RANK"]), sys.argv[1:]
if "print" in sys.argv:
    os.write(1, f"rank {rank} of {os.environ['WORLD_SIZE']}, {sys.argv[1:]}, {os.environ['MASTER_PORT']}\\n".encode())
elif rank == 0:
    time.sleep(600)
elif way == "exit":
    sys.exit(7)
elif way == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
else:
    os.kill(int(more[0]), signal.SIGTERM)
    time.sleep(600)
"""


def reduce(x, fails=False):
    import torch

    os.dup2(2, 1)  # Gloo of PyTorch 2.8 writes torn lines to stdout
    torch.distributed.init_process_group("gloo")
    if fails and torch.distributed.get_rank() == 1:
        raise ValueError("not a number")
    if fails:
        time.sleep(600)  # PyTorch's launcher might take the error of a collective for the cause
    tensor = torch.full((2,), float(x + torch.distributed.get_rank()))
    torch.distributed.all_reduce(tensor)
    return tensor


def show_failure(name, call):
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        call()
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        message = failure.message
        message = message.get("message", "") if isinstance(message, dict) else ""
        print(name, rank, failure.local_rank, failure.exitcode, failure.pid > 0, message, flush=True)
    except SignalException as error:
        print(name, error.sigval, flush=True)


def show_results(name, results):
    print(name, dict(sorted(results.items())), flush=True)  # PyTorch's are in the order in which the ranks ended


def call_all(folder, port):
    from torch.distributed import launch, run
    from torch.distributed.launcher import LaunchConfig, elastic_launch, launch_agent

    script = os.path.join(folder, "worker.py")
    with open(script, "w") as file:
        file.write(WORKER)

    # As Accelerate does: a parsed command line whose attributes are changed afterwards.
    args = run.get_args_parser().parse_args([script, "print", "--standalone"])
    args.nproc_per_node = "2"
    args.master_port = port
    run.run(args)
    # As Fabric does.
    one = ["--nproc_per_node=1", "--nnodes=1", f"--master_port={port}"]
    run.main([*one, script, "print"])
    run.main([*one, "--run-path", script, "print", "path"])
    launch.main([*one, script, "print", "launch"])
    launch.launch(launch.parse_args([*one, "--use-env", "--no-python", sys.executable, script, "print", "env"]))
    for way in ("exit", "kill", "signal"):
        show_failure(way, lambda: run.main(["--standalone", "--nproc_per_node=2", script, way, str(os.getpid())]))
    config = LaunchConfig(1, 1, 2, run_id="x", rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0)
    show_results("spawn", elastic_launch(config, reduce)(3))
    config = dataclasses.replace(config, start_method="fork")
    show_results("fork", elastic_launch(config=config, entrypoint=reduce)(3))
    show_failure("fork", lambda: elastic_launch(config, reduce)(3, True))
    show_results("agent", launch_agent(config, reduce, [4]))
    show_results("agent", launch_agent(config=config, entrypoint=reduce, args=[5]))
    show_failure("program", lambda: elastic_launch(config, sys.executable)("-u", script, "exit"))
    if "DDPRUN_PROGRAM" in os.environ:
        check_parser(run.get_args_parser())
        check_unknown_values(config, launch_agent)


def check_parser(parser):
    """Every flag of this version is one of ddprun's, and those without a value are known."""
    import _ddprun_in_place

    known = subprocess.run([os.environ["DDPRUN_PROGRAM"], "--help"], check=True, stdout=subprocess.PIPE, text=True)
    for action in parser._actions:
        for option in action.option_strings:
            name = option.lstrip("-").replace("_", "-")
            if len(name) > 1:
                assert f"--{name}" in known.stdout, option
            assert (action.nargs == 0) == (name in _ddprun_in_place.SWITCHES), option


def check_unknown_values(config, launch_agent):
    """Parameters and fields that ddprun does not know are named, and the job runs."""
    later = dataclasses.make_dataclass("Later", [("of_later", int, 0)], bases=(type(config),))
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    others = {name: 7 for name in [*inspect.signature(launch_agent).parameters][3:]}
    with contextlib.redirect_stderr(io.StringIO()) as messages:
        launch_agent(later(**fields, of_later=1), "true", [], **others)
    for name in ["of_later", *others]:
        assert messages.getvalue().count(name) == 1, messages.getvalue()
    with contextlib.redirect_stderr(io.StringIO()) as messages:
        launch_agent(later(**fields), "true", [], **dict.fromkeys(others))
    assert messages.getvalue() == "", messages.getvalue()


def compare(ddprun):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    outputs = []
    for way in ([], [ddprun, "exec"]):
        done = subprocess.run(
            [*way, sys.executable, __file__, ddprun, port], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        if done.returncode != 0:
            sys.exit(f"{way} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
        outputs.append(sorted(done.stdout.splitlines()))  # the order of two ranks is not fixed
    plain, in_place = outputs
    if plain != in_place or " ddprun: rank 1 " not in done.stderr:
        sys.exit("\n".join(["PyTorch's:", *plain, "ddprun's:", *in_place, done.stderr]))
    print(*plain, sep="\n")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        compare(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            call_all(folder, sys.argv[2])
