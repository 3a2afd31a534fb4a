// One launcher, real workers.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

using ::testing::Test;

TEST(OneNodeTest, Run_TwoWorkers_HaveRanksAndExitZero) {
  Finished launcher(0, Standalone(2, {}, kSayRank));
  const std::string out = launcher.Out();
  EXPECT_THAT(out, HasSubstr("rank=0/2 local=0/2 group=0/1 attempt=0"));
  EXPECT_THAT(out, HasSubstr("rank=1/2 local=1/2 group=0/1 attempt=0"));
  EXPECT_EQ(launcher.Err(), "");
}

TEST(OneNodeTest, Run_Flags_ReachWorkersEnvironment) {
  Finished launcher(0, Standalone(1, {"--max-restarts=3", "--rdzv-id=abc", "--role=trainer"},
                                  "echo $ROLE_NAME $TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID $MASTER_ADDR"));
  EXPECT_EQ(launcher.Out(), "trainer 3 abc 127.0.0.1\n");
}

TEST(OneNodeTest, Run_SignalsToHandle_AreInWorkersEnvironment) {
  const char* const show = "echo $TORCHELASTIC_SIGNALS_TO_HANDLE";
  EXPECT_EQ(Finished(0, Standalone(1, {}, show)).Out(), "SIGTERM,SIGINT,SIGHUP,SIGQUIT\n");
  EXPECT_EQ(Finished(0, Standalone(1, {"--signals-to-handle=SIGTERM,SIGUSR1"}, show)).Out(), "SIGTERM,SIGUSR1\n");
}

// Flags without effect, and quotes that no shell has removed.
TEST(OneNodeTest, Run_EveryOldSpelling_RunsAllWorkers) {
  const int port = FreePort();
  const std::vector<std::vector<std::string>> all_flags = {
      {"--run-path", "--monitor-interval=1", "--start-method=spawn", "--logs_specs=default"},
      {"--master-addr=localhost", absl::StrCat("--master-port=", port), "--node-rank=0", "--rdzv-backend=static"},
      {"--nnodes=1:2", "--rdzv-backend=c10d", absl::StrCat("--rdzv-endpoint=localhost:", FreePort()), "--rdzv-id=x",
       "--rdzv-conf='join_timeout=5,last_call_timeout=0.1,timeout=5'"}};
  for (std::vector<std::string> flags : all_flags) {
    flags.push_back("--nproc-per-node=4");
    Finished launcher(0, WithShell(flags, kSayRank));
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(Count(launcher.Out(), absl::StrCat("rank=", rank, "/4 ")), 1) << launcher.Out() << launcher.Err();
    }
  }
}

TEST(OneNodeTest, WorkerFailure_NoRestarts_ExitsWithItsCodeAndNamesRank) {
  Finished launcher(7, Standalone(2, {}, "if [ $RANK = 1 ]; then exit 7; fi; exec sleep 1000"));
  const std::string err = launcher.Err();
  EXPECT_THAT(err, AllOf(HasSubstr("rank 1"), HasSubstr("FAILED"), HasSubstr("exitcode")));
  EXPECT_THAT(err, Not(HasSubstr("SIGTERM"))) << "the sibling that the launcher ended is no failure";
}

TEST(OneNodeTest, WorkerFailure_Always_RestartsThenExitsWithItsCode) {
  Finished launcher(9, Standalone(1, {"--max-restarts=2"}, "echo attempt; exit 9"));
  EXPECT_EQ(Count(launcher.Out(), "attempt"), 3);
}

TEST(OneNodeTest, Start_ProgramMissing_FailsOnceWithoutRestarts) {
  const struct {
    std::vector<std::string> command;
    int exit_code;
    const char* reason;
  } kCases[] = {
      {{"--no-python", "/no/such/program"}, 127, "/no/such/program"},
      {{"--no-python", "/etc/passwd"}, 126, "/etc/passwd"},
      {{"no_such_script.py"}, 127, "was not started: no such script: no_such_script.py\n"},
      {{"python9", "x.py"}, 127, "no such script: python9; leave it out, because ddprun starts Python itself"}};
  for (const auto& [command, exit_code, reason] : kCases) {
    std::vector<std::string> flags = {"--standalone", "--nproc-per-node=2", "--max-restarts=5"};
    flags.insert(flags.end(), command.begin(), command.end());
    Finished launcher(exit_code, flags);
    EXPECT_THAT(launcher.Err(), AllOf(HasSubstr(reason), Not(HasSubstr("new round"))));
  }
}

// Writes an executable file and returns its name.
std::string MakeProgram(const TempDir& dir, const std::string& name, const std::string& text) {
  std::ofstream(dir.File(name)) << text;
  std::filesystem::permissions(dir.File(name), std::filesystem::perms::owner_all);
  return dir.File(name);
}

TEST(OneNodeTest, Start_ExecutableProgram_NeedsNoFlag) {
  Finished elf(0, {"--standalone", "--nproc-per-node=2", "/usr/bin/printenv", "RANK"});
  EXPECT_EQ(Lines(elf.Out()), 2) << elf.Out();
  TempDir dir;
  Finished shell(0, {"--standalone", MakeProgram(dir, "train", "#!/bin/sh\necho \"rank $RANK of $1\"\n"), "x"});
  EXPECT_EQ(shell.Out(), "rank 0 of x\n");
}

TEST(OneNodeTest, Start_ExecutablePythonScript_RunsWithPython) {
  TempDir dir;
  // Its interpreter does not exist: only the launcher's choice of Python can run it.
  const std::string script = MakeProgram(dir, "train", "#!/no/such/python\nimport sys\nprint(sys.argv[1:])\n");
  Finished launcher(0, {"--standalone", script, "x"});
  EXPECT_EQ(launcher.Out(), "['x']\n");
}

TEST(OneNodeTest, Start_NoSuchScript_RunsProgramOfPath) {
  Finished launcher(0, {"--standalone", "--nproc-per-node=2", "env", "A=1", "sh", "-c", "echo $A"});
  EXPECT_EQ(launcher.Out(), "1\n1\n");
  EXPECT_THAT(launcher.Err(), HasSubstr("no script 'env' is here: running the program "));
}

// A pipe can be read once; each worker of each attempt gets the whole script.
TEST(OneNodeTest, Start_ScriptFromPipe_IsReadOnceForAllWorkers) {
  const char kScript[] =
      "import os, sys; attempt = os.environ['TORCHELASTIC_RESTART_COUNT'];"
      "os.write(1, f'rank {os.environ[\"RANK\"]} attempt {attempt} {sys.argv[1:]}\\n'.encode());"
      "sys.exit(attempt == '0')";
  for (const char* command : {"$L <(echo \"$S\") x", "echo \"$S\" | $L - x", "$L - x <<<\"$S\"",
                              "$L /dev/stdin x <<<\"$S\"", "echo \"$S\" | $L /dev/stdin x"}) {
    SCOPED_TRACE(command);
    Process launcher({"/bin/bash", "-c", command},
                     {{"L", "launcher/ddprun --standalone --nproc-per-node=3 --max-restarts=1"}, {"S", kScript}});
    EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
    for (const char* rank : {"0", "1", "2"}) {
      EXPECT_EQ(Count(launcher.Out(), absl::StrCat("rank ", rank, " attempt 1 ['x']\n")), 1) << launcher.Out();
    }
  }
}

TEST(OneNodeTest, ShowConfig_Always_StartsNothing) {
  Finished launcher(0, {"--show-config", "--nnodes=2", "--rdzv-endpoint=no-such-host:1", "/no/such/script"},
                    {{"PET_MAX_RESTARTS", "3"}});
  EXPECT_THAT(launcher.Out(), AllOf(HasSubstr("--rdzv-endpoint=no-such-host:1\n"), HasSubstr("PET_MAX_RESTARTS=3\n")));
  EXPECT_EQ(launcher.Err(), "");
}

