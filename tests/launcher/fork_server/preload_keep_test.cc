// --preload-keep: a job that starts from the fork server of an earlier one behaves like any other, and is never given
// anything that has changed since.
#include <fcntl.h>
#include <glob.h>
#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include <random>

#include "tests/launcher/fork_server/preload_testing.h"

namespace ddprun::testing {
namespace {

constexpr char kUsed[] = "is a copy of a kept one";

class PreloadKeepTest : public PreloadTest {
 protected:
  void SetUp() override {
    PreloadTest::SetUp();
    // An environment of its own, whose packages the test may change.
    Process venv({"/usr/bin/env", python_, "-m", "venv", "--without-pip", folder_.File("venv")});
    ASSERT_EQ(venv.Wait(), 0) << venv.Err();
    python_ = folder_.File("venv/bin/python");
  }

  std::map<std::string, std::string> Environment(std::map<std::string, std::string> more = {}) const {
    std::map<std::string, std::string> environment = PreloadTest::Environment();
    environment.merge(servers_.Variables());
    environment.merge(more);
    return environment;
  }
  static std::vector<std::string> Kept(std::vector<std::string> script, std::vector<std::string> more = {}) {
    more.insert(more.begin(), "--preload-keep");
    return Flags(std::move(more), std::move(script));
  }
  // A job in the test's environment; returns true if it has used the server of an earlier one.
  bool Uses(const std::string& script, std::map<std::string, std::string> more = {}, int workers = 1) const {
    Finished job(0, Kept({script}, {absl::StrCat("--nproc-per-node=", workers)}), Environment(std::move(more)));
    return Count(job.Err(), kUsed) == 1;
  }
  std::string Ctl(const std::string& action) const {
    Process ctl({"ddprunctl/ddprunctl", "preload", action}, Environment());
    EXPECT_EQ(ctl.Wait(), 0) << ctl.Err();
    return ctl.Out();
  }
  static pid_t PidIn(const std::string& text, const std::string& before) {
    const size_t at = text.find(before);
    return at == text.npos ? 0 : std::atoi(text.c_str() + at + before.size());
  }
  // The default interpreter and those of pyenv, if there are any.
  std::vector<std::string> Pythons() const {
    std::vector<std::string> pythons = {python_};
    const passwd* const user = getpwuid(geteuid());
    glob_t found = {};
    glob(absl::StrCat(user == nullptr ? "" : user->pw_dir, "/.pyenv/versions/3.*/bin/python3").c_str(), 0, nullptr,
         &found);
    pythons.insert(pythons.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    return pythons;
  }
  pid_t Server() const { return PidIn(Ctl("status"), "pid: "); }

  KeptServers servers_;
};

TEST_F(PreloadKeepTest, WhatAWorkerSeesOfItself_IsAlike) {
  const std::string script =
      Script(absl::StrCat("import json, decimal\n", ReadFile("tests/launcher/fork_server/identity.py")));
  const std::vector<std::vector<std::string>> kFlags = {
      {"--nproc-per-node=2"}, {"--nproc-per-node=1"}, {"--nproc-per-node=2", "--tee=3"}, {"--max-restarts=1"}};
  for (const int workers : {1, 2}) ASSERT_FALSE(Uses(script, {}, workers));
  for (const std::vector<std::string>& flags : kFlags) {
    SCOPED_TRACE(flags.front());
    Finished kept(0, Kept({script, "argument"}, flags), Environment());
    Finished plain(0, Flags(flags, {script, "argument"}), Environment());
    EXPECT_EQ(Count(kept.Err(), kUsed), 1) << kept.Err();
    EXPECT_EQ(SortedLines(kept.Out()), SortedLines(plain.Out()));
  }
}

TEST_F(PreloadKeepTest, EveryPython_IsAlike) {
  const std::string identity = Script(absl::StrCat(
      "import decimal, json, logging\n", "started = logging.LogRecord('', 0, '', 0, '', (), None).relativeCreated\n",
      "print(f'{0 <= started < 600000}\\n', end='')\n", ReadFile("tests/launcher/fork_server/identity.py")));
  const std::string for_old = Script("import json\nprint('ran\\n', end='')\n", "for_old.py");
  for (const std::string& python : Pythons()) {
    SCOPED_TRACE(python);
    python_ = python;
    Process version({python, "-c", "import sys; sys.exit(sys.version_info < (3, 8))"});
    const bool supported = version.Wait() == 0;
    const std::string& script = supported ? identity : for_old;
    Finished plain(0, Flags({"--nproc-per-node=2"}, {script}), Environment());
    for (const bool used : {false, true}) {
      Finished job(0, Kept({script}, {"--nproc-per-node=2"}), Environment());
      EXPECT_EQ(SortedLines(job.Out()), SortedLines(plain.Out()));
      EXPECT_EQ(Count(job.Err(), kUsed), used && supported) << job.Err();
      EXPECT_EQ(Count(job.Err(), "--preload: Python 3.8 or newer is needed"), !supported) << job.Err();
    }
  }
}

TEST_F(PreloadKeepTest, WaysToEnd_AreAlike) {
  const std::string script = Script(R"(
import json, os, signal, sys, atexit
end = sys.argv[-1]
if end == "raise": raise ValueError("wrong")
if end == "exit": sys.exit(7)
if end == "kill": os.kill(os.getpid(), signal.SIGKILL)
if end == "segv": os.kill(os.getpid(), signal.SIGSEGV)
if end == "hooks": atexit.register(print, "at exit")
)");
  ASSERT_FALSE(Uses(script));
  for (const char* end : {"none", "raise", "exit", "kill", "hooks", "segv"}) {
    SCOPED_TRACE(end);
    Launcher kept(Kept({script, end}), Environment()), plain(Flags({}, {script, end}), Environment());
    EXPECT_EQ(kept.Wait(), plain.Wait());
    EXPECT_EQ(Count(kept.Err(), kUsed), 1) << kept.Err();
    EXPECT_EQ(kept.Out(), plain.Out());
    for (const char* said : {"ValueError: wrong", "SIGKILL", "SIGSEGV", "exit code 7"}) {
      EXPECT_EQ(Count(kept.Err(), said) > 0, Count(plain.Err(), said) > 0) << said << kept.Err() << plain.Err();
    }
  }
}

TEST_F(PreloadKeepTest, WorkersKilled_RestartAndNothingIsLeft) {
  // Each worker leaves a process in a session of its own.
  const std::string script = Script(R"(
import json, os, signal, subprocess, sys
left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
with open(f"{sys.argv[1]}{os.environ['TORCHELASTIC_RESTART_COUNT']}.{os.environ['RANK']}", "w") as file:
    file.write(str(left.pid))
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os.kill(os.getpid(), signal.SIGKILL) if os.environ["RANK"] == "0" else signal.pause()
print("ended\n", end="")
)");
  for (const bool used : {false, true}) {
    Finished job(0, Kept({script, folder_.File("left")}, {"--nproc-per-node=2", "--max-restarts=1"}), Environment());
    EXPECT_EQ(Count(job.Err(), kUsed), used ? 1 : 0) << job.Err();
    EXPECT_EQ(job.Out(), "ended\nended\n");
    for (const char* name : {"left0.0", "left1.0", "left1.1"}) {
      const pid_t pid = PidIn(ReadFile(folder_.File(name)), "");
      ASSERT_GT(pid, 0) << name;
      EXPECT_TRUE(Eventually([&] { return !Alive(pid); })) << name;
    }
  }
}

TEST_F(PreloadKeepTest, SomethingKilled_LeavesNothing) {
  const std::string script = Script(R"(
import json, os, signal, subprocess
left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print(f"worker {os.getpid()} parent {os.getppid()} left {left.pid}\n", end="")
signal.pause()
)");
  const std::string ends = Script("import json, os, signal, subprocess\n", "ends.py");
  ASSERT_FALSE(Uses(ends));
  for (const char* killed : {"launcher", "copy", "worker"}) {
    SCOPED_TRACE(killed);
    Launcher job(Kept({script}), Environment());
    ASSERT_TRUE(job.WaitForOut("left ")) << job.Err();
    ASSERT_TRUE(Eventually([&] { return job.Out().back() == '\n'; }));
    EXPECT_EQ(Count(job.Err(), kUsed), 1) << job.Err();
    const pid_t worker = PidIn(job.Out(), "worker "), copy = PidIn(job.Out(), "parent "),
                left = PidIn(job.Out(), "left ");
    ASSERT_NE(copy, job.pid());
    kill(killed[0] == 'l' ? job.pid() : killed[0] == 'c' ? copy : worker, SIGKILL);
    EXPECT_EQ(job.Wait(), 128 + SIGKILL) << job.Err();
    for (const pid_t pid : {worker, copy, left}) EXPECT_TRUE(Eventually([&] { return !Alive(pid); })) << pid;
    EXPECT_TRUE(Uses(ends));
  }
  // The server: its job continues, the next one starts as the first.
  Launcher job(Kept({script}), Environment());
  ASSERT_TRUE(job.WaitForOut("left ")) << job.Err();
  const pid_t server = Server();
  ASSERT_GT(server, 0);
  kill(server, SIGKILL);
  EXPECT_TRUE(Alive(PidIn(job.Out(), "worker ")));
  EXPECT_FALSE(Uses(ends));
  job.Signal(SIGTERM);
  EXPECT_EQ(job.Wait(), 128 + SIGTERM);
  EXPECT_TRUE(Eventually([&] { return !Alive(PidIn(job.Out(), "left ")); }));
}

TEST_F(PreloadKeepTest, PipesAndLocksOfTheCaller_AreNotKept) {
  const std::string script = Script("import json\nprint('ran')\n");
  // `cat` ends when nothing has its end of the pipe open any more, and flock locks when the first one's file is closed.
  std::string command = absl::StrCat("exec 9>", folder_.File("lock"), "; flock 9; launcher/ddprun");
  for (const std::string& word : Kept({script})) absl::StrAppend(&command, " ", word);
  absl::StrAppend(&command, " | cat; exec 9>&-; flock -n ", folder_.File("lock"), " echo free");
  Process shell({"/bin/sh", "-c", command}, Environment());
  EXPECT_EQ(shell.Wait(), 0) << shell.Err();
  EXPECT_EQ(shell.Out(), "ran\nfree\n") << shell.Err();
  EXPECT_GT(Server(), 0) << shell.Err();
}

TEST_F(PreloadKeepTest, SuspendedServer_IsReplacedAndEnds) {
  const std::string script = Script("import json\nprint('ran')\n");
  ASSERT_FALSE(Uses(script));
  const pid_t server = Server();
  kill(server, SIGSTOP);
  Finished job(0, Kept({script}), Environment());
  EXPECT_EQ(job.Out(), "ran\n");
  EXPECT_EQ(Count(job.Err(), "the kept server is not used, because it has not answered for 2s"), 1) << job.Err();
  EXPECT_TRUE(Uses(script));
  kill(server, SIGCONT);
  EXPECT_TRUE(Eventually([&] { return !Alive(server); }));
}

TEST_F(PreloadKeepTest, ServerDiesWhenAsked_OneLineAndStartsAsTheFirst) {
  const std::string script = Script("import json\nprint('ran')\n");
  ASSERT_FALSE(Uses(script));
  const pid_t server = Server();
  // The one that listens, and the server's ends of connections.
  const auto sockets = [&] { return Count(ReadFile("/proc/net/unix"), servers_.folder()); };
  ASSERT_TRUE(Eventually([&] { return sockets() == 1; }));
  kill(server, SIGSTOP);
  Launcher job(Kept({script}), Environment());
  EXPECT_TRUE(Eventually([&] { return sockets() == 2; }));
  kill(server, SIGKILL);
  EXPECT_EQ(job.Wait(), 0);
  EXPECT_EQ(job.Out(), "ran\n");
  EXPECT_EQ(Count(job.Err(), "the kept server is not used, because it has died"), 1) << job.Err();
}

TEST_F(PreloadKeepTest, FilesWrittenToTheWorkingFolder_AreNoReason) {
  mkdir(folder_.File("source").c_str(), 0700);
  std::string words = "$OLDPWD/launcher/ddprun";
  const std::string script = Script("import json, os\nopen(f'output{os.getpid()}', 'w')\n", "source/script.py");
  for (const std::string& word : Kept({script})) absl::StrAppend(&words, " ", word);
  Process shell({"/bin/sh", "-c", absl::StrCat("cd ", folder_.path(), "; ", words, "; ", words)}, Environment());
  EXPECT_EQ(shell.Wait(), 0);
  EXPECT_EQ(Count(shell.Err(), kUsed), 1) << shell.Err();
}

// Another user may take the name of the folder in /tmp, here one of its own.
TEST_F(PreloadKeepTest, NameOfTheFolderIsTaken_HasAnother) {
  std::string words = "launcher/ddprun";
  for (const std::string& word : Kept({Script("import json\n")})) absl::StrAppend(&words, " ", word);
  const std::vector<std::string> own = {"/usr/bin/env", "unshare", "-rm", "sh", "-c"};
  const auto in_own_tmp = [&](std::string command) {
    std::vector<std::string> argv = own;
    argv.push_back("mount -t tmpfs none /tmp && " + command);
    return argv;
  };
  Process allowed(in_own_tmp("true"));
  if (allowed.Wait() != 0) GTEST_SKIP() << allowed.Err();
  std::map<std::string, std::string> environment = Environment();
  environment["XDG_RUNTIME_DIR"] = "";
  Process jobs(in_own_tmp(absl::StrCat("ln -s /nowhere /tmp/ddprun-0; ", words, "; ", words,
                                       "; ddprunctl/ddprunctl preload stop")),
               environment);
  EXPECT_EQ(jobs.Wait(), 0) << jobs.Err();
  EXPECT_EQ(Count(jobs.Err(), kUsed), 1) << jobs.Err();
  EXPECT_EQ(Count(jobs.Out(), "stopped: "), 1) << jobs.Out();
}

TEST_F(PreloadKeepTest, TimeIsOver_Ends) {
  Finished job(0, Flags({"--preload-keep=1"}, {Script("import json\n")}), Environment());
  const pid_t server = PidIn(job.Err(), "--preload-keep: fork server ");
  ASSERT_GT(server, 0) << job.Err();
  EXPECT_TRUE(Eventually([&] { return !Alive(server); }));
  EXPECT_EQ(Ctl("status"), "no fork server is kept\n");
}

TEST_F(PreloadKeepTest, MoreThanTwo_TheLeastRecentlyUsedEnds) {
  std::vector<std::string> scripts;
  for (const char* folder : {"a", "b", "c"}) {
    mkdir(folder_.File(folder).c_str(), 0700);
    scripts.push_back(Script("import json\n", absl::StrCat(folder, "/script.py")));
  }
  EXPECT_FALSE(Uses(scripts[0]));
  EXPECT_FALSE(Uses(scripts[1]));
  EXPECT_TRUE(Uses(scripts[0]));
  EXPECT_FALSE(Uses(scripts[2]));
  EXPECT_EQ(Count(Ctl("status"), "pid: "), 2);
  EXPECT_TRUE(Uses(scripts[0]));
  EXPECT_FALSE(Uses(scripts[1]));
}

TEST_F(PreloadKeepTest, OneAndSeveralWorkers_BothHaveAServer) {
  const std::string script = Script("import json\n");
  for (const bool used : {false, true}) {
    for (const int workers : {1, 2}) EXPECT_EQ(Uses(script, {}, workers), used) << workers;
  }
  EXPECT_TRUE(Uses(script, {}, 3));
}

TEST_F(PreloadKeepTest, NoServerForThisJob_SaysInWhatTheyDiffer) {
  const std::string script = Script("import json\n");
  Finished first(0, Kept({script}), Environment());
  EXPECT_EQ(Count(first.Err(), "--preload-keep: no server is kept"), 1) << first.Err();
  Finished other_threads(0, Kept({script}, {"--nproc-per-node=2"}), Environment());
  EXPECT_EQ(Count(other_threads.Err(), "--preload-keep: 1 server is kept, none for OMP_NUM_THREADS=1"), 1)
      << other_threads.Err();
  mkdir(folder_.File("a").c_str(), 0700);
  Finished other_folder(0, Kept({Script("import json\n", "a/script.py")}), Environment());
  EXPECT_EQ(Count(other_folder.Err(), "--preload-keep: 2 servers are kept, none for scripts in /"), 1)
      << other_folder.Err();
}

TEST_F(PreloadKeepTest, DifferentProcess_IsRefusedWithOneLine) {
  const std::string script = Script("import json\n");
  std::string command = "launcher/ddprun";
  for (const std::string& word : Kept({script})) absl::StrAppend(&command, " ", word);
  struct Case {
    const char* before;
    const char* reason;
  };
  const Case kCases[] = {
      {"ulimit -n 500", "because limit-7 differs"},
      {"ulimit -s 4096", "because limit-3 differs"},
      {"umask 077", "because Umask differs"},
      {"renice -n 1 -p $$ >/dev/null", "because nice differs"},
      {"exec 7</dev/null", "because workers inherit descriptor 7"},
      {"export SLURM_JOB_ID=1 ", "because SLURM_JOB_ID differs"},
      {"export PYTHONHASHSEED=1", "because the variable PYTHONHASHSEED"},
      {"export LD_LIBRARY_PATH=/nowhere", "because the variable LD_LIBRARY_PATH"},
  };
  ASSERT_FALSE(Uses(script));
  for (const Case& different : kCases) {
    SCOPED_TRACE(different.before);
    Process job({"/bin/sh", "-c", absl::StrCat(different.before, "; exec ", command)}, Environment());
    EXPECT_EQ(job.Wait(), 0) << job.Err();
    EXPECT_EQ(Count(job.Err(), different.reason), 1) << job.Err();
    Ctl("stop");
    ASSERT_FALSE(Uses(script));
  }
}

TEST_F(PreloadKeepTest, ImportsThatCannotBeKept_AreNot) {
  const std::pair<const char*, const char*> kModules[] = {
      {"import os\nOPEN = open(os.path.dirname(__file__) + '/bad.py')", "because the imports left "},
      {"import subprocess\nsubprocess.run(['true'])", "because an import called subprocess.Popen"},
      {"import tempfile\nFOLDER = tempfile.mkdtemp()", "because an import called tempfile.mkdtemp"},
      {"import os\nALL = dict(os.environ)", "because bad reads all variables"},
      {"import signal\nsignal.signal(signal.SIGCHLD, lambda *_: None)",
       "because an import has set a handler of SIGCHLD"},
  };
  for (const auto& [module, reason] : kModules) {
    SCOPED_TRACE(module);
    Write(Installed("bad.py"), module);
    const std::string script = Script("import bad\n");
    Finished job(0, Kept({script}), Environment());
    EXPECT_EQ(Count(job.Err(), reason), 1) << job.Err();
    EXPECT_FALSE(Uses(script));
  }
}

TEST_F(PreloadKeepTest, ImportThatLooksForAPrefix_ComparesTheseVariables) {
  mkdir(Installed("tqdm").c_str(), 0700);
  Write(Installed("tqdm/__init__.py"), "from . import utils\n");
  Write(Installed("tqdm/utils.py"), R"(
import os
def envwrap(prefix):
    return {k: v for k, v in os.environ.items() if k.startswith(prefix)}
SET = envwrap("TQDM_")
)");
  const std::string script = Script("import tqdm\nprint(tqdm.utils.SET)\n");
  EXPECT_FALSE(Uses(script));
  EXPECT_TRUE(Uses(script, {{"OTHER", "1"}}));
  EXPECT_FALSE(Uses(script, {{"TQDM_DISABLE", "1"}}));
  EXPECT_TRUE(Uses(script, {{"TQDM_DISABLE", "1"}}));
  EXPECT_FALSE(Uses(script));
}

// Installs, changes and removes what a script's imports read, and sets variables. After each change a job with
// --preload-keep must print what Python prints.
class Project {
 public:
  Project(const std::string& root, const std::string& site) : root_(root), site_(site), random_(7) {
    for (const char* folder : {"/first", "/second", "/second/package", "/project", "/extra"}) {
      mkdir((root + folder).c_str(), 0700);
    }
    for (const char* file : {"/second/value.py", "/second/package/part.py", "/second/data.txt"}) Set(file);
    Write("/second/package/__init__.py", "from . import part\nVALUE = part.VALUE\n");
    Write("/second/reads.py", R"(
import os, ctypes, importlib.metadata
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
with open(os.path.join(os.path.dirname(__file__), "data.txt")) as file:
    DATA = file.read()
try:
    import optional
except ImportError:
    optional = None
VALUE = [os.environ.get("SEEN"), getenv(b"NATIVE"), DATA, optional and optional.VALUE,
         sorted(d.metadata["Name"] for d in importlib.metadata.distributions())]
)");
    Write("/project/beside.py", "import value\n");
    Write("/project/script.py", Imports());
  }

