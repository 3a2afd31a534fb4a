#include "worker_runtime/checkpoint/tensors_file.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/checkpoint/sample_checkpoint.h"
#include "tests/worker_runtime/checkpoint/sample_net.h"
#include "worker_runtime/safetensors/safetensors_header.h"
#include "worker_runtime/safetensors/tensor_bytes.h"
#include "worker_runtime/state/module_state.h"

namespace ddprun::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// A tensor of each type, with different bytes.
NamedTensors OneOfEachType() {
  NamedTensors tensors;
  for (int i = 0; i <= static_cast<int>(SafetensorsDtype::kF8E8M0); ++i) {
    const auto dtype = static_cast<SafetensorsDtype>(i);
    const int64_t bytes = 15 * static_cast<int64_t>(SafetensorsDtypeBytes(dtype));
    at::Tensor raw = at::arange(bytes, at::kByte) * (dtype == SafetensorsDtype::kBool ? 0 : 7) + 1;
    tensors.emplace_back(std::string(SafetensorsDtypeName(dtype)),
                         raw.to(at::kByte).view(ToScalarType(dtype)).view({3, 5}));
  }
  return tensors;
}

TEST(TensorsFile, SaveTensors_EachType_RoundTrips) {
  TempDir temp;
  const NamedTensors tensors = OneOfEachType();
  ASSERT_TRUE(SaveTensors(tensors, temp.File("t.safetensors"), {{"note", "x"}}).ok());
  const auto loaded = LoadTensors(temp.File("t.safetensors"));
  EXPECT_TRUE(loaded->checked);
  EXPECT_EQ(loaded->metadata.at("note"), "x");
  ASSERT_EQ(loaded->tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor& back = loaded->tensors.at(name);
    EXPECT_EQ(back.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(back.sizes(), tensor.sizes()) << name;
    EXPECT_EQ(HostBytes(ToHost(back)), HostBytes(tensor)) << name;
  }
}

TEST(TensorsFile, SaveTensors_OddShapesAndStrides_RoundTrips) {
  TempDir temp;
  const at::Tensor base = at::arange(24, at::kFloat).view({4, 6});
  const NamedTensors tensors = {{"transposed", base.t()},
                                {"every second", base.slice(1, 0, 6, 2)},
                                {"expanded", at::ones({}).expand({3, 2})},
                                {"scalar", at::scalar_tensor(2.5)},
                                {"empty", at::empty({0, 3})},
                                {"overlapping", base.slice(0, 1)},
                                {"conjugate", at::complex(base, -base).conj()}};
  ASSERT_TRUE(SaveTensors(tensors, temp.File("t.safetensors")).ok());
  const auto loaded = LoadTensors(temp.File("t.safetensors"));
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(at::equal(loaded->tensors.at(name), tensor.resolve_conj())) << name;
    EXPECT_EQ(loaded->tensors.at(name).sizes(), tensor.sizes()) << name;
  }
}

TEST(TensorsFile, LoadTensors_TensorIsWritten_FileIsUnchanged) {
  TempDir temp;
  const std::string path = temp.File("t.safetensors");
  ASSERT_TRUE(SaveTensors({{"w", at::zeros({4})}}, path).ok());
  at::Tensor kept;
  {
    auto loaded = LoadTensors(path);
    kept = loaded->tensors.at("w");
  }
  kept.add_(1);  // its mapping lives on
  EXPECT_TRUE(at::equal(LoadTensors(path)->tensors.at("w"), at::zeros({4})));
  EXPECT_TRUE(at::equal(kept, at::ones({4})));
}

TEST(TensorsFile, SaveTensors_UnsupportedTensor_ErrorNamesIt) {
  TempDir temp;
  const auto save = [&](const at::Tensor& tensor) {
    return SaveTensors({{"bad", tensor}}, temp.File("t.safetensors"));
  };
  EXPECT_THAT(save(at::Tensor()).message(), HasSubstr("\"bad\" can't be saved: it is undefined"));
  EXPECT_THAT(save(at::zeros({2}, at::kComplexDouble)).message(), HasSubstr("does not support dtype ComplexDouble"));
  EXPECT_THAT(save(at::eye(2).to_sparse()).message(), HasSubstr("not dense"));
  EXPECT_THAT(SaveTensors({{"w", at::zeros({1})}, {"w", at::zeros({1})}}, temp.File("t")).message(),
              HasSubstr("duplicate tensor \"w\""));
}

