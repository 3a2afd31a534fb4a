"""The fork server of one node: imports modules once and forks the Python workers of every round.

ddprun starts it as `python -u - "SOCKET STDIN ..."` with this file as standard input. STDIN is the number of the
descriptor that becomes the workers' standard input. SOCKET is that of a SOCK_SEQPACKET socket to the launcher; a
message is a list of fields separated by NUL:

    launcher -> server
      setup LAUNCHER_PID auto|MODULE,... LEFT_OUT,... script|module INDEX ARGV...   once; ARGV[INDEX] names the script
      start TICKET CPU,... NAME=VALUE|NAME ...    with the worker's stdout, stderr and gate; no CPU: unchanged; NAME
                                              alone: unset it
      go                                      forks all workers requested since the last one
    server -> launcher
      ready SECONDS MODULE,... WARNING        the modules are imported; WARNING, if not empty: why torch is not one
      nothing WARNING                         --preload=auto found no module to import; the server ends
      leave MODULE REASON                     start again without this module; the server ends
      failed REASON                           no worker can be forked from here; the server ends
      changed FILE                            a file of an imported module has changed since its import; the server ends
      started TICKET PID                      sent by the worker itself, then already a child of the launcher; it
                                              continues once it has read a byte from its gate, and exits at end-of-file
      unforked TICKET REASON                  this worker could not be forked

A worker runs the script as `python -u SCRIPT` would, one frame below this file's (which is called "<stdin>", so that
its source is never looked up), and ends with os._exit after the exit handlers and after flushing open files: nothing
else of the interpreter or of native libraries is torn down.

The program consists of this file and those that //launcher/fork_server:embed appends to it, in their order.
"""

PRISTINE_MAIN = dict(globals(), __doc__=None)

import sys

if sys.path[:1] == [""]:
    sys.path[0] = sys.path[1]  # not the working folder, whose files may be named like the modules below
MODULES_AT_START = set(sys.modules)

import _thread
import array
import ast
import atexit
import builtins
import ctypes
import gc
import importlib.machinery
import io
import os
import pathlib
import pkgutil
import random
import re
import runpy
import signal
import socket
import struct
import threading
import time
import traceback
import types
import warnings
import weakref

PR_SET_PDEATHSIG = 1
PR_SET_MM = 35
PR_SET_MM_MAP = 14
MAX_MESSAGE = 8 << 20
FLUSH_SECONDS = 60  # buffers hold some kilobytes, but a shared file system may be slow
# Signals to the launcher's process group, or of a batch system to all processes: the launcher decides what they mean.
HELD_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
RANK_VARIABLES = {
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE",
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_ERROR_FILE",
}  # fmt: skip
# Modules of Lightning and its metrics that read the rank on import only to store it as `rank_zero_only.rank`, unless it
# is already set; and how they determine it.
KEPT_RANKS = {
    "lightning.fabric.utilities.rank_zero": lambda module: module["_get_rank"]() or 0,
    "lightning_fabric.utilities.rank_zero": lambda module: module["_get_rank"]() or 0,
    "torchmetrics.utilities.prints": lambda module: int(os.environ.get("LOCAL_RANK", 0)),
}
# Threads that end safely in a fork, because their library then does without them: the one of jemalloc (pyarrow has it)
# gives memory back in the background; in a forked process the threads that allocate do so.
HARMLESS_THREADS = {"jemalloc_bg_thd"}
DEVICE = re.compile(r"/dev/(nvidia|kfd|dri/|neuron|accel|habanalabs|davinci)")
# Variables that torch._dynamo and its dependencies read on import. A script that sets them would be too late.
COMPILER_VARIABLE = re.compile(rb"TORCHDYNAMO|TORCHINDUCTOR|TORCH_COMPILE|TORCH_LOGS|TORCH_TRACE")

libc = ctypes.CDLL(None)
# Modules that a file in the script's folder could shadow.
MODULES_HERE = {
    name: module.__spec__.origin
    for name, module in sys.modules.items()
    if name not in MODULES_AT_START and "." not in name and module.__spec__.origin not in ("built-in", "frozen")
}


class Unusable(Exception):
    """Workers must not be forked from here. `answer` is the message to the launcher, `error` an import's exception."""

    def __init__(self, *answer, error=None):
        super().__init__(*answer)
        self.answer = answer
        self.error = error


def send(channel, *fields):
    channel.sendall(b"\0".join(os.fsencode(str(field)) for field in fields))


def receive(channel):
    """Returns the next message's fields, and the descriptors that came with it. No fields: the launcher is gone."""
    fds = array.array("i")
    message, ancillary, _, _ = channel.recvmsg(MAX_MESSAGE, socket.CMSG_SPACE(3 * fds.itemsize))
    for _, _, data in ancillary:
        fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return [os.fsdecode(field) for field in message.split(b"\0")] if message else [], list(fds)


class Setup:
    """Settings common to all workers."""

    def __init__(self, launcher, modules, left_out, kind, index, *argv):
        self.launcher = int(launcher)
        self.automatic = modules == "auto"
        self.modules = [name for name in modules.split(",") if name and not self.automatic]
        self.left_out = {name for name in left_out.split(",") if name}  # top-level modules, or torch._dynamo
        self.is_module = kind == "module"
        self.orig_argv = list(argv)
        self.argv = self.orig_argv[int(index) :]

    def set_path(self):
        """Sets sys.path[0] as Python does for the script or with -m."""
        if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
            return
        sys.path[0] = os.getcwd() if self.is_module else os.path.dirname(os.path.realpath(self.argv[0]))

    def become_main(self):
        """Makes sys.argv, sys.orig_argv and __main__ what modules find that the script imports. Returns __main__."""
        sys.argv = list(self.argv)
        if hasattr(sys, "orig_argv"):
            sys.orig_argv = list(self.orig_argv)
        main = types.ModuleType("__main__")
        main.__dict__.clear()
        main.__dict__.update(PRISTINE_MAIN)
        sys.modules["__main__"] = main
        if self.is_module:
            main.__file__ = sys.argv[0] = module_file(self.argv[0])
        else:
            main.__file__ = os.path.abspath(self.argv[0])
            main.__loader__ = importlib.machinery.SourceFileLoader("__main__", main.__file__)
            main.__cached__ = None
        return main

    @staticmethod
    def shadowing_file():
        """Returns a file that the script would find instead of a module that this program has imported, or ""."""
        for name, origin in MODULES_HERE.items():
            spec = importlib.machinery.PathFinder.find_spec(name, sys.path[:1])
            if spec is not None and spec.origin not in (None, origin):
                return spec.origin
        return ""
