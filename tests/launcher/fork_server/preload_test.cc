// Workers forked from a process that has imported their modules (--preload) behave like workers that Python starts in
// everything that a script can observe.
#include <signal.h>

#include "tests/launcher/fork_server/preload_testing.h"

namespace ddprun::testing {
namespace {

TEST_F(PreloadTest, Preload_WorkersProcess_IsLikeStartedOne) {
  const std::string script = Script(ReadFile("tests/launcher/fork_server/identity.py"));
  ExpectAlike({"--nproc-per-node=2"}, {script, "--first", "", "second argument"});
  ExpectAlike({"--nproc-per-node=1"}, {script});
  ExpectAlike({"--nproc-per-node=2", "--redirects=3", "--log-dir", folder_.File("logs")}, {script});
  ExpectAlike({"--nproc-per-node=2", "--tee=3"}, {script});
}

TEST_F(PreloadTest, PortRange_IsAlike) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer's run time can't be preloaded into Python";
#endif
  const std::string script = Script(ReadFile("tests/launcher/fork_server/identity.py"));
  ExpectAlike({"--nproc-per-node=1", "--port-range=42000-42900"}, {script});
  ExpectAlike({"--port-range=42000-42900"}, {Script(R"(
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(42000 <= listener.getsockname()[1] <= 42900)
)")});
}

TEST_F(PreloadTest, Module_IsAlike) {
  mkdir(Installed("package").c_str(), 0700);
  Write(Installed("package/__init__.py"), "");
  Write(Installed("package/__main__.py"), ReadFile("tests/launcher/fork_server/identity.py"));
  Write(Installed("package/part.py"), ReadFile("tests/launcher/fork_server/identity.py"));
  ExpectAlike({"--nproc-per-node=2", "-m"}, {"package", "argument"});
  ExpectAlike({"--nproc-per-node=1", "-m"}, {"package.part"});
  ExpectAlike({"--nproc-per-node=1", "-m"}, {"package.missing"});
}

TEST_F(PreloadTest, ModulesThatReadTheCommandLine_AreAlike) {
  Write(Installed("reader.py"), R"(
import sys
SEEN = list(sys.argv), getattr(sys, "orig_argv", None), sys.modules["__main__"].__file__
ARGUMENTS = sys.argv
sys.argv.remove("--taken")
)");
  const std::string script =
      Script("import sys, reader\nprint(f'{reader.SEEN} {reader.ARGUMENTS is sys.argv} {sys.argv}\\n', end='')\n");
  ExpectAlike({"--nproc-per-node=2", "--max-restarts=1"}, {script, "--lr", "3", "--taken"}, "reader");
  Write(Installed("program.py"), ReadFile(script));
  ExpectAlike({"--nproc-per-node=2", "-m"}, {"program", "--lr", "3", "--taken"}, "reader");
}

TEST_F(PreloadTest, EveryWayToEnd_IsAlike) {
  const char* const kEnds[] = {
      "pass",
      "import sys; sys.exit(3)",
      "import sys; sys.exit('said at the end')",
      "import sys; sys.exit((1, 2))",
      "raise SystemExit",
      "raise SystemExit(-1)",
      "raise SystemExit(True)",
      "def inner():\n  raise ValueError('wrong')\ninner()",
      "def inner():\n  raise ValueError('wrong')\ntry:\n  inner()\nexcept ValueError as e:\n  raise OSError(1, 'x') "
      "from e",
      "raise KeyboardInterrupt",
      "1 +",
      "import os; os._exit(4)",
      "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
      "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
      "import os; os.abort()",
      "import atexit; atexit.register(print, 'first'); atexit.register(print, 'second')",
      "import atexit, sys; atexit.register(print, 'at exit'); sys.exit(5)",
      "import atexit; atexit.register(lambda: 1 / 0)",
      "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('thread ended'))).start()",
      "import threading\nthreading.Thread(target=lambda: threading.Event().wait(), daemon=True).start()",
      "import threading\ndef fail():\n  raise ValueError('in a thread')\nthreading.Thread(target=fail).start()",
      "import sys; sys.excepthook = lambda t, v, tb: print('hook', t.__name__, tb.tb_lineno)\nraise ValueError",
      "import sys; sys.excepthook = lambda t, v, tb: sys.exit(9)\nraise ValueError",
      "import sys; sys.excepthook = lambda t, v, tb: 1 / 0\nraise ValueError('original')",
      "import sys; sys.stdout.close()",
      "import sys; print('unbuffered', end=''); sys.stderr.write('error')",
      "import ctypes; ctypes.CDLL(None).printf(b'native text')",
      "import traceback; print(len(traceback.format_stack()) > 0)",
      "import os, sys; print(sys.stdin.read()); print(os.read(0, 10))",
      "print(input())",
      "# -*- coding: latin-1 -*-\nprint('\xe9' == chr(233))",
      "import asyncio; asyncio.run(asyncio.sleep(0)); print('ran\\n', end='')",
      "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
  };
  for (const char* end : kEnds) {
    SCOPED_TRACE(end);
    ExpectAlike({}, {Script(end)});
  }
}

// Freeing DistributedDataParallel does this: native code that holds the interpreter's lock joins a thread that needs
// the lock to end.
TEST_F(PreloadTest, JoinOfAThreadThatNeedsTheLock_IsAlikeAndEnds) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer's run time can't be preloaded into Python";
#endif
  const std::string script = Script(R"(
import ctypes
locked = ctypes.PyDLL(None)

@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
def use_python(_):
    print("ran", end=" .\n")

thread = ctypes.c_ulong()
locked.pthread_create(ctypes.byref(thread), None, use_python, None)
print("joined", locked.pthread_join(thread, None), end=" .\n")
)");
  ExpectAlike({}, {script});
  ExpectAlike({"--log-dir=/dev/null"}, {script});
}

TEST_F(PreloadTest, OpenFiles_HaveTheSameContentAfterwards) {
  const std::string script = Script(R"(
import bz2, csv, gzip, io, os, sys
folder = sys.argv[1]

def path(name):
    return os.path.join(folder, name)

text = open(path("text"), "w")
text.write("text")
binary = open(path("binary"), "wb")
binary.write(b"binary")
both = open(path("both"), "w+b")
both.write(b"both")
rows = csv.writer(open(path("csv"), "w", newline=""))
for row in range(100):
    rows.writerow([row, row * row])
packed = gzip.open(path("gz"), "wt")
packed.write("packed")
packed_binary = bz2.open(path("bz2"), "wb")
packed_binary.write(b"packed")

class Log:
    def __init__(self):
        self.file = open(path("attribute"), "w")
        self.me = self
        self.file.write("attribute")

log = Log()

def closure():
    file = open(path("closure"), "w")
    return lambda line: file.write(line)

write = closure()
write("closure")

def generator():
    with open(path("generator"), "w") as file:
        while True:
            file.write((yield))

lines = generator()
next(lines)
lines.send("generator")

class Upper(io.TextIOWrapper):
    def write(self, text):
        return super().write(text.upper())

upper = Upper(open(path("class"), "wb"))
upper.write("class")

def fail():
    local = open(path("traceback"), "w")
    local.write("traceback")
    sys.exit(3)
fail()
)");
  std::vector<std::string> contents;
  for (const char* preload : {"--preload=json,decimal", "--preload=none"}) {
    const TempDir folder;
    EXPECT_EQ(Run({preload}, {script, folder.path()}).code, 3);
    Process unpack({"/usr/bin/env", "python3", "-c", R"(
import bz2, gzip, os, sys
for name in sorted(os.listdir(sys.argv[1])):
    opener = {"gz": gzip.open, "bz2": bz2.open}.get(name, open)
    print(name, opener(os.path.join(sys.argv[1], name), "rb").read())
)",
                    folder.path()});
    EXPECT_EQ(unpack.Wait(), 0) << unpack.Err();
    contents.push_back(unpack.Out());
    for (const char* word : {"binary b'binary'", "gz b'packed'", "bz2 b'packed'", "class b'CLASS'"}) {
      EXPECT_EQ(Count(contents.back(), word), 1) << preload << ": " << contents.back();
    }
  }
  EXPECT_EQ(contents[0], contents[1]);
}

TEST_F(PreloadTest, Multiprocessing_IsAlike) {
  ExpectAlike({"--nproc-per-node=2"}, {Script(R"(
import json, multiprocessing, os
from concurrent.futures import ProcessPoolExecutor

def work(x):
    return x * int(os.environ["RANK"])

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(f"{method} {os.environ['RANK']} {pool.map(work, range(4))}\n", end="")
    with ProcessPoolExecutor(2) as pool:
        print(f"pool {os.environ['RANK']} {list(pool.map(work, range(4)))}\n", end="")
)")});
}

TEST_F(PreloadTest, OutputOfImports_IsEveryWorkers) {
  Write(Installed("talks.py"), "import sys\nsys.stdout.write('out\\n')\nsys.stderr.write('err\\n')\n");
  const std::string logs = folder_.File("logs");
  Finished launcher(0,
                    Flags({"--nproc-per-node=2", "--preload=talks", "--tee=3", "--log-dir", logs},
                          {Script("import talks\nprint('ran\\n', end='')\n")}),
                    Environment());
  for (const char* line : {"[default0]:out\n", "[default1]:out\n", "[default0]:ran\n", "[default1]:ran\n"}) {
    EXPECT_EQ(Count(launcher.Out(), line), 1) << launcher.Out();
  }
  EXPECT_EQ(Count(launcher.Err(), ":err\n"), 2) << launcher.Err();
}

TEST_F(PreloadTest, UnforkableImport_LogsOneLineAndStartsWithoutServer) {
  struct Case {
    const char* module;
    const char* warning;
  };
  const Case kCases[] = {
      {"raise ValueError('not here')", "importing bad failed (ValueError: not here)"},
      {"import nowhere", "importing bad failed (ModuleNotFoundError: No module named 'nowhere')"},
      {"import sys; sys.exit(3)", "importing bad failed (SystemExit: 3)"},
      {"import os; os._exit(1)", "the fork server died"},
      {"import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "the fork server died"},
  };
  for (const Case& bad : kCases) {
    SCOPED_TRACE(bad.module);
    Write(Installed("bad.py"), bad.module);
    Finished launcher(0, Flags({"--nproc-per-node=2", "--preload=json,bad"}, {Script("print('ran\\n', end='')")}),
                      Environment());
    EXPECT_EQ(launcher.Out(), "ran\nran\n");
    EXPECT_EQ(Count(launcher.Err(), "WARNING"), 1) << launcher.Err();
    EXPECT_EQ(Count(launcher.Err(), absl::StrCat("--preload: ", bad.warning)), 1) << launcher.Err();
  }
}

TEST_F(PreloadTest, UnknownPythonOrFolderAsScript_StartsWithoutServer) {
  std::map<std::string, std::string> environment = Environment();
  environment["PYTHON_EXEC"] = absl::StrCat("sh -c '\"$@\"; exit $?' wrapper ", python_);
  Finished wrapped(0, Flags({"--preload=json"}, {Script("print('ran')")}), environment);
  EXPECT_EQ(wrapped.Out(), "ran\n");
  EXPECT_EQ(Count(wrapped.Err(), "--preload: Python runs under another program"), 1) << wrapped.Err();
  mkdir(folder_.File("folder").c_str(), 0700);
  Script("import sys\nsys.stdout.write('ran\\n')\n", "folder/__main__.py");
  Finished launcher(0, Flags({"--nproc-per-node=2", "--preload=json"}, {folder_.File("folder")}), Environment());
  EXPECT_EQ(launcher.Out(), "ran\nran\n");
  EXPECT_EQ(Count(launcher.Err(), "/folder is not a Python source file; each worker imports for itself\n"), 1);
}

// The server itself imports array, and not the one of the working folder.
TEST_F(PreloadTest, FileShadowsServerModule_LogsOneLineAndStartsWithoutServer) {
  Write(folder_.File("array.py"), "VALUE = 5\n");
  const std::string script = Script("import json, array\nprint(array.VALUE)\n");
  Finished job(0, Flags({"--preload=auto"}, {script}), Environment());
  EXPECT_EQ(job.Out(), "5\n");
  EXPECT_EQ(Count(job.Err(), "/array.py is named like a module that the fork server needs; each worker imports"), 1)
      << job.Err();
  mkdir(folder_.File("below").c_str(), 0700);
  Script("import json, array\nprint(array.array)\n", "below/script.py");
  Process below(
      {"/bin/sh", "-c", absl::StrCat("cd ", folder_.path(), "; $OLDPWD/launcher/ddprun --preload below/script.py")},
      Environment());
  EXPECT_EQ(below.Wait(), 0);
  EXPECT_EQ(below.Out(), "<class 'array.array'>\n");
  EXPECT_EQ(Count(below.Err(), " imported json,array in "), 1) << below.Err();
}

TEST_F(PreloadTest, GeneratorsOfImports_AreReseeded) {
  Write(Installed("generators.py"), "import random\nOWN, FIXED = random.Random(), random.Random(1)\n");
  const std::string script = Script(
      "import generators\nprint(f'own {generators.OWN.random()}\\nfixed {generators.FIXED.random()}\\n', end='')\n");
  bool forked = false;
  const Result result = Run({"--nproc-per-node=2", "--preload"}, {script}, &forked);
  EXPECT_TRUE(forked);
  std::vector<std::string> lines = absl::StrSplit(result.out, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], lines[1]) << "fixed";
  EXPECT_NE(lines[2], lines[3]) << "own";
}

TEST_F(PreloadTest, ImportReadsTheRank_IsLeftToWorkers) {
  for (const char* question :
       {"os.environ.get('RANK')", "os.getenv('LOCAL_RANK', '0')", "'WORLD_SIZE' in os.environ"}) {
    SCOPED_TRACE(question);
    Write(Installed("asks.py"), absl::StrCat("import os\nanswer = ", question, "\n"));
    const std::string script = Script("import json, asks\nprint(f'answer {asks.answer}\\n', end='')\n");
    Finished launcher(0, Flags({"--nproc-per-node=2", "--preload"}, {script}), Environment());
    const bool is_rank = std::string(question).find("RANK") != std::string::npos;
    EXPECT_EQ(SortedLines(launcher.Out()), is_rank ? "\nanswer 0\nanswer 1" : "\nanswer True\nanswer True");
    EXPECT_EQ(Count(launcher.Err(), "WARNING"), 1) << launcher.Err();
    EXPECT_EQ(Count(launcher.Err(), "--preload leaves out asks: asks reads "), 1) << launcher.Err();
    EXPECT_EQ(Count(launcher.Err(), " imported json in "), 1) << launcher.Err();
  }
}

TEST_F(PreloadTest, ImportLeavesAThread_IsLeftToWorkers) {
  Write(Installed("bad.py"),
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n");
  Finished launcher(0, Flags({"--nproc-per-node=2", "--preload=json,bad,decimal"}, {Script("print('ran\\n', end='')")}),
                    Environment());
  EXPECT_EQ(launcher.Out(), "ran\nran\n");
  EXPECT_EQ(Count(launcher.Err(), "--preload leaves out bad: its import left a thread running (python"), 1)
      << launcher.Err();
  EXPECT_EQ(Count(launcher.Err(), " imported json,decimal in "), 1) << launcher.Err();
}

// pyarrow has jemalloc's thread, without which its library works in a forked process.
TEST_F(PreloadTest, ThreadOfAnAllocator_IsHarmless) {
  Write(Installed("arrow.py"), R"(
import ctypes, threading
ready, libc = threading.Event(), ctypes.CDLL(None)
def work():
    libc.prctl(15, b"jemalloc_bg_thd", 0, 0, 0)
    ready.set()
    threading.Event().wait()
threading.Thread(target=work, daemon=True).start()
ready.wait()
)");
  Finished launcher(0, Flags({"--preload=arrow"}, {Script("print('ran')")}), Environment());
  EXPECT_EQ(Count(launcher.Err(), " imported arrow in "), 1) << launcher.Err();
}

TEST_F(PreloadTest, LongCommandLineAndEnvironment_ReachWorkers) {
  const std::string script = Script(R"(
import sys
with open("/proc/self/cmdline") as file:
    print(file.read() == "\0".join([sys.executable, "-u", *sys.argv, ""]))
with open("/proc/self/environ") as file:
    entries = file.read().split("\0")
print("RANK=0" in entries, any(entry.startswith("DDPRUN_LAUNCHER_ID=") for entry in entries))
)");
  std::vector<std::string> words(60, std::string(3000, 'x'));
  words.insert(words.begin(), script);
  ExpectAlike({}, words);
}

// Lightning and its metrics cache the rank in this way.
constexpr char kLightningsRank[] = R"(
import os

def rank_zero_only(fn):
    return lambda: fn() if rank_zero_only.rank == 0 else None

def _get_rank():
    for key in ("RANK", "LOCAL_RANK"):
        rank = os.environ.get(key)
        if rank is not None:
            return int(rank)
    return None

rank_zero_only.rank = getattr(rank_zero_only, "rank", _get_rank() or 0)
)";
constexpr char kMetricsRank[] = R"(
import os

def rank_zero_only(fn):
    return fn

rank_zero_only.rank = getattr(rank_zero_only, "rank", int(os.environ.get("LOCAL_RANK", 0)))
)";

TEST_F(PreloadTest, LightningRank_IsTheWorkers) {
  for (const char* folder :
       {"lightning_fabric", "lightning_fabric/utilities", "torchmetrics", "torchmetrics/utilities"}) {
    mkdir(Installed(folder).c_str(), 0700);
  }
  Write(Installed("torchmetrics/utilities/prints.py"), kMetricsRank);
  const std::string script = Script(R"(
import torchmetrics.utilities.prints, lightning_fabric.utilities.rank_zero
ranks = [m.rank_zero_only.rank for m in (torchmetrics.utilities.prints, lightning_fabric.utilities.rank_zero)]
print(f"ranks {ranks}\n", end="")
)");
  struct Case {
    const char* more;  // at the end of Lightning's module
    const char* left_out;
  };
  const Case kCases[] = {
      {"", ""},
      {"rank_zero_only(print)()", "lightning_fabric.utilities.rank_zero uses the rank when it is imported"},
      {"rank_zero_only.rank = _get_rank() or 0",
       "lightning_fabric.utilities.rank_zero keeps the rank when it is imported"},
      {"print(end='' if os.environ.get('WORLD_SIZE') else '')",
       "lightning_fabric.utilities.rank_zero reads WORLD_SIZE when it is imported"},
  };
  for (const Case& module : kCases) {
    SCOPED_TRACE(module.more);
    Write(Installed("lightning_fabric/utilities/rank_zero.py"), absl::StrCat(kLightningsRank, module.more, "\n"));
    const bool left_out = module.left_out[0] != '\0';
    Finished launcher(0, Flags({"--nproc-per-node=2", "--preload"}, {script}), Environment());
    EXPECT_EQ(Count(launcher.Out(), "ranks [0, 0]\n"), 1) << launcher.Out();
    EXPECT_EQ(Count(launcher.Out(), "ranks [1, 1]\n"), 1) << launcher.Out();
    EXPECT_EQ(Count(launcher.Err(), "WARNING"), left_out ? 1 : 0) << launcher.Err();
    EXPECT_THAT(launcher.Err(), HasSubstr(module.left_out));
    EXPECT_EQ(Count(launcher.Err(), " imported torchmetrics.utilities.prints"), 1) << launcher.Err();
  }
}

constexpr char kFailFirst[] =
    "import os\n"
    "attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n";

TEST_F(PreloadTest, ChangedModule_IsImportedAgain) {
  Write(Installed("value.py"), "VALUE = 'old'\n");
  const std::string script = Script(absl::StrCat(kFailFirst, R"(
import value
print("attempt", attempt, value.VALUE)
if attempt == 0:
    with open(value.__file__, "w") as file:
        file.write("VALUE = 'changed'\n")
    raise SystemExit(1)
)"));
  Finished launcher(0, Flags({"--max-restarts=1", "--preload=value"}, {script}), Environment());
  EXPECT_EQ(launcher.Out(), "attempt 0 old\nattempt 1 changed\n");
  EXPECT_EQ(Count(launcher.Err(), "value.py has changed"), 1) << launcher.Err();
  EXPECT_EQ(Count(launcher.Err(), " imported value in "), 2) << launcher.Err();
}

// Size and time of the last write are as before.
TEST_F(PreloadTest, ChangedModule_OldTimestamp_IsImportedAgain) {
  for (const char* file : {"value.__file__", "value.__file__ + '.new'"}) {
    SCOPED_TRACE(file);
    Write(Installed("value.py"), "VALUE = 'old'\n");
    const std::string script = Script(absl::StrCat(kFailFirst, "import value\nname = ", file, R"(
print("attempt", attempt, value.VALUE)
if attempt == 0:
    status = os.stat(value.__file__)
    with open(name, "w") as file:
        file.write("VALUE = 'new'\n")
    os.utime(name, ns=(status.st_atime_ns, status.st_mtime_ns))
    os.rename(name, value.__file__)
    raise SystemExit(1)
)"));
    Finished launcher(0, Flags({"--max-restarts=1", "--preload=value"}, {script}), Environment());
    EXPECT_EQ(launcher.Out(), "attempt 0 old\nattempt 1 new\n");
  }
}

TEST_F(PreloadTest, ChangedScript_IsReadAgain) {
  const std::string script = Script(absl::StrCat(kFailFirst, R"(
print("old")
with open(__file__, "w") as file:
    file.write("print('new')\n")
raise SystemExit(1)
)"));
  Finished launcher(0, Flags({"--max-restarts=1", "--preload=json"}, {script}), Environment());
  EXPECT_EQ(launcher.Out(), "old\nnew\n");
}

TEST_F(PreloadTest, WorkersKilled_RestartFromTheSameServer) {
  Write(Installed("installed_module.py"), kNotes);
  const std::string script = Script(absl::StrCat(kFailFirst, R"(
import signal
print(f"rank {os.environ['RANK']} attempt {attempt}\n", end="")
if attempt < 3 and int(os.environ["RANK"]) == attempt % 2:
    os.kill(os.getpid(), signal.SIGKILL)
if attempt < 3:
    signal.pause()
)"));
  Finished launcher(0, Flags({"--nproc-per-node=2", "--max-restarts=3", "--preload=installed_module"}, {script}),
                    Environment());
  EXPECT_EQ(Count(launcher.Out(), " attempt 3\n"), 2) << launcher.Out();
  EXPECT_EQ(ReadFile(Installed("imports")), "imported\n");
}

TEST_F(PreloadTest, ServerKilled_LogsOneLineAndStartsWithoutServer) {
  const std::string script = Script(absl::StrCat(kFailFirst, R"(
import signal, subprocess, sys
if attempt == 0:
    for pid in os.listdir("/proc"):
        try:
            words = open(f"/proc/{pid}/cmdline").read()
            parent = open(f"/proc/{pid}/stat").read().rpartition(')')[2].split()[1]
        except OSError:
            continue
        if "\0-\0" in words and int(parent) == os.getppid():
            os.kill(int(pid), signal.SIGKILL)
            sys.exit(1)
print("attempt", attempt)
)"));
  Finished launcher(0, Flags({"--max-restarts=1", "--preload=json"}, {script}), Environment());
  EXPECT_EQ(launcher.Out(), "attempt 1\n");
  EXPECT_EQ(Count(launcher.Err(), "--preload: the fork server died; each worker imports for itself\n"), 1)
      << launcher.Err();
}

TEST_F(PreloadTest, StoppedWhileImporting_EndsAtOnceAndLeavesNothing) {
  Write(Installed("slow.py"),
        "import os, time\nopen(os.environ['NOTE'], 'w').write(str(os.getpid()))\ntime.sleep(1000)\n");
  for (const int signal : {SIGTERM, SIGINT, SIGKILL}) {
    const std::string note = folder_.File(absl::StrCat("note", signal));
    std::map<std::string, std::string> environment = Environment();
    environment["NOTE"] = note;
    Launcher launcher(Flags({"--nproc-per-node=2", "--preload=slow"}, {Script("print('ran\\n', end='')")}),
                      environment);
    ASSERT_TRUE(Eventually([&] { return !ReadFile(note).empty(); })) << launcher.Err();
    const pid_t server = std::stoi(ReadFile(note));
    launcher.Signal(signal);
    EXPECT_EQ(launcher.Wait(), 128 + signal) << launcher.Err();
    EXPECT_TRUE(Eventually([&] { return !Alive(server); }));
    EXPECT_EQ(launcher.Out(), "");
  }
}

TEST_F(PreloadTest, LauncherKilled_WorkersAndServerEnd) {
  Launcher launcher(Flags({"--nproc-per-node=2", "--preload=json"},
                          {Script("import os, signal\nprint(f'pid {os.getpid()}\\n', end='')\nsignal.pause()\n")}),
                    Environment());
  ASSERT_TRUE(Eventually([&] { return Count(launcher.Out(), "pid ") == 2; })) << launcher.Err();
  launcher.Signal(SIGKILL);
  launcher.Wait();
  for (const absl::string_view line : absl::StrSplit(launcher.Out(), '\n', absl::SkipEmpty())) {
    const pid_t pid = std::stoi(std::string(line.substr(4)));
    EXPECT_TRUE(Eventually([&] { return !Alive(pid); }));
  }
}

TEST_F(PreloadTest, TwoNodes_EachHasItsServer) {
  const std::string script =
      Script("import os\nprint('rank {RANK} of {WORLD_SIZE} on {GROUP_RANK}\\n'.format(**os.environ), end='')\n");
  const std::vector<std::string> flags = {"--nnodes=2", "--nproc-per-node=2",
                                          absl::StrCat("--rdzv-endpoint=127.0.0.1:", FreePort()), "--preload=json",
                                          script};
  Launcher a(flags, Environment()), b(flags, Environment());
  EXPECT_EQ(a.Wait(), 0) << a.Err();
  EXPECT_EQ(b.Wait(), 0) << b.Err();
  EXPECT_EQ(Count(a.Out() + b.Out(), " of 4 on "), 4);
  EXPECT_EQ(Count(a.Err() + b.Err(), " imported json in "), 2);
}

TEST_F(PreloadTest, NoPython_IsReported) {
  Finished launcher(0, {"--standalone", "--preload=json", "--no-python", "true"}, Environment());
  Finished automatic(0, {"--standalone", "--preload", "--no-python", "true"}, Environment());
  EXPECT_EQ(Count(automatic.Err(), "WARNING"), 0) << automatic.Err();
  EXPECT_EQ(Count(launcher.Err(), "--preload has no effect: modules can be preloaded only for Python workers\n"), 1);
}

}  // namespace
}  // namespace ddprun::testing
