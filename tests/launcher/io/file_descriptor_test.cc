#include "launcher/io/file_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

std::string Target(int fd) {
  char link[256] = "";
  const ssize_t size = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), link, sizeof(link) - 1);
  return std::string(link, size > 0 ? size : 0);
}

TEST(StandardStreamsTest, OpenMissing_ClosedOnes_BecomeDevNull) {
  const int saved_input = fcntl(0, F_DUPFD_CLOEXEC, 10), saved_output = fcntl(1, F_DUPFD_CLOEXEC, 10);
  const std::string error_before = Target(2);
  close(0);
  close(1);
  OpenMissingStandardStreams();
  const std::string input = Target(0), output = Target(1), error = Target(2);
  if (saved_input >= 0) dup2(saved_input, 0);
  if (saved_output >= 0) dup2(saved_output, 1);
  EXPECT_EQ(input, "/dev/null");
  EXPECT_EQ(output, "/dev/null");
  EXPECT_EQ(error, error_before);
}

TEST(ReplaceFile, Path_ReplacesTheOldFileAndLeavesNothingElse) {
  const testing::TempDir dir;
  const std::string path = dir.File("r.json");
  std::ofstream(path) << "an old and longer result";
  ASSERT_TRUE(ReplaceFile(path, "new\n", 0600).ok());
  EXPECT_EQ(testing::ReadFile(path), "new\n");
  // A full disk.
  EXPECT_FALSE(ReplaceFile("/dev/full/r.json", "x", 0600).ok());
  // The old result stays if the new one can't be moved there.
  const std::string folder = dir.File("folder");
  std::filesystem::create_directory(folder);
  EXPECT_FALSE(ReplaceFile(folder, "x", 0600).ok());
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) files += entry.is_regular_file();
  EXPECT_EQ(files, 1);
}

}  // namespace
}  // namespace ddprun::launcher
