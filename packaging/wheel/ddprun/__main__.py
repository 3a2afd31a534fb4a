"""``python -m ddprun``: replaces the interpreter with the ddprun program."""

import os
import signal
import sys

from ddprun.process import environment, program

if __name__ == "__main__":
    path = program()
    # Python ignores these two signals; programs must not inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execve(path, [path, *sys.argv[1:]], environment())
