#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_METRICS_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_METRICS_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun {

// Weighted means and sums over steps and ranks, by name:
//
//   metrics.Add("loss", loss, batch.size(0));                // in every step; does not wait for a GPU
//   metrics.AddSum("tokens", batch.numel());
//   ...
//   DDPRUN_ASSIGN_OR_RETURN(auto values, metrics.Reduce(*worker.group()));   // every 100 steps: values["loss"]
//
// Thread-compatible.
class Metrics {
 public:
  static constexpr int kMaxNames = 100;

  // Adds `value` to the mean of this name, weighted by `weight` (the number of samples, for example). A tensor has one
  // element of any real dtype; it is accumulated in double on its device, and its graph is not kept. A value of weight
  // 0 registers the name without counting, for a rank without samples.
  void Add(absl::string_view name, double value, double weight = 1);
  void Add(absl::string_view name, const at::Tensor& value, double weight = 1);

  // Adds `value` to the sum of this name.
  void AddSum(absl::string_view name, double value);
  void AddSum(absl::string_view name, const at::Tensor& value);

  // Returns the means and sums of the values that the ranks have added since the last call, the same on all ranks,
  // under all names that some rank has; a mean of total weight 0 is NaN. Collective: one all-reduce of 2 KB, plus three
  // operations if the ranks' names differ, as after the recovery of an elastic job, whose new workers have added
  // nothing yet. Values added by a lost rank are not counted. Clears all names.
  // Errors: InvalidArgument on all ranks if a name is both a mean and a sum, or there are more than kMaxNames; errors
  // of ProcessGroup's operations.
  absl::StatusOr<std::map<std::string, double>> Reduce(ProcessGroup& group);

 private:
  struct Total {
    bool is_mean = false;
    bool is_sum = false;
    double value = 0;      // sum of the plain numbers
    at::Tensor on_device;  // sum of the tensors: double, no dimensions; undefined: none
    double weight = 0;
  };

  // `value`: double. A total of this name exists.
  void AddTensor(absl::string_view name, const at::Tensor& value);
  std::string Names() const;
  absl::Status CheckNames() const;
  // Adds the names of all ranks. Collective.
  absl::Status AddNamesOfAll(ProcessGroup& group);
  // The values to be summed over the ranks: double, on the CPU.
  at::Tensor Pack() const;

  std::map<std::string, Total, std::less<>> totals_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_METRICS_H_
