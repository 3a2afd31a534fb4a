#include "launcher/process/run_command.h"

#include <csignal>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "tests/launcher/process/process_testing.h"

namespace ddprun::launcher {
namespace {

class CommandTest : public ::testing::Test {
 protected:
  // Returns the output of a shell script; "none" if there was no answer within `limit`.
  std::string Answer(const std::string& script, absl::Duration limit = absl::Minutes(5)) {
    std::string answer = "none";
    auto command =
        Command::Run(loop_.get(), RequestFor({"/bin/sh", "-c", script}), limit, [&](const std::string& text) {
          answer = text;
          loop_->Quit();
        });
    EXPECT_TRUE(command.ok()) << command.status();
    // Ends the loop some time after the limit, by the same clock.
    auto end = Command::Run(loop_.get(), RequestFor({"/bin/sleep", limit > absl::Seconds(1) ? "300" : "1"}),
                            absl::Minutes(5), [&](const std::string&) { loop_->Quit(); });
    loop_->Run();
    return answer;
  }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
};

TEST_F(CommandTest, Run_Answer_IsTheWholeOutput) {
  EXPECT_EQ(Answer("echo one; sleep 0.01; echo two; echo error >&2"), "one\ntwo\n");
  EXPECT_EQ(Answer("exit 3"), "");
  EXPECT_EQ(Answer("read line; echo \"[$line]\""), "[]\n") << "standard input is empty";
}

TEST_F(CommandTest, Run_TimeoutOrTooLong_GivesNoAnswer) {
  EXPECT_EQ(Answer("echo x; exec sleep 1000", absl::Milliseconds(50)), "none");
  EXPECT_EQ(Answer("head -c 65536 /dev/zero").size(), 65536) << "the longest answer";
  EXPECT_EQ(Answer("head -c 65537 /dev/zero", absl::Milliseconds(900)), "none");
}

TEST_F(CommandTest, Destroyed_KillsTheProgram) {
  const Pipe pid_pipe;
  auto command = Command::Run(loop_.get(),
                              RequestFor({"/bin/sh", "-c",
                                          "echo $$ >/proc/" + std::to_string(getpid()) + "/fd/" +
                                              std::to_string(pid_pipe.write.get()) + "; exec sleep 1000"}),
                              absl::Minutes(5), [](const std::string&) { ADD_FAILURE(); });
  ASSERT_TRUE(command.ok()) << command.status();
  char text[32] = {};
  ASSERT_GT(read(pid_pipe.read.get(), text, sizeof(text) - 1), 0);
  command->reset();
  EXPECT_TRUE(WaitUntilGone(atoi(text)));
}

TEST_F(CommandTest, Run_NoSuchProgram_GivesNoOutput) {
  std::optional<std::string> answer;
  const auto command =
      Command::Run(loop_.get(), RequestFor({"/no/such/tool"}), absl::Minutes(5), [&](const std::string& text) {
        answer = text;
        loop_->Quit();
      });
  ASSERT_TRUE(command.ok()) << command.status();
  loop_->Run();
  EXPECT_EQ(answer, "");
}

}  // namespace
}  // namespace ddprun::launcher
