#ifndef DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_STATE_SOURCE_H_
#define DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_STATE_SOURCE_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker_runtime/ddp/ddp_options.h"

// PURE: rules of a recovery that all ranks apply alike. Thread-safe.
namespace ddprun {

// Position of a training state: `step` optimizer steps, and `part` of the work between that step and the next.
struct CommittedPoint {
  int64_t step = 0;
  int64_t part = 0;

  friend auto operator<=>(const CommittedPoint&, const CommittedPoint&) = default;
};

// Returns the rank whose training state all ranks continue with, given the point that each holds (nullopt: none): the
// rank that is farthest, the lowest among equals. nullopt: no rank holds a state.
std::optional<int> ChooseStateSource(absl::Span<const std::optional<CommittedPoint>> committed);

// Encodes DDP's buckets as a text for other ranks, "3 2 1;0", and decodes it. Errors: DataLoss: not such a text.
std::string BucketLayoutText(const BucketLayout& layout);
absl::StatusOr<BucketLayout> FromBucketLayoutText(absl::string_view text);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_STATE_SOURCE_H_