  // Returns a description of what it did.
  std::string Change() {
    switch (random_() % 14) {
      case 0: return Set("/second/value.py");
      case 1: return Set("/second/value.py", /*put_back=*/true);
      case 2: return Replace("/second/value.py");
      case 3: return Set("/second/package/part.py", /*put_back=*/true);
      case 4: return Set("/second/data.txt", /*put_back=*/true);
      case 5: return Toggle("/first/value.py");  // shadows the other
      case 6: return Toggle("/second/optional.py");
      case 7: {
        const std::string folder = absl::StrCat("/thing", random_() % 2, "-1.0.dist-info");
        mkdir((site_ + folder).c_str(), 0700);
        if (unlink((site_ + folder + "/METADATA").c_str()) == 0) return rmdir((site_ + folder).c_str()), "uninstalled";
        std::ofstream(site_ + folder + "/METADATA") << "Name: thing" << random_() % 2 << "\nVersion: 1.0\n";
        return "installed";
      }
      case 8:
        if (unlink((site_ + "/extra.pth").c_str()) == 0) return "removed extra.pth";
        Set("/extra/optional.py");
        std::ofstream(site_ + "/extra.pth") << root_ << "/extra\n";
        return "added extra.pth";
      case 9: return Variable("SEEN");
      case 10: return Variable("NATIVE");
      case 11:
        Write("/project/script.py", absl::StrCat(Imports(), "# ", random_() % 9, "\n"));
        return "changed the script's end";
      case 12:
        Write("/project/beside.py", random_() % 2 == 0 ? "import value\n" : "import package, value\n");
        return "changed the module beside the script";
      default: return Variable("UNREAD");
    }
  }
  std::string script() const { return root_ + "/project/script.py"; }
  const std::map<std::string, std::string>& variables() const { return variables_; }

