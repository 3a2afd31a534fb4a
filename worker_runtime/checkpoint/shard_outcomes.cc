#include "worker_runtime/checkpoint/shard_outcomes.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/steady_time.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/process_group/agreement.h"

namespace ddprun {
namespace {

// Pauses between polls of the store. A blocking wait would hold up its other users.
constexpr absl::Duration kFirstPause = absl::Milliseconds(1);
constexpr absl::Duration kLongestPause = absl::Milliseconds(100);

}  // namespace

ShardOutcomes::ShardOutcomes(c10::intrusive_ptr<c10d::Store> store, std::string save, std::vector<int> ranks)
    : store_(std::move(store)), save_(std::move(save)), ranks_(std::move(ranks)) {}

std::string ShardOutcomes::KeyOf(int rank) const { return absl::StrCat("shard/", save_, "/", rank); }

void ShardOutcomes::Post(int rank, const absl::Status& outcome) const {
  TorchTry("", [&] {
    store_->set(KeyOf(rank), StatusText(outcome));
    return absl::OkStatus();
  }).IgnoreError();
}

absl::Status ShardOutcomes::Await(absl::Duration timeout, const std::atomic<bool>& cancelled) const {
  const SteadyTime start = SteadyNow();
  return TorchTry("wait for the shards of the other ranks", [&]() -> absl::Status {
    for (const int rank : ranks_) {
      for (absl::Duration pause = kFirstPause; !store_->check({KeyOf(rank)});
           pause = std::min(2 * pause, kLongestPause)) {
        if (cancelled) return absl::CancelledError("the group of ranks has changed");
        if (SteadyNow() - start >= timeout) {
          return absl::DeadlineExceededError(
              absl::StrCat("rank ", rank, " has not written its files within ", absl::FormatDuration(timeout)));
        }
        absl::SleepFor(pause);
      }
      const absl::Status outcome = FromStatusText(store_->get_to_str(KeyOf(rank))).status();
      store_->deleteKey(KeyOf(rank));
      if (!outcome.ok()) return absl::Status(outcome.code(), absl::StrCat("rank ", rank, ": ", outcome.message()));
    }
    return absl::OkStatus();
  });
}

}  // namespace ddprun
