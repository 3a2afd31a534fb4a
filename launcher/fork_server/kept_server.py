# ---- a server that is kept between jobs (part of fork_server.py) -------------------------------------------------
#
# After a job that was started with --preload-keep its fork server listens at a socket. Each message begins a
# connection of its own:
#
#   launcher -> kept server
#     job FACTS ENVIRONMENT SETUP             with standard input, the working folder and a second socket; each of the
#                                             three is its number of fields, then these
#     status                                  answered by lines for people
#     stop                                    the server ends; answered by the end of the connection
#   kept server -> launcher
#     miss REASON                             it can't serve this job
#     kept PID                                then PID, a copy of it, is the job's fork server
#
# The copy is also the parent of the job's workers, and lives until the second socket is closed. There:
#
#   launcher -> the copy
#     reap PID                                a worker that has ended, once the launcher has seen how
#     sweep                                   kill what workers have left behind
#   the copy -> launcher
#     swept                                   nothing is left

MOST_JOBS = 500  # all have the same memory layout and hash seed
LONGEST_LIFE = 12 * 3600
LEAST_MEMORY = 0.1  # of this host's, available


def variables_of(entries):
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def take_fields(fields):
    """Returns the fields of a part that begins with their number, and the rest."""
    count = int(fields[0]) + 1
    return fields[1:count], fields[count:]


def keep(record, fields, rounds):
    """Keeps this server after its job, if it can be. Returns only if not, or, with its request, in a later worker."""
    kept = KeptServer(record, fields)
    reason = kept.why_not()
    if reason:
        return send(channel, "unkept", reason)
    try:
        listener = kept.listen()
    except OSError as error:
        return send(channel, "unkept", f"{kept.path}: {error.strerror}")
    kept.detach(listener)
    send(channel, "kept")
    channel.close()
    copy = Copy(*kept.serve(listener), kept.changes)
    return copy.serve(Rounds(rounds.stamps))


