"""``python -m ddprun``: replaces the interpreter with the ddprun program, unless a debugger needs it."""

import os
import signal
import sys

from ddprun.debugged_worker import python_for_workers
from ddprun.process import environment, program, run

if __name__ == "__main__":
    if python_for_workers() is not None:
        sys.exit(run())
    path = program()
    # Python ignores these two signals; programs must not inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execve(path, [path, *sys.argv[1:]], environment())
