"""Prints the observable state of a worker that does not vary between runs, one line per item."""
import ctypes
import inspect
import json
import locale
import multiprocessing
import os
import resource
import signal
import socket
import sys
import threading

VARYING = {"MASTER_PORT", "DDPRUN_LAUNCHER_ID", "DDPRUN_WORKER_LINK", "TORCHELASTIC_ERROR_FILE"}


def status(*names):
    with open("/proc/self/status") as file:
        fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    return {name: fields[name] for name in names}


def descriptors():
    names = {}
    for fd in range(1024):
        try:
            names[fd] = os.readlink(f"/proc/self/fd/{fd}").partition(":")[0]
        except OSError:
            pass
    return names


def death_signal():
    value = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(value), 0, 0, 0)
    return value.value


def native_environment():
    """The environment as C libraries see it."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return all(getenv(os.fsencode(name)) == os.fsencode(value) for name, value in os.environ.items())


def visible_environment():
    """The environment in /proc, as the guard and users see it."""
    with open("/proc/self/environ", "rb") as file:
        entries = file.read().split(b"\0")
    variables = dict(os.fsdecode(entry).split("=", 1) for entry in entries if b"=" in entry)
    # A plain worker removes ddprun's libraries from the list, and Python sets the locale, which does not show here.
    return {k: v for k, v in sorted(variables.items()) if k not in VARYING | {"LD_PRELOAD", "LC_CTYPE"}}


main = sys.modules["__main__"]
with open("/proc/self/cmdline") as file:
    command_line = file.read()
seen = {
    "argv": sys.argv,
    "orig_argv": getattr(sys, "orig_argv", None),
    "command line": command_line,
    "executable": sys.executable,
    "path": sys.path,
    "file": __file__,
    "names": sorted(name for name in vars(main) if name not in ("seen", "command_line", "file")),
    "main": [
        main.__name__,
        main.__package__,
        main.__spec__ and main.__spec__.name,
        main.__doc__,
        type(main.__loader__).__name__,
    ],
    "code": inspect.currentframe().f_code.co_filename,
    "flags": repr(sys.flags),
    "xoptions": sys._xoptions,
    "warnings": sys.warnoptions,
    "streams": [
        [s.encoding, s.errors, s.line_buffering, s.write_through, s.fileno()]
        for s in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "locale": locale.getpreferredencoding(),
    "environment": {k: v for k, v in sorted(os.environ.items()) if k not in VARYING},
    "varying": sorted(set(os.environ) & VARYING),
    "native environment": native_environment(),
    "visible environment": visible_environment(),
    "directory": os.getcwd(),
    "umask": status("Umask"),
    "limits": {
        name: resource.getrlimit(getattr(resource, name)) for name in dir(resource)
        if name.startswith("RLIMIT_") and name != "RLIMIT_RTTIME"  # its soft limit marks the launcher
    },
    "signals": status("SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd"),
    "handlers": {s.name: repr(signal.getsignal(s)).partition(" at ")[0] for s in signal.Signals},
    "descriptors": descriptors(),
    "leads session": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "death signal": death_signal(),
    "threads": [threading.active_count(), threading.current_thread() is threading.main_thread(), status("Threads")],
    "thread id": threading.main_thread().native_id == os.getpid(),
    "process": [multiprocessing.current_process().name, multiprocessing.parent_process()],
    "nice": os.nice(0),
    "scheduler": sorted(os.sched_getaffinity(0)),
    "host": socket.gethostname(),
}
lines = [f"rank {os.environ['RANK']} {name}: {json.dumps(value, default=str)}\n" for name, value in seen.items()]
sys.stdout.write("".join(lines))
