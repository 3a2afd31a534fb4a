#include "worker_runtime/state/state_match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

SafetensorsHeader File(std::vector<std::pair<std::string, std::vector<int64_t>>> tensors,
                       std::map<std::string, std::string> metadata = {}) {
  SafetensorsHeader header;
  for (auto& [name, shape] : tensors) header.tensors.push_back({name, SafetensorsDtype::kF32, shape, 0, 0});
  header.metadata = std::move(metadata);
  return header;
}

TEST(MatchState, MatchState_OtherOrder_Matches) {
  const auto match = MatchState("f", {{{"a"}, {2}}, {{"b"}, {}}}, File({{"b", {}}, {"a", {2}}}));
  EXPECT_THAT(*match, ElementsAre(ElementsAre(1), ElementsAre(0)));
}

TEST(MatchState, MatchState_TiedHere_AcceptsEitherName) {
  const std::vector<StateTarget> tied = {{{"head.weight", "wte.weight"}, {3}}};
  EXPECT_THAT(*MatchState("f", tied, File({{"wte.weight", {3}}})), ElementsAre(ElementsAre(0)));
  EXPECT_THAT(*MatchState("f", tied, File({{"head.weight", {3}}})), ElementsAre(ElementsAre(0)));
  // Python's save_file of a copy that is not tied has both.
  EXPECT_THAT(*MatchState("f", tied, File({{"head.weight", {3}}, {"wte.weight", {3}}})),
              ElementsAre(ElementsAre(0), IsEmpty()));
}

TEST(MatchState, MatchState_TiedInTheFileOnly_LoadsBoth) {
  const auto match = MatchState("f", {{{"head.weight"}, {3}}, {{"wte.weight"}, {3}}},
                                File({{"wte.weight", {3}}}, {{"head.weight", "wte.weight"}}));
  EXPECT_THAT(*match, ElementsAre(ElementsAre(0, 1)));
}

TEST(MatchState, MatchState_AllKindsOfMismatches_ErrorNamesAll) {
  const auto match = MatchState("x.safetensors", {{{"a"}, {2}}, {{"b"}, {2, 3}}}, File({{"b", {3, 2}}, {"c", {1}}}));
  EXPECT_EQ(match.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(match.status().message(),
              HasSubstr("missing keys: a; unexpected keys: c; size mismatch: b ([3, 2] in the"));
}

TEST(MatchState, MatchState_HundredsMissing_BoundsTheList) {
  std::vector<StateTarget> targets;
  for (int i = 0; i < 500; ++i) targets.push_back({{absl::StrCat("layer.", i)}, {1}});
  const auto match = MatchState("f", targets, File({}));
  EXPECT_THAT(match.status().message(), HasSubstr("layer.9 and 490 more"));
  EXPECT_THAT(match.status().message(), Not(HasSubstr("layer.10")));
}

TEST(MatchState, MatchState_SavedFromTheWrapper_ErrorSuggestsTheModule) {
  EXPECT_THAT(MatchState("f", {{{"a"}, {1}}}, File({{"module.a", {1}}})).status().message(),
              HasSubstr("saved from DistributedDataParallel"));
  EXPECT_THAT(MatchState("f", {{{"module.a"}, {1}}}, File({{"a", {1}}})).status().message(),
              HasSubstr("this module is DistributedDataParallel"));
}

}  // namespace
}  // namespace ddprun
