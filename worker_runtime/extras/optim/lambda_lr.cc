#include "worker_runtime/extras/optim/lambda_lr.h"

#include <torch/optim/optimizer.h>

#include <cmath>
#include <map>
#include <utility>

#include "base/mutex.h"

namespace ddprun {
namespace {

struct Schedulers {
  Mutex mutex;
  std::map<const LambdaLR*, const torch::optim::Optimizer*> alive ABSL_GUARDED_BY(mutex);
};

Schedulers& TheSchedulers() {
  static auto* const schedulers = new Schedulers;
  return *schedulers;
}

std::vector<double> LearningRatesOf(const torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    rates.push_back(group.options().get_lr());
  }
  return rates;
}

// `decay` returns the factor after `done` of the `all` steps that follow the warm-up, 0 <= done < all.
std::function<double(int64_t)> WithWarmup(int64_t warmup_steps, int64_t total_steps, double min_factor,
                                          double (*decay)(double done, double all)) {
  return [=](int64_t step) {
    if (step < warmup_steps) return static_cast<double>(step) / static_cast<double>(warmup_steps);
    const double factor = step >= total_steps ? 0
                                              : decay(static_cast<double>(step - warmup_steps),
                                                      static_cast<double>(total_steps - warmup_steps));
    return min_factor == 0 ? factor : min_factor + (1 - min_factor) * factor;
  };
}

}  // namespace

LambdaLR::LambdaLR(torch::optim::Optimizer& optimizer, std::function<double(int64_t)> factor)
    : LRScheduler(optimizer), base_lrs_(LearningRatesOf(optimizer)), factor_(std::move(factor)) {
  const std::vector<double> rates = LearningRates(0);
  for (size_t i = 0; i < rates.size(); ++i) optimizer.param_groups()[i].options().set_lr(rates[i]);
  MutexLock lock(&TheSchedulers().mutex);
  TheSchedulers().alive[this] = &optimizer;
}

LambdaLR::~LambdaLR() {
  MutexLock lock(&TheSchedulers().mutex);
  TheSchedulers().alive.erase(this);
}

std::vector<const torch::optim::LRScheduler*> LambdaLR::Of(const torch::optim::Optimizer& optimizer) {
  std::vector<const torch::optim::LRScheduler*> found;
  MutexLock lock(&TheSchedulers().mutex);
  for (const auto& [scheduler, of] : TheSchedulers().alive) {
    if (of == &optimizer) found.push_back(scheduler);
  }
  return found;
}

// LRScheduler::step() increments step_count_ after this call.
std::vector<double> LambdaLR::get_lrs() { return LearningRates(static_cast<int64_t>(step_count_) + 1); }

std::vector<double> LambdaLR::LearningRates(int64_t step) const {
  const double factor = factor_(step);
  std::vector<double> rates = base_lrs_;
  for (double& rate : rates) rate *= factor;
  return rates;
}

std::function<double(int64_t)> CosineWithWarmup(int64_t warmup_steps, int64_t total_steps, double min_factor) {
  return WithWarmup(warmup_steps, total_steps, min_factor,
                    [](double done, double all) { return 0.5 * (1.0 + std::cos(M_PI * (done / all))); });
}

std::function<double(int64_t)> LinearWithWarmup(int64_t warmup_steps, int64_t total_steps, double min_factor) {
  return WithWarmup(warmup_steps, total_steps, min_factor, [](double done, double all) { return (all - done) / all; });
}

}  // namespace ddprun
