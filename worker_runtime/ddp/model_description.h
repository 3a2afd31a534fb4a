#ifndef DDPRUN_WORKER_RUNTIME_DDP_MODEL_DESCRIPTION_H_
#define DDPRUN_WORKER_RUNTIME_DDP_MODEL_DESCRIPTION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/ddp/ddp_options.h"

namespace ddprun {

// Properties that must be equal on all ranks to reduce gradients together. A plain value.
struct ModelDescription {
  struct Entry {
    std::string name;            // its key in named_parameters()
    std::vector<int64_t> shape;  // sizes
    std::string dtype;           // "Float"
    bool buffer = false;         // else a parameter
    bool trained = false;        // a parameter that requires a gradient
  };
  std::vector<std::pair<std::string, std::string>> options;  // name, value
  std::vector<Entry> entries;
};

// Returns the options of DDP, as name and value.
std::vector<std::pair<std::string, std::string>> DescribeOptions(const DdpOptions& options);

// One line per option and entry, in order. Names may hold any character but newline and tab.
std::string EncodeDescription(const ModelDescription& description);
// Errors: Internal if the text was not written by EncodeDescription.
absl::StatusOr<ModelDescription> DecodeDescription(absl::string_view text);

// Returns the first difference, with both ranks' values and a remedy; empty if there is none.
std::string FirstDifference(const ModelDescription& a, int rank_a, const ModelDescription& b, int rank_b);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_MODEL_DESCRIPTION_H_
