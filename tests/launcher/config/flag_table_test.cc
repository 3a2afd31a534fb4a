#include "launcher/config/flag_table.h"

#include <gtest/gtest.h>

#include <set>

namespace ddprun::launcher {
namespace {

TEST(FlagTable, Names_AreUniqueAndDashed) {
  std::set<std::string> names = {"help", "version"};
  std::set<std::string> short_names = {"h"};
  for (const Flag& flag : Flags()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_EQ(std::string(flag.name).find('_'), std::string::npos) << flag.name;
    EXPECT_NE(flag.help[0], '\0') << flag.name;
    if (flag.short_name[0] == '\0') continue;
    EXPECT_TRUE(short_names.insert(flag.short_name).second) << flag.name;
  }
}

TEST(FlagTable, PetVariable_IsTorchruns) {
  EXPECT_EQ(PetVariable(Flags()[1]), "PET_NPROC_PER_NODE");
  EXPECT_EQ(PetVariable(Flags()[0]), "PET_NNODES");
}

TEST(UnknownFlagText, NearFlag_IsSuggested) {
  EXPECT_EQ(UnknownFlagText("--nnode=2"), "unknown flag '--nnode': did you mean --nnodes?");
  EXPECT_EQ(UnknownFlagText("--redirect"), "unknown flag '--redirect': did you mean --redirects?");
  EXPECT_EQ(UnknownFlagText("--rdzv_endpont=x"), "unknown flag '--rdzv_endpont': did you mean --rdzv-endpoint?");
  EXPECT_EQ(UnknownFlagText("-nnodes"), "unknown flag '-nnodes': did you mean --nnodes?");
  EXPECT_EQ(UnknownFlagText("--NNODES"), "unknown flag '--NNODES': did you mean --nnodes?");
}

TEST(UnknownFlagText, MovedFlag_NamesTheReplacement) {
  EXPECT_EQ(UnknownFlagText("--node_cooldown=5"),
            "unknown flag '--node_cooldown': --node-cooldown is now --rdzv-conf=node_cooldown=SECONDS");
}

TEST(CheckMovedVariables, VariableIsSet_NamesTheReplacement) {
  const auto with = [](const std::string& set) {
    return CheckMovedVariables([=](const std::string& name) -> std::optional<std::string> {
      return name == set ? std::make_optional<std::string>("1") : std::nullopt;
    });
  };
  EXPECT_EQ(with("PET_NODE_COOLDOWN").message(),
            "unknown variable PET_NODE_COOLDOWN: --node-cooldown is now --rdzv-conf=node_cooldown=SECONDS");
  for (const Flag& flag : Flags()) EXPECT_TRUE(with(PetVariable(flag)).ok()) << flag.name;
}

TEST(UnknownFlagText, NothingNear_PointsToHelp) {
  EXPECT_EQ(UnknownFlagText("--learning-rate=0.1"),
            "unknown flag '--learning-rate': see ddprun --help; flags of the script follow the script");
  EXPECT_FALSE(UnknownFlagText("---").empty());
  EXPECT_FALSE(UnknownFlagText("-").empty());
}

}  // namespace
}  // namespace ddprun::launcher
