#ifndef DDPRUN_TESTS_WORKER_RUNTIME_TESTING_RANKS_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_TESTING_RANKS_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun::testing {

using Group = std::shared_ptr<ProcessGroup>;
using RankBody = absl::FunctionRef<absl::Status(int rank, Group group)>;

// Runs `body` as `n` ranks, each a thread of this process; they share an in-memory store and communicate over Gloo on
// the loopback interface. Returns the earliest error, prefixed with its rank. When one rank fails or throws, the groups
// of the others are aborted so that they do not wait for it; when all return OK, the groups are shut down in order.
// The body may use EXPECT_* but not ASSERT_*. The default timeout of the group is one minute.
absl::Status RunRanks(int n, const ProcessGroupOptions& options, RankBody body);
absl::Status RunRanks(int n, RankBody body);

// Expects RunRanks to return OK. The body may return nothing: then it fails only if it throws, as an absl::StatusOr
// without a value does when it is used.
template <typename Body>
void ExpectRanksSucceed(int n, const ProcessGroupOptions& options, Body body) {
  const auto run = [&body](int rank, Group group) -> absl::Status {
    if constexpr (std::is_void_v<std::invoke_result_t<Body&, int, Group>>) {
      body(rank, std::move(group));
      return absl::OkStatus();
    } else {
      return body(rank, std::move(group));
    }
  };
  EXPECT_EQ(RunRanks(n, options, run), absl::OkStatus());
}

template <typename Body>
void ExpectRanksSucceed(int n, Body body) {
  ExpectRanksSucceed(n, ProcessGroupOptions{.timeout = absl::Minutes(1)}, std::move(body));
}

// Runs `body`, which returns a status, on `n` ranks that succeed; returns the messages of the statuses by rank.
template <typename Body>
std::vector<std::string> ErrorsOfRanks(int n, Body body) {
  std::vector<std::string> errors(n);
  ExpectRanksSucceed(n, [&](int rank, Group group) { errors[rank] = std::string(body(rank, group).message()); });
  return errors;
}

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_TESTING_RANKS_H_
