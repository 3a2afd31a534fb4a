# ---- importing, and whether a fork is safe afterwards (part of fork_server.py) -----------------------------------


class WatchedEnviron(type(os.environ)):
    """os.environ during the imports: modules must not read the rank, which is known only after the fork."""

    def __getitem__(self, name):
        if name in RANK_VARIABLES and importing:
            frame = reader(sys._getframe(1))
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


def reader(frame):
    """Returns the frame of the module that asked os.environ."""
    while name_of(frame) in ("os", "collections.abc", "_collections_abc"):
        frame = frame.f_back
    return frame


def leave(reason):
    # Not an exception, which the module might catch.
    send(channel, "leave", importing if importing == "torch._dynamo" else importing.partition(".")[0], reason)
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


def lost_threads():
    """Returns the names of threads that would be lost in a fork, except harmless ones."""
    names = []
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/comm") as file:
                name = file.read().strip()
        except OSError:
            continue
        if int(thread) != os.getpid() and name not in HARMLESS_THREADS:
            names.append(name)
    return names


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


def import_one(name, names):
    """Imports a module, and excludes it if workers must not be forked afterwards. `names` is None for one that the
    script does not import here itself. Raises Unusable if the import fails."""
    global importing
    if setup.left_out & {name, name.partition(".")[0]}:
        return
    environment = dict(os.environb)
    importing = name
    try:
        __import__(name, {}, {}, list(names or ()))
    except BaseException as error:
        text = traceback.format_exception_only(type(error), error)[-1].strip()
        raise Unusable("failed", f"importing {name} failed ({text})", error=error) from None
    check_open_ranks()
    if lost_threads():
        # Some libraries (OpenBLAS) end their threads before a fork, and restart them on demand.
        trial = os.fork()
        if trial == 0:
            os._exit(0)
        os.waitpid(trial, 0)
    for thread in lost_threads():
        leave(f"its import left a thread running ({thread}), which is lost in a fork")
    device = open_device()
    if device:
        leave(f"its import opened {device}, which can't be shared with forked workers")
    importing = ""
    imported.append(name)
    if names is None and dict(os.environb) != environment:
        # torch._dynamo sets TORCHINDUCTOR_CACHE_DIR, which must not happen before the script's own import.
        os.environb.clear()
        os.environb.update(environment)


unseeded = {}  # id -> a random.Random of the imports whose seed comes from the system
original_seed = random.Random.seed


def watched_seed(self, a=None, *version, **named):
    unseeded.pop(id(self), None)
    if a is None:
        unseeded[id(self)] = self
    original_seed(self, a, *version, **named)


imported = []  # names, in their order
restored = []  # (variable, its value, the one that a step has set)
inserted = []  # folders that steps have inserted into sys.path


def take(steps):
    """Takes a plan's steps. Returns the place of the statement at which they stop; empty at their end."""
    for kind, *details in steps:
        stopped = ""
        if kind == "stop":
            stopped = details[0]
        elif kind == "import":
            import_one(*details)
        elif kind == "set":
            name, value, default = details
            if not default or name not in os.environ:
                restored.append((name, os.environ.get(name), value))
                os.environ[name] = value
        elif kind == "path":
            index, folder = details
            sys.path.insert(len(sys.path) if index is None else index, folder)
            inserted.append(folder)
        elif kind == "warnings":
            function, arguments, keywords = details
            getattr(warnings, function)(*arguments, **keywords)
        elif kind == "try":
            try:
                stopped = take(details[0])
            except Unusable as unusable:
                if not isinstance(unusable.error, details[2]):
                    raise
                stopped = take(details[1])
        if stopped:
            return stopped
    return ""


def import_all(plan):
    """Takes the plan's steps, and leaves what the script will set itself as it was. Returns the place at which they
    stop."""
    os.environ.__class__ = WatchedEnviron
    random.Random.seed = watched_seed
    stopped = take(plan.steps)
    if setup.automatic and "torch" in sys.modules and not COMPILER_VARIABLE.search(plan.sources):
        try:
            import_one("torch._dynamo", None)
        except Unusable as unusable:
            if not isinstance(unusable.error, ImportError):
                raise
    os.environ.__class__ = WatchedEnviron.__bases__[0]
    random.Random.seed = original_seed
    for name, before, value in reversed(restored):
        if os.environ.get(name) == value:
            os.environ.pop(name) if before is None else os.environ.__setitem__(name, before)
    for folder in inserted:
        if folder in sys.path:
            sys.path.remove(folder)
    return stopped


def file_stamps(began):
    """Returns stamps of the files of the imported modules. One that was written since `began` differs from every file,
    because its old content may have been imported."""
    stamps = {}
    for module in list(sys.modules.values()):
        file = getattr(getattr(module, "__spec__", None), "origin", None)
        if isinstance(file, str) and os.path.isabs(file):
            seen = stamp(file)
            stamps[file] = () if seen is not None and seen[0] > began else seen
    return stamps


def stamp(file):
    # The modification time can be set, as by `cp -p` or `touch -r`; the time of the last change can't.
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev
