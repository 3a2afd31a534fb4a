// Capsules of real failures: launchers with one log folder, what `ddprun explain` says about it, and that no secret of
// the workers' environment and output is in a capsule or in the JSON for --on-end.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/process.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

namespace fs = std::filesystem;

// A rank prints secrets and runs `script` while the other one waits.
struct Failure {
  const char* name;
  const char* script;
  int code;              // exit code of the launchers
  const char* expected;  // part of the line that names the first cause
  int rank = 1;
  std::vector<std::string> flags = {};
};
void PrintTo(const Failure& failure, std::ostream* out) { *out << failure.name; }

const Failure kFailures[] = {
    {"Exception", "raise ValueError('the data are bad')", 1, "exited with code 1: ValueError: the data are bad"},
    {"ExitCode", "sys.exit(5)", 5, "exited with code 5"},
    {"ExitText", "sys.exit('no GPU left')", 1, "no GPU left"},
    {"Kill", "os.kill(os.getpid(), signal.SIGKILL)", 137, "was killed by SIGKILL"},
    {"InvalidMemory", "import ctypes; ctypes.string_at(16)", 139, "invalid memory access at address 0x10"},
    {"OutOfMemory",
     "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\nx = bytearray(1 << 40)", 1,
     "MemoryError"},
    {"Hang",
     "from ddprun import worker\nworker.report_progress(7, phase='forward')\nwhile True: pass",
     137,
     "in phase forward of step 7",
     1,
     {"--on-hang=restart:0.3"}},
    {"KeyboardInterrupt", "raise KeyboardInterrupt", 130, "was killed by SIGINT"},
    {"Terminated", "os.kill(os.getpid(), signal.SIGTERM)", 143, "was killed by SIGTERM"},
    {"ImportError", "import no_such_module", 1, "No module named 'no_such_module'"},
    {"SyntaxError", "exec('if')", 1, "SyntaxError: invalid syntax"},
    {"FullDevice", "with open('/dev/full', 'w') as full: full.write('x')", 1, "No space left on device"},
    {"KilledByAnother", "import subprocess\nsubprocess.Popen(['sh', '-c', 'kill -9 $PPID'])\nsignal.pause()", 137,
     "was killed by SIGKILL"},
    {"ChildFails", "import subprocess\nsubprocess.run(['sh', '-c', 'echo no data >&2; exit 3'], check=True)", 1,
     "returned non-zero exit status 3"},
    {"ErrorFile",
     "import json\nwith open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as file:\n"
     "  json.dump({'message': {'message': 'ValueError: recorded ' + os.environ['API_KEY'], 'extraInfo':\n"
     "            {'py_callstack': 'Traceback: password=planted-in-file', 'timestamp': '1'}}}, file)\nsys.exit(1)",
     1, "exited with code 1: ValueError: recorded ***"},
    {"Command", "os.execvp('sh', ['sh', '-c', 'no_such_command'])", 127, "no_such_command: not found"},
    {"CppException", "os.execv('tests/testbin/end_with', ['end_with', 'throw', 'bad data'])", 134,
     "was killed by SIGABRT: what():  bad data"},
    {"CppAssertion", "os.execv('tests/testbin/end_with', ['end_with', 'assert', '-'])", 134, "sizes differ"},
    {"StackOverflow", "os.execv('tests/testbin/end_with', ['end_with', 'overflow', '-'])", 139,
     "was killed by SIGSEGV"},
    {"SecretInMessage", "raise ValueError('no login with ' + os.environ['API_KEY'])", 1,
     "ValueError: no login with ***"},
    {"RankZero", "raise ValueError('the data are bad')", 1, "ValueError: the data are bad", 0},
};

class CapsulesTest : public ::testing::Test {
 protected:
  // `more`: further flags.
  std::vector<std::string> Flags(const std::string& nnodes, const std::vector<std::string>& more,
                                 const std::string& script) const {
    std::ofstream(dir_.File("train.py"))
        << "import os, signal, sys\nfor stream in sys.stdout, sys.stderr:\n"
           "  print('using', os.environ['API_KEY'], 'with password=planted-in-output', file=stream, flush=True)\n"
        << script << "\n";
    std::vector<std::string> flags = {"--nnodes=" + nnodes, absl::StrCat("--rdzv-endpoint=127.0.0.1:", port_),
                                      "--rdzv-id=job",      "--shutdown-timeout=1",
                                      "--log-dir=" + logs_, "--on-end=cat >>" + dir_.File("ends")};
    flags.insert(flags.end(), more.begin(), more.end());
    flags.push_back(dir_.File("train.py"));
    flags.insert(flags.end(), arguments_.begin(), arguments_.end());
    return flags;
  }
  // The text of `ddprun explain`, after it was checked that no secret is where it could be.
  std::string Explained() const {
    for (const auto& entry : fs::recursive_directory_iterator(logs_ + "/capsules")) {
      if (entry.is_regular_file()) EXPECT_THAT(ReadFile(entry.path()), Not(HasSubstr("planted"))) << entry.path();
    }
    EXPECT_THAT(ReadFile(dir_.File("ends")), Not(HasSubstr("planted")));
    return Finished(0, {"explain", logs_}).Out();
  }
  // Expects that the text says why the job failed before anything else, and that --on-end was told, too.
  void ExpectCause(const std::string& text, const std::string& start, const std::string& cause) const {
    const std::vector<std::string> paragraphs = absl::StrSplit(text, "\n\n");
    ASSERT_GE(paragraphs.size(), 2) << text;
    const std::string first = paragraphs[1].substr(0, paragraphs[1].find('\n'));
    EXPECT_THAT(first, AllOf(::testing::StartsWith(start), HasSubstr(cause))) << text;
    EXPECT_THAT(ReadFile(dir_.File("ends")), HasSubstr(cause));
  }
  std::vector<fs::path> Capsules() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(logs_ + "/capsules")) found.push_back(entry.path());
    return found;
  }
  static std::string Line(const std::string& text, absl::string_view start) {
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      if (absl::StartsWith(line, start)) return std::string(line);
    }
    return "";
  }

  const TempDir dir_;
  std::vector<std::string> arguments_;  // arguments of the script
  const std::string logs_ = dir_.File("logs");
  const int port_ = FreePort();
  const std::map<std::string, std::string> environment_ = {{"PYTHON_EXEC", "python3"},
                                                           {"PYTHONPATH", fs::absolute("packaging/wheel")},
                                                           {"API_KEY", "planted-in-environment"}};
};

class CauseInCapsuleTest : public CapsulesTest, public ::testing::WithParamInterface<Failure> {};

TEST_P(CauseInCapsuleTest, Failure_TwoNodes_OneCapsuleNamesCauseFirst) {
  const Failure& failure = GetParam();
  const std::vector<std::string> flags =
      Flags("2", failure.flags,
            absl::StrCat("if os.environ['RANK'] != '", failure.rank, "': signal.pause()\n", failure.script));
  Launcher a(flags, environment_), b(flags, environment_);
  ExpectEnd({&a, &b}, failure.code);
  ASSERT_EQ(Capsules().size(), 1);
  const std::string text = Explained();
  SCOPED_TRACE(text);
  const std::string who = absl::StrCat("rank ", failure.rank, " on ", Hostname());
  ExpectCause(text, absl::StrCat("First cause: ", who, " (local rank 0, pid "), failure.expected);
  EXPECT_THAT(Line(text, absl::StrCat("  ", who)), HasSubstr("first cause: "));
  EXPECT_THAT(Line(text, absl::StrCat("  rank ", 1 - failure.rank)), HasSubstr("stopped by the launcher: "));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("Missing")), HasSubstr("The job failed: restarts are disabled")));
  EXPECT_THAT(a.Err(), HasSubstr("ddprun explain " + Capsules()[0].string()));
  EXPECT_THAT(ReadFile(absl::StrCat(Capsules()[0].string(), "/rank-", failure.rank, ".stderr")),
              ::testing::StartsWith("using *** with password=***\n"));
}