std::string ForeignFile(const std::string& json, const std::string& data) {
  return absl::StrCat(SafetensorsPrefix(json.size()), json, data);
}

TEST(TensorsFile, LoadTensors_OtherProgramsFileWithOddOffsets_IsUnchecked) {
  TempDir temp;
  const std::string json =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  const float values[] = {1.5f, -2.0f};
  std::ofstream(temp.File("f"), std::ios::binary)
      << ForeignFile(json, "x" + std::string(reinterpret_cast<const char*>(values), 8));
  const auto loaded = LoadTensors(temp.File("f"));
  EXPECT_FALSE(loaded->checked);
  EXPECT_TRUE(at::equal(loaded->tensors.at("w"), at::tensor({1.5f, -2.0f})));
}

TEST(TensorsFile, LoadTensors_BadFile_ErrorNamesItAndTheReason) {
  TempDir temp;
  EXPECT_EQ(LoadTensors(temp.File("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(LoadTensors(temp.path()).status().message(), HasSubstr("is not a regular file"));
  std::ofstream(temp.File("empty"));
  EXPECT_THAT(LoadTensors(temp.File("empty")).status().message(), HasSubstr("it has only 0 bytes"));
  const std::string json = R"({"b":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})";
  std::ofstream(temp.File("bool"), std::ios::binary) << ForeignFile(json, "\x01\x02");
  EXPECT_THAT(LoadTensors(temp.File("bool")).status().message(), HasSubstr("neither 0 nor 1"));
  ASSERT_TRUE(SaveTensors({{"w", at::zeros({4})}}, temp.File("flipped")).ok());
  Damage(temp.File("flipped"), 4);
  EXPECT_THAT(LoadTensors(temp.File("flipped")).status().message(), HasSubstr("checksum mismatch in tensor \"w\""));
}

TEST(ModuleState, GetModuleState_TiedModule_NamesEqualPythons) {
  SampleNet net;
  const ModuleState state = GetModuleState(net);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state.tensors) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("blocks.0.bias", "blocks.0.weight", "blocks.1.bias", "blocks.1.num_batches_tracked",
                                 "blocks.1.running_mean", "blocks.1.running_var", "blocks.1.weight", "head"));
  EXPECT_THAT(state.aliases, ElementsAre(Pair("wte.weight", "head")));
}

TEST(ModuleState, SaveModule_LoadIntoAnotherInstance_HasTheSameBits) {
  TempDir temp;
  SampleNet a, b;
  ASSERT_NE(Bits(a), Bits(b));
  ASSERT_TRUE(SaveModule(a, temp.File("m.safetensors"), {{"run", "7"}}).ok());
  const auto raw = LoadTensors(temp.File("m.safetensors"));
  EXPECT_EQ(raw->metadata.at("wte.weight"), "head");
  ASSERT_TRUE(LoadModule(temp.File("m.safetensors"), b).ok());
  EXPECT_EQ(Bits(a), Bits(b));
  // Still one tensor with two names.
  EXPECT_TRUE(b.named_parameters()["head"].is_same(b.named_parameters()["wte.weight"]));
}

TEST(ModuleState, LoadModule_OtherDtype_Converts) {
  TempDir temp;
  torch::nn::Linear a(3, 2), b(3, 2);
  ASSERT_TRUE(SaveModule(*a, temp.File("m")).ok());
  b->to(at::kDouble);
  ASSERT_TRUE(LoadModule(temp.File("m"), *b).ok());
  EXPECT_TRUE(at::equal(b->weight, a->weight.to(at::kDouble)));
  EXPECT_TRUE(b->weight.requires_grad());
}

TEST(ModuleState, LoadModule_MismatchOrDamage_KeepsTheModule) {
  TempDir temp;
  torch::nn::Linear saved(3, 2), other(3, 4), same(3, 2);
  ASSERT_TRUE(SaveModule(*saved, temp.File("m")).ok());
  const std::string before = Bits(*other), before_same = Bits(*same);
  EXPECT_THAT(LoadModule(temp.File("m"), *other).message(),
              AllOf(HasSubstr(temp.File("m")), HasSubstr("bias ([2] in the file, [4] here), weight ([2, 3] in the")));
  EXPECT_EQ(Bits(*other), before);
  Damage(temp.File("m"));
  EXPECT_EQ(LoadModule(temp.File("m"), *same).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Bits(*same), before_same);
}

}  // namespace
}  // namespace ddprun::testing
