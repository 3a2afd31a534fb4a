"""A worker that calls the function of `ddprun.launch`: function_worker.py FOLDER.

FOLDER has the pickled call; the result is written there, as result.ROUND.RANK.
"""

import atexit
import os
import pickle
import sys
import threading


def main():
    folder = sys.argv[1]
    # Python has put this file's folder there, whose modules must not hide others.
    if os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(__file__)):
        del sys.path[0]
    from multiprocessing import spawn

    if not os.path.exists(os.path.join(folder, "call")):
        sys.exit("the process that forks the workers has ended")
    with open(os.path.join(folder, "call"), "rb") as file:
        for name in pickle.load(file):
            os.environ.pop(name, None)
        spawn.prepare(pickle.load(file))
        function, args = pickle.load(file)
    write_result(folder, function(*args))
    end()


def write_result(folder, result):
    try:
        data = pickle.dumps(result)
    except Exception:
        import cloudpickle

        data = cloudpickle.dumps(result)
    numbers = "{DDPRUN_ROUND}.{RANK}".format(**os.environ)
    with open(os.path.join(folder, "incomplete." + numbers), "wb") as file:
        file.write(data)
    os.rename(file.name, os.path.join(folder, "result." + numbers))


def end():
    """Ends as a forked worker does: waits for threads, runs the exit handlers and flushes, and tears down nothing else.
    A thread of PyTorch's process group that drops a tensor meanwhile would abort the process."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
