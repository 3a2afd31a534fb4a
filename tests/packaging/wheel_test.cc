// Builds the wheel, installs it into a new virtual environment and uses its commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr char kMake[] = "packaging/wheel/make_wheel.py";
constexpr char kTrainer[] =
    "import os, sys\n"
    "print(f\"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} in {sys.executable}\\n\", end='', flush=True)\n"
    "assert not [name for name in os.environ if name.endswith('ENDS_WITH_PROCESS')]\n";
// A worker that prints how often it received SIGTERM before it was released.
constexpr char kCountsSignals[] =
    "import os, signal, time\n"
    "got = []\n"
    "signal.signal(signal.SIGTERM, lambda *_: got.append(1))\n"
    "print(f'up {os.getpid()} {os.getppid()} .', flush=True)\n"
    "while not got: signal.pause()\n"
    "time.sleep(0.2)\n"
    "print('signals:', len(got), flush=True)\n";

struct End {
  int code = -1;
  std::string out, err;
};

End Shell(const std::string& line, std::map<std::string, std::string> environment = {}) {
  // A user's shell: without Bazel's compiler variables and without a launcher's.
  for (const char* name : {"CC", "CXX", "RANK", "WORLD_SIZE", "PYTHON_EXEC", "VIRTUAL_ENV", "PYTHONPATH"}) {
    environment.insert({name, ""});
  }
  Process process({"/bin/sh", "-c", line}, environment);
  End end;
  end.code = process.Wait();
  end.out = process.Out();
  end.err = process.Err();
  return end;
}

// The Python in which scripts/wheel has installed the linker; empty if there is none.
std::string Tools() {
  const std::string python = SourceRoot() + "/bin/.wheel_tools/bin/python";
  return fs::exists(python) ? python : "";
}

std::set<std::string> Files(const std::string& folder) {
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) files.insert(fs::relative(entry.path(), folder));
  return files;
}

class WheelTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (Tools().empty()) return;
    dir_ = new TempDir;
    const End made = Shell(absl::StrCat(Tools(), " ", kMake, " --parts packaging/wheel --out ", dir_->File("out")));
    ASSERT_EQ(made.code, 0) << made.err;
    wheel_ = new std::string(absl::StripAsciiWhitespace(made.out));
    const End venv = Shell(absl::StrCat(Tools(), " -m venv ", Venv()));
    ASSERT_EQ(venv.code, 0) << venv.err;
    before_ = new std::set<std::string>(Files(Venv()));
    const End installed = Pip("install --no-index --no-compile " + *wheel_);
    ASSERT_EQ(installed.code, 0) << installed.err;
    std::ofstream(dir_->File("train.py")) << kTrainer;
    std::ofstream(dir_->File("counts.py")) << kCountsSignals;
  }
  static void TearDownTestSuite() {
    delete wheel_;
    delete before_;
    delete dir_;
  }

  void SetUp() override {
    if (Tools().empty()) GTEST_SKIP() << "no linker for old distributions (scripts/wheel --tools installs it)";
    ASSERT_NE(wheel_, nullptr) << "the wheel could not be made";
  }

  static std::string Venv() { return dir_->File("venv"); }
  static std::string Bin(const std::string& name) { return Venv() + "/bin/" + name; }
  static std::string InDir(const std::string& name) { return dir_->File(name); }
  static End Pip(const std::string& arguments) {
    return Shell(absl::StrCat(Bin("python"), " -m pip --disable-pip-version-check ", arguments));
  }
  // Python leaves no compiled copy of the main script.
  static std::map<std::string, std::string> Plain() { return {{"PYTHONDONTWRITEBYTECODE", "1"}}; }

  static TempDir* dir_;
  static std::string* wheel_;
  static std::set<std::string>* before_;
};
TempDir* WheelTest::dir_ = nullptr;
std::string* WheelTest::wheel_ = nullptr;
std::set<std::string>* WheelTest::before_ = nullptr;

TEST_F(WheelTest, Auditwheel_Wheel_IsManylinux228) {
  const End end = Shell(absl::StrCat(Tools(), " -m auditwheel show ", *wheel_));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("platform tag: \"manylinux_2_28_x86_64\"")) << end.out;
  EXPECT_THAT(end.out, Not(HasSubstr("libstdc++"))) << end.out;
}

