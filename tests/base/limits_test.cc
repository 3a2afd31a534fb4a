#include "base/limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/match.h"
#include "gmock/gmock.h"

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

using ::testing::HasSubstr;

TEST(ProcessLimitTest, ProcessLimitText_NamesTheLimit) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NPROC, &limit), 0);
  const std::string value = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
  EXPECT_THAT(ProcessLimitText(EAGAIN), HasSubstr("ulimit -u: " + value));
  EXPECT_THAT(ProcessLimitText(EPERM), HasSubstr("seccomp"));
  EXPECT_EQ(ProcessLimitText(ENOMEM), "Cannot allocate memory");
}

TEST(ProcessLimitTest, CheckThreads_UserHasOneProcess_OnlyMoreThanThatFail) {
  EXPECT_TRUE(CheckThreads(8).ok());
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer's own thread counts as well";
#endif
  if (geteuid() != 0) GTEST_SKIP() << "only root can become a user without other processes";
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{3, 3};                     // the limit does not bind root
    const uid_t user = 20000 + getpid() % 40000;  // no other test's
    if (setrlimit(RLIMIT_NPROC, &limit) != 0 || setuid(user) != 0) _exit(99);
    if (!CheckThreads(2).ok()) _exit(98);
    const absl::Status status = CheckThreads(3);
    _exit(absl::IsResourceExhausted(status) && status.message().find("ulimit -u: 3") != std::string::npos ? 0 : 97);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ddprun
