#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "absl/strings/str_cat.h"
#include "tests/worker_runtime/testing/process_entries.h"
#include "worker_runtime/process_group/process_group.h"

namespace ddprun::testing {
namespace {

// Under a sanitizer each group costs ten times as much, and a few suffice for the leak checker.
#if defined(__SANITIZE_ADDRESS__)
constexpr int kGroups = 200;
#else
constexpr int kGroups = 1000;
#endif
constexpr int kWarmUp = 20;

int64_t ResidentKilobytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    int64_t value = 0;
    if (word == "VmRSS:" && status >> value) return value;
  }
  return -1;
}

// One rank of a group: creates it, uses it, and ends it in one of four ways.
void Live(const c10::intrusive_ptr<c10d::Store>& store, int number, int rank) {
  ProcessGroupOptions options{.timeout = absl::Minutes(1)};
  absl::StatusOr<std::shared_ptr<ProcessGroup>> group =
      ProcessGroup::CreateWithStore(store, absl::StrCat(number), rank, 2, options);
  ASSERT_TRUE(group.ok()) << group.status();
  at::Tensor tensor = at::full({100}, 1.0);
  EXPECT_EQ((*group)->AllReduce(tensor), absl::OkStatus());
  EXPECT_EQ(tensor[99].item<double>(), 2);
  absl::StatusOr<std::shared_ptr<ProcessGroup>> subgroup(nullptr);
  if (number % 10 == 0) {
    subgroup = (*group)->NewSubgroup({0, 1}, "sub");
    ASSERT_TRUE(subgroup.ok()) << subgroup.status();
  }
  switch (number % 4) {
    case 0: EXPECT_EQ((*group)->Shutdown(), absl::OkStatus()); break;
    case 1: (*group)->Abort("the test is over"); break;
    case 2: group->reset(); break;
    // Rank 1 leaves while rank 0 waits for it.
    case 3:
      if (rank == 0) {
        EXPECT_FALSE((*group)->Barrier().ok());
      }
      break;
  }
}

void MakeGroup(int number) {
  // A store keeps all keys.
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::thread other([&] { Live(store, number, 1); });
  Live(store, number, 0);
  other.join();
}

TEST(ManyGroups, Create_ManyGroups_LeavesNothingBehind) {
  for (int number = 0; number < kWarmUp; ++number) MakeGroup(number);
  malloc_trim(0);
  const ProcessEntries before;
  const int64_t kilobytes = ResidentKilobytes();
  for (int number = kWarmUp; number < kGroups; ++number) {
    MakeGroup(number);
    before.ExpectNoMore();
    ASSERT_FALSE(HasFailure()) << number;
  }
  malloc_trim(0);
#if !defined(__SANITIZE_ADDRESS__)
  // A leak of one kilobyte per group would be 1 MB; a leaked thread or epoll buffer is far larger.
  EXPECT_LT(ResidentKilobytes() - kilobytes, 4 * 1024);
#endif
  RecordProperty("kilobytes_more", static_cast<int>(ResidentKilobytes() - kilobytes));
}

}  // namespace
}  // namespace ddprun::testing
