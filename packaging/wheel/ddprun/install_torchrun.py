"""Makes ddprun the torchrun of the environment of the Python that runs this: ddprun install-torchrun [--undo].

It adds one file to site-packages, which Python reads at its start, and changes none: PyTorch's script `torchrun` stays
as it is, so that an upgrade of PyTorch changes nothing, and --undo has only to remove the file.
"""

import contextlib
import fcntl
import os
import subprocess
import sys
import sysconfig

USAGE = """Usage: ddprun install-torchrun [--undo]

Makes torchrun, python -m torch.distributed.run and the functions of torch.distributed.run and
torch.distributed.launcher ddprun's, in one Python environment: that of PYTHON_EXEC, else the one that ddprun is
installed in, else the active one.
"""
MARK = "# ddprun install-torchrun"
HERE = os.path.dirname(os.path.abspath(__file__))
SITE = os.path.join(HERE, "in_place", "site")
MODULE = os.path.join(SITE, "_ddprun_in_place.py")
FOLDER = sysconfig.get_path("purelib")
FILE = os.path.join(FOLDER, "ddprun_torchrun.pth")
NEW = FILE + ".new"  # Python reads only names that end with .pth
TORCHRUN = os.path.join(sysconfig.get_path("scripts"), "torchrun")


class Refused(Exception):
    pass


def in_place_module():
    sys.path.insert(0, SITE)
    import _ddprun_in_place

    return _ddprun_in_place


def content(program):
    version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, check=True, universal_newlines=True).stdout
    # Harmless if ddprun has been removed, which leaves the folder if Python -O has written a .pyc there. ASCII, because
    # Python reads it in the encoding of the locale.
    line = (
        "import os; os.path.isfile({2!a}) and (__import__('sys').path.insert(0, {0!a}), "
        "__import__('_ddprun_in_place').install({1!a}), __import__('sys').path.remove({0!a}))"
    )
    return "{} ({}): torchrun is {!a}; to remove it: ddprun install-torchrun --undo\n{}\n".format(
        MARK, version.strip(), program, line.format(SITE, program, MODULE)
    )


def read(file):
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as opened:
            return opened.read()
    except FileNotFoundError:
        return None


def describe_torchrun():
    """Says what the environment's torchrun is, and whether PyTorch has written it."""
    if not os.path.lexists(TORCHRUN):
        return "there is no {}".format(TORCHRUN), False
    if not in_place_module().is_stock_script(TORCHRUN):
        return "{} is not PyTorch's".format(TORCHRUN), False
    from importlib.metadata import PackageNotFoundError, version

    try:
        return "{} is PyTorch's ({})".format(TORCHRUN, version("torch")), True
    except PackageNotFoundError:
        return "{} is PyTorch's, which is not installed".format(TORCHRUN), True


def check_environment():
    mark = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    if sys.prefix == sys.base_prefix and os.path.exists(mark):
        raise Refused(
            "{} is managed by the system's package manager: use a virtual environment or ddprun exec".format(sys.prefix)
        )
    if not os.access(FOLDER, os.W_OK):
        raise Refused("{} is not writable: call this as its owner, or use ddprun exec".format(FOLDER))


def install(program):
    check_environment()
    torchrun, is_stock = describe_torchrun()
    if os.path.lexists(TORCHRUN) and not is_stock:
        raise Refused("{}: nothing was changed".format(torchrun))
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise Refused("{} has no PyTorch: name another Python in PYTHON_EXEC, or install it".format(sys.executable))
    wanted, found = content(program), read(FILE)
    if found == wanted:
        return "torchrun of {} is {} already".format(sys.prefix, program)
    # The version may have been another when this program wrote the file.
    first, of_this = (found or "").partition("\n")[0], ": torchrun is {!a};".format(program)
    if found is not None and not (found.startswith(MARK) and of_this in first):
        advice = "remove it first with --undo" if found.startswith(MARK) else "it is not ddprun's"
        raise Refused("{} exists ({}): {}".format(FILE, first[:200], advice))
    # Complete or not there, whenever this is interrupted.
    try:
        with open(NEW, "w", encoding="ascii") as file:
            file.write(wanted)
            file.flush()
            os.fsync(file.fileno())
        os.rename(NEW, FILE)
    except OSError as error:
        if os.path.lexists(NEW):
            os.remove(NEW)
        raise Refused("{}: {}: nothing was changed".format(FILE, error.strerror))
    probe = "import sys; sys.exit('_ddprun_in_place' not in sys.modules)"
    if subprocess.run([sys.executable, "-c", probe]).returncode != 0:
        os.remove(FILE)
        raise Refused("{} does not read {}: nothing was changed".format(sys.executable, FOLDER))
    return "torchrun of {} is now {}: {} was written, no other file was changed ({})".format(
        sys.prefix, program, FILE, torchrun
    )


@contextlib.contextmanager
def alone():
    """Lets one process at a time change the environment. Leaves no file."""
    folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def undo():
    found = read(FILE)
    if found is not None and not found.startswith(MARK):
        raise Refused("{} is not ddprun's: it was not removed".format(FILE))
    if not os.access(FOLDER, os.W_OK):
        raise Refused("{} is not writable: call this as its owner".format(FOLDER))
    for file in (FILE, NEW):
        if os.path.lexists(file):
            os.remove(file)
    torchrun, _ = describe_torchrun()
    if found is None:
        return "nothing to undo in {} ({})".format(sys.prefix, torchrun)
    return "{} was removed; {}".format(FILE, torchrun)


def main(arguments):
    if arguments in (["-h"], ["--help"]):
        sys.stdout.write(USAGE)
        return
    if arguments not in ([], ["--undo"]):
        sys.stderr.write("ddprun: install-torchrun takes no argument but --undo: {}\n".format(" ".join(arguments)))
        sys.exit(2)
    try:
        if sys.version_info < (3, 9):
            raise Refused("{} is Python {}.{}: 3.9 or newer is needed".format(sys.executable, *sys.version_info[:2]))
        with alone():
            done = undo() if arguments else install(os.environ["DDPRUN_PROGRAM"])
        print("ddprun:", done)
    except (Refused, OSError) as error:
        sys.stderr.write("ddprun: {}\n".format(error))
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
