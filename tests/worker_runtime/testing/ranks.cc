#include "tests/worker_runtime/testing/ranks.h"

#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "worker_runtime/base/torch_try.h"

namespace ddprun::testing {
namespace {

// Groups of the ranks and the first error.
class Ranks {
 public:
  Ranks(int n, const ProcessGroupOptions& options)
      : size_(n), options_(options), store_(c10::make_intrusive<c10d::HashStore>()), groups_(n) {}

  void Run(int rank, RankBody body) {
    absl::StatusOr<Group> group = ProcessGroup::CreateWithStore(store_, "test", rank, size_, options_);
    if (!group.ok()) return Fail(rank, group.status());
    if (!Join(rank, *group)) return;
    absl::Status status = TorchTry("", [&] { return body(rank, *group); });
    if (status.ok()) status = (*group)->Shutdown();
    if (!status.ok()) Fail(rank, status);
  }

  absl::Status first_error() {
    MutexLock lock(&mutex_);
    return first_error_;
  }

 private:
  // Returns false if another rank has already failed.
  bool Join(int rank, Group group) {
    MutexLock lock(&mutex_);
    groups_[rank] = std::move(group);
    return first_error_.ok();
  }

  void Fail(int rank, const absl::Status& status) {
    std::vector<Group> groups;
    {
      MutexLock lock(&mutex_);
      if (!first_error_.ok()) return;
      first_error_ = absl::Status(status.code(), absl::StrCat("[", rank, "] ", status.message()));
      groups = groups_;
    }
    for (const auto& group : groups) {
      if (group != nullptr) group->Abort(absl::StrCat("rank ", rank, " of the test failed"));
    }
  }

  const int size_;
  const ProcessGroupOptions options_;
  const c10::intrusive_ptr<c10d::Store> store_;
  Mutex mutex_;
  std::vector<Group> groups_ ABSL_GUARDED_BY(mutex_);
  absl::Status first_error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status RunRanks(int n, const ProcessGroupOptions& options, RankBody body) {
  Ranks ranks(n, options);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back([&ranks, rank, body] { ranks.Run(rank, body); });
  for (std::thread& thread : threads) thread.join();
  return ranks.first_error();
}

absl::Status RunRanks(int n, RankBody body) {
  return RunRanks(n, ProcessGroupOptions{.timeout = absl::Minutes(1)}, body);
}

}  // namespace ddprun::testing