class KeptServer:
    def __init__(self, record, fields):
        seconds, self.path, *rest = fields
        self.seconds = float(seconds)
        self.facts, rest = take_fields(rest)
        variables = variables_of(take_fields(rest)[0])
        self.record = record
        record.values = {name: value for name, value in variables.items() if is_compared(name)}
        # Changes by the interpreter (LC_CTYPE), ddprun's library (LD_PRELOAD) and the imports.
        before, now = {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}, record.variables
        self.changes = {name: now.get(name) for name in {*before, *now} if now.get(name) != before.get(name)}
        self.started = self.used = time.monotonic()
        self.jobs = set()  # pids of copies
        self.served = 0
        self.last_miss = ""

    @staticmethod
    def show():
        return show_in_proc(["ddprun-preload", ",".join(dict.fromkeys(imported))])

    def why_not(self):
        if self.record.why_not:
            return self.record.why_not
        if signal.getsignal(signal.SIGCHLD) != signal.SIG_DFL:
            return "an import has set a handler of SIGCHLD, which this server needs"
        if not self.show():
            return "this kernel has no CONFIG_CHECKPOINT_RESTORE, so that the guard would not find workers"
        with open("/proc/meminfo") as file:
            sizes = dict(line.split()[:2] for line in file)
        if int(sizes["MemAvailable:"]) < LEAST_MEMORY * int(sizes["MemTotal:"]):
            return "less than a tenth of the memory is available"
        return ""

    def listen(self):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        new = f"{self.path}.{os.getpid()}"
        listener.bind(new)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MAX_MESSAGE)
        listener.listen(64)
        os.rename(new, self.path)
        self.inode = os.stat(self.path).st_ino
        return listener

    def detach(self, listener):
        """Drops everything of the job."""
        libc.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)
        # Processes that a killed copy leaves behind become children of this one.
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        null = os.open("/dev/null", os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        needed = {0, 1, 2, channel.fileno(), listener.fileno(), *(capture.fileno() for capture in captured)}
        for fd in set(open_files()) - needed:
            os.close(fd)
        os.chdir("/")
        os.environ.clear()
        self.show()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_SIGNALS)

    def serve(self, listener):
        """Serves jobs. Returns only in a copy, with what start returns."""
        wake, _ = wake_at_child_end()
        poll = select.poll()
        for fd in (listener.fileno(), wake):
            poll.register(fd, select.POLLIN)
        try:
            # Some tasks have waited for memory for 0.2 s of 2 s.
            pressure = os.open("/proc/pressure/memory", os.O_RDWR | os.O_NONBLOCK)
            os.write(pressure, b"some 200000 2000000\0")
            poll.register(pressure, select.POLLPRI)
        except OSError:
            pressure = -1
        while True:
            self.reap()
            now = time.monotonic()
            idle = self.seconds - (now - self.used)
            too_old = now - self.started > LONGEST_LIFE or self.served >= MOST_JOBS
            if not self.jobs and (idle <= 0 or too_old):
                self.end()
            for fd, event in poll.poll(None if self.jobs else max(1, idle * 1000)):
                if fd == wake:
                    os.read(wake, 4096)
                elif fd == pressure and not self.jobs:
                    self.end()
                elif fd == listener.fileno():
                    copy = self.accept(listener)
                    if copy is not None:
                        listener.detach()
                        return copy

    def reap(self):
        """Reaps copies that have ended, and kills what they left behind."""
        for pid in children():
            if pid not in self.jobs:
                os.kill(pid, signal.SIGKILL)
            if os.waitpid(pid, os.WNOHANG)[0] == pid and pid in self.jobs:
                self.jobs.remove(pid)
                self.used = time.monotonic()

    def end(self, connection=None):
        try:
            if os.stat(self.path).st_ino == self.inode:
                os.unlink(self.path)
        except OSError:
            pass
        try:
            if connection is not None:
                send(connection, f"stopped={os.getpid()}")
        finally:
            os._exit(0)  # also if the launcher waits no more

    def accept(self, listener):
        connection, _ = listener.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("3i", credentials)[1] != os.geteuid():
            return connection.close()
        connection.settimeout(1)
        try:
            fields, fds = receive(connection)
            if fields[:1] == ["status"]:
                send(connection, *self.status())
            elif fields[:1] == ["stop"]:
                self.end(connection)
            elif fields[:1] == ["job"] and len(fds) == 3:
                return self.start(connection, fields[1:], fds)
        except (OSError, ValueError, IndexError):
            pass
        return connection.close()

    def status(self):
        with open("/proc/self/smaps_rollup") as file:
            memory = sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        now = time.monotonic()
        idle = "in use" if self.jobs else f"idle for {now - self.used:.0f} s of {self.seconds:.0f} s"
        return (
            f"pid={os.getpid()}",
            f"modules={','.join(dict.fromkeys(imported))}",
            f"state={idle}",
            f"jobs={self.served} in {now - self.started:.0f} s",
            f"memory={memory >> 10} MiB",
            f"last refused={self.last_miss or 'none'}",
        )

    def start(self, connection, fields, fds):
        """Forks a copy for a job, if this server can serve it. Returns only in the copy."""
        facts, fields = take_fields(fields)
        entries, fields = take_fields(fields)
        wanted = Setup(*fields[1:])
        reason = self.reason_against(facts, variables_of(entries), wanted, fds[1])
        if reason:
            self.last_miss = reason
            send(connection, "miss", reason)
            for fd in fds:
                os.close(fd)
            return connection.close()
        pid = os.fork()
        if pid == 0:
            return connection, wanted, entries, fds
        self.jobs.add(pid)
        self.served += 1
        os.utime(self.path)
        for fd in fds:
            os.close(fd)
        return connection.close()

    def reason_against(self, facts, variables, wanted, folder):
        for ours, theirs in zip(self.facts, facts):
            if ours != theirs:
                return f"{theirs.partition(' ')[0]} differs"
        name = self.record.difference(variables)
        if name:
            return f"the variable {name}, which was read by the imports, differs"
        changed = self.record.changed()
        if changed:
            return f"{changed} has changed"
        os.fchdir(folder)
        importlib.invalidate_caches()
        wanted.set_path()
        shadowing = wanted.shadowing_file()
        same = self.record.plan.is_same(wanted)
        os.chdir("/")
        if shadowing:
            return f"{shadowing} is named like a module that the fork server needs"
        return "" if same else "the script begins with other imports"