INSTANTIATE_TEST_SUITE_P(All, CauseInCapsuleTest, ::testing::ValuesIn(kFailures),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(CapsulesTest, LostNode_OtherNodeWrites_NamesMissingNode) {
  const std::vector<std::string> flags = Flags("2", {}, "print('up', flush=True)\nsignal.pause()");
  Rendezvousd server(port_);
  Launcher a(flags, environment_), b(flags, environment_);
  ASSERT_TRUE(a.WaitForOut("up") && b.WaitForOut("up")) << a.Err() << b.Err();
  b.Signal(SIGKILL);
  ExpectEnd({&a}, 1);
  const std::string text = Explained();
  SCOPED_TRACE(text);
  ExpectCause(text, "First cause: ", absl::StrCat("node ", Hostname()));
  EXPECT_THAT(Line(text, "Missing: "), HasSubstr(" of 2, with rank "));
}

TEST_F(CapsulesTest, Interrupt_OneOfTwoNodes_OtherNodeWrites) {
  const std::vector<std::string> flags = Flags("2", {}, "print('up', flush=True)\nsignal.pause()");
  Rendezvousd server(port_);
  Launcher a(flags, environment_), b(flags, environment_);
  ASSERT_TRUE(a.WaitForOut("up") && b.WaitForOut("up")) << a.Err() << b.Err();
  b.Signal(SIGINT);
  ExpectEnd({&b}, 130);
  ExpectEnd({&a}, 130);
  ExpectCause(Explained(), "First cause: ", "SIGINT");
}

TEST_F(CapsulesTest, Interrupt_OnlyNode_NoFailureUnlessItHangs) {
  Launcher healthy(Flags("1", {}, "print('up', flush=True)\nsignal.pause()"), environment_);
  ASSERT_TRUE(healthy.WaitForOut("up")) << healthy.Err();
  healthy.Signal(SIGINT);
  ExpectEnd({&healthy}, 130);
  EXPECT_FALSE(fs::exists(logs_ + "/capsules"));
  Launcher hung(Flags("1", {"--on-hang=report:0.3"},
                      "from ddprun import worker\nworker.report_progress(7, phase='forward')\nwhile True: pass"),
                environment_);
  ASSERT_TRUE(hung.WaitForErr("in phase forward of step 7")) << hung.Err();
  hung.Signal(SIGINT);
  ExpectEnd({&hung}, 130);
  const std::string text = Explained();
  EXPECT_THAT(text, HasSubstr("\n\nHang: rank 0 has been in phase forward of step 7 for "));
  EXPECT_THAT(text, HasSubstr("train.py\", line"));
}

TEST_F(CapsulesTest, JoinTimeout_BeforeTheFirstRound_ReasonAndHint) {
  const Finished job(1, Flags("2", {"--rdzv-conf=join_timeout=2"}, ""), environment_);
  const std::string text = Explained();
  ExpectCause(text, "The job failed: ", "timed out");
  EXPECT_THAT(text, AllOf(HasSubstr("before its first round"), HasSubstr("\nHint: start ddprun on ")));
}

TEST_F(CapsulesTest, MissingScript_IsTheCause) {
  std::vector<std::string> flags = Flags("1", {}, "");
  flags.back() = dir_.File("none.py");
  const Finished job(127, flags, environment_);
  ExpectCause(Explained(), "First cause: rank 0 ", "was not started: no such script: ");
}

TEST_F(CapsulesTest, Secrets_EnvironmentOutputAndCommandLine_InNoFile) {
  std::map<std::string, std::string> environment = environment_;
  environment["NCCL_AUTH_TOKEN"] = "planted-in-variable-1";
  arguments_ = {"--api-key=planted-on-command-line", "--password", "planted-as-word"};
  const Finished job(1, Flags("1", {"--tee=3"}, R"(import json
key = '-----BEGIN PRIVATE KEY-----\n' + 'planted/in+key\n' * 600 + '-----END PRIVATE KEY-----\n'
for stream in sys.stdout, sys.stderr:
  def say(*words): print(*words, file=stream, flush=True)
  for i in range(2000): say('password=planted-in-line-%d' % i)
  say('using', os.environ['API_KEY'], *sys.argv)
  say('x' * 270, os.environ['API_KEY'])
  say(json.dumps({'private_key': key}))
  say(key)
  say('login failed: password=planted-in-output')
raise ValueError('can not log in with ' + os.environ['API_KEY'] + key))"),
                     environment);
  ExpectCause(Explained(), "First cause: rank 0 ", "ValueError: can not log in with ***");
  const std::string capsule = Capsules()[0];
  EXPECT_THAT(ReadFile(capsule + "/rank-0.stdout"), HasSubstr("login failed: password=***"));
  EXPECT_THAT(ReadFile(capsule + "/rank-0.stderr"), HasSubstr("login failed: password=***"));
  EXPECT_THAT(ReadFile(capsule + "/node-0.txtpb"), AllOf(HasSubstr("NCCL_AUTH_TOKEN=***"), HasSubstr("--api-key=***")));
}

TEST_F(CapsulesTest, ElevenFailures_TenAreKept) {
  const Finished job(5, Flags("1", {"--max-restarts=10"}, "sys.exit(5)"), environment_);
  EXPECT_EQ(Capsules().size(), 10);
  const std::string text = Explained();
  ExpectCause(text, "First cause: rank 0 ", "exited with code 5");
  EXPECT_THAT(text, AllOf(HasSubstr("round 11: 1 rank"), HasSubstr("restart limit reached (10/10)")));
}

TEST_F(CapsulesTest, RestartThatSucceeds_CapsuleOfTheFailedRound) {
  const Finished job(0, Flags("1", {"--max-restarts=1"}, "sys.exit(5 * (os.environ['DDPRUN_ROUND'] == '1'))"),
                     environment_);
  ASSERT_EQ(Capsules().size(), 1);
  EXPECT_THAT(Explained(), AllOf(HasSubstr("round 1: 1 rank"), HasSubstr("\nThe round ended\n")));
}

TEST_F(CapsulesTest, FullDisk_JobUnharmed) {
  if (Process({"/usr/bin/unshare", "-m", "true"}).Wait() != 0) GTEST_SKIP() << "no namespaces";
  std::vector<std::string> command = {"/usr/bin/unshare",
                                      "-m",
                                      "sh",
                                      "-c",
                                      absl::StrCat("mkdir -p ", logs_, "/capsules && mount -t tmpfs -o size=4k none ",
                                                   logs_, "/capsules && exec \"$@\""),
                                      "sh",
                                      "launcher/ddprun"};
  for (const std::string& word : Flags("1", {"--max-restarts=1"},
                                       "sys.stderr.write('no data\\n' * 2000)\n"
                                       "sys.exit(5 * (os.environ['DDPRUN_ROUND'] == '1'))")) {
    command.push_back(word);
  }
  Process job(command, environment_);
  ExpectEnd({&job}, 0);
  EXPECT_EQ(Count(job.Err(), "No space left on device"), 1) << job.Err();
}

TEST_F(CapsulesTest, Explain_BadInput_OneLine) {
  fs::create_directories(logs_);
  Finished none(2, {"explain", logs_});
  EXPECT_THAT(none.Err(), HasSubstr("no capsule in '/"));
  EXPECT_EQ(Lines(none.Err()), 1);
  std::ofstream(logs_ + "/node-0.txtpb") << "{";
  Finished broken(2, {"explain", logs_});
  EXPECT_THAT(broken.Err(), AllOf(HasSubstr("it is not a file of a capsule"), HasSubstr("no readable node-N.txtpb")));
  Finished two(2, {"explain", logs_, logs_});
  EXPECT_EQ(Lines(two.Err()), 1);
  Finished help(0, {"explain", "--help"});
  EXPECT_THAT(help.Out(), HasSubstr("Usage: ddprun explain"));
}

}  // namespace
}  // namespace ddprun::testing