 private:
  static std::string Imports() {
    return "import beside, reads, package, value\n"
           "print(reads.VALUE, package.VALUE, value.VALUE, value.__file__, __import__('os').environ.get('UNREAD'))\n";
  }
  void Write(const std::string& file, const std::string& text) { std::ofstream(root_ + file) << text; }
  std::string Text() { return absl::StrCat("VALUE = ", 100 + random_() % 900, "\n"); }
  // In place, of the same size.
  std::string Set(const std::string& file, bool put_back = false) {
    struct stat before = {};
    const bool is_there = stat((root_ + file).c_str(), &before) == 0;
    Write(file, Text());
    const timespec times[] = {before.st_atim, before.st_mtim};
    if (put_back && is_there) utimensat(AT_FDCWD, (root_ + file).c_str(), times, 0);
    return absl::StrCat("changed ", file, put_back ? " and put its time back" : "");
  }
  std::string Replace(const std::string& file) {
    Write(file + ".new", Text());
    rename((root_ + file + ".new").c_str(), (root_ + file).c_str());
    return absl::StrCat("replaced ", file);
  }
  std::string Toggle(const std::string& file) {
    if (unlink((root_ + file).c_str()) == 0) return absl::StrCat("removed ", file);
    return Set(file);
  }
  std::string Variable(const std::string& name) {
    variables_[name] = random_() % 3 == 0 ? "" : absl::StrCat(random_() % 3);
    return absl::StrCat("set ", name, " to ", variables_[name]);
  }