def wake_at_child_end():
    """Returns a pipe that is readable after a child's end."""
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader, writer


class Copy:
    """The fork server of one job, a copy of the kept server and the parent of the job's workers."""

    def __init__(self, connection, wanted, entries, fds, changes):
        global setup, channel
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD_SIGNALS)
        os.setsid()
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        stdin, folder, second = fds
        os.fchdir(folder)
        os.dup2(stdin, 0)
        needed = {0, 1, 2, connection.fileno(), second, *(capture.fileno() for capture in captured)}
        signal.set_wakeup_fd(-1)
        for fd in set(open_files()) - needed:
            os.close(fd)
        self.second = socket.socket(fileno=second)
        self.workers = set()
        self.sweeping = False
        setup, channel = wanted, connection
        setup.tracer, setup.launcher = setup.launcher, os.getpid()
        channel.setblocking(True)
        os.environb.clear()
        os.environ.update(variables_of(entries))
        for name, value in changes.items():
            os.environb.pop(name, None)
            if value is not None:
                os.environb[name] = value
        self.wake = wake_at_child_end()
        send(channel, "kept", os.getpid())
        send(channel, "ready", "0", ",".join(dict.fromkeys(imported)), "")

    def serve(self, rounds):
        """Forks workers until the second socket is closed. Returns only in a worker, with its request."""
        poll = select.poll()
        for fd in (channel, self.second, self.wake[0]):
            poll.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self.wake[0] in ready:
                os.read(self.wake[0], 4096)
            if self.second.fileno() in ready:
                self.obey(*receive(self.second)[0])
            if channel.fileno() in ready:
                fields, fds = receive(channel)
                try:
                    request = rounds.take(fields, fds, self.fork) if fields else None
                except Unusable as unusable:
                    send(channel, *unusable.answer)
                    fields = []
                if request is not None:
                    self.leave()
                    return request
                if not fields:  # it stays the workers' parent
                    poll.unregister(channel)
            self.reap()

    def obey(self, order="", pid=None):
        if order == "reap" and int(pid) in self.workers:
            self.workers.remove(int(pid))
        elif order == "sweep":
            self.sweeping = True
        elif not order:
            while children():
                for child in children():
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
            os._exit(0)

    def reap(self):
        """Reaps what workers left behind, and kills it during a sweep, but nothing in a running worker's session."""
        reaped = True
        while reaped:  # children of a reaped process are ours now
            left, reaped = 0, False
            for child in children() - self.workers:
                if self.sweeping and os.getsid(child) not in self.workers:
                    os.kill(child, signal.SIGKILL)
                    left += 1
                reaped = os.waitpid(child, os.WNOHANG)[0] == child or reaped
        if self.sweeping and left == 0:
            self.sweeping = False
            send(self.second, "swept")

    def fork(self, batch):
        for request in batch:
            try:
                forked = os.fork()
            except OSError as error:
                send(channel, "unforked", request[0], error.strerror)
                continue
            if forked == 0:
                return request
            self.workers.add(forked)
        return None

    def leave(self):
        """Drops, in a worker, what it does not need, and renews what belongs to a process that has just started."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.second.close()
        for fd in self.wake:
            os.close(fd)
        libc.prctl(PR_SET_PTRACER, ctypes.c_ulong(setup.tracer), 0, 0, 0)
        importlib.invalidate_caches()
        time.tzset()
        if "logging" in sys.modules:
            module = sys.modules["logging"]
            # Seconds, and nanoseconds from Python 3.13 on.
            module._startTime = time.time_ns() if isinstance(module._startTime, int) else time.time()
        if "tempfile" in sys.modules:
            sys.modules["tempfile"].tempdir = None
