// Pythons under the library that the launcher preloads, at the worker link: with torch, ranks of a Gloo group.
#include <fcntl.h>
#include <glob.h>
#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "launcher/hang/process_evidence.h"
#include "launcher/workers/link_server.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Process;
using testing::VenvPython;

// The system's Python and those of pyenv from 3.8 on, whose versions have different ways to the stacks of threads.
std::vector<std::string> Pythons() {
  std::vector<std::string> found;
  if (access("/usr/bin/python3", X_OK) == 0) found.push_back("/usr/bin/python3");
  const char* const root = getenv("PYENV_ROOT");
  const passwd* const user = getpwuid(getuid());
  const std::string folder = root != nullptr ? root : absl::StrCat(user == nullptr ? "" : user->pw_dir, "/.pyenv");
  for (int minor = 8; minor <= 13; ++minor) {
    const std::string pattern = absl::StrCat(folder, "/versions/3.", minor, ".*/bin/python");
    glob_t files;
    if (glob(pattern.c_str(), 0, nullptr, &files) == 0) found.push_back(files.gl_pathv[0]);
    globfree(&files);
  }
  return found;
}

std::string BuiltFile(const std::string& path) {
  return absl::StrCat(getenv("TEST_SRCDIR"), "/", getenv("TEST_WORKSPACE"), "/", path);
}

class AnswersTest : public ::testing::Test {
 protected:
  AnswersTest() {
    if (Pythons().empty()) ADD_FAILURE() << "no /usr/bin/python3";
    LinkServer::Events events;
    events.on_line = [](pid_t, const worker_contract::WorkerLinkMessage&) {};
    events.on_closed = [](pid_t) {};
    events.on_progress = [](pid_t, const ReportedProgress&) {};
    events.on_probe = [this](pid_t worker, pid_t process, UniqueFd fd) {
      workers_[process] = worker;
      probes_[process] = std::make_unique<WorkerProbe>(loop_.get(), process, std::move(fd), [this, process] {
        closed_.push_back(process);
        loop_->Quit();
      });
      loop_->Quit();
    };
    server_ = *LinkServer::Create(std::move(events), loop_.get());
  }

  std::unique_ptr<Process> Start(std::vector<std::string> argv, int rank = 0,
                                 std::map<std::string, std::string> environment = {}) {
    environment["LD_PRELOAD"] = BuiltFile("launcher/libddprun_crash.so");
    environment.emplace("DDPRUN_WORKER_LINK", server_->address());
    environment["PYTHONUNBUFFERED"] = "1";
    auto process = std::make_unique<Process>(std::move(argv), std::move(environment));
    server_->Add(process->pid(), rank);
    return process;
  }

  void AwaitProbes(size_t count) {
    while (probes_.size() < count) loop_->Run();
  }

  std::string Ask(pid_t process, WorkerProbe::Question question) {
    std::string text = "none";
    probes_.at(process)->Ask(question, [&](std::optional<std::string> answer) {
      if (answer) text = *std::move(answer);
      loop_->Quit();
    });
    loop_->Run();
    return text;
  }

  hang::v1::Rank CollectOnce(pid_t worker, RankEvidence::Parts parts = RankEvidence::Parts::kAll) {
    std::vector<WorkerProbe*> probes;
    for (const auto& [process, probe] : probes_) {
      if (workers_[process] == worker) probes.push_back(probe.get());
    }
    hang::v1::Rank found;
    const RankEvidence evidence(
        loop_.get(), 0, worker, probes, std::nullopt,
        [&](hang::v1::Rank rank) {
          found = std::move(rank);
          loop_->Quit();
        },
        parts);
    loop_->Run();
    return found;
  }

  // Collects until the worker has answered both questions: on a busy machine an answer may take longer than a
  // collection waits.
  hang::v1::Rank Collect(pid_t worker) {
    hang::v1::Rank rank;
    do {
      rank = CollectOnce(worker);
    } while (rank.groups().empty() || rank.process().frames().empty());
    return rank;
  }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  std::unique_ptr<LinkServer> server_;
  std::map<pid_t, pid_t> workers_;
  std::map<pid_t, std::unique_ptr<WorkerProbe>> probes_;
  std::vector<pid_t> closed_;
};

