"""Puts ddprun in the place of torchrun in this interpreter, before any other module is imported.

It is imported at every start of Python within `ddprun exec`, or in an environment with `ddprun install-torchrun`, so it
imports nothing but `os` and `sys` and works with Python 3.7 and newer.

* `python -m torch.distributed.run`, `python -m torch.distributed.launch` and PyTorch's script `torchrun` become ddprun
  before they import PyTorch, which takes seconds.
* `torch.distributed.launcher.api.launch_agent` becomes ddprun's when that module is imported. The functions of
  torch.distributed.run and torch.distributed.launcher call it.
"""

import os
import sys

PROGRAM_VARIABLE = "DDPRUN_PROGRAM"
LAUNCHER = "torch.distributed.launcher.api"
HERE = os.path.dirname(os.path.abspath(__file__))
# Flags of torch.distributed.run without a value.
SWITCHES = {"standalone", "m", "module", "no-python", "run-path", "virtual-local-rank", "use-env", "h", "help"}


def install(program=None):
    """Installs the replacements; within `ddprun exec` its program counts instead of `program`."""
    program = os.environ.get(PROGRAM_VARIABLE) or program
    if program is None or LAUNCHER in sys.modules or any(type(finder) is Finder for finder in sys.meta_path):
        return
    if not os.access(program, os.X_OK):
        # Only a launcher has to know.
        if launcher_arguments() is not None:
            warn("can't run %s; torchrun is PyTorch's own" % program)
        return
    arguments = launcher_arguments()
    if arguments is not None:
        become(program, arguments)
    sys.meta_path.insert(0, Finder(program))


def warn(text):
    sys.stderr.write("ddprun: %s\n" % text)


# ---- commands --------------------------------------------------------------------------------------------------------


def launcher_arguments():
    """Returns ddprun's arguments if this interpreter was started as torchrun, else None."""
    # Python 3.9 and older have no orig_argv.
    words, argv = getattr(sys, "orig_argv", None), getattr(sys, "argv", None)
    if not argv or sys.flags.inspect:
        return None
    if argv[0] == "-m":
        if words is None:
            with open("/proc/self/cmdline", "rb") as file:
                words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
        word = words[len(words) - len(argv)]  # the first word of "-m NAME" or "-mNAME"
        module = word.partition("m")[2] if word.startswith("-") else word
        if module == "torch.distributed.run":
            return argv[1:]
        return with_local_rank(argv[1:]) if module == "torch.distributed.launch" else None
    return argv[1:] if os.path.basename(argv[0]) == "torchrun" and is_stock_script(argv[0]) else None


def is_stock_script(path):
    """True for the script that an installer writes for the entry point of PyTorch's package."""
    try:
        with open(path, "rb") as file:
            text = file.read(4096)
    except OSError:
        return False
    return b"from torch.distributed.run import main" in text and b"sys.exit(main())" in text and len(text) < 2048


def with_local_rank(arguments):
    """Does what torch.distributed.launch adds to torch.distributed.run: the argument --local-rank of the script."""
    flags, rest, use_env = [], list(arguments), False
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        word = rest.pop(0)
        name = word.lstrip("-").replace("_", "-")
        if name == "use-env":
            use_env = True
            continue
        flags.append(word)
        has_value = "=" in word or (word[1] != "-" and len(word) > 2)
        if not has_value and name not in SWITCHES and rest:
            flags.append(rest.pop(0))
    if rest[:1] == ["--"]:
        rest.pop(0)
    if not use_env and rest:
        rest.insert(1, "--local-rank=${local_rank}")
    return flags + rest


def become(program, arguments):
    """Replaces this process by the launcher."""
    environment = dict(os.environ)
    environment["DDPRUN_PYTHON"] = sys.executable
    import signal

    # Python ignores these two signals; programs must not inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execve(program, [program] + arguments, environment)


# ---- functions -------------------------------------------------------------------------------------------------------


class Finder:
    """Finds PyTorch's launcher as the other finders do, and replaces its function when it has been executed."""

    def __init__(self, program):
        self.program = program

    def find_spec(self, name, path=None, target=None):
        if name != LAUNCHER:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader, self.program)
                return spec
        return None


class Loader:
    def __init__(self, loader, program):
        self.loader = loader
        self.program = program

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        if sys.version_info < (3, 9):
            warn("Python %d.%d is too old; its torchrun is PyTorch's own" % sys.version_info[:2])
            return
        if not callable(getattr(module, "launch_agent", None)):
            warn("this PyTorch has no %s.launch_agent; its functions are its own" % LAUNCHER)
            return
        module.launch_agent = in_place_of(module.launch_agent, self.program)


def in_place_of(original, program):
    """Returns ddprun's launch_agent with the parameters of `original`, which differ between versions of PyTorch."""
    import functools
    import inspect

    signature = inspect.signature(original)

    @functools.wraps(original)
    def launch_agent(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        for name, parameter in signature.parameters.items():
            if name in given and given[name] is parameter.default:
                del given[name]
        return launcher().launch_agent(**given, _program=program)

    launch_agent.__doc__ = "ddprun's. %s" % (original.__doc__ or "")
    return launch_agent


def launcher():
    """Imports the module `launcher` of the package that this file belongs to; another `ddprun` may be on the path."""
    import importlib.util

    root = os.path.dirname(os.path.dirname(HERE))
    name = "ddprun"
    found = importlib.util.find_spec(name)
    if found is None or os.path.realpath(found.origin or "") != os.path.realpath(root + "/__init__.py"):
        name = "_ddprun"
    if name not in sys.modules and name == "_ddprun":
        spec = importlib.util.spec_from_file_location(name, root + "/__init__.py", submodule_search_locations=[root])
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return importlib.import_module(name + ".launcher")


# ---- sitecustomize ---------------------------------------------------------------------------------------------------


def import_next(name, file):
    """Imports the module of this name that comes on the path after the folder of `file`, if there is one."""
    # importlib.machinery and importlib.util would import more modules.
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    path = [os.path.abspath(folder) for folder in sys.path]
    here = os.path.dirname(os.path.abspath(file))
    spec = PathFinder.find_spec(name, path[path.index(here) + 1 :] if here in path else path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
