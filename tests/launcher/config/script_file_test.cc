#include "launcher/config/script_file.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

TEST(IsProgram, Elf_IsOneEvenIfItMayNotBeRun) {
  EXPECT_TRUE(IsProgram("./train", {"\x7f"
                                    "ELF\x02",
                                    true}));
  EXPECT_TRUE(IsProgram("train", {"\x7f"
                                  "ELF\x02",
                                  false}))
      << "the error is then about the permission";
}

TEST(IsProgram, ExecutableWithAnotherInterpreter_IsOne) {
  for (const char* head : {"#!/bin/sh\n", "#!/usr/bin/env bash\npython train.py", "#! /opt/julia/bin/julia -t4",
                           "#!/opt/python/bin/ruby\n"}) {
    EXPECT_TRUE(IsProgram("./train", {head, true})) << head;
    EXPECT_FALSE(IsProgram("./train", {head, false})) << head;
    EXPECT_FALSE(IsProgram("train.py", {head, true})) << head;
  }
}

TEST(IsProgram, WhatPythonRuns_IsNone) {
  for (const char* head : {"", "import torch\n", "#!/usr/bin/env python3\n", "#!/venv/bin/python -u\n",
                           "#!/usr/bin/env -S python3.11 -u", "#!/opt/bin/pypy3\n", "PK\x03\x04", "# a comment"}) {
    EXPECT_FALSE(IsProgram("./train", {head, true})) << head;
  }
}

}  // namespace
}  // namespace ddprun::launcher
