"""Calls ddprun.run() as a user's program does and prints what it returns.

usage: launch_in_python.py main|thread ARGUMENT...
"""

import signal
import sys
import threading

import ddprun

result = []


def call():
    result.append(ddprun.run(sys.argv[2:]))


def own_handler(number, frame):
    pass


if sys.argv[1] == "main":
    signal.signal(signal.SIGTERM, own_handler)
    call()
    assert signal.getsignal(signal.SIGTERM) is own_handler
else:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
print("run returned", result[0])
