// Uses a real LinkServer. Section numbers refer to docs/worker_protocol.md.
#include "worker_runtime/base/launcher_link.h"

#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "launcher/io/event_loop.h"
#include "launcher/workers/link_server.h"

namespace ddprun {
namespace {

using launcher::EventLoop;
using launcher::LinkServer;
using launcher::ReportedProgress;
using worker_contract::LinkProgress;

constexpr int kRank = 5;

class LauncherLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    loop_ = *EventLoop::Create();
    LinkServer::Events events;
    events.on_line = [this](pid_t, const worker_contract::WorkerLinkMessage& line) {
      const auto* hello = std::get_if<worker_contract::LinkHello>(&line);
      if (hello != nullptr) capabilities_.push_back(absl::StrJoin(hello->capabilities, " "));
    };
    events.on_closed = [](pid_t) {};
    events.on_progress = [](pid_t, const launcher::ReportedProgress&) {};
    server_ = *LinkServer::Create(std::move(events), loop_.get());
    server_->Add(getpid(), kRank);
  }

  // Runs the launcher's loop for the events that are ready.
  void Turn() {
    for (int i = 0; i < 3; ++i) {
      loop_->Post([this] { loop_->Post([this] { loop_->Quit(); }); });
      loop_->Run();
    }
  }
  std::optional<LinkProgress> Last() {
    const std::optional<ReportedProgress> last = server_->Remove(getpid());
    if (!last) return std::nullopt;
    return last->progress;
  }

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<LinkServer> server_;
  std::vector<std::string> capabilities_;  // one entry per hello
};

TEST_F(LauncherLinkTest, Section3_1_AListenerLater_AddsCapabilities) {
  LauncherLink link(server_->address(), kRank, 0);
  link.Report({.step = 1});
  EXPECT_TRUE(link.Listen({.heard = [](const worker_contract::LauncherLinkMessage&) {}, .closed = [] {}}));
  EXPECT_FALSE(link.Listen({}));
  link.Report({.step = 2});
  Turn();
  EXPECT_EQ(capabilities_, (std::vector<std::string>{"progress stop", "progress stop re-form checkpoint"}));
  EXPECT_EQ(Last()->step, 2);
}

TEST_F(LauncherLinkTest, Section3_2_TheLastReportArrives) {
  LauncherLink link(server_->address(), kRank, 0);
  link.Report({.step = 119});
  const LinkProgress last = {120, 7680, "backward", 2.5};
  link.Report(last);
  EXPECT_EQ(Last(), last);
}

TEST_F(LauncherLinkTest, Section2_5_AFullSocketIsNotWaitedFor_TheNewestWins) {
  LauncherLink link(server_->address(), kRank, 0);
  constexpr int kSent = worker_contract::kMaxReportsPerSecond - 10;
  for (int step = 0; step < kSent; ++step) link.Report({step, {}, std::string(60, 'x'), {}});
  Turn();
  EXPECT_FALSE(link.StopAt());
  link.Report({.step = kSent});
  EXPECT_EQ(Last()->step, kSent);
}

TEST_F(LauncherLinkTest, Section3_3_ReportsBeyondTheRateAreLeftOut) {
  LauncherLink link(server_->address(), kRank, 0);
  for (int step = 0; step < 100 * 1000; ++step) {
    link.Report({.step = step});
    if (step % 100 == 0) Turn();
  }
  server_->NotifyStop(getpid(), SteadyNow() + absl::Seconds(100), "");
  EXPECT_TRUE(link.StopAt()) << "the launcher has not closed the connection";
}

TEST_F(LauncherLinkTest, Section4_1_StopAt_HasTheDeadline) {
  LauncherLink link(server_->address(), kRank, 0);
  Turn();
  EXPECT_FALSE(link.StopAt());
  const SteadyTime deadline = SteadyNow() + absl::Seconds(1000);
  server_->NotifyStop(getpid(), deadline, "");
  ASSERT_TRUE(link.StopAt());
  EXPECT_GE(*link.StopAt(), deadline);
  EXPECT_LT(*link.StopAt(), deadline + absl::Seconds(100)) << "plus the time between sending and reading";
}

TEST_F(LauncherLinkTest, Section2_5_TheLauncherIsGone_NothingHappens) {
  LauncherLink link(server_->address(), kRank, 0);
  const std::string address = server_->address();
  Turn();
  server_ = nullptr;
  for (int step = 0; step < 10; ++step) link.Report({.step = step});
  EXPECT_FALSE(link.StopAt());
  for (const std::string& other : {address, std::string("@no-such-socket"), std::string("@"), std::string("/a/file"),
                                   std::string(1000, '@'), std::string()}) {
    LauncherLink nowhere(other, kRank, 0);
    nowhere.Report({.step = 1});
    EXPECT_FALSE(nowhere.StopAt()) << other;
  }
}

TEST_F(LauncherLinkTest, Section2_3_AForkedChildSaysNothing) {
  LauncherLink link(server_->address(), kRank, 0);
  link.Report({.step = 1});
  const pid_t child = fork();
  if (child == 0) {
    link.Report({.step = 99});
    _exit(link.StopAt() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Last()->step, 1);
}

}  // namespace
}  // namespace ddprun