TEST_F(WheelTest, File_Wheel_IsSmallWithoutTorchAndNamesLicences) {
  EXPECT_LT(fs::file_size(*wheel_), 9'500'000);
  const End end = Shell(absl::StrCat(Tools(), " -m zipfile -l ", *wheel_));
  for (const char* name :
       {"ddprun/__init__.py", "ddprun/__main__.py", "ddprun/worker.py", "ddprun/py.typed", "ddprun/elastic/__init__.py",
        "ddprun/in_place/bin/torchrun", "ddprun/in_place/site/sitecustomize.py", ".data/scripts/ddprun ",
        ".data/scripts/rendezvousd ", ".data/data/lib/libddprun_crash.so", ".data/data/lib/libddprun_ports.so",
        "licenses/LICENSE", "licenses/libgrpc-dev", "licenses/libssl-dev", "licenses/libcli11-dev"}) {
    EXPECT_THAT(end.out, HasSubstr(name));
  }
  const End metadata = Shell("cat " + Venv() + "/lib/python*/site-packages/ddprun-*.dist-info/METADATA");
  EXPECT_THAT(metadata.out, HasSubstr("\nName: ddprun\n"));
  EXPECT_THAT(metadata.out, Not(HasSubstr("Requires-Dist")));
  EXPECT_THAT(metadata.out, Not(HasSubstr("](docs/"))) << "a link that works only in the source tree";
  const End version = Shell(Bin("python") + " -c 'import ddprun; print(\"ddprun\", ddprun.__version__)'");
  EXPECT_EQ(version.out, Shell(Bin("ddprun") + " --version").out) << version.err;
}

TEST_F(WheelTest, Build_Again_SameBytes) {
  const End made = Shell(absl::StrCat(Tools(), " ", kMake, " --parts packaging/wheel --out ", InDir("again")));
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(Shell(absl::StrCat("cmp ", *wheel_, " ", made.out)).code, 0);
}

TEST_F(WheelTest, Command_Script_RunsTwoWorkers) {
  EXPECT_THAT(Shell(Bin("ddprun") + " --version").out, HasSubstr("ddprun "));
  const End end = Shell(Bin("ddprun") + " --standalone --nproc_per_node=2 " + InDir("train.py"));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("rank 0 of 2"));
  EXPECT_THAT(end.out, HasSubstr("rank 1 of 2"));
}

TEST_F(WheelTest, Exec_TorchrunIsDdprun) {
  const End end =
      Shell(absl::StrCat(Bin("ddprun"), " exec torchrun --standalone --nproc_per_node=2 ", InDir("train.py")));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("rank 1 of 2"));
}

TEST_F(WheelTest, PortRange_Library_IsFound) {
  const End end = Shell(absl::StrCat(Bin("ddprun"), " --standalone --port-range=20000-29000 ", InDir("train.py")));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.err, Not(HasSubstr("libddprun_ports.so")));
}

TEST_F(WheelTest, Rendezvousd_Command_Serves) {
  EXPECT_THAT(Shell(Bin("rendezvousd") + " --version").out, HasSubstr("rendezvousd "));
  // The flag parser's exceptions propagate through the program.
  EXPECT_EQ(Shell(Bin("rendezvousd") + " --no-such-flag").code, 2);
  Process server({Bin("rendezvousd"), "--listen", "127.0.0.1:0"});
  ASSERT_TRUE(server.WaitForOut("listening on")) << server.Err();
  EXPECT_EQ(ReadFile(absl::StrCat("/proc/", server.pid(), "/comm")), "rendezvousd\n");
  // "rendezvousd: listening on 127.0.0.1:PORT"
  const std::string address = std::string(absl::StripAsciiWhitespace(server.Out())).substr(26);
  const End end =
      Shell(absl::StrCat(Bin("ddprun"), " --rdzv-id=job --rdzv-endpoint=", address, " ", InDir("train.py")));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("rank 0 of 1"));
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
}

TEST_F(WheelTest, Rendezvousd_DdprunMissing_ErrorNamesIt) {
  fs::create_directory(InDir("alone"));
  fs::copy(Bin("rendezvousd"), InDir("alone/rendezvousd"));
  const End end = Shell(InDir("alone/rendezvousd"));
  EXPECT_EQ(end.code, 127);
  EXPECT_EQ(end.err, absl::StrCat("rendezvousd: can't run ", InDir("alone/ddprun"),
                                  ": No such file or directory; the wheel installs it beside rendezvousd\n"));
}

