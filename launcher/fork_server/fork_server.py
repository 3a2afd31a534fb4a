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
      ready SECONDS MODULE,...                the modules are imported
      nothing                                 --preload=auto found no module to import; the server ends
      leave MODULE REASON                     start again without this module; the server ends
      failed REASON                           no worker can be forked from here; the server ends
      changed FILE                            a file of an imported module has changed since its import; the server ends
      started TICKET PID                      sent by the worker itself, then already a child of the launcher; it
                                              continues once it has read a byte from its gate, and exits at end-of-file
      unforked TICKET REASON                  this worker could not be forked

A worker runs the script as `python -u SCRIPT` would, one frame below this file's (which is called "<stdin>", so that
its source is never looked up), and ends with os._exit after the exit handlers and after flushing open files: nothing
else of the interpreter or of native libraries is torn down.
"""

PRISTINE_MAIN = dict(globals())

import _thread
import array
import ast
import atexit
import ctypes
import gc
import importlib.machinery
import io
import os
import pkgutil
import re
import runpy
import signal
import socket
import sys
import threading
import time
import traceback
import types

PR_SET_PDEATHSIG = 1
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
DEVICE = re.compile(r"/dev/(nvidia|kfd|dri/|neuron|accel|habanalabs|davinci)")
# Variables that torch._dynamo and its dependencies read on import. A script that sets them would be too late.
COMPILER_VARIABLE = re.compile(rb"TORCHDYNAMO|TORCHINDUCTOR|TORCH_COMPILE|TORCH_LOGS|TORCH_TRACE")

libc = ctypes.CDLL(None)


class Unusable(Exception):
    """Workers must not be forked from here. `answer` is the message to the launcher."""

    def __init__(self, *answer):
        super().__init__(*answer)
        self.answer = answer


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
        self.left_out = {name for name in left_out.split(",") if name}
        self.is_module = kind == "module"
        self.orig_argv = list(argv)
        self.argv = self.orig_argv[int(index) :]

    def set_path(self):
        """Sets sys.path[0] as Python does for the script or with -m."""
        if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
            return
        sys.path[0] = os.getcwd() if self.is_module else os.path.dirname(os.path.realpath(self.argv[0]))


# ---- what to import ----------------------------------------------------------------------------------------------


def module_file(name):
    """Returns the file that `python -m name` would run, found without importing anything; None if there is none."""
    path, spec = None, None
    for part in name.split("."):
        spec = importlib.machinery.PathFinder.find_spec(part, path)
        if spec is None:
            return None
        path = spec.submodule_search_locations
    if path is not None:
        spec = importlib.machinery.PathFinder.find_spec("__main__", path)
    return spec.origin if spec is not None else None


def read_source(setup):
    """Returns the script's text; empty if it can't be read, which the workers will report."""
    file = module_file(setup.argv[0]) if setup.is_module else setup.argv[0]
    if file is None:
        return b""
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError:
        return b""


def is_source(script):
    """False for standard input, a folder, an archive or compiled code, all of which Python can run."""
    return script != "-" and not script.endswith(".pyc") and pkgutil.get_importer(script) is None


def leading_imports(source):
    """Returns (module, names) of the imports before the first other statement; empty if it is not Python source."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return []
    found = []
    for i, node in enumerate(body):
        if isinstance(node, ast.Import):
            found += [(alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                found.append((node.module, tuple(alias.name for alias in node.names if alias.name != "*")))
        elif not (i == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            break
    return found


def is_local(module):
    """True if the module is located beside the script (with -m: in the working directory)."""
    return importlib.machinery.PathFinder.find_spec(module.partition(".")[0], sys.path[:1]) is not None


def modules_to_import(setup):
    if not setup.automatic:
        wanted = [(name, ()) for name in setup.modules]
    else:
        source = read_source(setup)
        wanted = [found for found in leading_imports(source) if not is_local(found[0])]
        uses_torch = any(name.partition(".")[0] == "torch" for name, _ in wanted)
        if uses_torch and not COMPILER_VARIABLE.search(source):
            wanted.append(("torch._dynamo", None))  # None: the script does not import it here itself
    return [found for found in wanted if found[0].partition(".")[0] not in setup.left_out]


# ---- importing, and whether a fork is safe afterwards ------------------------------------------------------------


class WatchedEnviron(type(os.environ)):
    """os.environ during the imports: modules must not read the rank, which is known only after the fork."""

    def __getitem__(self, name):
        if name in RANK_VARIABLES and importing:
            frame = sys._getframe(1)
            while name_of(frame) in ("os", "collections.abc", "_collections_abc"):
                frame = frame.f_back
            if name not in ("RANK", "LOCAL_RANK") or not keep_rank_open(frame):
                leave(f"{name_of(frame)} reads {name} when it is imported")
        return super().__getitem__(name)


class OpenRank:
    """Placeholder for the rank that a module stores during the imports. It can be stored, but not used."""

    def used(self, *_):
        leave(f"{name_of(sys._getframe(1))} uses the rank when it is imported")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __int__ = __index__ = __hash__ = used
    __add__ = __sub__ = __mod__ = __str__ = __repr__ = __format__ = used


importing = ""  # the module of the script's list that is being imported
open_ranks = {}  # module name in KEPT_RANKS -> its globals


def name_of(frame):
    return frame.f_globals.get("__name__", "?") if frame is not None else "?"


def leave(reason):
    # Not an exception, which the module might catch.
    send(channel, "leave", importing.partition(".")[0], reason)
    os._exit(0)


def keep_rank_open(frame):
    """True if this reader only stores the rank in a known way: it is then set when a worker is forked."""
    name = name_of(frame)
    if name not in KEPT_RANKS or "rank_zero_only" not in frame.f_globals:
        return False
    module = frame.f_globals
    # Read by the module's own top-level statement, or by a function that it calls, but not on behalf of another module.
    statement = frame if frame.f_code.co_name == "<module>" else frame.f_back
    if statement is None or statement.f_code.co_name != "<module>" or statement.f_globals is not module:
        return False
    keeper = module["rank_zero_only"]
    if not hasattr(keeper, "rank"):
        keeper.rank = OpenRank()
    open_ranks[name] = module
    return True


def check_open_ranks():
    for name, module in open_ranks.items():
        if type(module["rank_zero_only"].rank) is not OpenRank:
            leave(f"{name} keeps the rank when it is imported")


def set_open_ranks():
    for name, module in open_ranks.items():
        module["rank_zero_only"].rank = KEPT_RANKS[name](module)


def thread_ids():
    return set(os.listdir("/proc/self/task"))


def thread_name(thread):
    try:
        with open(f"/proc/self/task/{thread}/comm") as file:
            return file.read().strip()
    except OSError:
        return "?"


def open_device():
    """Returns an open device file of an accelerator; empty if there is none."""
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if DEVICE.match(target):
            return target
    return ""


def import_all(wanted):
    """Imports the modules in order. Raises Unusable if workers must not be forked afterwards."""
    global importing
    began_by = {}  # thread -> the module that started it
    threads = thread_ids()
    os.environ.__class__ = WatchedEnviron
    for name, names in wanted:
        environment = dict(os.environ)
        importing = name
        try:
            __import__(name, {}, {}, list(names or ()))
        except BaseException as error:
            text = traceback.format_exception_only(type(error), error)[-1].strip()
            if isinstance(error, ImportError) and name == "torch._dynamo":
                continue
            raise Unusable("failed", f"importing {name} failed ({text})") from None
        check_open_ranks()
        importing = ""
        if names is None and os.environ != environment:
            # torch._dynamo sets TORCHINDUCTOR_CACHE_DIR, which must not happen before the script's own import.
            os.environ.clear()
            os.environ.update(environment)
        device = open_device()
        if device:
            raise Unusable("failed", f"importing {name} opened {device}, which can't be shared with forked workers")
        for thread in thread_ids() - threads:
            began_by.setdefault(thread, name)
    importing = ""
    os.environ.__class__ = WatchedEnviron.__bases__[0]
    if len(thread_ids()) > 1:
        # Some libraries (OpenBLAS) end their threads before a fork, and restart them on demand.
        trial = os.fork()
        if trial == 0:
            os._exit(0)
        os.waitpid(trial, 0)
    main_thread = str(threading.get_native_id())
    for thread in sorted(thread_ids() - {main_thread}):
        module = began_by.get(thread, wanted[-1][0])
        raise Unusable(
            "failed", f"importing {module} left a thread running ({thread_name(thread)}), which is lost in a fork"
        )


def file_stamps():
    """Returns (mtime, size) of the files of the imported modules."""
    stamps = {}
    for module in list(sys.modules.values()):
        file = getattr(getattr(module, "__spec__", None), "origin", None)
        if isinstance(file, str) and os.path.isabs(file):
            stamps[file] = stamp(file)
    return stamps


def stamp(file):
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


# ---- a worker ----------------------------------------------------------------------------------------------------


def write_all(fd, data):
    while data:
        data = data[os.write(fd, data) :]


def set_environment(entries):
    for entry in entries:
        name, equals, value = os.fsencode(entry).partition(b"=")
        if equals:
            os.environb[name] = value
        else:
            os.environb.pop(name, None)


def set_command_line(argv):
    """Shows `argv` in /proc/PID/cmdline, where ddprun has reserved room for it."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    line = b"".join(os.fsencode(word) + b"\0" for word in argv)
    ctypes.memmove(begin, line[: end - begin].ljust(end - begin, b"\0"), end - begin)


def make_distinct():
    """Renews per-process state that must differ between workers. Python's own `random` is reseeded by the fork."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    # Only Python 3.12 and later do this themselves.
    if hasattr(threading.main_thread(), "_set_native_id"):
        threading.main_thread()._set_native_id()
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)


def become_worker(setup, ticket, cpus, entries, fds, captured):
    os.setsid()
    if cpus:
        os.sched_setaffinity(0, map(int, cpus.split(",")))
    # Only now, because the signal is sent when the parent that forked this process exits.
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != setup.launcher:
        os._exit(128 + signal.SIGKILL)
    send(channel, "started", ticket, os.getpid())
    channel.close()
    *fds, gate = fds
    if not os.read(gate, 1):
        os._exit(128 + signal.SIGKILL)
    os.close(gate)
    for target, (fd, capture) in enumerate(zip(fds, captured), 1):
        os.dup2(fd, target)
        # pread, because the file offset is shared with the other workers.
        write_all(target, os.pread(capture.fileno(), os.fstat(capture.fileno()).st_size, 0))
        capture.close()
        os.close(fd)
    set_environment(entries)
    set_open_ranks()
    set_command_line(setup.orig_argv)
    make_distinct()
    setup.set_path()
    sys.argv = list(setup.argv)
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = list(setup.orig_argv)
    main = types.ModuleType("__main__")
    main.__dict__.clear()
    main.__dict__.update(PRISTINE_MAIN)
    sys.modules["__main__"] = main
    if setup.is_module:
        sys.argv[0] = "-m"
    else:
        main.__file__ = os.path.abspath(setup.argv[0])
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", main.__file__)
        main.__cached__ = None
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return main


def read_script(file):
    try:
        with io.open_code(file) as opened:
            return opened.read()
    except OSError as error:
        sys.stderr.write(f"{sys.executable}: can't open file {file!r}: [Errno {error.errno}] {error.strerror}\n")
        raise SystemExit(2) from None


def exit_code_of(exit_request):
    """Returns the exit code as Python does for an uncaught SystemExit."""
    code = exit_request.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def report(error):
    """Shows an uncaught exception without the frame of this file, and returns the exit code."""
    error.__traceback__ = error.__traceback__.tb_next
    arguments = type(error), error, error.__traceback__
    sys.last_type, sys.last_value, sys.last_traceback = arguments
    sys.last_exc = error  # Python 3.12 and later
    try:
        sys.audit("ddprun.uncaught_exception", *arguments)  # libddprun_crash.so writes the error file
    except BaseException:
        pass  # an audit hook of the script
    try:
        sys.excepthook(*arguments)
        return 1
    except SystemExit as exit_request:
        return exit_code_of(exit_request)
    except BaseException as caught:
        hook_error = caught
    print("Error in sys.excepthook:", file=sys.stderr)
    hook_error.__traceback__ = hook_error.__traceback__.tb_next
    sys.__excepthook__(type(hook_error), hook_error, hook_error.__traceback__)
    print("\nOriginal exception was:", file=sys.stderr)
    sys.__excepthook__(*arguments)
    return 1


def flush_open_files():
    """Flushes files as Python does when it frees them, and closes those of Python classes (gzip and the like), which
    write a trailer. A file comes before the one that it writes to."""
    gc.unfreeze()
    streams = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    layers = ([], [], [])
    for file in gc.get_objects():
        kind = type(file)
        if not issubclass(kind, (io.TextIOBase, io.BufferedIOBase)) or any(file is stream for stream in streams):
            continue
        buffered = kind in (io.BufferedWriter, io.BufferedRandom, io.BufferedRWPair)
        layers[0 if issubclass(kind, io.TextIOBase) else 2 if buffered else 1].append(file)
    for layer in layers:
        for file in layer:
            try:
                file.flush() if type(file).__module__ == "_io" else file.close()
            except BaseException:
                pass  # as when Python frees it


def flush_within(seconds):
    """Flushes open files. A thread of the script that hangs while writing a file holds the file's lock forever."""
    done = _thread.allocate_lock()
    done.acquire()

    def flush():
        try:
            flush_open_files()
        finally:
            done.release()

    _thread.start_new_thread(flush, ())
    if not done.acquire(timeout=seconds):
        os.write(2, f"open files could not be flushed within {seconds} s; their buffered data is lost\n".encode())


def end_worker(code, interrupted):
    """Waits for threads, runs the exit handlers and flushes, in Python's order; then exits immediately."""
    try:
        threading._shutdown()
    except BaseException:
        traceback.print_exc()
    try:
        atexit._run_exitfuncs()
    except BaseException:
        pass  # up to Python 3.9; it was printed
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            code = 120
    flush_within(FLUSH_SECONDS)
    libc.fflush(None)
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


# ---- the server --------------------------------------------------------------------------------------------------


def fork_workers(batch):
    """Forks workers as children of the launcher, which adopts them when the intermediate process has exited. Returns
    the request of the worker that this process has become, or None in the server."""
    gate, gate_keeper = os.pipe()
    between = os.fork()
    if between == 0:
        for request in batch:
            try:
                forked = os.fork()
            except OSError as error:
                send(channel, "unforked", request[0], error.strerror)
                continue
            if forked == 0:
                os.close(gate_keeper)
                os.read(gate, 1)
                os.close(gate)
                return request
        os._exit(0)
    os.close(gate)
    os.waitpid(between, 0)
    os.close(gate_keeper)
    return None


def serve(stamps):
    """Forks workers until the launcher is gone. Returns only in a worker, with its request."""
    batch = []
    first = True
    while True:
        fields, fds = receive(channel)
        if not fields:
            os._exit(0)
        if fields[0] == "start":
            batch.append((fields[1], fields[2:], fds))
            continue
        if not first:
            for file, was in stamps.items():
                if stamp(file) != was:
                    raise Unusable("changed", file)
        first = False
        request = fork_workers(batch)
        if request is not None:
            for other in batch:
                if other is not request:
                    for fd in other[2]:
                        os.close(fd)
            return request
        for _, _, fds in batch:
            for fd in fds:
                os.close(fd)
        batch = []


def capture_output():
    """Captures the output of the imports, which every worker must repeat."""
    captured = []
    for fd in (1, 2):
        capture = os.fdopen(os.memfd_create("output"), "rb+", buffering=0)
        os.dup2(capture.fileno(), fd)
        captured.append(capture)
    return captured


def prepare():
    """Imports the modules, and reports the result to the launcher. Returns the stamps of all files."""
    wanted = modules_to_import(setup)
    if not wanted:
        raise Unusable("nothing")
    if not setup.is_module and not is_source(setup.argv[0]):
        raise Unusable("failed", f"{setup.argv[0]} is not a Python source file")
    if sys.flags.inspect:
        raise Unusable("failed", "Python is set to stay interactive (PYTHONINSPECT)")
    began = time.monotonic()
    import_all(wanted)
    stamps = file_stamps()
    libc.fflush(None)
    gc.collect()
    gc.freeze()
    names = dict.fromkeys(name for name, _ in wanted)
    send(channel, "ready", f"{time.monotonic() - began:.2f}", ",".join(names))
    return stamps


signal.pthread_sigmask(signal.SIG_BLOCK, HELD_SIGNALS)
channel_fd, stdin_fd = (int(number) for number in sys.argv[1].split()[:2])
channel = socket.socket(fileno=channel_fd)
channel.set_inheritable(False)
os.dup2(stdin_fd, 0)
os.close(stdin_fd)
libc.clearerr(ctypes.c_void_p.in_dll(libc, "stdin"))  # read to its end as this source
setup = Setup(*receive(channel)[0][1:])
setup.set_path()
try:
    if sys.version_info < (3, 8):
        raise Unusable("failed", "Python 3.8 or newer is needed")
    if os.getppid() != setup.launcher:
        raise Unusable("failed", "Python runs under another program, whose children the workers would be")
    captured = capture_output()
    ticket, (cpus, *entries), fds = serve(prepare())
except Unusable as unusable:
    send(channel, *unusable.answer)
    os._exit(0)

main = become_worker(setup, ticket, cpus, entries, fds, captured)
code, uncaught = 0, None
try:
    if setup.is_module:
        runpy._run_module_as_main(setup.argv[0])
    else:
        exec(compile(read_script(main.__file__), main.__file__, "exec", dont_inherit=True), main.__dict__)
except SystemExit as exit_request:
    code = exit_code_of(exit_request)
except BaseException as error:
    uncaught = error
# Outside of the handler, so that an exception in a hook has no context.
if uncaught is not None:
    code = report(uncaught)
end_worker(code, isinstance(uncaught, KeyboardInterrupt))
