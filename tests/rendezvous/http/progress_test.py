#!/usr/bin/env python3
"""The server's API shows the reports of real workers, which use the Python module."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).absolute().parents[3]
BUILT = ROOT if (ROOT / "launcher/ddprun").exists() else ROOT / ".bazel/bin"
PATIENCE = 120.0  # only a hang takes longer
WORKER = """
import os, pathlib, time
from ddprun import worker
step = 0
while not pathlib.Path(os.environ["END_FILE"]).exists():
    step += 1
    worker.report_progress(step, phase="forward", samples=8 * step, loss=1.0 / step)
    time.sleep(0.01)
"""


def fetch(port, path):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as response:
        return response.read().decode()


def start_server(environment):
    command = [BUILT / "rendezvous/daemon/rendezvousd", "--listen=127.0.0.1:0", "--http=127.0.0.1:0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    endpoint = ""
    for line in server.stdout:
        if "listening on" in line:
            endpoint = line.split()[-1]
        if "HTTP on port" in line:
            return server, endpoint, int(line.split()[-1])
    sys.exit("rendezvousd did not start")


def await_job(port, condition):
    """Waits until the condition holds; returns the job's JSON."""
    end = time.monotonic() + PATIENCE
    job = None
    while time.monotonic() < end:
        jobs = json.loads(fetch(port, "/api/v1/jobs"))["jobs"]
        if jobs:
            job = json.loads(fetch(port, "/api/v1/jobs/shown"))
            if condition(job):
                return job
        time.sleep(0.05)
    sys.exit(f"did not come; the job is {job}")


def main():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DDPRUN_")}
    environment["PYTHONPATH"] = str(ROOT / "packaging/wheel")
    server, endpoint, port = start_server(environment)
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "worker.py")
        script.write_text(WORKER)
        environment["END_FILE"] = str(script.with_name("end"))
        command = [BUILT / "launcher/ddprun", "--nnodes=1", "--nproc-per-node=2", f"--rdzv-endpoint={endpoint}"]
        command += ["--rdzv-id=shown", "--no-python", sys.executable, script]
        launcher = subprocess.Popen(command, env=environment)
        try:
            first = await_job(port, lambda job: len(job["nodes"]) == 1 and len(job["nodes"][0]["progress"]) == 2)
            rank = first["nodes"][0]["progress"][1]
            assert rank["local_rank"] == 1 and rank["phase"] == "forward" and rank["samples"] == 8 * rank["step"], rank
            step = first["training"]["step"]
            later = await_job(port, lambda job: job["training"]["step"] > step and len(job["training"]["losses"]) > 1)
            for point in later["training"]["losses"]:
                assert point["loss"] == 1.0 / point["step"], point
            metrics = fetch(port, "/metrics")
            assert 'ddprun_job_step{job_id="shown"} ' in metrics, metrics
            assert re.search('ddprun_job_time_seconds{job_id="shown",phase="training"} [0-9.]*[1-9]', metrics), metrics
            assert later["goodput"]["training"] > 0 == later["goodput"]["lost"], later["goodput"]
            pathlib.Path(environment["END_FILE"]).touch()
            assert launcher.wait(PATIENCE) == 0
            ended = await_job(port, lambda job: job["state"] == "finished")
            assert ended["training"]["step"] >= step and "ago" not in ended["training"], ended
        finally:
            launcher.kill()
            launcher.wait()
            server.terminate()
            server.wait(PATIENCE)


if __name__ == "__main__":
    main()
