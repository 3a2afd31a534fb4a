// Files are exchanged with Python's safetensors, bit for bit.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <string>

#include "tests/testing/process.h"
#include "tests/worker_runtime/checkpoint/sample_net.h"
#include "worker_runtime/checkpoint/checkpointer.h"
#include "worker_runtime/checkpoint/tensors_file.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/safetensors/safetensors_header.h"
#include "worker_runtime/safetensors/tensor_bytes.h"

namespace ddprun::testing {
namespace {

// pattern() of python_twin.py.
at::Tensor Pattern(SafetensorsDtype dtype) {
  const int64_t bytes = 15 * static_cast<int64_t>(SafetensorsDtypeBytes(dtype));
  const at::Tensor raw = (at::arange(bytes, at::kLong) * (dtype == SafetensorsDtype::kBool ? 0 : 7) + 1).remainder(256);
  return raw.to(at::kByte).view(ToScalarType(dtype)).view({3, 5});
}

// Last dtype that safetensors.torch 0.8 knows; F8_E8M0 is in the format only.
constexpr int kPythonKnows = static_cast<int>(SafetensorsDtype::kF8E5M2Fnuz);

std::string Python(const std::string& what, const std::string& folder) {
  Process python({VenvPython(), SourceRoot() + "/tests/worker_runtime/checkpoint/python_twin.py", what, folder},
                 {{"OMP_NUM_THREADS", "1"}});
  EXPECT_EQ(python.Wait(), 0) << python.Err();
  return python.Out();
}

TEST(Python, Load_CheckpointOfCpp_PythonContinuesWithTheSameBits) {
  if (VenvPython().empty()) GTEST_SKIP() << "no .venv: call scripts/setup";
  TempDir temp;
  NamedTensors tensors;
  for (int i = 0; i <= kPythonKnows; ++i) {
    const auto dtype = static_cast<SafetensorsDtype>(i);
    tensors.emplace_back(std::string(SafetensorsDtypeName(dtype)), Pattern(dtype));
  }
  tensors.emplace_back("scalar", at::scalar_tensor(2.5));
  tensors.emplace_back("empty", at::empty({0, 3}));
  tensors.emplace_back("transposed", at::arange(6, at::kFloat).view({2, 3}).t());
  ASSERT_TRUE(SaveTensors(tensors, temp.File("dtypes.safetensors")).ok());

  torch::nn::Linear linear(3, 2);
  {
    const at::NoGradGuard no_grad;
    linear->weight.copy_(at::arange(6, at::kFloat).view({2, 3}) / 3);
  }
  ASSERT_TRUE(SaveModule(*linear, temp.File("linear.safetensors")).ok());

  torch::manual_seed(1);
  SampleNet net;
  AdamW optimizer(UniqueParameters(net), torch::optim::AdamWOptions(0.125), AdamWKernel::kLoop);
  for (int64_t step = 0; step < 3; ++step) TrainStep(net, optimizer, step);
  auto checkpointer = Checkpointer::Create(nullptr, net, &optimizer, {.folder = temp.path()});
  ASSERT_TRUE((*checkpointer)->Save({.step = 12, .user = {{"note", "grüße"}}}).ok());

  EXPECT_EQ(Python("read", temp.path()), "read 18\n");

  // Python has continued from model, moments and random numbers, as does this step.
  TrainStep(net, optimizer, 3);
  SampleNet pythons;
  const absl::Status loaded = LoadModule(temp.File("python_went_on.safetensors"), pythons);
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_EQ(Bits(pythons), Bits(net));
}

TEST(Python, Load_CheckpointOfPython_CppHasTheSameBits) {
  if (VenvPython().empty()) GTEST_SKIP() << "no .venv: call scripts/setup";
  TempDir temp;
  EXPECT_EQ(Python("write", temp.path()), "written\n");
  const auto tensors = LoadTensors(temp.File("python_dtypes.safetensors"));
  EXPECT_FALSE(tensors->checked);
  EXPECT_EQ(tensors->metadata.at("by"), "python");
  EXPECT_EQ(tensors->tensors.size(), static_cast<size_t>(kPythonKnows) + 3);
  for (int i = 0; i <= kPythonKnows; ++i) {
    const auto dtype = static_cast<SafetensorsDtype>(i);
    const at::Tensor& tensor = tensors->tensors.at(std::string(SafetensorsDtypeName(dtype)));
    EXPECT_EQ(tensor.scalar_type(), ToScalarType(dtype));
    EXPECT_EQ(HostBytes(ToHost(tensor)), HostBytes(Pattern(dtype))) << SafetensorsDtypeName(dtype);
  }
  EXPECT_EQ(tensors->tensors.at("scalar").dim(), 0);

  SampleNet net;
  const absl::Status loaded = LoadModule(temp.File("python_model.safetensors"), net);
  ASSERT_TRUE(loaded.ok()) << loaded;
  const auto values = LoadTensors(temp.File("python_values.safetensors"));
  const at::Tensor weight = net.named_parameters()["blocks.0.weight"].flatten();
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(at::equal(values->tensors.at("value " + std::to_string(i)), weight[i]));
  }
}

}  // namespace
}  // namespace ddprun::testing
