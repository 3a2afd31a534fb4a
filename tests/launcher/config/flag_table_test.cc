#include "launcher/config/flag_table.h"

#include <gtest/gtest.h>

#include <set>

#include "absl/strings/match.h"

namespace ddprun::launcher {
namespace {

TEST(FlagTable, Names_AreUniqueAndDashed) {
  std::set<std::string> names = {"help", "version"};
  std::set<std::string> short_names = {"h"};
  for (const Flag& flag : Flags()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_EQ(std::string(flag.name).find('_'), std::string::npos) << flag.name;
    EXPECT_NE(flag.help[0], '\0') << flag.name;
    if (flag.syntax.short_name[0] == '\0') continue;
    EXPECT_TRUE(short_names.insert(flag.syntax.short_name).second) << flag.name;
  }
}

TEST(FlagTable, PetVariable_IsTheOneOfTorchrun) { EXPECT_EQ(PetVariable("nproc-per-node"), "PET_NPROC_PER_NODE"); }

TEST(UnknownFlagText, NearFlag_IsSuggested) {
  const std::pair<const char*, const char*> kNear[] = {
      {"--nnode=2", "--nnodes?"},       {"--redirect", "--redirects?"},   {"--rdzv_endpont=x", "--rdzv-endpoint?"},
      {"-nnodes", "--nnodes?"},         {"--NNODES", "--nnodes?"},        {"--nproc-pre-node", "--nproc-per-node?"},
      {"--nproc", "--nproc-per-node?"}, {"--node-rnak=1", "--node-rank?"}};
  for (const auto& [flag, meant] : kNear) EXPECT_TRUE(absl::EndsWith(UnknownFlagText(flag), meant)) << flag;
}

TEST(UnknownFlagText, FlagOfAnotherLauncher_NamesTheOneHere) {
  const std::pair<const char*, const char*> kForeign[] = {{"-n", "--nproc-per-node"},
                                                          {"-np", "--nproc-per-node"},
                                                          {"-ppn", "--nproc-per-node"},
                                                          {"-n4", "--nproc-per-node"},
                                                          {"--np=4", "--nproc-per-node"},
                                                          {"--num_gpus", "--nproc-per-node"},
                                                          {"--hostfile", "--hosts"},
                                                          {"-H", "--hosts"},
                                                          {"--num_machines", "--nnodes"},
                                                          {"--machine_rank", "--node-rank"},
                                                          {"-x", "--env"}};
  for (const auto& [flag, meant] : kForeign) {
    EXPECT_TRUE(absl::StrContains(UnknownFlagText(flag), absl::StrCat("': give ", meant))) << UnknownFlagText(flag);
  }
}

TEST(UnknownFlagText, NothingNear_PointsToHelp) {
  EXPECT_TRUE(absl::StrContains(UnknownFlagText("--learning-rate=0.1"), "'--learning-rate': see ddprun --help"));
  for (const std::string& far : {std::string("---"), std::string("-"), std::string("--xy"), std::string(1000, 'n')}) {
    EXPECT_TRUE(absl::StrContains(UnknownFlagText(far), "see ddprun --help")) << far;
  }
}

}  // namespace
}  // namespace ddprun::launcher
