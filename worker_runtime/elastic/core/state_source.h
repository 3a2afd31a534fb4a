#ifndef DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_STATE_SOURCE_H_
#define DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_STATE_SOURCE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker_runtime/ddp/ddp_options.h"

// PURE: the rules of a recovery that all ranks apply alike. Thread-safe.
namespace ddprun {

// Whose training state all ranks continue with, given what each holds (a committed step, or nothing): the rank with
// the largest step, the lowest among equals. nullopt: nobody holds one.
std::optional<int> ChooseStateSource(absl::Span<const std::optional<int64_t>> committed_steps);

// DDP's buckets as a text for other ranks: "3 2 1;0"; and back. Errors: DataLoss: it is no such text.
std::string BucketLayoutText(const BucketLayout& layout);
absl::StatusOr<BucketLayout> FromBucketLayoutText(absl::string_view text);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_ELASTIC_CORE_STATE_SOURCE_H_
