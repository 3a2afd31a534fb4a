#include "worker_runtime/metrics/metrics.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "worker_runtime/base/status_macros.h"
#include "worker_runtime/process_group/agreement.h"
#include "worker_runtime/safetensors/checksum.h"

namespace ddprun {
namespace {

// What is reduced has the same size on all ranks, whatever their names: the names' fingerprint comes first. It is a
// hash in four parts of 16 bits, x. A sum over the ranks tells whether all have the same x: n * sum(x^2) == sum(x)^2
// only then (Cauchy-Schwarz), and in these sizes a double and 64 bits count exactly for 2^15 ranks.
constexpr int kParts = 4;
constexpr int kTrouble = 2 * kParts;  // not 0 on a rank that can't reduce
constexpr int kTotals = kTrouble + 1;
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
    absl::StrAppend(text, item.second.is_mean ? "mean " : "sum ", item.first);
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

absl::Status Metrics::CompareNames(ProcessGroup& group) const {
  const std::string mine = Names();
  DDPRUN_ASSIGN_OR_RETURN(const std::string theirs, group.BroadcastText(mine));
  const auto missing = [](const std::string& names, const std::string& among) -> std::string {
    const std::set<std::string> others = absl::StrSplit(among, '\n');
    for (const std::string& name : std::set<std::string>(absl::StrSplit(names, '\n', absl::SkipEmpty()))) {
      if (!others.contains(name)) return name;
    }
    return "";
  };
  absl::Status status;
  const std::string more = missing(mine, theirs), less = missing(theirs, mine);
  if (!more.empty() || !less.empty()) {
    const auto other = [&](bool has) { return absl::StrCat("rank ", has == !more.empty() ? group.rank() : 0); };
    status = absl::InvalidArgumentError(absl::StrCat(
        "the ranks' metrics differ: ", other(true), " has \"", more.empty() ? less : more, "\", ", other(false),
        " has not; add the same names on all ranks before Reduce, with weight 0 where there are no samples"));
  }
  return OutcomeOfAll(&group, status);
}

at::Tensor Metrics::Pack() const {
  at::Tensor packed = at::zeros({kSize}, at::kDouble);
  double* const numbers = packed.mutable_data_ptr<double>();
  if (!CheckNames().ok()) {
    numbers[kTrouble] = 1;
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
  DDPRUN_RETURN_IF_ERROR(group.Try("reducing metrics", [&]() -> absl::Status {
    packed = Pack().to(group.device());
    DDPRUN_RETURN_IF_ERROR(group.AllReduce(packed));
    packed = packed.cpu();
    return absl::OkStatus();
  }));
  const double* const sums = packed.const_data_ptr<double>();
  if (sums[kTrouble] != 0) return OutcomeOfAll(&group, CheckNames());
  if (!AllTheSame(sums, group.size())) return CompareNames(group);
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
