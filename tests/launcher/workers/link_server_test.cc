// Real sockets; the processes are this one and its children. Sections are those of docs/worker_protocol.md.
#include "launcher/workers/link_server.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/socket_address.h"
#include "gmock/gmock.h"
#include "launcher/io/file_descriptor.h"
#include "tests/launcher/process/process_testing.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;
using worker_contract::EncodeMessage;
using worker_contract::LinkHello;
using worker_contract::LinkProgress;
using worker_contract::LinkSuspended;
using worker_contract::WorkerLinkMessage;

constexpr int kRank = 5;

std::string Hello(int rank = kRank) { return EncodeMessage(WorkerLinkMessage(LinkHello{1, 0, rank, 77, {}})); }
std::string Progress(int64_t step) { return EncodeMessage(WorkerLinkMessage(LinkProgress{.step = step})); }

UniqueFd TryConnect(const std::string& address) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto to = *UnixAddress::Parse(address);
  return connect(fd.get(), to.get(), to.size()) == 0 ? std::move(fd) : UniqueFd();
}

UniqueFd Connect(const std::string& address) {
  UniqueFd fd = TryConnect(address);
  EXPECT_TRUE(fd.valid()) << address;
  return fd;
}

void Write(const UniqueFd& fd, const std::string& text) {
  EXPECT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

// This process is the worker with rank kRank unless a test changes that.
class LinkServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    loop_ = *EventLoop::Create();
    LinkServer::Events events;
    events.on_line = [this](pid_t pid, const WorkerLinkMessage& line) { told_.emplace_back(pid, line); };
    events.on_progress = [this](pid_t, const ReportedProgress& progress) { reported_.push_back(progress.progress); };
    events.on_closed = [this](pid_t pid) { closed_.push_back(pid); };
    events.on_probe = [this](pid_t worker, pid_t process, UniqueFd fd) {
      probes_.push_back({worker, process, std::move(fd)});
    };
    auto server = LinkServer::Create(std::move(events), loop_.get());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  // Handles the events that are ready now.
  void Turn() {
    for (int i = 0; i < 3; ++i) {
      loop_->Post([this] { loop_->Post([this] { loop_->Quit(); }); });
      loop_->Run();
    }
  }

  // Connects as this process's worker; sends a hello and `more`.
  UniqueFd Join(const std::string& more = "") {
    server_->Add(getpid(), kRank);
    UniqueFd fd = Connect(server_->address());
    Write(fd, Hello() + more);
    Turn();
    return fd;
  }

  // True if the server has closed its end.
  static bool Closed(const UniqueFd& fd) {
    char byte;
    return recv(fd.get(), &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
  }

  // Seconds and reason of the received stop; -1 if none was received.
  static std::pair<double, std::string> Stop(const UniqueFd& fd) {
    char bytes[worker_contract::kMaxLinkLine];
    const ssize_t got = recv(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got <= 0) return {-1, ""};
    const auto line = worker_contract::DecodeLauncherMessage(absl::string_view(bytes, got - 1));
    if (!line.ok() || !line->has_value()) return {-1, "bad line"};
    const auto& stop = std::get<worker_contract::LinkStop>(**line);
    return {absl::ToDoubleSeconds(stop.deadline), stop.reason};
  }

  int64_t LastStep(pid_t pid) {
    const std::optional<ReportedProgress> last = server_->Remove(pid);
    return last ? last->progress.step : -1;
  }

  std::vector<std::pair<pid_t, WorkerLinkMessage>> told_;
  std::vector<LinkProgress> reported_;
  std::vector<pid_t> closed_;
  struct Probe {
    pid_t worker, process;
    UniqueFd fd;
  };
  std::vector<Probe> probes_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<LinkServer> server_;
};

TEST_F(LinkServerTest, Section3_2_LastProgress_UnreadByTheLoop_IsReturned) {
  UniqueFd fd = Join(Progress(1));
  EXPECT_FALSE(Closed(fd));
  std::string more;
  for (int step = 2; step <= 500; ++step) absl::StrAppend(&more, Progress(step));
  Write(fd, more);
  EXPECT_EQ(LastStep(getpid()), 500);
  EXPECT_EQ(LastStep(getpid()), -1) << "it is forgotten";
  EXPECT_TRUE(Closed(fd)) << "2.3: a connection ends with its worker";
  // One that was not even accepted.
  server_->Add(getpid(), kRank);
  fd = Connect(server_->address());
  Write(fd, Hello() + Progress(7));
  fd.reset();
  EXPECT_EQ(LastStep(getpid()), 7);
}

TEST_F(LinkServerTest, Section3_2_ReportsTogether_AreAllDelivered) {
  UniqueFd fd = Join(Progress(1) + Progress(2));
  EXPECT_EQ(server_->ReporterOf(getpid()), getpid());
  Write(fd, Progress(3));
  server_->ReadReports();
  std::vector<int64_t> steps;
  for (const LinkProgress& progress : reported_) steps.push_back(progress.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3}));
}

