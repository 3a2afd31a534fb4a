#ifndef DDPRUN_TESTS_WORKER_RUNTIME_TESTING_PROCESS_ENTRIES_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_TESTING_PROCESS_ENTRIES_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "tests/testing/process.h"

namespace ddprun::testing {

// Descriptors and threads of this process when the object was created, to detect leaks.
class ProcessEntries {
 public:
  // Expects that soon no more of them exist than then. A joined thread is listed a moment longer.
  void ExpectNoMore() const {
    EXPECT_TRUE(Eventually([&] { return Count("fd") <= descriptors_ && Count("task") <= threads_; }))
        << Count("fd") << " descriptors, " << Count("task") << " threads; at first " << descriptors_ << " and "
        << threads_;
  }

  bool HasMoreThreads() const { return Count("task") > threads_; }

 private:
  static int Count(const char* what) {
    const auto entries = std::filesystem::directory_iterator(std::string("/proc/self/") + what);
    return static_cast<int>(std::distance(begin(entries), end(entries)));
  }

  const int descriptors_ = Count("fd");
  const int threads_ = Count("task");
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_TESTING_PROCESS_ENTRIES_H_
