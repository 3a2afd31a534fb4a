# ---- the server (part of fork_server.py) -------------------------------------------------------------------------


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
        for file, was in () if first else stamps.items():
            if stamp(file) != was:
                raise Unusable("changed", file)
        first = False
        request = fork_workers(batch)
        for other in batch:
            for fd in other[2] if other is not request else ():
                os.close(fd)
        if request is not None:
            return request
        batch = []


def capture_output():
    """Captures the output of the imports, which every worker must repeat."""
    captured = []
    for fd in (1, 2):
        capture = os.fdopen(os.memfd_create("output"), "rb+", buffering=0)
        os.dup2(capture.fileno(), fd)
        captured.append(capture)
    return captured


def why_without_torch(plan, stopped):
    """Returns a warning if the plan stopped before it came to torch; empty if not."""
    if not stopped or "torch" in sys.modules or "torch" in setup.left_out:
        return ""
    if imported and not re.search(rb"\btorch\b", plan.sources):
        return ""
    return (
        f"torch is not preloaded, because {stopped} comes first and may change what later imports do; "
        "move the imports above it, or name the modules: --preload=torch"
    )


def prepare():
    """Imports the modules, and reports the result to the launcher. Returns the stamps of all files."""
    if not setup.is_module and not is_source(setup.argv[0]):
        raise Unusable("failed", f"{setup.argv[0]} is not a Python source file")
    if sys.flags.inspect:
        raise Unusable("failed", "Python is set to stay interactive (PYTHONINSPECT)")
    began, began_ns = time.monotonic(), time.time_ns()
    plan = Plan(setup)
    warning = why_without_torch(plan, import_all(plan))
    if not imported:
        raise Unusable("nothing", warning)
    stamps = file_stamps(began_ns)
    libc.fflush(None)
    gc.collect()
    files_of_imports.extend(map(reference_to, find_files()))
    gc.freeze()
    send(channel, "ready", f"{time.monotonic() - began:.2f}", ",".join(dict.fromkeys(imported)), warning)
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
    if setup.shadowing_file():
        raise Unusable("failed", f"{setup.shadowing_file()} is named like a module that the fork server needs")
    captured = capture_output()
    setup.become_main()
    ticket, (cpus, *entries), fds = serve(prepare())
except Unusable as unusable:
    send(channel, *unusable.answer)
    os._exit(0)
except OSError:  # the launcher is gone
    os._exit(1)

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