TEST_F(LinkServerTest, Section5_LinesAndClose_AreDelivered) {
  UniqueFd fd = Join(Progress(1) + EncodeMessage(WorkerLinkMessage(LinkSuspended{3, 120})));
  ASSERT_EQ(told_.size(), 2);
  EXPECT_EQ(told_[0].first, getpid());
  EXPECT_TRUE(std::holds_alternative<LinkHello>(told_[0].second));
  EXPECT_EQ(told_[1].second, WorkerLinkMessage(LinkSuspended{3, 120}));
  EXPECT_TRUE(closed_.empty());
  // Messages and end of a second connection are ignored.
  const UniqueFd second = Connect(server_->address());
  Write(second, Hello() + EncodeMessage(WorkerLinkMessage(LinkSuspended{9, 9})));
  Turn();
  EXPECT_EQ(told_.size(), 2);
  EXPECT_TRUE(closed_.empty());
  // Messages before an error count.
  Write(fd, EncodeMessage(WorkerLinkMessage(LinkSuspended{4, 121})) + "rubbish\n");
  Turn();
  ASSERT_EQ(told_.size(), 3);
  EXPECT_EQ(told_[2].second, WorkerLinkMessage(LinkSuspended{4, 121}));
  EXPECT_EQ(closed_, std::vector<pid_t>{getpid()});
}

TEST_F(LinkServerTest, Section5_3_TellAndSetRank) {
  server_->Add(getpid(), kRank);
  const worker_contract::LauncherLinkMessage line = worker_contract::LinkSuspend{3, true, "why", 1};
  server_->Tell(getpid(), line);  // no connection
  UniqueFd fd = Connect(server_->address());
  Write(fd, Hello());
  Turn();
  server_->Tell(getpid(), line);
  char bytes[worker_contract::kMaxLinkLine];
  const ssize_t got = recv(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  EXPECT_EQ(std::string(bytes, std::max<ssize_t>(got, 0)), EncodeMessage(line)) << "once";
  // From then on each hello must have the rank of the next round, also on connections without one so far.
  fd = Connect(server_->address());
  Turn();
  server_->SetRank(getpid(), kRank + 1);
  for (int i = 0; i < 2; ++i) {
    Write(fd, Hello(kRank + 1) + Progress(2));
    Turn();
    EXPECT_FALSE(Closed(fd)) << i;
    fd.reset();
    Turn();
    fd = Connect(server_->address());
    Turn();
  }
}

TEST_F(LinkServerTest, Section5_WorkerDoesNotRead_IsClosed) {
  const UniqueFd fd = Join();
  const worker_contract::LauncherLinkMessage line = worker_contract::LinkSuspend{3, true, std::string(500, 'x'), 1};
  for (int i = 0; i < 10000 && closed_.empty(); ++i) {
    server_->Tell(getpid(), line);
    if (i % 100 == 0) Turn();
  }
  EXPECT_EQ(closed_, std::vector<pid_t>{getpid()});
}

TEST_F(LinkServerTest, Section2_2_Stranger_IsRefused) {
  for (const int another : {0, 1}) {
    if (another == 1) server_->Add(getpid() + 1, kRank);  // this process is no descendant of that worker
    const UniqueFd fd = Connect(server_->address());
    ::testing::internal::CaptureStderr();
    Turn();
    EXPECT_TRUE(Closed(fd)) << another;
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr(absl::StrCat("closed the connection of process ", getpid(),
                                       ": it is not a worker of this launcher\n")));
  }
}

TEST_F(LinkServerTest, Section2_2_Descendant_CountsAsItsWorker) {
  Pipe says, ends;
  const pid_t worker = fork();
  if (worker == 0) {
    const pid_t child = fork();
    if (child == 0) {
      const UniqueFd fd = Connect(server_->address());
      Write(fd, Hello() + Progress(9));
      EXPECT_EQ(write(says.write.get(), "x", 1), 1);
    }
    char byte;
    ends.write.reset();
    EXPECT_EQ(read(ends.read.get(), &byte, 1), 0);
    if (child != 0) waitpid(child, nullptr, 0);
    _exit(0);
  }
  server_->Add(worker, kRank);
  ASSERT_TRUE(WaitReadable(says.read.get()));
  EXPECT_EQ(LastStep(worker), 9);
  ends.write.reset();
  waitpid(worker, nullptr, 0);
}

TEST_F(LinkServerTest, Section2_3_SecondConnection_IsClosed) {
  const UniqueFd first = Join(Progress(1));
  const UniqueFd second = Connect(server_->address());
  Write(second, Hello() + Progress(1000));
  ::testing::internal::CaptureStderr();
  Turn();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(": this worker already has a connection\n"));
  EXPECT_TRUE(Closed(second));
  Write(first, Progress(2));
  Turn();
  EXPECT_FALSE(Closed(first));
  EXPECT_EQ(LastStep(getpid()), 2);
}

