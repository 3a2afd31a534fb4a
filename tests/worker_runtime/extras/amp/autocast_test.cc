// tests/worker_runtime/parity compares the bits with Python.
#include "worker_runtime/extras/amp/autocast.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

constexpr c10::DeviceType kCpu = c10::DeviceType::CPU;

at::ScalarType DtypeOfProduct() { return at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type(); }

TEST(AutocastTest, OperationsRunInItsDtype_WhileItLives_InnerGuardCounts) {
  {
    const Autocast outer(kCpu);
    EXPECT_EQ(DtypeOfProduct(), at::kBFloat16);
    const at::Tensor product = at::mm(at::ones({2, 2}), at::ones({2, 2}));
    EXPECT_EQ(at::mse_loss(product, at::ones({2, 2})).scalar_type(), at::kFloat);
    {
      const Autocast inner(kCpu, at::kHalf);
      EXPECT_EQ(DtypeOfProduct(), at::kHalf);
      const Autocast off(kCpu, std::nullopt, /*enabled=*/false);
      EXPECT_EQ(DtypeOfProduct(), at::kFloat);
    }
    EXPECT_EQ(DtypeOfProduct(), at::kBFloat16);
  }
  EXPECT_EQ(DtypeOfProduct(), at::kFloat);
  const Autocast again(kCpu);
  EXPECT_EQ(DtypeOfProduct(), at::kBFloat16) << "the default is what it was";
}

TEST(AutocastTest, CastsOfParameters_AreKeptUntilTheOutermostGuardEnds) {
  const at::Tensor x = at::ones({2, 2});
  at::Tensor weight = at::ones({2, 2}).requires_grad_();
  const auto double_weight = [&] {
    const at::NoGradGuard no_grad;
    weight.mul_(2);
  };
  at::Tensor first;
  {
    const Autocast outer(kCpu);
    first = at::mm(x, weight);
    double_weight();
    { const Autocast inner(kCpu); }
    EXPECT_TRUE(at::equal(at::mm(x, weight), first)) << "as in Python: a parameter is cast once";
  }
  const Autocast next(kCpu);
  EXPECT_TRUE(at::equal(at::mm(x, weight), first * 2));
}

TEST(AutocastTest, UnsupportedDtypeOrDevice_Throws_ChangesNothing) {
  EXPECT_THROW(Autocast(kCpu, at::kFloat), c10::ValueError);
  EXPECT_THROW(Autocast(c10::DeviceType::Vulkan), c10::ValueError);
  EXPECT_EQ(DtypeOfProduct(), at::kFloat);
}

}  // namespace
}  // namespace ddprun
