// The GPT in C++ and its twin in Python: the same bits from the same seed.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cstring>
#include <string>

#include "examples/cpp/gpt/model.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

// Reads the twin's file: a line "NAME BYTES" and that many bytes for each value.
class Records {
 public:
  explicit Records(const std::string& path) : content_(ReadFile(path)) {}

  void ExpectNext(const std::string& name, const at::Tensor& tensor) {
    const size_t line_end = content_.find('\n', at_);
    ASSERT_NE(line_end, std::string::npos) << "the twin has no more records, but here is " << name;
    std::string header = content_.substr(at_, line_end - at_);
    const at::Tensor ours = tensor.detach().contiguous();
    ASSERT_EQ(header, name + " " + std::to_string(ours.nbytes()));
    EXPECT_EQ(std::memcmp(content_.data() + line_end + 1, ours.const_data_ptr(), ours.nbytes()), 0) << name;
    at_ = line_end + 1 + ours.nbytes();
  }
  bool AtEnd() const { return at_ == content_.size(); }

 private:
  const std::string content_;
  size_t at_ = 0;
};

void Compare(const gpt::Config& config, int seed, const std::string& path) {
  Records records(path);
  torch::manual_seed(seed);
  gpt::Model model(config);
  for (const auto& parameter : model->named_parameters()) records.ExpectNext(parameter.key(), parameter.value());
  const at::Tensor tokens = at::arange(3 * (config.block_size + 1)).remainder(config.vocab_size).view({3, -1});
  const at::Tensor logits = model->forward(tokens.narrow(1, 0, config.block_size));
  records.ExpectNext("logits", logits);
  const at::Tensor loss = gpt::Loss(logits, tokens.narrow(1, 1, config.block_size));
  records.ExpectNext("loss", loss);
  loss.backward();
  for (const auto& parameter : model->named_parameters()) {
    records.ExpectNext("gradient of " + parameter.key(), parameter.value().grad());
  }
  const gpt::ParameterGroups groups = gpt::GroupParameters(*model);
  records.ExpectNext(
      "groups", at::tensor({static_cast<int64_t>(groups.decay.size()), static_cast<int64_t>(groups.no_decay.size())}));
  model->eval();
  records.ExpectNext("generated", model->generate(tokens.narrow(1, 0, 3), 40, 0.9));
  records.ExpectNext("generated of the best 5", model->generate(tokens.narrow(1, 0, 3), 40, 1.0, 5));
  EXPECT_TRUE(records.AtEnd());
}

TEST(GptTwinTest, Model_SameSeedAsPython_EqualsBitForBit) {
  if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  at::set_num_threads(1);
  TempDir dir;
  Process twin({VenvPython(), "tests/examples/gpt_twin.py", dir.path()}, {{"OMP_NUM_THREADS", "1"}});
  ASSERT_EQ(twin.Wait(), 0) << twin.Err();
  Compare({}, 17, dir.File("0"));
  Compare({.vocab_size = 65, .block_size = 32, .n_layer = 2, .n_head = 3, .n_embd = 48, .dropout = 0.1}, 18,
          dir.File("1"));
}

TEST(GptTwinTest, Check_InvalidConfig_NamesValue) {
  EXPECT_TRUE(gpt::Check({}).ok());
  EXPECT_EQ(gpt::Check({.n_layer = 0}).message(), "n_layer is 0, but must be at least 1");
  EXPECT_EQ(gpt::Check({.n_head = 3, .n_embd = 128}).message(),
            "n_embd is 128, which is not a multiple of n_head 3: every head gets as many of its columns");
  EXPECT_EQ(gpt::Check({.dropout = 1}).message(), "dropout is 1, but must be from 0 to below 1");
}

}  // namespace
}  // namespace ddprun::testing
