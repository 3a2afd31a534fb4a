// `ddprun exec` and `ddprun install-torchrun`, with a Python that has a stand-in for PyTorch.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

namespace fs = std::filesystem;
using Environment = std::map<std::string, std::string>;

constexpr char kTrain[] =
    "import os, sys\n"
    "rank, size = os.environ['RANK'], os.environ['WORLD_SIZE']\n"
    "print(f'rank {rank} of {size} {sys.argv[1:]} in {sys.executable} .\\n', end='')\n";
// The script that pip writes for the entry point of PyTorch's package.
constexpr char kTorchrun[] =
    "# -*- coding: utf-8 -*-\n"
    "import re\nimport sys\n"
    "from torch.distributed.run import main\n"
    "if __name__ == '__main__':\n"
    "    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])\n"
    "    sys.exit(main())\n";

class InPlaceTest : public ::testing::Test {
 protected:
  InPlaceTest() { Write("train.py", kTrain); }

  std::string Write(const std::string& name, const std::string& text, int mode = 0644) const {
    fs::create_directories(fs::path(dir_.File(name)).parent_path());
    std::ofstream(dir_.File(name)) << text;
    chmod(dir_.File(name).c_str(), mode);
    return dir_.File(name);
  }
  // A virtual environment with a torchrun, whose `main` fails.
  std::string MakeVenv() const {
    const std::string venv = dir_.File("venv");
    Process made({"/usr/bin/env", "python3", "-m", "venv", "--without-pip", venv});
    EXPECT_EQ(made.Wait(), 0) << made.Err();
    Write("venv/bin/torchrun", "#!" + venv + "/bin/python\n" + kTorchrun, 0755);
    const std::string site = fs::directory_iterator(venv + "/lib")->path() / "site-packages";
    fs::create_directories(site + "/torch/distributed");
    std::ofstream(site + "/torch/__init__.py") << "";
    std::ofstream(site + "/torch/distributed/run.py") << "def main():\n    return 'the original'\n";
    return venv;
  }
  Finished Exec(int code, std::vector<std::string> command, Environment environment = {},
                std::source_location at = std::source_location::current()) const {
    command.insert(command.begin(), {"exec", "--"});
    return Finished(code, command, std::move(environment), at);
  }
  Finished ExecShell(int code, const std::string& line, Environment environment = {},
                     std::source_location at = std::source_location::current()) const {
    return Exec(code, {"sh", "-c", "cd " + dir_.path() + " && " + line}, std::move(environment), at);
  }

  const TempDir dir_;
};

TEST_F(InPlaceTest, Exec_Command_KeepsProcessIdSignalsAndExitCode) {
  Finished launcher = Exec(7, {"sh", "-c", "echo pid $$; exit 7"});
  EXPECT_EQ(launcher.Out(), absl::StrCat("pid ", launcher.pid(), "\n"));
  EXPECT_EQ(launcher.Err(), "");
  Exec(128 + SIGTERM, {"sh", "-c", "kill -TERM $$"});
  Finished without_dashes(3, {"exec", "sh", "-c", "exit 3"});
}

TEST_F(InPlaceTest, Exec_CommandNotRunnable_ExitsLikeEnv) {
  EXPECT_THAT(Exec(127, {"no-such-command"}).Err(), HasSubstr("no-such-command"));
  EXPECT_THAT(Exec(126, {dir_.File("train.py")}).Err(), HasSubstr("not executable"));
  EXPECT_THAT(Exec(2, {}).Err(), HasSubstr("no command to run: ddprun exec [FLAGS] -- COMMAND"));
  Finished help(0, {"exec", "--help"});
  EXPECT_THAT(help.Out(), HasSubstr("Usage: ddprun exec"));
}