TEST_F(LinkServerTest, Section2_3_FirstHasEnded_NextConnectionCounts) {
  UniqueFd first = Join(Progress(1));
  // Both in one iteration of the loop, as when a worker executes another program.
  Write(first, Progress(2));
  first.reset();
  const UniqueFd second = Connect(server_->address());
  Write(second, Hello());
  Turn();
  EXPECT_FALSE(Closed(second));
  Write(second, Progress(3));
  EXPECT_EQ(LastStep(getpid()), 3);
}

TEST_F(LinkServerTest, Section4_1_Stop_ReachesLateWorkersToo) {
  const UniqueFd fd = Join();
  EXPECT_EQ(Stop(fd).first, -1);
  server_->NotifyStop(getpid(), SteadyNow() + absl::Seconds(100), "node b\njoined");
  const auto [seconds, reason] = Stop(fd);
  EXPECT_GT(seconds, 0);
  EXPECT_LE(seconds, 100);
  EXPECT_EQ(reason, "node b joined");

  server_->Remove(getpid());
  server_->Add(getpid(), kRank);
  const UniqueFd late = Connect(server_->address());
  server_->NotifyStop(getpid(), SteadyNow() - absl::Seconds(1), "");
  EXPECT_EQ(Stop(late).first, -1) << "nobody has said hello";
  Write(late, Hello());
  Turn();
  EXPECT_EQ(Stop(late).first, 0);
}

TEST_F(LinkServerTest, Section2_5_WorkerDoesNotRead_IsNotWaitedFor) {
  const UniqueFd fd = Join();
  for (int i = 0; i < 10000; ++i) server_->NotifyStop(getpid(), SteadyNow(), std::string(400, 'x'));
  Write(fd, Progress(6));
  EXPECT_EQ(LastStep(getpid()), 6);
}

TEST_F(LinkServerTest, Section2_4_ManySilentConnections_AreClosed) {
  server_->Add(getpid(), kRank);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(Connect(server_->address()));
  Turn();
  EXPECT_EQ(std::count_if(silent.begin(), silent.end(), Closed), 92);
}

std::string ProbeLine() { return EncodeMessage(WorkerLinkMessage(worker_contract::LinkProbe{.pid = 77})); }

TEST_F(LinkServerTest, Section7_Probe_IsHandedOverAndIsNotTheWorkersConnection) {
  const UniqueFd reporting = Join(Progress(1));
  UniqueFd answering[20];  // more than the connections that a worker may have at a time
  for (UniqueFd& fd : answering) {
    fd = Connect(server_->address());
    Write(fd, ProbeLine());
    Turn();
  }
  ASSERT_EQ(probes_.size(), 20);
  EXPECT_EQ(probes_[0].worker, getpid());
  EXPECT_EQ(probes_[0].process, getpid()) << "as the kernel says";
  Write(probes_[3].fd, "c");
  char byte = 0;
  EXPECT_EQ(recv(answering[3].get(), &byte, 1, 0), 1);
  Write(reporting, Progress(2));
  EXPECT_EQ(LastStep(getpid()), 2) << "the first connection still counts";
  EXPECT_FALSE(Closed(answering[0])) << "the receiver owns it";
  EXPECT_TRUE(closed_.empty());
}

TEST_F(LinkServerTest, Section7_Probe_WithOtherLines_IsClosed) {
  server_->Add(getpid(), kRank);
  for (const std::string& text : {ProbeLine() + ProbeLine(), ProbeLine() + Hello(), Hello() + ProbeLine()}) {
    const UniqueFd fd = Connect(server_->address());
    Write(fd, text);
    Turn();
    EXPECT_TRUE(Closed(fd)) << text;
  }
  EXPECT_TRUE(probes_.empty());
}

TEST_F(LinkServerTest, Section7_Probe_OfAStrangerOrARemovedWorker_IsClosed) {
  const UniqueFd stranger = Connect(server_->address());
  Write(stranger, ProbeLine());
  Turn();
  EXPECT_TRUE(Closed(stranger));
  server_->Add(getpid(), kRank);
  const UniqueFd late = Connect(server_->address());
  Write(late, ProbeLine());
  server_->Remove(getpid());
  Turn();
  EXPECT_TRUE(Closed(late));
  EXPECT_TRUE(probes_.empty());
}

TEST_F(LinkServerTest, Section2_1_Socket_LeavesNoFile) {
  const std::string address = server_->address();
  EXPECT_EQ(address.front(), '@');
  server_ = nullptr;
  EXPECT_FALSE(TryConnect(address).valid());
}

}  // namespace
}  // namespace ddprun::launcher
