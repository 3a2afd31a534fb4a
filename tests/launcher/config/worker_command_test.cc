#include "launcher/config/worker_command.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

TEST(IsProgram, ElfOrExecutableWithAnotherInterpreter_IsAProgram) {
  const std::string elf = "\177ELF\002";
  EXPECT_TRUE(IsProgram("./train", {elf, true}));
  EXPECT_TRUE(IsProgram("train", {elf, false})) << "the error is then about the permission";
  for (const char* head : {"#!/bin/sh\n", "#!/usr/bin/env bash\npython train.py", "#! /opt/julia/bin/julia -t4",
                           "#!/opt/python/bin/ruby\n"}) {
    EXPECT_TRUE(IsProgram("./train", {head, true})) << head;
    EXPECT_FALSE(IsProgram("./train", {head, false})) << head;
    EXPECT_FALSE(IsProgram("train.py", {head, true})) << head;
  }
}

TEST(IsProgram, PythonScript_IsNotAProgram) {
  for (const char* head : {"", "import torch\n", "#!/usr/bin/env python3\n", "#!/venv/bin/python -u\n",
                           "#!/usr/bin/env -S python3.11 -u", "#!/opt/bin/pypy3\n", "PK\x03\x04", "# a comment"}) {
    EXPECT_FALSE(IsProgram("./train", {head, true})) << head;
  }
}

using Words = std::vector<std::string>;

TEST(ChoosePython, SeveralEnvironments_TheCommandsPrecedesActivePrecedesPath) {
  const PythonFacts facts = {.beside_command = "/here/bin/python", .virtual_env = "/venv", .conda_prefix = "/conda"};
  EXPECT_EQ(ChoosePython(facts)->programs,
            (Words{"/here/bin/python", "/venv/bin/python", "/conda/bin/python", "python3", "python"}));
  for (const PythonFacts& none :
       {PythonFacts(), PythonFacts{.python_exec = "", .virtual_env = "", .conda_prefix = ""}}) {
    EXPECT_EQ(ChoosePython(none)->programs, (Words{"python3", "python"}));
  }
}

TEST(ChoosePython, PythonExec_TakesPrecedenceAndMayHaveArguments) {
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
  for (const std::string open : {"python 'x", "python \\"})
    EXPECT_EQ(choose(open).status().message(), "PYTHON_EXEC=" + open + ": unterminated quote");
}

}  // namespace
}  // namespace ddprun::launcher
