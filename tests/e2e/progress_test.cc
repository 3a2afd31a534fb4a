// --progress with real launchers, on a terminal and without one. The workers are Python programs that report progress.
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

// Runs until the file in the first argument exists, or for that many hundredths of a second.
constexpr char kTrain[] = R"(
import os, sys, time
from ddprun import worker

step = 0
while not os.path.exists(sys.argv[1]) and not (sys.argv[1].isdigit() and step > int(sys.argv[1])):
    worker.report_progress(step, phase="forward", loss=1.5)
    if step % 50 == 0: print(f"worker at {step}.\n", end="", flush=True)  # in one piece
    time.sleep(0.01)
    step += 1
)";

class ProgressTest : public PythonWorkersTest {
 protected:
  ProgressTest() { environment_["TERM"] = "xterm"; }
  std::vector<std::string> Command(std::vector<std::string> flags, const std::string& argument) const {
    std::vector<std::string> command = Launcher::Command("launcher/ddprun", Flags(2, std::move(flags), kTrain));
    command.push_back(argument);
    return command;
  }
  // Runs the command on a terminal of 24 rows, whose output is the process's standard output.
  std::vector<std::string> OnTerminal(std::vector<std::string> flags, const std::string& argument) const {
    return {"/usr/bin/script", "-qec",
            absl::StrCat("stty rows 24 cols 100; exec ", absl::StrJoin(Command(std::move(flags), argument), " ")),
            "/dev/null"};
  }
};

TEST_F(ProgressTest, Terminal_TheLastRowShowsItAndIsGivenBack) {
  if (access("/usr/bin/script", X_OK) != 0) GTEST_SKIP() << "there is no script(1)";
  Process terminal(OnTerminal({}, dir_.File("end")), environment_);
  // The row is excluded from scrolling, and written with the cursor restored.
  ASSERT_TRUE(terminal.WaitForOut("\033[1;23r")) << terminal.Out();
  ASSERT_TRUE(terminal.WaitForOut("\0337\033[24;1H\033[Kddprun: step ")) << terminal.Out();
  ASSERT_TRUE(terminal.WaitForOut(" steps/s, loss 1.5, phase forward")) << terminal.Out();
  Touch(dir_.File("end"));
  EXPECT_EQ(terminal.Wait(), 0) << terminal.Out();
  const std::string out = terminal.Out();
  const size_t last = out.rfind("ddprun: step ");
  EXPECT_THAT(out.substr(last), HasSubstr("\0337\033[1;24r\033[24;1H\033[K\0338"));
  EXPECT_GE(Count(out, "worker at 50.\r\n"), 2) << out;
}

TEST_F(ProgressTest, NoTerminal_LinesOnlyIfTheyAreAskedFor) {
  Process lines(Command({"--progress"}, dir_.File("end")), environment_);
  Process quiet(Command({}, "120"), environment_);
  Process off(OnTerminal({"--progress=off"}, "120"), environment_);
  ASSERT_TRUE(lines.WaitForErr("ddprun: step ")) << lines.Err();
  EXPECT_TRUE(lines.WaitForErr("phase forward")) << lines.Err();
  EXPECT_FALSE(absl::StrContains(lines.Err(), "\033")) << lines.Err();
  Touch(dir_.File("end"));
  ExpectEnd({&lines, &quiet});
  EXPECT_EQ(quiet.Err(), "");
  if (access("/usr/bin/script", X_OK) != 0) return;
  EXPECT_EQ(off.Wait(), 0) << off.Out();
  EXPECT_TRUE(absl::StrContains(off.Out(), "worker at 100.")) << off.Out();
  EXPECT_FALSE(absl::StrContains(off.Out(), "step")) << off.Out();
}

}  // namespace
}  // namespace ddprun::testing
