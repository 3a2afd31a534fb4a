#include "launcher/rendezvous_link.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/process.h"
#include "gtest/gtest.h"

namespace ddprun::launcher {
namespace {

// A process that lives until it is killed, under the given process name.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ == 0) {
      while (true) pause();
    }
  }
  ~Child() { Kill(); }
  std::string name() const {
    const std::string own = ProcessName();
    return absl::StrCat(own.substr(0, own.rfind(' ') + 1), pid_);
  }
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

TEST(ServerProcessTest, HasEnded_OnlyAfterTheEndOfWhoGaveOutTheRound) {
  Child first, second;
  ServerProcess server;
  EXPECT_FALSE(server.HasEnded(0));
  server.OnServer(first.name());
  server.OnRound(7);
  EXPECT_FALSE(server.HasEnded(7)) << "it runs";
  server.OnServer(second.name());
  second.Kill();
  EXPECT_FALSE(server.HasEnded(7)) << "another one has ended";
  first.Kill();
  EXPECT_TRUE(server.HasEnded(7));
  EXPECT_TRUE(server.HasEnded(7)) << "still";
  EXPECT_FALSE(server.HasEnded(6)) << "nothing is known of that round";
}

TEST(ServerProcessTest, HasEnded_OfAnUnknownProcess_IsNotCertain) {
  Child child;
  const std::string name = child.name();
  child.Kill();
  ServerProcess server;
  for (const std::string& unknown :
       {std::string(), std::string("no name"), absl::StrCat("x", name), name, ProcessName()}) {
    server.OnServer(unknown);
    server.OnRound(1);
    EXPECT_FALSE(server.HasEnded(1)) << unknown;
  }
}

TEST(ProcessNameTest, PidOfProcess_OnlyOfThisMachine) {
  EXPECT_EQ(PidOfProcess(ProcessName()), getpid());
  for (const std::string& other :
       {std::string(), absl::StrCat("other ", ProcessName()), absl::StrCat(ProcessName(), "x"), std::string("0 0 1")}) {
    EXPECT_EQ(PidOfProcess(other), 0) << other;
  }
}

}  // namespace
}  // namespace ddprun::launcher
