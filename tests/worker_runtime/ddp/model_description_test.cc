#include "worker_runtime/ddp/model_description.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

namespace ddprun {
namespace {

ModelDescription Model() {
  return {.options = DescribeOptions({}),
          .entries = {{.name = "fc.weight", .shape = {4, 8}, .dtype = "Float", .trained = true},
                      {.name = "scale", .shape = {}, .dtype = "Float"},
                      {.name = "norm.running_mean", .shape = {4}, .dtype = "Double", .buffer = true}}};
}

std::string DifferenceTo(const ModelDescription& other) { return FirstDifference(Model(), 0, other, 2); }

TEST(ModelDescriptionTest, DecodeDescription_OwnText_RoundTrips) {
  absl::StatusOr<ModelDescription> decoded = DecodeDescription(EncodeDescription(Model()));
  EXPECT_EQ(DifferenceTo(*decoded), "");
  EXPECT_EQ(EncodeDescription(*decoded), EncodeDescription(Model()));
  EXPECT_TRUE(decoded->entries[1].shape.empty());
}

TEST(ModelDescriptionTest, DecodeDescription_MalformedText_IsInternal) {
  for (const char* text : {"x", "t\tname", "t\tname\tFloat\t4,x\n", "o\tonly\n", "z\tname\tFloat\t4\n"}) {
    EXPECT_TRUE(absl::IsInternal(DecodeDescription(text).status())) << text;
  }
}

TEST(FirstDifferenceTest, FirstDifference_AnyDifference_NamesBothRanks) {
  const std::pair<std::function<void(ModelDescription&)>, std::string> cases[] = {
      {[](auto& m) {
         m.entries[0].shape = {4, 9};
       },
       "parameter \"fc.weight\" has shape [4, 8] on rank 0 and [4, 9] on rank 2; "},
      {[](auto& m) { m.entries[2].dtype = "Float"; },
       "buffer \"norm.running_mean\" has dtype Double on rank 0 and Float on rank 2; "},
      {[](auto& m) { m.entries[1].name = "shift"; },
       "the same position has parameter \"scale\" on rank 0 and parameter \"shift\" on rank 2; "},
      {[](auto& m) { m.entries.pop_back(); }, "buffer \"norm.running_mean\" is on rank 0 but not on rank 2; "},
      {[](auto& m) { m.entries[0].trained = false; },
       "parameter \"fc.weight\" requires a gradient on rank 0 but not on rank 2; freeze"},
      // Options come first.
      {[](auto& m) { m = {.options = DescribeOptions({.bucket_cap_mb = 25})}; },
       "bucket_cap_mb is unset on rank 0 and 25 on rank 2; use the same DdpOptions on all ranks"},
  };
  for (const auto& [change, text] : cases) {
    ModelDescription other = Model();
    change(other);
    EXPECT_NE(DifferenceTo(other).find(text), std::string::npos) << DifferenceTo(other);
  }
}

}  // namespace
}  // namespace ddprun
