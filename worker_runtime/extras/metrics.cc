#include "worker_runtime/extras/metrics.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "worker_runtime/process_group/agreement.h"
#include "worker_runtime/process_group/collectives.h"
#include "worker_runtime/safetensors/checksum.h"

namespace ddprun {
namespace {

// The reduced tensor has the same size on all ranks regardless of their names. It begins with a fingerprint of the
// names, a hash in four parts x of 16 bits. All ranks have the same x if and only if n * sum(x^2) == sum(x)^2
// (Cauchy-Schwarz); at these sizes double and 64-bit arithmetic are exact for up to 2^15 ranks.
constexpr char kMean[] = "mean";
constexpr int kParts = 4;
constexpr int kFailedIndex = 2 * kParts;  // not 0 on a rank that can't reduce
constexpr int kTotals = kFailedIndex + 1;
constexpr int kSize = kTotals + 2 * Metrics::kMaxNames;

void PutFingerprint(const std::string& names, double* place) {
  uint64_t hash = Checksum(names);
  for (int part = 0; part < kParts; ++part, hash >>= 16) {
    const auto x = static_cast<double>(hash & 0xffff);
    place[2 * part] = x;
    place[2 * part + 1] = x * x;
  }
}

bool AllTheSame(const double* sums, int ranks) {
  for (int part = 0; part < kParts; ++part) {
    const auto x = static_cast<uint64_t>(sums[2 * part]), squares = static_cast<uint64_t>(sums[2 * part + 1]);
    if (static_cast<uint64_t>(ranks) * squares != x * x) return false;
  }
  return true;
}

}  // namespace

void Metrics::Add(absl::string_view name, double value, double weight) {
  Total& total = totals_[std::string(name)];
  total.is_mean = true;
  total.weight += weight;
  if (weight != 0) total.value += value * weight;
}

void Metrics::Add(absl::string_view name, const at::Tensor& value, double weight) {
  Add(name, 0.0, weight);
  if (weight != 0) AddTensor(name, value.detach().to(at::kDouble) * weight);
}

void Metrics::AddSum(absl::string_view name, double value) {
  Total& total = totals_[std::string(name)];
  total.is_sum = true;
  total.value += value;
}

void Metrics::AddSum(absl::string_view name, const at::Tensor& value) {
  AddSum(name, 0.0);
  AddTensor(name, value.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true));
}

void Metrics::AddTensor(absl::string_view name, const at::Tensor& value) {
  at::Tensor& sum = totals_.find(name)->second.on_device;
  const at::Tensor one = value.reshape({});
  sum = sum.defined() ? sum + one.to(sum.device()) : one;
}

std::string Metrics::Names() const {
  return absl::StrJoin(totals_, "\n", [](std::string* text, const auto& item) {
    absl::StrAppend(text, item.second.is_mean ? kMean : "sum", " ", item.first);
  });
}

absl::Status Metrics::CheckNames() const {
  if (totals_.size() > kMaxNames) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", totals_.size(), " metrics, more than ", kMaxNames,
                                                   "; a value that changes must not be part of a name"));
  }
  for (const auto& [name, total] : totals_) {
    if (!total.is_mean || !total.is_sum) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("metric \"", name, "\" was given to Add and to AddSum; give each its own name"));
  }
  return absl::OkStatus();
}

absl::Status Metrics::AddNamesOfAll(ProcessGroup& group) {
  const std::string mine = Names();
  DDPRUN_ASSIGN_OR_RETURN(const int64_t longest,
                          AllReduceValue(group, static_cast<int64_t>(mine.size()), ReduceOp::kMax));
  at::Tensor text = at::zeros({longest}, at::kByte);
  std::memcpy(text.mutable_data_ptr<uint8_t>(), mine.data(), mine.size());
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<at::Tensor> all, group.AllGather(text.to(group.device())));
  for (const at::Tensor& one : all) {
    const at::Tensor host = one.cpu();
    const std::string names(static_cast<const char*>(host.const_data_ptr()), static_cast<size_t>(longest));
    for (const absl::string_view line : absl::StrSplit(names.c_str(), '\n', absl::SkipEmpty())) {
      const std::pair<absl::string_view, absl::string_view> kind = absl::StrSplit(line, absl::MaxSplits(' ', 1));
      Total& total = totals_[std::string(kind.second)];
      (kind.first == kMean ? total.is_mean : total.is_sum) = true;
    }
  }
  return CheckNames();
}

at::Tensor Metrics::Pack() const {
  at::Tensor packed = at::zeros({kSize}, at::kDouble);
  double* const numbers = packed.mutable_data_ptr<double>();
  if (!CheckNames().ok()) {
    numbers[kFailedIndex] = 1;
    return packed;
  }
  PutFingerprint(Names(), numbers);
  int i = 0;
  std::vector<int> places;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, total] : totals_) {
    numbers[kTotals + i] = total.value;
    numbers[kTotals + kMaxNames + i] = total.weight;
    if (total.on_device.defined()) {
      places.push_back(kTotals + i);
      tensors.push_back(tensors.empty() ? total.on_device : total.on_device.to(tensors.front().device()));
    }
    ++i;
  }
  if (tensors.empty()) return packed;
  const at::Tensor on_host = at::stack(tensors).cpu();  // one wait for the GPU
  for (size_t j = 0; j < places.size(); ++j) numbers[places[j]] += on_host.const_data_ptr<double>()[j];
  return packed;
}

absl::StatusOr<std::map<std::string, double>> Metrics::Reduce(ProcessGroup& group) {
  at::Tensor packed;
  const auto reduce = [&]() -> absl::Status {
    packed = Pack().to(group.device());
    DDPRUN_RETURN_IF_ERROR(group.AllReduce(packed));
    packed = packed.cpu();
    return absl::OkStatus();
  };
  DDPRUN_RETURN_IF_ERROR(group.Try("reducing metrics", [&]() -> absl::Status {
    DDPRUN_RETURN_IF_ERROR(reduce());
    const double* const sums = packed.const_data_ptr<double>();
    if (sums[kFailedIndex] != 0) return OutcomeOfAll(&group, CheckNames());
    if (AllTheSame(sums, group.size())) return absl::OkStatus();
    DDPRUN_RETURN_IF_ERROR(AddNamesOfAll(group));
    return reduce();
  }));
  const double* const sums = packed.const_data_ptr<double>();
  std::map<std::string, double> values;
  for (const auto& [name, total] : totals_) {
    const auto i = static_cast<int>(values.size());
    const double weight = total.is_mean ? sums[kTotals + kMaxNames + i] : 1;
    values[name] = weight == 0 ? std::numeric_limits<double>::quiet_NaN() : sums[kTotals + i] / weight;
  }
  totals_.clear();
  return values;
}

}  // namespace ddprun
