# ---- what the imports have read, for a server that is kept (part of fork_server.py) ------------------------------

# The dynamic loader, the C library and the interpreter read them by other ways than those that are recorded.
COMPARED = re.compile("PYTHON|LD_|GLIBC_|MALLOC_|LANG|LC_|TZ$|HOME$")
# Names of variables in modules that were imported before the record began.
NAME = re.compile(r"""["']([A-Z][A-Z0-9_]{2,})["']""")
# Other names in a folder that decide what is imported.
METADATA = (".dist-info", ".egg-info", ".egg-link", ".pth")

read_variables = set()
read_prefixes = set()
looked_up = set()  # the last parts of modules' names
whole_environment = []  # the modules that looked at all variables


class LookUps:
    """A finder that finds nothing, but notes what is imported."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        looked_up.add(name.rpartition(".")[2])


def native_record(on):
    """Switches the record of libddprun_crash.so."""
    if setup.kept and hasattr(libc, "ddprun_record_reads"):
        libc.ddprun_record_reads(ctypes.c_bool(on))


def open_files():
    return {int(fd): link_of(fd) for fd in os.listdir("/proc/self/fd") if link_of(fd)}


def link_of(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""  # the listing's own


def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return {int(pid) for pid in file.read().split()}


def names_of(folder):
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()


def variables_of_site():
    """Names of variables that modules imported by the interpreter itself (*.pth, sitecustomize) may have read."""
    library = os.path.dirname(os.__file__)
    for module in list(sys.modules.values()):
        file = getattr(getattr(module, "__spec__", None), "origin", None) or ""
        if file.endswith(".py") and (not file.startswith(library) or "site-packages" in file):
            with open(file, errors="replace") as source:
                yield from NAME.findall(source.read())
    for folder in sys.path:
        for name in names_of(folder):
            if name.endswith(".pth"):
                with open(os.path.join(folder, name), errors="replace") as source:
                    yield from NAME.findall(source.read())


def is_compared(name):
    return name in read_variables or name.startswith(tuple(read_prefixes)) or COMPARED.match(name) is not None


class Record:
    """The imports' reads, which must have the same results for another job."""

    def __init__(self):
        self.began = time.time_ns()
        self.files = open_files()
        self.plan = None
        self.stamps = {}
        self.folders = {}  # folder -> its stamp, and its names that matter
        self.why_not = ""
        self.listed = {folder: names_of(folder) for folder in map(os.path.abspath, sys.path)}
        read_variables.update(variables_of_site())
        sys.meta_path.insert(0, LookUps)

    def end(self, plan, stamps):
        """Completes the record after the imports."""
        sys.meta_path.remove(LookUps)
        self.plan = plan
        self.variables = dict(os.environb)
        files, folders = {os.path.join(sys.prefix, "pyvenv.cfg"), sys.executable}, set()
        for kind, text in self.native():
            if kind == "E":
                read_variables.add(text)
            elif kind == "X":
                self.why_not = f"an import called {text}" if text[0].islower() and "." in text else text
            elif not text.startswith(("/proc/", "/sys/", "/dev/")):
                (files if kind == "F" else folders).add(os.path.abspath(text))
        with open("/proc/self/maps") as maps:
            files |= {line[line.index("/") :].rstrip("\n") for line in maps if " r-xp " in line and "/" in line}
        self.stamps = {file: stamp_unless_written(file, self.began) for file in files if "/__pycache__/" not in file}
        self.stamps.update(stamps)
        for folder in folders | {folder for folder in map(os.path.abspath, sys.path) if os.path.isdir(folder)}:
            self.folders[folder] = stamp(folder), self.names_in(folder)
            if folder in self.listed and self.that_matter(self.listed[folder]) != self.folders[folder][1]:
                self.why_not = f"{folder} has changed while modules were imported"
        if whole_environment:
            self.why_not = f"{whole_environment[0]} reads all variables when it is imported"
        for fd, file in open_files().items():
            if fd > 2 and self.files.get(fd) != file:
                self.why_not = f"the imports left {file} open"
        try:
            if children():
                self.why_not = "the imports left a process running"
        except OSError:
            self.why_not = "this kernel has no CONFIG_PROC_CHILDREN"

    @staticmethod
    def native():
        if not hasattr(libc, "ddprun_recorded_reads"):
            return [("X", "libddprun_crash.so is missing")]
        text = ctypes.c_void_p()
        libc.ddprun_recorded_reads.restype = ctypes.c_size_t
        size = libc.ddprun_recorded_reads(ctypes.byref(text))
        entries = os.fsdecode(ctypes.string_at(text, size)).split("\0")
        return [(entry[0], entry[2:]) for entry in set(entries) if entry]

    def names_in(self, folder):
        """Returns the names that decide what is imported from a folder."""
        return self.that_matter(names_of(folder)) if folder in self.listed else names_of(folder) - {"__pycache__"}

    @staticmethod
    def that_matter(names):
        """Without new modules, in a folder of sys.path, that were not looked for."""
        return {name for name in names if name.partition(".")[0] in looked_up or name.endswith(METADATA)}

    def difference(self, variables):
        """Returns the name of a variable that was read and is different now; empty if there is none."""
        for name in {*variables, *self.values}:
            if is_compared(name) and variables.get(name) != self.values.get(name):
                return name
        return ""

    def changed(self):
        """Returns a file or folder that has changed on disk; empty if there is none."""
        for file, was in self.stamps.items():
            if stamp(file) != was:
                return file
        for folder, (was, names) in self.folders.items():
            now = stamp(folder)
            if now != was and self.names_in(folder) != names:
                return folder
            self.folders[folder] = now, names
        return ""


def stamp_unless_written(file, began):
    seen = stamp(file)
    return () if seen is not None and seen[0] > began else seen
