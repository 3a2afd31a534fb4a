"""Stands for Python where a debugger follows the workers: debugged_worker.py COMMANDS -u SCRIPT or -m MODULE ...

A debugger follows the Python processes that a process starts by changing their command lines, but ddprun, which starts
the workers, is not Python. So the process that calls ddprun lets its debugger change two command lines, and this
program puts the script in their place.
"""

from __future__ import annotations

import json
import os
import shlex
import sys

_PLACE = "ddprun.the_script"


def python_for_workers() -> str | None:
    """Returns a PYTHON_EXEC with which this process's debugger follows the workers; None if it follows no process."""
    # The debugger of VS Code and PyCharm, which replaces functions if it follows processes.
    debugger = sys.modules.get("_pydev_bundle.pydev_monkey")
    if debugger is None or getattr(os.execve, "__name__", "") != "new_execve" or not sys.executable:
        return None
    given = os.environ.get("PYTHON_EXEC", "")
    python = [given] if os.path.exists(given) else shlex.split(given) or [sys.executable]
    script, module = (debugger.patch_args([*python, "-u", *flag, _PLACE]) for flag in ([], ["-m"]))
    if len(script) == len(python) + 2:
        return None
    commands = json.dumps({"python": python, "script": script, "module": module, "given": given})
    return shlex.join([sys.executable, os.path.abspath(__file__), commands])


def main() -> None:
    commands, arguments = json.loads(sys.argv[1]), sys.argv[2:]
    words = [*commands["python"], *arguments]
    rest = arguments[1:] if arguments[:1] == ["-u"] else arguments
    kind = "module" if rest[:1] == ["-m"] else "script"
    rest = rest[kind == "module" :]
    if rest and not rest[0].startswith("-"):
        words = [rest[0] if word == _PLACE else word for word in commands[kind]] + rest[1:]
    else:
        print("ddprun: the debugger does not follow --preload, nor a script from the standard input", file=sys.stderr)
    os.environ.pop("PYTHON_EXEC")
    if commands["given"]:
        os.environ["PYTHON_EXEC"] = commands["given"]
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