TEST(OneNodeTest, Flags_Invalid_OneLineAndExit2) {
  TempDir dir;
  // One each of the parser, of the configuration, of the files.
  const std::vector<std::vector<std::string>> bad = {
      {"--no-such-flag", "x.py"},
      {"--nnodes=2", "x.py"},
      {"--log-dir=/dev/null/logs", "--tee=3", "x.py"},
  };
  for (const auto& arguments : bad) {
    Finished launcher(2, arguments, {{"TMPDIR", dir.path()}});
    EXPECT_EQ(Lines(launcher.Err()), 1) << launcher.Err();
    EXPECT_EQ(launcher.Out(), "");
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

// The worker leaves a process running that waits for a file and then creates another one.
TEST(OneNodeTest, Orphans_OfOtherSession_AreKilledUnlessKeepOrphans) {
  for (const bool keep : {true, false}) {
    TempDir dir;
    const std::string waits = "echo $$ >pid; while [ ! -e go ]; do sleep 0.02; done; touch done";
    const std::string script = absl::StrCat("cd ", dir.path(), "; setsid sh -c '", waits, "' >/dev/null 2>&1 & cd ",
                                            dir.path(), "; while [ ! -s pid ]; do sleep 0.02; done; exit 0");
    Finished launcher(0, Standalone(1, {"--max-restarts=1"}, script), {{"DDPRUN_KEEP_ORPHANS", keep ? "1" : ""}});
    const pid_t pid = atoi(ReadFile(dir.File("pid")).c_str());
    ASSERT_GT(pid, 0);
    EXPECT_EQ(kill(pid, 0) == 0, keep);
    Touch(dir.File("go"));
    if (keep) {
      EXPECT_TRUE(Eventually([&] { return std::filesystem::exists(dir.File("done")); }));
    }
  }
}

TEST(OneNodeTest, ErrorFile_Default_IsInWritableFolder) {
  const std::string script =
      "folder=$(dirname $TORCHELASTIC_ERROR_FILE); echo x > $folder/notes && cat $folder/notes && rm $folder/notes";
  Finished launcher(0, Standalone(2, {}, script));
  EXPECT_EQ(launcher.Out(), "x\nx\n");
}

TEST(OneNodeTest, RootCause_OuterLauncher_GetsItInItsErrorFile) {
  TempDir dir;
  const std::string path = dir.File("outer.json");
  Finished launcher(7, Standalone(2, {}, "[ $RANK = 0 ] && sleep 100; echo boom > $TORCHELASTIC_ERROR_FILE; exit 7"),
                    {{"TORCHELASTIC_ERROR_FILE", path}});
  const std::string content = ReadFile(path);
  EXPECT_THAT(content, AllOf(HasSubstr("\"message\":\"boom\""), HasSubstr("\"errorCode\":7")));
  Finished good(0, Standalone(1, {}, "exit 0"), {{"TORCHELASTIC_ERROR_FILE", dir.File("none")}});
  EXPECT_FALSE(std::filesystem::exists(dir.File("none")));
}

TEST(OneNodeTest, Tee_LongLine_StaysWhole) {
  Finished launcher(0, Standalone(2, {"--tee=1"}, "head -c 1000000 /dev/zero | tr '\\0' $RANK; echo"));
  const std::string out = launcher.Out();
  EXPECT_EQ(Lines(out), 2);
  for (const char rank : {'0', '1'}) {
    const std::string line = absl::StrCat("[default", std::string(1, rank), "]:", std::string(1000000, rank), "\n");
    EXPECT_THAT(out, HasSubstr(line));
  }
}

TEST(OneNodeTest, Run_AfterEnd_TemporaryFolderIsEmpty) {
  TempDir dir;
  Finished good(0, Standalone(2, {}, "exit 0"), {{"TMPDIR", dir.path()}});
  Finished bad(1, Standalone(2, {}, "echo boom > $TORCHELASTIC_ERROR_FILE; exit 1"), {{"TMPDIR", dir.path()}});
  EXPECT_THAT(bad.Err(), HasSubstr("boom"));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(OneNodeTest, Sigterm_Workers_MaySaveBeforeExit) {
  Launcher launcher(Standalone(2, {}, "trap 'echo saved $RANK; exit 0' TERM; echo up; while :; do sleep 0.02; done"));
  ASSERT_TRUE(Eventually([&] { return Count(launcher.Out(), "up") == 2; }));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM);
  EXPECT_EQ(Count(launcher.Out(), "saved"), 2) << launcher.Out();
}

// Process ids that a worker printed as "name=PID .".
std::vector<pid_t> Pids(const std::string& out, const std::string& name) {
  std::vector<pid_t> pids;
  for (size_t at = out.find(name + "="); at != std::string::npos; at = out.find(name + "=", at + 1)) {
    pids.push_back(atoi(out.c_str() + at + name.size() + 1));
  }
  return pids;
}

constexpr char kFamily[] =
    "sleep 1000 & child=$!; setsid sleep 1000 & stray=$!; echo \"pid=$$ child=$child stray=$stray .\"; ";

TEST(OneNodeTest, LauncherKilled_Descendants_End) {
  const TempDir temporary;
  Launcher launcher(Standalone(2, {}, std::string(kFamily) + "wait"), {{"TMPDIR", temporary.path()}});
  ASSERT_TRUE(Eventually([&] { return Count(launcher.Out(), " .") == 2; }));
  EXPECT_FALSE(std::filesystem::is_empty(temporary.path())) << "the error files' folder";
  launcher.Signal(SIGKILL);
  EXPECT_EQ(launcher.Wait(), 128 + SIGKILL);
  EXPECT_TRUE(Eventually([&] { return std::filesystem::is_empty(temporary.path()); }));
  for (const char* name : {"pid", "child", "stray"}) {
    for (pid_t pid : Pids(launcher.Out(), name)) {
      EXPECT_TRUE(Eventually([&] { return !Alive(pid); })) << name << " " << pid;
    }
  }
}

// The one file below `folder` whose path ends so.
std::string FindFile(const std::string& folder, const std::string& end) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string path = entry.path();
    if (path.ends_with("/" + end)) return path;
  }
  ADD_FAILURE() << "no " << end << " in " << folder;
  return "";
}