TEST_F(InPlaceTest, Exec_Flags_ReachLauncherWhoseOwnFlagsWin) {
  const std::vector<std::string> flags = {"exec", "--nproc_per_node=2", "--max-restarts", "3", "--preload", "--"};
  const auto run = [&](const std::string& line) {
    std::vector<std::string> words = flags;
    words.insert(words.end(), {"sh", "-c", line});
    return Finished(0, words, {{"PET_MAX_RESTARTS", "7"}, {"PET_PRELOAD", "none"}}).Out();
  };
  EXPECT_THAT(run("torchrun --standalone --show-config"),
              AllOf(HasSubstr("PET_NPROC_PER_NODE=2"), HasSubstr("PET_MAX_RESTARTS=3")));
  EXPECT_THAT(run("torchrun --standalone --max-restarts=1 --show-config"),
              AllOf(HasSubstr("PET_NPROC_PER_NODE=2"), HasSubstr("--max-restarts=1")));
  EXPECT_THAT(run("echo $PET_PRELOAD; torchrun --standalone " + dir_.File("train.py")),
              AllOf(HasSubstr("auto\n"), HasSubstr("rank 1 of 2")));
  Finished modules(0, {"exec", "--preload", "json", "--", "sh", "-c", "echo $PET_PRELOAD $0", "--preload=torch"});
  EXPECT_EQ(modules.Out(), "json --preload=torch\n");
}

TEST_F(InPlaceTest, Exec_InvalidFlags_AreNamed) {
  const struct {
    std::vector<std::string> words;
    const char* message;
  } kCases[] = {
      {{"--max-restart=3", "--", "true"}, "unknown flag '--max-restart': did you mean --max-restarts?"},
      {{"--max-restarts", "--", "true"}, "--max-restarts needs a value"},
      {{"--max-restarts=x", "--", "true"}, "--max-restarts: 'x' is not a whole number"},
      {{"--max-restarts=3"}, "no command to run: ddprun exec [FLAGS] -- COMMAND"},
      {{"--max-restarts=3", "true"}, "-- must stand between the flags and the command"},
      {{"--max-restarts=3", "true", "--", "true"}, "-- must stand between the flags and the command"},
      {{"--hosts=a,b", "--", "true"}, "exec does not take --hosts: COMMAND runs on this host only"},
      {{"-m", "--", "true"}, "exec does not take --module: COMMAND tells its launcher"},
      {{"--show-config", "--", "true"}, "exec does not take --show-config: "},
  };
  for (const auto& [words, message] : kCases) {
    std::vector<std::string> arguments = words;
    arguments.insert(arguments.begin(), "exec");
    Finished launcher(2, arguments);
    EXPECT_THAT(launcher.Err(), HasSubstr(message));
    EXPECT_EQ(Lines(launcher.Err()), 1);
  }
}

TEST_F(InPlaceTest, Exec_ScriptOfThisName_RunsWithPath) {
  const std::string script = Write("exec", "#!/bin/sh\necho script $1\n", 0755);
  Finished launcher(0, {script, "x"});
  EXPECT_EQ(launcher.Out(), "script x\n");
}

TEST_F(InPlaceTest, Exec_EveryTorchCommand_StartsDdprun) {
  for (const char* command : {"torchrun", "python3 -m torch.distributed.run", "python3 -um torch.distributed.run",
                              "python3 -mtorch.distributed.run"}) {
    Finished launcher = ExecShell(0, absl::StrCat(command, " --standalone --nproc-per-node 2 train.py --lr 1"));
    EXPECT_THAT(launcher.Out(),
                AllOf(HasSubstr("rank 0 of 2 ['--lr', '1'] in /"), HasSubstr("rank 1 of 2 ['--lr', '1'] in /")))
        << command << launcher.Err();
  }
  EXPECT_THAT(ExecShell(2, "torchrun --no-such-flag x.py").Err(), HasSubstr("ddprun: unknown flag"));
}

TEST_F(InPlaceTest, TorchDistributedLaunch_Script_GetsLocalRank) {
  Finished launcher = ExecShell(
      0, "python3 -m torch.distributed.launch --standalone --nproc_per_node 2 --max-restarts=1 -r0 train.py x");
  EXPECT_THAT(launcher.Out(),
              AllOf(HasSubstr("rank 0 of 2 ['--local-rank=0', 'x']"), HasSubstr("rank 1 of 2 ['--local-rank=1', 'x']")))
      << launcher.Err();
  Finished with_env =
      ExecShell(0, "python3 -m torch.distributed.launch --use_env --standalone --no-python sh -c 'echo sh $RANK'");
  EXPECT_EQ(with_env.Out(), "sh 0\n");
  Finished from_stdin = ExecShell(0, "echo 'import sys; print(sys.argv)' | python3 -m torch.distributed.launch - x");
  EXPECT_EQ(from_stdin.Out(), "['-', '--local-rank=0', 'x']\n");
}

