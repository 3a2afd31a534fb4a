#include "worker_runtime/ddp/model_description.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

ModelDescription Model() {
  return {.options = DescribeOptions({}),
          .entries = {{.name = "fc.weight", .shape = {4, 8}, .dtype = "Float", .trained = true},
                      {.name = "scale", .shape = {}, .dtype = "Float"},
                      {.name = "norm.running_mean", .shape = {4}, .dtype = "Double", .buffer = true}}};
}

std::string DifferenceTo(const ModelDescription& other) { return FirstDifference(Model(), 0, other, 2); }

TEST(ModelDescriptionTest, EncodeDecode_KeepsEverything) {
  absl::StatusOr<ModelDescription> decoded = DecodeDescription(EncodeDescription(Model()));
  EXPECT_EQ(DifferenceTo(*decoded), "");
  EXPECT_EQ(EncodeDescription(*decoded), EncodeDescription(Model()));
  EXPECT_TRUE(decoded->entries[1].shape.empty());
}

TEST(ModelDescriptionTest, Decode_Nonsense_Internal) {
  for (const char* text : {"x", "t\tname", "t\tname\tFloat\t4,x\n", "o\tonly\n", "z\tname\tFloat\t4\n"}) {
    EXPECT_TRUE(absl::IsInternal(DecodeDescription(text).status())) << text;
  }
}

TEST(FirstDifferenceTest, Shape_NamesParameterAndBothShapes) {
  ModelDescription other = Model();
  other.entries[0].shape = {4, 9};
  EXPECT_EQ(DifferenceTo(other),
            "parameter \"fc.weight\" has shape [4, 8] on rank 0 and [4, 9] on rank 2; build the same model in the same "
            "order on all ranks");
}

TEST(FirstDifferenceTest, DtypeOfABuffer_Name_Count_Frozen) {
  ModelDescription other = Model();
  other.entries[2].dtype = "Float";
  EXPECT_EQ(DifferenceTo(other),
            "buffer \"norm.running_mean\" has dtype Double on rank 0 and Float on rank 2; build the same model in the "
            "same order on all ranks");
  other = Model();
  other.entries[1].name = "shift";
  EXPECT_EQ(DifferenceTo(other),
            "the models differ: the same position has parameter \"scale\" on rank 0 and parameter \"shift\" on rank "
            "2; build the same model in the same order on all ranks");
  other = Model();
  other.entries.pop_back();
  EXPECT_EQ(
      DifferenceTo(other),
      "the models differ: buffer \"norm.running_mean\" is on rank 0 but not on rank 2; build the same model in the "
      "same order on all ranks");
  other = Model();
  other.entries[0].trained = false;
  EXPECT_EQ(
      DifferenceTo(other),
      "parameter \"fc.weight\" requires a gradient on rank 0 but not on rank 2; freeze the same parameters on all "
      "ranks");
}

TEST(FirstDifferenceTest, Options_ComeFirst) {
  ModelDescription other = Model();
  other.options = DescribeOptions({.bucket_cap_mb = 25});
  other.entries.clear();
  EXPECT_EQ(DifferenceTo(other),
            "bucket_cap_mb is unset on rank 0 and 25 on rank 2; use the same DdpOptions on all ranks");
}

}  // namespace
}  // namespace ddprun