TEST(OneNodeTest, TeeAndRedirects_TwelveWorkers_HavePrefixAndFiles) {
  TempDir dir;
  Finished launcher(0, Standalone(12, {"--tee=3", "--log-dir=" + dir.path()}, "echo out $RANK; echo err $RANK >&2"));
  EXPECT_THAT(launcher.Out(), HasSubstr("[default11]:out 11\n"));
  EXPECT_THAT(launcher.Err(), HasSubstr("[default10]:err 10\n"));
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir.path())) {
    if (entry.path().filename() == "stdout.log") {
      ++files;
      EXPECT_EQ(ReadFile(entry.path()), "out " + entry.path().parent_path().filename().string() + "\n");
    }
  }
  EXPECT_EQ(files, 12);
}

TEST(OneNodeTest, LocalRanksFilter_SomeRanks_OnlyTheirOutputIsShown) {
  TempDir dir;
  Finished plain(0, Standalone(3, {"--local-ranks-filter=1"}, "echo out $RANK; echo err $RANK >&2"));
  EXPECT_EQ(plain.Out(), "out 1\n");
  EXPECT_THAT(plain.Err(), AllOf(HasSubstr("err 1\n"), Not(HasSubstr("err 0"))));
  Finished tee(0, Standalone(2, {"--local-ranks-filter=0", "--tee=1", "--log-dir=" + dir.path()}, "echo out $RANK"));
  EXPECT_EQ(tee.Out(), "[default0]:out 0\n");
  EXPECT_EQ(ReadFile(FindFile(dir.path(), "1/stdout.log")), "out 1\n");
}