TEST_F(InPlaceTest, Exec_ScriptOfAnotherEnvironment_RunsInItsPython) {
  const std::string venv = MakeVenv();
  for (const std::string& command : {std::string("venv/bin/torchrun"), "export PATH=$PATH:" + venv + "/bin; torchrun",
                                     std::string(". venv/bin/activate; torchrun")}) {
    Finished launcher = ExecShell(0, command + " --standalone train.py", {{"PYTHON_EXEC", ""}, {"VIRTUAL_ENV", ""}});
    EXPECT_THAT(launcher.Out(), HasSubstr("rank 0 of 1 [] in " + venv + "/bin/python")) << command << launcher.Err();
  }
}

TEST_F(InPlaceTest, Torchrun_InsideWorker_IsDdprun) {
  Write("outer.py", "import subprocess, sys\nsys.exit(subprocess.call(sys.argv[1:]))\n");
  Finished launcher = ExecShell(
      0, "torchrun --standalone outer.py python3 -m torch.distributed.run --standalone --nproc-per-node=2 train.py");
  EXPECT_THAT(launcher.Out(), HasSubstr("rank 1 of 2")) << launcher.Err();
}

TEST_F(InPlaceTest, Exec_Workers_HavePlainEnvironment) {
  Write("names.py",
        "import os\n"
        "for name in sorted(os.environ): print(name, '.' if name.startswith('DDPRUN') else os.environ[name])\n");
  const auto environment_of = [this](const std::string& command) {
    Finished launcher = Finished(0, {"exec", "sh", "-c", command}, {});
    std::string kept;
    for (absl::string_view line : absl::StrSplit(launcher.Out(), '\n')) {
      bool differs = false;
      for (const char* name : {"PATH ", "PYTHONPATH ", "DDPRUN_PROGRAM ", "MASTER_PORT ", "TORCHELASTIC_RUN_ID ",
                               "TORCHELASTIC_ERROR_FILE ", "_ "}) {
        differs |= absl::StartsWith(line, name);
      }
      if (!differs) absl::StrAppend(&kept, line, "\n");
    }
    return kept;
  };
  const std::string script = dir_.File("names.py");
  const std::string plain = environment_of("$DDPRUN_PROGRAM --standalone " + script);
  EXPECT_EQ(environment_of("torchrun --standalone " + script), plain);
  EXPECT_EQ(environment_of("python3 -m torch.distributed.run --standalone " + script), plain);
}

TEST_F(InPlaceTest, Preload_InsideExec_Works) {
  Write("imports.py", "import json\nimport os\nprint('rank ' + os.environ['RANK'] + ' .\\n', end='')\n");
  Finished launcher =
      ExecShell(0, "torchrun --standalone --nproc-per-node=2 --preload imports.py", {{"LOGLEVEL", "INFO"}});
  EXPECT_THAT(launcher.Out(), HasSubstr("rank 1 ."));
  EXPECT_THAT(launcher.Err(), HasSubstr("imported json")) << launcher.Err();
}

TEST_F(InPlaceTest, Exec_UsersSitecustomize_IsImportedAndShowsErrors) {
  Write("site/sitecustomize.py", "print('customized', __file__)\n");
  Finished launcher = Exec(0, {"python3", "-c", "import sitecustomize; print(sitecustomize.__file__)"},
                           {{"PYTHONPATH", dir_.File("site")}});
  EXPECT_EQ(launcher.Out(), absl::StrCat("customized ", dir_.File("site"), "/sitecustomize.py\n", dir_.File("site"),
                                         "/sitecustomize.py\n"))
      << launcher.Err();
  Write("site/sitecustomize.py", "raise ValueError('in it')\n");
  EXPECT_THAT(Exec(0, {"python3", "-c", ""}, {{"PYTHONPATH", dir_.File("site")}}).Err(), HasSubstr("in it"));
}

TEST_F(InPlaceTest, Exec_InsideExec_AddsNothing) {
  const std::string print = "echo $PATH $PYTHONPATH";
  EXPECT_EQ(Exec(0, {"sh", "-c", print}).Out(),
            Exec(0, {"sh", "-c", "\"$DDPRUN_PROGRAM\" exec sh -c '" + print + "'"}).Out());
}

