#include "base/mutex.h"

#include <gtest/gtest.h>

#include <thread>

#include "absl/time/time.h"

namespace ddprun {
namespace {

TEST(CondVarTest, WaitUntil_NotNotified_SleepsUntilDeadline) {
  Mutex mutex;
  CondVar changed;
  const SteadyTime deadline = SteadyNow() + absl::Milliseconds(30);
  int waits = 0;
  MutexLock lock(&mutex);
  while (SteadyNow() < deadline) {
    changed.WaitUntil(&mutex, deadline);
    ++waits;
  }
  // With a deadline of another clock, the wait would return at once or last for decades.
  EXPECT_LT(waits, 100);
  changed.WaitUntil(&mutex, SteadyNow() - absl::Seconds(1));
  changed.WaitUntil(&mutex, SteadyTime::InfinitePast());
}

TEST(CondVarTest, NotifyAll_WakesEveryWaiter) {
  Mutex mutex;
  CondVar changed;
  bool ready = false;
  const auto wait = [&](SteadyTime deadline) {
    MutexLock lock(&mutex);
    while (!ready) changed.WaitUntil(&mutex, deadline);
  };
  std::thread patient(wait, SteadyTime::InfiniteFuture());
  std::thread another(wait, SteadyNow() + absl::Hours(1));
  {
    MutexLock lock(&mutex);
    ready = true;
  }
  changed.NotifyAll();
  patient.join();
  another.join();
}

}  // namespace
}  // namespace ddprun
