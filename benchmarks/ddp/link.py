"""Two network namespaces connected by a link of limited rate."""

import contextlib
import os
import subprocess

from trainers import Place

RATE = "1gbit"
DEVICE = "ddpbench"


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def slow_link():
    """A Place whose ranks 0 and 1 are connected at RATE. RuntimeError says why it is not available."""
    spaces = [f"{DEVICE}_{os.getpid()}_{i}" for i in range(2)]
    try:
        try:
            for space in spaces:
                ip("netns", "add", space)
            ip("-n", spaces[0], "link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", spaces[1])
            for i, space in enumerate(spaces):
                ip("-n", space, "addr", "add", f"10.213.7.{i + 1}/30", "dev", DEVICE)
                ip("-n", space, "link", "set", DEVICE, "up")
                ip("-n", space, "link", "set", "lo", "up")
                shape = ["tc", "qdisc", "add", "dev", DEVICE, "root", "tbf"]
                shape += ["rate", RATE, "burst", "256kb", "latency", "50ms"]
                ip("netns", "exec", space, *shape)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
            raise RuntimeError(f"no network namespaces with a {RATE} link here ({reason})") from error
        yield Place("10.213.7.1", DEVICE, tuple(("ip", "netns", "exec", space) for space in spaces))
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)