// ---- install-torchrun ----

class InstallTorchrunTest : public InPlaceTest {
 protected:
  // Runs `ddprun install-torchrun` for the environment.
  Finished Install(int code, std::vector<std::string> arguments = {},
                   std::source_location at = std::source_location::current()) const {
    arguments.insert(arguments.begin(), "install-torchrun");
    return Finished(code, arguments, {{"PYTHON_EXEC", venv_ + "/bin/python"}}, at);
  }
  std::string Torchrun(int code, std::source_location at = std::source_location::current()) const {
    ::testing::ScopedTrace trace(at.file_name(), static_cast<int>(at.line()), "");
    Process torchrun({venv_ + "/bin/torchrun", "--standalone", dir_.File("train.py")}, {{"PYTHON_EXEC", ""}});
    EXPECT_EQ(torchrun.Wait(), code) << torchrun.Err();
    return torchrun.Out() + torchrun.Err();
  }
  // Every file with its size, mode, time and text.
  std::string State() const {
    std::string state;
    for (const auto& entry : fs::recursive_directory_iterator(venv_)) {
      struct stat status = {};
      if (entry.path().string().find("__pycache__") != std::string::npos || entry.is_directory()) continue;
      lstat(entry.path().c_str(), &status);
      absl::StrAppend(&state, entry.path().string(), " ", status.st_mode, " ", status.st_mtim.tv_sec, " ",
                      status.st_mtim.tv_nsec, " ", status.st_size, " ", status.st_ino, "\n");
    }
    return state;
  }
  std::string Pth() const {
    return (fs::directory_iterator(venv_ + "/lib")->path() / "site-packages/ddprun_torchrun.pth").string();
  }

  const std::string venv_ = MakeVenv();
};

TEST_F(InstallTorchrunTest, Undo_AfterInstall_RestoresEveryFile) {
  EXPECT_THAT(Torchrun(1), HasSubstr("the original"));
  const std::string before = State();
  EXPECT_THAT(Install(0).Out(), HasSubstr("was written, no other file was changed"));
  EXPECT_THAT(Torchrun(0), HasSubstr("rank 0 of 1 [] in " + venv_ + "/bin/python"));
  const std::string installed = State();
  EXPECT_THAT(Install(0).Out(), HasSubstr("already"));
  EXPECT_EQ(State(), installed);
  EXPECT_THAT(Install(0, {"--undo"}).Out(), HasSubstr("was removed; "));
  EXPECT_EQ(State(), before);
  EXPECT_THAT(Torchrun(1), HasSubstr("the original"));
  EXPECT_THAT(Install(0, {"--undo"}).Out(), HasSubstr("nothing to undo"));
}

TEST_F(InstallTorchrunTest, Install_TorchrunRewritten_StaysDdprun) {
  Install(0);
  Write("venv/bin/torchrun", "#!" + venv_ + "/bin/python3\n" + kTorchrun, 0755);
  EXPECT_THAT(Torchrun(0), HasSubstr("rank 0 of 1"));
}

TEST_F(InstallTorchrunTest, Install_UnknownTorchrun_IsRefused) {
  Write("venv/bin/torchrun", "#!/bin/sh\necho mine\n", 0755);
  const std::string before = State();
  EXPECT_THAT(Install(1).Err(), HasSubstr("bin/torchrun is not PyTorch's: nothing was changed"));
  EXPECT_EQ(State(), before);
}

TEST_F(InstallTorchrunTest, Install_WithoutPyTorch_IsRefused) {
  fs::remove_all(fs::path(Pth()).parent_path() / "torch");
  fs::remove(venv_ + "/bin/torchrun");
  EXPECT_THAT(Install(1).Err(), HasSubstr("has no PyTorch"));
}

TEST_F(InstallTorchrunTest, Install_InstalledByAnother_IsRefusedButUndoWorks) {
  std::ofstream(Pth()) << "# ddprun install-torchrun (ddprun 0.0.1): another\n";
  EXPECT_THAT(Install(1).Err(), HasSubstr("(ddprun 0.0.1): another): remove it first with --undo"));
  Install(0, {"--undo"});
  EXPECT_FALSE(fs::exists(Pth()));
  std::ofstream(Pth()) << "import os\n";
  EXPECT_THAT(Install(1).Err(), HasSubstr("it is not ddprun's"));
  EXPECT_THAT(Install(1, {"--undo"}).Err(), HasSubstr("it was not removed"));
}