TEST_F(WheelTest, Module_Workers_RunInSamePython) {
  const End end = Shell(Bin("python") + " -m ddprun --standalone --nproc_per_node=2 " + InDir("train.py"), Plain());
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr(absl::StrCat("rank 1 of 2 in ", Bin("python"))));
  EXPECT_EQ(Shell(Bin("python") + " -m ddprun --no-such-flag", Plain()).code, 2);
}

TEST_F(WheelTest, Module_Process_IsReplacedByLauncher) {
  Process launcher({Bin("python"), "-m", "ddprun", "--standalone", InDir("counts.py")}, Plain());
  ASSERT_TRUE(launcher.WaitForOut(absl::StrCat(" ", launcher.pid(), " ."))) << launcher.Out() << launcher.Err();
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM);
}

TEST_F(WheelTest, Run_JobEnds_ReturnsExitCode) {
  for (const char* thread : {"main", "thread"}) {
    const std::string call = absl::StrCat(Bin("python"), " tests/packaging/launch_in_python.py ", thread);
    const End well = Shell(absl::StrCat(call, " --standalone --nproc_per_node=2 ", InDir("train.py")), Plain());
    EXPECT_EQ(well.code, 0) << well.err;
    EXPECT_THAT(well.out, HasSubstr(absl::StrCat("rank 1 of 2 in ", Bin("python"))));
    EXPECT_THAT(well.out, EndsWith("run returned 0\n"));
    const End failed = Shell(call + " --standalone --no-python sh -c 'exit 7'", Plain());
    EXPECT_THAT(failed.out, EndsWith("run returned 7\n")) << failed.err;
  }
}

TEST_F(WheelTest, Run_Signal_IsForwardedOnce) {
  Process python({Bin("python"), "tests/packaging/launch_in_python.py", "main", "--standalone", InDir("counts.py")},
                 Plain());
  ASSERT_TRUE(python.WaitForOut("up ")) << python.Err();
  python.Signal(SIGTERM);
  EXPECT_EQ(python.Wait(), 0) << python.Err();
  EXPECT_THAT(python.Out(), HasSubstr("signals: 1\n"));
  EXPECT_THAT(python.Out(), EndsWith("run returned 143\n"));
}

TEST_F(WheelTest, Run_PythonKilled_LauncherAndWorkersEnd) {
  for (const char* thread : {"main", "thread"}) {
    Process python({Bin("python"), "tests/packaging/launch_in_python.py", thread, "--standalone", InDir("counts.py")},
                   Plain());
    ASSERT_TRUE(python.WaitForOut(" .\n")) << python.Err();
    const std::vector<std::string> words = absl::StrSplit(python.Out(), ' ');
    ASSERT_GE(words.size(), 3);
    const pid_t worker = std::stoi(words[1]), launcher = std::stoi(words[2]);
    python.Signal(SIGKILL);
    EXPECT_EQ(python.Wait(), 128 + SIGKILL);
    EXPECT_TRUE(Eventually([&] { return !Alive(launcher); }));
    EXPECT_TRUE(Eventually([&] { return !Alive(worker); }));
  }
}

TEST_F(WheelTest, Run_OneString_RaisesTypeError) {
  const End end = Shell(Bin("python") + " -c 'import ddprun; ddprun.run(\"--standalone train.py\")'", Plain());
  EXPECT_THAT(end.err, HasSubstr("TypeError: args is a list of arguments"));
}

TEST_F(WheelTest, TargetFolder_Module_FindsProgram) {
  ASSERT_EQ(Pip("install --no-index --no-compile --target " + InDir("target") + " " + *wheel_).code, 0);
  const End end = Shell(absl::StrCat("cd ", InDir("target"), " && python3 -m ddprun --version"), Plain());
  EXPECT_EQ(end.code, 0) << end.err;
}

// Last, because it uninstalls the wheel.
TEST_F(WheelTest, Uninstall_Wheel_LeavesNothing) {
  const End end = Pip("uninstall --yes ddprun");
  EXPECT_EQ(end.code, 0) << end.err;
  std::set<std::string> after;
  // pip's own compiled files, from its first run, remain; pip also leaves the empty folders above share/man/man1.
  for (const std::string& name : Files(Venv())) {
    if (name.find("__pycache__") == std::string::npos && name != "share" && name != "share/man") after.insert(name);
  }
  EXPECT_THAT(*before_, IsSupersetOf(after));
}

}  // namespace
}  // namespace ddprun::testing