// Names a thread as PyTorch does; prints the number of threads.
constexpr char kThreads[] = R"(
import ctypes, os
libc = ctypes.CDLL(None)
libc.pthread_self.restype = ctypes.c_void_p
libc.pthread_setname_np.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
def name_thread(name):
    libc.pthread_setname_np(libc.pthread_self(), name)
def threads():
    return len(os.listdir("/proc/self/task"))
)";

TEST_F(AnswersTest, Python_WithoutProcessGroup_HasNoThread) {
  for (const std::string& python : Pythons()) {
    const std::string script = absl::StrCat(kThreads, "name_thread(b'worker')\nprint('threads', threads())\n",
                                            "print(hasattr(ctypes.CDLL(None), '__cxa_begin_catch'))");
    const auto process = Start({python, "-c", script});
    EXPECT_EQ(process->Wait(), 0) << process->Err();
    EXPECT_EQ(process->Out(), "threads 1\nFalse\n") << python;
  }
  EXPECT_THAT(probes_, IsEmpty());
}

TEST_F(AnswersTest, Python_LauncherDoesNotAnswer_EndsAsUsual) {
  for (const char* const link : {"@ddprun_nobody", "x", ""}) {
    const auto process =
        Start({Pythons().front(), "-c", absl::StrCat(kThreads, "name_thread(b'pt_gloo_runloop')\nprint('end')")}, 0,
              {{"DDPRUN_WORKER_LINK", link}});
    EXPECT_EQ(process->Wait(), 0) << process->Err();
    EXPECT_EQ(process->Out(), "end\n");
  }
}

TEST_F(AnswersTest, Stacks_AnyPython_ShowMainThreadAndHolderOfTheLock) {
  for (const std::string& python : Pythons()) {
    const std::string script = absl::StrCat(kThreads, R"(
import threading
def hold_lock():
    name_thread(b'pt_gloo_runloop')
    ctypes.PyDLL(None).pause()
def main():
    thread = threading.Thread(target=hold_lock, daemon=True)
    thread.start()
    thread.join()
main()
)");
    const auto process = Start({python, "-c", script});
    while (probes_.count(process->pid()) == 0) loop_->Run();
    // Until the thread is in the call.
    hang::v1::Process stacks;
    do {
      stacks.Clear();
      ParsePythonStacks(Ask(process->pid(), WorkerProbe::Question::kStacks), &stacks);
    } while (stacks.threads().empty() || stacks.threads(0).frames().empty() ||
             stacks.threads(0).frames(0).function() != "hold_lock" || stacks.threads(0).frames(0).line() != 14);
    ASSERT_FALSE(stacks.frames().empty()) << python;
    EXPECT_EQ(stacks.frames(stacks.frames_size() - 1).function(), "<module>") << python;
    EXPECT_EQ(stacks.frames(stacks.frames_size() - 2).function(), "main") << python;
    // Python 3.12 does not tell who holds the lock.
    EXPECT_EQ(stacks.threads(0).holds_lock(), python.find("/3.12") == python.npos) << python;
  }
}

TEST_F(AnswersTest, Recorder_Throws_AnswerIsEmptyAndTheProcessLives) {
  const std::string torch = BuiltFile("tests/launcher/hang/libtorch_cpu.so");
  const auto process = Start({Pythons().front(), "-c",
                              absl::StrCat(kThreads, "ctypes.CDLL('", torch, "')\nname_thread(b'pt_nccl_watchdg')\n",
                                           "import signal\nsignal.sigwait([signal.SIGTERM])")});
  AwaitProbes(1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Ask(process->pid(), WorkerProbe::Question::kCollectives), "");
    EXPECT_EQ(Ask(process->pid(), WorkerProbe::Question::kCounters), std::string(1000, 'x') + "\n");
    EXPECT_EQ(Ask(process->pid(), static_cast<WorkerProbe::Question>('?')), "");
  }
  EXPECT_TRUE(testing::Alive(process->pid()));
}