TEST_F(InstallTorchrunTest, Install_InstalledByAnotherVersion_IsRenewed) {
  Install(0);
  const std::string text = ReadFile(Pth());
  const size_t version = text.find(" (ddprun ") + 9;
  std::ofstream(Pth()) << text.substr(0, version) << "0.0." << text.substr(version, text.find('\n') - version)
                       << "\nimport os\n";
  EXPECT_THAT(Install(0).Out(), HasSubstr("was written"));
  EXPECT_EQ(ReadFile(Pth()), text);
}

TEST_F(InstallTorchrunTest, Install_KilledMidway_TorchrunWorksAndCanRepeatOrUndo) {
  std::ofstream(Pth() + ".new") << "# ddprun install-tor";
  EXPECT_THAT(Torchrun(1), HasSubstr("the original"));
  Install(0);
  EXPECT_THAT(Torchrun(0), HasSubstr("rank 0 of 1"));
  std::ofstream(Pth() + ".new") << "# ddprun install-tor";
  Install(0, {"--undo"});
  EXPECT_FALSE(fs::exists(Pth() + ".new"));
}

TEST_F(InstallTorchrunTest, Install_EnvironmentLockedByAnother_Waits) {
  const int folder = open(fs::path(Pth()).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(folder, LOCK_EX), 0);
  Launcher install({"install-torchrun"}, {{"PYTHON_EXEC", venv_ + "/bin/python"}});
  const std::string waits = absl::StrCat("-> FLOCK  ADVISORY  WRITE ", install.pid(), " ");
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(ReadFile("/proc/locks"), waits); })) << ReadFile("/proc/locks");
  EXPECT_FALSE(fs::exists(Pth()));
  close(folder);
  EXPECT_EQ(install.Wait(), 0) << install.Err();
}

TEST_F(InstallTorchrunTest, Install_Concurrent_EachSucceeds) {
  const std::map<std::string, std::string> environment = {{"PYTHON_EXEC", venv_ + "/bin/python"}};
  for (const bool some_undo : {false, true}) {
    std::vector<std::unique_ptr<Launcher>> installs;
    for (int i = 0; i < 8; ++i) {
      std::vector<std::string> arguments = {"install-torchrun"};
      if (some_undo && i % 2 == 0) arguments.push_back("--undo");
      installs.push_back(std::make_unique<Launcher>(arguments, environment));
    }
    for (const auto& install : installs) EXPECT_EQ(install->Wait(), 0) << install->Err();
    EXPECT_FALSE(fs::exists(Pth() + ".new"));
  }
}

// Python with -O has written a .pyc that pip does not know.
TEST_F(InstallTorchrunTest, Torchrun_PackageRemoved_RunsPyTorchsSilently) {
  Install(0);
  std::string text = ReadFile(Pth());
  const size_t end = text.find("/_ddprun_in_place.py'"), begin = text.rfind('\'', end) + 1;
  ASSERT_NE(end, std::string::npos) << text;
  Write("gone/__pycache__/_ddprun_in_place.cpython-311.opt-1.pyc", "");
  std::ofstream(Pth()) << absl::StrReplaceAll(text, {{text.substr(begin, end - begin), dir_.File("gone")}});
  const std::string out = Torchrun(1);
  EXPECT_THAT(out, AllOf(HasSubstr("the original"), Not(HasSubstr("rror")))) << out;
}

TEST_F(InstallTorchrunTest, Torchrun_ProgramRemoved_RunsPyTorchsWithWarning) {
  Install(0);
  std::string text = ReadFile(Pth());
  const size_t at = text.rfind("launcher/ddprun'");
  ASSERT_NE(at, std::string::npos) << text;
  std::ofstream(Pth()) << text.replace(at, 15, "launcher/gone  ");
  const std::string out = Torchrun(1);
  EXPECT_THAT(out, AllOf(HasSubstr("the original"), HasSubstr("ddprun: can't run "))) << out;
}

}  // namespace
}  // namespace ddprun::testing