TEST(OneNodeTest, Tee_WithoutLogDir_PrefixesLinesAndLeavesNoFile) {
  TempDir dir;
  Finished launcher(
      0, Standalone(2, {"--tee=3", "--log-line-prefix-template=[${hostname} ${rank}]: "}, "echo out; echo err >&2"),
      {{"TMPDIR", dir.path()}});
  for (const char* line : {" 0]: out\n", " 1]: out\n"}) EXPECT_THAT(launcher.Out(), HasSubstr(line));
  EXPECT_THAT(launcher.Err(), AllOf(HasSubstr(" 1]: err\n"), Not(HasSubstr("logs are in"))));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(OneNodeTest, LogLinePrefix_FromVariable_WithRedirectsAndTee_IsShown) {
  Finished launcher(0, Standalone(2, {"--redirects=3", "--tee=3"}, "echo out; echo err >&2"),
                    {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "[rank${rank}]: "}});
  for (const char* prefix : {"[rank0]: ", "[rank1]: "}) {
    EXPECT_THAT(launcher.Out(), HasSubstr(absl::StrCat(prefix, "out\n")));
    EXPECT_THAT(launcher.Err(), HasSubstr(absl::StrCat(prefix, "err\n")));
  }
}

TEST(OneNodeTest, LogLinePrefix_TemplateAndFilters_AreApplied) {
  TempDir dir;
  Finished launcher(0, Standalone(2,
                                  {"--tee=3", "--log-dir=" + dir.path(), "--role=r", "--log-line-prefix-template",
                                   "<${role_name} ${rank}> ", "--duplicate-stdout-filters=loss,a,,b"},
                                  "echo loss $RANK; echo step; echo a,b; echo loss >&2"));
  EXPECT_THAT(launcher.Out(), HasSubstr("<r 1> step\n"));
  const std::string filtered = ReadFile(FindFile(dir.path(), "attempt_0/filtered_stdout.log"));
  EXPECT_EQ(Lines(filtered), 4) << filtered;
  for (const char* line : {"<r 0> loss 0\n", "<r 1> loss 1\n", "<r 0> a,b\n", "<r 1> a,b\n"})
    EXPECT_THAT(filtered, HasSubstr(line));
}

TEST(OneNodeTest, Flags_WithoutEffect_Warn) {
  Finished launcher(0, Standalone(1, {"--start-method=fork", "--logs-specs=x"}, "echo ran"));
  EXPECT_EQ(launcher.Out(), "ran\n");
  for (const char* flag : {"--start-method", "--logs-specs"})
    EXPECT_THAT(launcher.Err(), HasSubstr(std::string(flag) + " has no effect: "));
}

TEST(OneNodeTest, MasterAddrAndPort_EachRound_AreThoseOfTheStore) {
  const int port = FreePort();
  const std::string script =
      "echo at=$MASTER_ADDR:$MASTER_PORT; exec 3<>/dev/tcp/127.0.0.1/$MASTER_PORT && echo open; "
      "[ $TORCHELASTIC_RESTART_COUNT = 1 ]";
  Finished launcher(0, {"--max-restarts=1", "--master-addr=localhost", absl::StrCat("--master-port=", port),
                        "--no-python", "bash", "-c", script});
  EXPECT_EQ(Count(launcher.Out(), absl::StrCat("at=localhost:", port, "\nopen\n")), 2) << launcher.Out();
}

TEST(OneNodeTest, MasterPort_Taken_UsesAnotherAndWarns) {
  const int port = FreePort();
  Process other({"/usr/bin/env", "python3", "-c",
                 absl::StrCat("import socket, signal\ns = socket.socket()\ns.bind(('127.0.0.1', ", port,
                              "))\ns.listen()\nprint('up', flush=True)\nsignal.pause()")});
  ASSERT_TRUE(other.WaitForOut("up")) << other.Err();
  Finished launcher(0, Standalone(1, {absl::StrCat("--master-port=", port)}, "echo at=$MASTER_ADDR:$MASTER_PORT"));
  EXPECT_EQ(Count(launcher.Out(), absl::StrCat(":", port)), 0) << launcher.Out();
  EXPECT_THAT(launcher.Err(), HasSubstr(absl::StrCat("--master-port=", port, " is not available")));
  const std::string real = launcher.Out().substr(launcher.Out().find("127."));
  EXPECT_NE(launcher.Err().find("store is at " + real.substr(0, real.find('\n'))), std::string::npos) << launcher.Err();
}