TEST_F(AnswersTest, ForkedChild_WithItsOwnGroup_AnswersToo) {
  const auto process = Start({Pythons().front(), "-c", absl::StrCat(kThreads, R"(
name_thread(b'pt_gloo_runloop')
if os.fork() == 0:
    libc.prctl(1, 9)
    name_thread(b'pt_gloo_runloop')
    name_thread(b'pt_gloo_runloop')
ctypes.CDLL(None).pause()
)")});
  AwaitProbes(2);
  std::vector<pid_t> workers;
  for (const auto& [child, worker] : workers_) workers.push_back(worker);
  EXPECT_THAT(workers, ElementsAre(process->pid(), process->pid()));
  for (const auto& [child, probe] : probes_)
    EXPECT_THAT(Ask(child, WorkerProbe::Question::kStacks), HasSubstr("line "));
  // The child has closed its copy of the parent's connection: the parent's end ends that.
  process->Signal(SIGKILL);
  while (closed_.size() < 2) loop_->Run();
}

class RankTest : public AnswersTest {
 protected:
  void SetUp() override {
    if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
    fifo_ = folder_.File("fifo");
    ASSERT_EQ(mkfifo(fifo_.c_str(), 0600), 0);
  }

  // Both ranks have printed "ready" and answer, and rank 0 has entered the third collective.
  void StartRanks(const std::string& what) {
    const int port = testing::FreePort();
    for (int rank = 0; rank < 2; ++rank) {
      ranks_.push_back(Start({VenvPython(), testing::SourceRoot() + "/tests/launcher/hang/rank.py", what, fifo_}, rank,
                             {{"RANK", absl::StrCat(rank)},
                              {"WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "127.0.0.1"},
                              {"MASTER_PORT", absl::StrCat(port)},
                              {"RES_OPTIONS", "timeout:1 attempts:1"}}));
    }
    AwaitProbes(what == "spawn" ? 3 : 2);
    for (const auto& rank : ranks_) ASSERT_TRUE(rank->WaitForOut("ready")) << rank->Err();
    if (what == "name") return;
    std::vector<hang::v1::Group> groups;
    do {
      groups = ParseCollectives(Ask(ranks_[0]->pid(), WorkerProbe::Question::kCollectives), absl::Now());
    } while (groups.empty() || groups[0].entered() < 3);
  }

  // Lets rank 1 continue.
  void Continue() {
    const UniqueFd writer(open(fifo_.c_str(), O_WRONLY));
    EXPECT_TRUE(writer.valid());
  }

  static std::vector<std::string> Functions(const google::protobuf::RepeatedPtrField<hang::v1::Frame>& frames) {
    std::vector<std::string> names;
    for (const hang::v1::Frame& frame : frames) names.push_back(frame.function());
    return names;
  }

  testing::TempDir folder_;
  std::string fifo_;
  std::vector<std::unique_ptr<Process>> ranks_;
};

TEST_F(RankTest, Rank_ReadsInsteadOfEntering_IsTold) {
  StartRanks("read");
  hang::v1::Rank waiting = Collect(ranks_[0]->pid());
  // On a busy machine the native stack may take longer than the collection waits.
  while (waiting.process().native().empty()) waiting = Collect(ranks_[0]->pid());
  hang::v1::Rank odd;
  do {  // until it is in the call that follows "ready", and copies of it, made for earlier answers, are gone
    odd = Collect(ranks_[1]->pid());
  } while (odd.process().call() != "openat" || odd.children_size() > 0);
  ASSERT_EQ(waiting.groups_size(), 1) << waiting.DebugString();
  EXPECT_EQ(waiting.groups(0).name(), "default_pg");
  EXPECT_EQ(waiting.groups(0).entered(), 3);
  EXPECT_TRUE(waiting.groups(0).collectives(2).pending());
  EXPECT_FALSE(waiting.groups(0).collectives(1).pending());
  EXPECT_THAT(waiting.groups(0).collectives(2).tensors(), ElementsAre("Float[10, 4]"));
  EXPECT_THAT(Functions(waiting.process().frames()), Contains("all_reduce"));
  EXPECT_THAT(absl::StrJoin(waiting.process().native(), "\n"), HasSubstr("c10d::"));
  EXPECT_GT(waiting.connections_size(), 0);
  ASSERT_EQ(odd.groups_size(), 1);
  EXPECT_EQ(odd.groups(0).entered(), 2);
  EXPECT_FALSE(odd.groups(0).collectives(1).pending());
  EXPECT_EQ(odd.process().target(), fifo_);
  EXPECT_EQ(odd.process().frames(0).function(), "wait_for_data");
  EXPECT_THAT(odd.process().command(), HasSubstr("rank.py"));

  const Counters before = ParseCounters(Ask(ranks_[0]->pid(), WorkerProbe::Question::kCounters));
  EXPECT_NE(before.text, "");
  EXPECT_TRUE(before.waits);
  EXPECT_FALSE(ParseCounters(Ask(ranks_[1]->pid(), WorkerProbe::Question::kCounters)).waits);
  EXPECT_EQ(ParseCounters(Ask(ranks_[0]->pid(), WorkerProbe::Question::kCounters)).text, before.text);
  do {
    waiting = CollectOnce(ranks_[0]->pid(), RankEvidence::Parts::kCollectives);
  } while (waiting.groups().empty());
  EXPECT_EQ(waiting.groups(0).entered(), 3);
  EXPECT_FALSE(waiting.has_process()) << "nothing else was asked for";
  Continue();
  for (const auto& rank : ranks_) EXPECT_EQ(rank->Wait(), 0) << rank->Err();
}

TEST_F(RankTest, Rank_HoldsPythonsLock_Answers) {
  StartRanks("lock");
  const auto holder = [](const hang::v1::Rank& rank) {
    const auto& threads = rank.process().threads();
    return std::find_if(threads.begin(), threads.end(), [](const auto& thread) { return thread.holds_lock(); });
  };
  hang::v1::Rank odd;
  do {  // until the thread, which has printed "ready", is in its call; a thread of Gloo may wait for the lock, too
    odd = Collect(ranks_[1]->pid());
  } while (holder(odd) == odd.process().threads().end());
  EXPECT_EQ(odd.groups(0).entered(), 2);
  EXPECT_EQ(holder(odd)->frames(0).function(), "hold_lock");
  EXPECT_THAT(Functions(odd.process().frames()), Contains("main"));
}

TEST_F(RankTest, Rank_Stopped_IsSeenFromOutside) {
  StartRanks("read");
  ranks_[1]->Signal(SIGSTOP);
  const pid_t pid = ranks_[1]->pid();
  ASSERT_TRUE(testing::Eventually([pid] { return ReadProcess(pid, {})->state() == "T"; }));
  const hang::v1::Rank odd = CollectOnce(pid);
  EXPECT_EQ(odd.process().state(), "T");
  EXPECT_EQ(odd.groups_size(), 0);
  // Afterwards it answers again.
  ranks_[1]->Signal(SIGCONT);
  EXPECT_THAT(ParseCounters(Ask(pid, WorkerProbe::Question::kCounters)).text, Not(""));
  EXPECT_EQ(Collect(pid).groups(0).entered(), 2);
}

TEST_F(RankTest, Rank_ThreadNameIsNotUtf8_RecorderThrowsAndTheRankLives) {
  StartRanks("name");
  EXPECT_EQ(Ask(ranks_[1]->pid(), WorkerProbe::Question::kCollectives).find("\"entries\""), std::string::npos);
  EXPECT_THAT(Ask(ranks_[1]->pid(), WorkerProbe::Question::kStacks), HasSubstr("rank.py"));
  Continue();
  for (const auto& rank : ranks_) EXPECT_EQ(rank->Wait(), 0) << rank->Err();
}

TEST_F(RankTest, SpawnedChild_WithAGroup_AnswersToo) {
  StartRanks("spawn");
  std::vector<std::string> functions;
  while (std::find(functions.begin(), functions.end(), "spawn_main") == functions.end()) {
    const hang::v1::Rank odd = Collect(ranks_[1]->pid());
    EXPECT_EQ(odd.groups(0).entered(), 2) << "the worker's own group";
    functions.clear();
    for (const hang::v1::Process& child : odd.children()) {
      for (const std::string& name : Functions(child.frames())) functions.push_back(name);
    }
  }
}

}  // namespace
}  // namespace ddprun::launcher
