# ---- a worker (part of fork_server.py) ---------------------------------------------------------------------------


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


def show_in_proc(argv):
    """Shows `argv` and the present environment in /proc/PID/cmdline and environ. The command line stays where Python's
    was, which programs that change their title expect, unless it is longer."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    field = lambda number: int(fields[number - 3])  # noqa: E731; numbers of proc(5)
    begin, end = field(48), field(49)
    line = b"".join(os.fsencode(word) + b"\0" for word in argv)
    environment = b"".join(name + b"=" + value + b"\0" for name, value in os.environb.items())
    ctypes.memmove(begin, line[: end - begin].ljust(end - begin, b"\0"), end - begin)
    moved = environment if len(line) <= end - begin else line + environment
    libc.mmap.restype = libc.sbrk.restype = ctypes.c_void_p
    PRIVATE, READ_WRITE = 0x22, 3
    at = libc.mmap(None, ctypes.c_size_t(len(moved) + 1), READ_WRITE, PRIVATE, -1, ctypes.c_long(0))
    if at in (None, ctypes.c_void_p(-1).value):
        return
    ctypes.memmove(at, moved, len(moved))
    start = at + len(moved) - len(environment)
    if moved is not environment:
        begin = at
    addresses = (*map(field, (26, 27, 45, 46, 47)), libc.sbrk(0), field(28), begin, begin + len(line), start)
    settings = struct.pack("<12QIi", *addresses, start + len(environment), 0, 0, -1)
    # Fails without CONFIG_CHECKPOINT_RESTORE: then the environment is the fork server's.
    libc.prctl(PR_SET_MM, PR_SET_MM_MAP, settings, ctypes.c_ulong(len(settings)), 0)


def make_distinct():
    """Renews per-process state that must differ between workers. Python's own `random` is reseeded by the fork."""
    for generator in unseeded.values():
        generator.seed()
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
    show_in_proc(setup.orig_argv)
    make_distinct()
    setup.set_path()
    main = sys.modules["__main__"]
    if setup.is_module:
        sys.argv[0] = "-m"  # runpy sets them once it has found the module
        del main.__file__
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


def find_files():
    return [file for file in gc.get_objects() if issubclass(type(file), (io.TextIOBase, io.BufferedIOBase))]


def reference_to(file):
    try:
        return weakref.ref(file)
    except TypeError:
        return lambda: file  # its class has no room for weak references


files_of_imports = []


def flush_open_files():
    """Flushes files as Python does when it frees them, and closes those of Python classes (gzip and the like), which
    write a trailer. A file comes before the one that it writes to."""
    streams = (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    layers = ([], [], [])
    # The objects of the imports are frozen, and so not among those. To look at each would copy their memory.
    for file in find_files() + [file() for file in files_of_imports]:
        kind = type(file)
        if file is None or any(file is stream for stream in streams):
            continue
        buffered = kind in (io.BufferedWriter, io.BufferedRandom, io.BufferedRWPair)
        layers[0 if issubclass(kind, io.TextIOBase) else 2 if buffered else 1].append(file)
    for layer in layers:
        for file in layer:
            try:
                file.flush() if type(file).__module__ == "_io" else file.close()
            except BaseException:
                pass  # like Python when it frees it


def flush_within(seconds):
    """Flushes open files. A thread of the script that hangs while writing a file holds the file's lock forever."""
    done = _thread.allocate_lock()
    done.acquire()

    def flush():
        try:
            flush_open_files()
        finally:
            done.release()

    try:
        _thread.start_new_thread(flush, ())
    except RuntimeError:  # no memory, or too many processes
        flush()
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
