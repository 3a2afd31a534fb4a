#include "worker_runtime/extras/metrics/progress_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "worker_runtime/extras/metrics/progress_meter.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

SteadyTime At(double seconds) { return SteadyTime::FromStart(absl::Seconds(seconds)); }

// ---- no terminal: lines ----

TEST(ProgressMeter, Line_HasMetricsRatesAndEta) {
  ProgressMeter meter({.total_steps = 400, .items_per_step = 32}, At(100));
  EXPECT_EQ(meter.Update(40, {{"loss", 2.34567}, {"lr", 3e-4}}, At(110), 0),
            "step 40/400 (10%)  loss 2.346  lr 0.0003  4 steps/s  128 samples/s  ETA 1m30s\n");
  // The rate is that of the last 10 s, the ETA is from the mean since the start.
  EXPECT_EQ(meter.Update(60, {}, At(120), 0), "step 60/400 (15%)  2 steps/s  64 samples/s  ETA 1m54s\n");
  EXPECT_EQ(meter.Update(400, {{"loss", 0.5}}, At(145.9), 0),
            "step 400/400 (100%)  loss 0.5  13.1 steps/s  420 samples/s  took 45s\n");
}

TEST(ProgressMeter, Lines_ComeEveryTenSeconds_AndAfterTheLastStep) {
  ProgressMeter meter({.total_steps = 50, .every = absl::Seconds(10)}, At(0));
  std::string steps;
  for (int step = 1; step <= 50; ++step) {
    if (!meter.Update(step, {}, At(step * 0.9), 0).empty()) steps += std::to_string(step) + " ";
  }
  EXPECT_EQ(steps, "12 24 36 48 50 ");
}

TEST(ProgressMeter, ResumedTraining_CountsOnlyItsOwnSteps) {
  ProgressMeter meter({.total_steps = 400, .first_step = 300, .items_per_step = 100, .item = "tokens"}, At(0));
  EXPECT_EQ(meter.Update(310, {}, At(20), 0), "step 310/400 (77%)  0.5 steps/s  50 tokens/s  ETA 3m\n");
}

TEST(ProgressMeter, WithoutTotal_NoEta) {
  ProgressMeter meter({}, At(0));
  EXPECT_EQ(meter.Update(1234, {}, At(10), 0), "step 1234  123 steps/s\n");
}

TEST(ProgressMeter, NoTimeHasPassed_NoRates) {
  ProgressMeter meter({.total_steps = 1}, At(0));
  EXPECT_EQ(meter.Update(1, {}, At(0), 0), "step 1/1 (100%)  took 0\n");
}

// ---- a terminal ----

TEST(ProgressMeter, Terminal_IsRewrittenInPlace) {
  ProgressMeter meter({.total_steps = 4}, At(0));
  EXPECT_EQ(meter.Update(1, {}, At(0.1), 80), "");
  EXPECT_EQ(meter.Update(2, {}, At(1), 80), "\rstep 2/4 (50%)  2 steps/s  ETA 1s\x1b[K");
  EXPECT_EQ(meter.Update(4, {}, At(2), 80), "\rstep 4/4 (100%)  2 steps/s  took 2s\x1b[K\n");
}

TEST(ProgressMeter, NarrowTerminal_TheLineIsCut) {
  ProgressMeter meter({.total_steps = 4}, At(0));
  EXPECT_EQ(meter.Update(2, {{"a metric", 1}, {"another", 2}}, At(1), 30), "\rstep 2/4 (50%)  a metric 1...\x1b[K");
}

// ---- ProgressLine ----

std::string Read(int fd) {
  char buffer[4096];
  const ssize_t size = read(fd, buffer, sizeof(buffer));
  return std::string(buffer, std::max<ssize_t>(size, 0));
}

TEST(ProgressLine, Pipe_RankZeroWritesLines) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  for (const int rank : {1, 0}) {
    ProgressLine progress(rank, {.total_steps = 2, .every = absl::ZeroDuration()}, ends[1]);
    progress.SetMetrics({{"loss", rank}});
    progress.Update(1);
    progress.Update(2);
  }
  close(ends[1]);
  const std::string text = Read(ends[0]);
  EXPECT_THAT(text, StartsWith("step 1/2 (50%)  loss 0  "));
  EXPECT_THAT(text, HasSubstr("\nstep 2/2 (100%)  loss 0  "));
  EXPECT_EQ(text.find('\r'), std::string::npos);
  close(ends[0]);
}

TEST(ProgressLine, Terminal_InPlace_AndTheLineEndsWithTheObject) {
  int terminal = 0, program = 0;
  winsize size = {};
  size.ws_col = 30;
  ASSERT_EQ(openpty(&terminal, &program, nullptr, nullptr, &size), 0);
  {
    ProgressLine progress(0, {.total_steps = 2}, program);
    progress.SetMetrics({{"a metric with a long name", 1}});
    progress.Update(2);
  }
  EXPECT_EQ(Read(terminal), "\rstep 2/2 (100%)  a metric ...\x1b[K\r\n");
  close(program);
  close(terminal);
}

}  // namespace
}  // namespace ddprun::testing