TEST(OneNodeTest, MasterAddr_OfAnotherHost_WarnsWhereTheStoreIs) {
  Finished launcher(0, Standalone(1, {"--master-addr=192.0.2.7"}, "echo at=$MASTER_ADDR"));
  EXPECT_EQ(launcher.Out(), "at=127.0.0.1\n");
  EXPECT_NE(launcher.Err().find("--master-addr=192.0.2.7 is not an address of this host: MASTER_ADDR is 127.0.0.1"),
            std::string::npos)
      << launcher.Err();
}

TEST(OneNodeTest, Start_ScriptFromStandardInput_Runs) {
  Process launcher({"/bin/sh", "-c",
                    "echo 'import os, sys; print(os.environ[\"RANK\"], sys.argv)' | launcher/ddprun --standalone - a"});
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  EXPECT_EQ(launcher.Out(), "0 ['-', 'a']\n");
}

// Each of two workers has its own core if the host has two.
TEST(OneNodeTest, NumaBinding_StartedAndForkedWorkers_AreBound) {
  TempDir dir;
  std::ofstream(dir.File("cpus.py"))
      << "import json, os\nos.write(1, f'{sorted(os.sched_getaffinity(0))}\\n'.encode())\n";
  for (const std::string preload : {"none", "json"}) {
    Launcher launcher({"--numa-binding=exclusive", "--nproc-per-node=2", "--preload=" + preload, dir.File("cpus.py")});
    const int code = launcher.Wait();
    if (code == 2) GTEST_SKIP() << launcher.Err();
    EXPECT_EQ(code, 0) << launcher.Err();
    const std::string out = launcher.Out();
    EXPECT_EQ(Lines(out), 2) << out;
    EXPECT_NE(out.substr(0, out.find('\n') + 1), out.substr(out.find('\n') + 1)) << "both have " << out;
  }
}

// HIP's list takes precedence, so a worker must not inherit it whole.
TEST(OneNodeTest, VirtualLocalRank_HipDevices_EachWorkerSeesItsOwn) {
  if (access("/dev/nvidia0", F_OK) == 0) GTEST_SKIP() << "HIP's variable has no effect on this host's devices";
  const std::string command = "echo \"$LOCAL_RANK $HIP_VISIBLE_DEVICES $CUDA_VISIBLE_DEVICES.\"";
  Finished launcher(0, Standalone(2, {"--virtual-local-rank"}, command), {{"HIP_VISIBLE_DEVICES", "4,6"}});
  EXPECT_THAT(launcher.Out(), HasSubstr("0 4 4.\n"));
  EXPECT_THAT(launcher.Out(), HasSubstr("0 6 6.\n"));
}

TEST(OneNodeTest, NumaBinding_Unavailable_FailsBeforeStart) {
  Finished launcher(2, Standalone(1, {"--numa-binding=node"}, "echo ran"), {{"CUDA_VISIBLE_DEVICES", "all"}});
  EXPECT_THAT(launcher.Err(), HasSubstr("--numa-binding: CUDA_VISIBLE_DEVICES=all is not a list"));
}

TEST(OneNodeTest, Start_PythonScript_RunsUnbufferedWithArguments) {
  TempDir dir;
  FILE* script = fopen(dir.File("t.py").c_str(), "w");
  // One write per line: unbuffered prints of two workers would mix.
  fputs("import os, sys; os.write(1, f'{os.environ[\"RANK\"]} {sys.argv[1:]}\\n'.encode())\n", script);
  fclose(script);
  Finished launcher(0, {"--nproc_per_node", "2", dir.File("t.py"), "--nnodes=9", "-m", "x"});
  EXPECT_THAT(launcher.Out(), HasSubstr("1 ['--nnodes=9', '-m', 'x']"));
}

TEST(OneNodeTest, Launcher_Nested_EachHasItsOwnWorld) {
  Finished launcher(0, {"--standalone", "--nproc-per-node=2", "--no-python", "launcher/ddprun", "--standalone",
                        "--nproc-per-node=3", "--no-python", "sh", "-c", kSayRank});
  EXPECT_EQ(Count(launcher.Out(), "rank=2/3"), 2) << launcher.Out();
}

}  // namespace
}  // namespace ddprun::testing