  const std::string root_;
  const std::string site_;
  std::mt19937 random_;
  std::map<std::string, std::string> variables_;
};

TEST_F(PreloadKeepTest, RandomChanges_NeverStale) {
  Process site({python_, "-c", "import site, sys\nsys.stdout.write(site.getsitepackages()[0])"});
  ASSERT_EQ(site.Wait(), 0);
  Project project(folder_.path(), site.Out());
  int used = 0;
  constexpr int kChanges = 100;
  for (int i = 0; i < kChanges; ++i) {
    std::string change;
    for (int changes = i % 3; changes > 0; --changes) absl::StrAppend(&change, project.Change(), ", ");
    SCOPED_TRACE(absl::StrCat(i, ": ", change));
    std::map<std::string, std::string> environment = Environment(project.variables());
    environment["PYTHONPATH"] = absl::StrCat(folder_.File("first"), ":", folder_.File("second"));
    environment["PYTHONDONTWRITEBYTECODE"] = "1";
    Finished kept(0, Kept({project.script()}), environment);
    Process plain({python_, "-u", project.script()}, environment);
    EXPECT_EQ(plain.Wait(), 0);
    ASSERT_EQ(kept.Out(), plain.Out()) << kept.Err();
    used += Count(kept.Err(), kUsed);
  }
  EXPECT_GE(used, kChanges / 4) << "nothing was tested";
  EXPECT_LE(used, kChanges * 3 / 4) << "nothing was tested";
}

}  // namespace
}  // namespace ddprun::testing
