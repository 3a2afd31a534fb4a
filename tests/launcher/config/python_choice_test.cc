#include "launcher/config/python_choice.h"

#include "gtest/gtest.h"

namespace ddprun::launcher {
namespace {

using Words = std::vector<std::string>;

TEST(ChoosePython, NothingSaid_ThatOfPath) {
  EXPECT_EQ(ChoosePython({})->programs, (Words{"python3", "python"}));
  EXPECT_EQ(ChoosePython({.python_exec = "", .virtual_env = "", .conda_prefix = ""})->programs,
            (Words{"python3", "python"}));
}

TEST(ChoosePython, TheCommandsOwnEnvironmentBeforeTheActiveOnes) {
  const PythonFacts facts = {.beside_command = "/here/bin/python", .virtual_env = "/venv", .conda_prefix = "/conda"};
  EXPECT_EQ(ChoosePython(facts)->programs,
            (Words{"/here/bin/python", "/venv/bin/python", "/conda/bin/python", "python3", "python"}));
}

TEST(ChoosePython, PythonExec_WinsAndMayHaveArguments) {
  const auto choose = [](const std::string& value, bool is_file = false) {
    const PythonFacts facts = {.python_exec = value, .python_exec_is_file = is_file, .beside_command = "/here/python"};
    return ChoosePython(facts);
  };
  EXPECT_EQ(choose("/opt/python")->programs, Words{"/opt/python"});
  EXPECT_EQ(choose("/opt/python")->arguments, Words{});
  EXPECT_EQ(choose("/my opt/python", true)->programs, Words{"/my opt/python"}) << "as torchrun takes it";
  EXPECT_EQ(choose("  python3  -X\tfaulthandler ")->arguments, (Words{"-X", "faulthandler"}));
  EXPECT_EQ(choose(R"("/my opt/python" -W 'error::Some Warning' a\ b "c\"d" '')")->programs, Words{"/my opt/python"});
  EXPECT_EQ(choose(R"("/my opt/python" -W 'error::Some Warning' a\ b "c\"d" '')")->arguments,
            (Words{"-W", "error::Some Warning", "a b", "c\"d", ""}));
  EXPECT_EQ(choose("  ").status().message(), "PYTHON_EXEC=  : no program is given");
  EXPECT_EQ(choose("python 'x").status().message(), "PYTHON_EXEC=python 'x: unterminated quote");
  EXPECT_EQ(choose("python \\").status().message(), "PYTHON_EXEC=python \\: unterminated quote");
}

}  // namespace
}  // namespace ddprun::launcher
