#include "base/file_limit.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace ddprun {
namespace {

// A single test, because the raised limit stays for the process.
TEST(FileLimitTest, Raise_SoftLimitIsTheHardOneAndTheFormerOneIsKnown) {
  EXPECT_FALSE(InheritedFileLimit().has_value());
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = 50;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  RaiseFileLimit();
  rlimit raised;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &raised), 0);
  EXPECT_EQ(raised.rlim_cur, limit.rlim_max);
  EXPECT_EQ(raised.rlim_max, limit.rlim_max);
  ASSERT_TRUE(InheritedFileLimit().has_value());
  EXPECT_EQ(InheritedFileLimit()->rlim_cur, 50);
  EXPECT_EQ(InheritedFileLimit()->rlim_max, limit.rlim_max);
}

TEST(FileLimitTest, ReportOutOfFiles_IsLoggedOnceWithTheLimit) {
  EXPECT_FALSE(RanOutOfFiles());
  ::testing::internal::CaptureStderr();
  ReportOutOfFiles();
  ReportOutOfFiles();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(absl::StrContains(log, "out of file descriptors (limit ")) << log;
  EXPECT_EQ(log.find("out of"), log.rfind("out of")) << log;
  EXPECT_TRUE(RanOutOfFiles());
}

}  // namespace
}  // namespace ddprun
