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

// PURE: the rules of a recovery that all ranks apply alike. Thread-safe.
namespace ddprun {

// How far a training state is: `step` optimizer steps, and `part` of what is done between that one and the next.
struct CommittedPoint {
  int64_t step = 0;
  int64_t part = 0;

  friend auto operator<=>(const CommittedPoint&, const CommittedPoint&) = default;
};

// Whose training state all ranks continue with, given what each holds (nullopt: nothing): the rank that is farthest,
// the lowest among equals. nullopt: nobody holds one.
std::optional<int> ChooseStateSource(absl::Span<const std::optional<CommittedPoint>> committed);

// DDP's buckets as a text for other ranks: "3 2 1;0"; and back. Errors: DataLoss: it is no such text.
std::string BucketLayoutText(const BucketLayout& layout);
absl::StatusOr<BucketLayout> FromBucketLayoutText(absl::string_view text);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_STATE_SOURCE_H_
