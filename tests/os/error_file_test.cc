#include "launcher/os/error_file.h"

#include <sys/stat.h>

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/os/process_testing.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

void RunInShell(const std::string& command, const std::string& error_file) {
  SpawnRequest request = RequestFor({"/bin/sh", "-c", command});
  request.environment.push_back("TORCHELASTIC_ERROR_FILE=" + error_file);
  const auto child = Spawn(request);
  ASSERT_TRUE(child.ok());
  EXPECT_TRUE(WaitFor(*child).ok());
}

TEST(ErrorFileTest, InMemory_WorkerWritesByName_IsRead) {
  const auto file = ErrorFile::CreateInMemory();
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->Read(), "");
  RunInShell("echo a longer first one > $TORCHELASTIC_ERROR_FILE", file->path());
  RunInShell("echo '{}' > $TORCHELASTIC_ERROR_FILE", file->path());  // truncates, as Python's open(.., "w")
  EXPECT_EQ(file->Read(), "{}\n");
}

TEST(ErrorFileTest, InMemory_EachHasItsOwn) {
  const auto a = ErrorFile::CreateInMemory(), b = ErrorFile::CreateInMemory();
  RunInShell("echo a > $TORCHELASTIC_ERROR_FILE", a->path());
  EXPECT_EQ(a->Read(), "a\n");
  EXPECT_EQ(b->Read(), "");
}

TEST(ErrorFileTest, InMemory_HugeReport_IsReadInPart) {
  const auto file = ErrorFile::CreateInMemory();
  RunInShell("head -c 5000000 /dev/zero > $TORCHELASTIC_ERROR_FILE", file->path());
  EXPECT_EQ(file->Read().size(), ErrorFile::kMaxRead);
}

TEST(ErrorFileTest, AtPath_OldOneIsRemovedAndTheNewOneRead) {
  const testing::TempDir dir;
  const std::string path = dir.File("error.json");
  std::ofstream(path) << "of an earlier run";
  const auto file = ErrorFile::AtPath(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->path(), path);
  EXPECT_EQ(file->Read(), "");
  RunInShell("echo '{}' > $TORCHELASTIC_ERROR_FILE", path);
  EXPECT_EQ(file->Read(), "{}\n");
}

TEST(ErrorFileTest, AtPath_FifoInItsPlace_DoesNotWait) {
  const testing::TempDir dir;
  const auto file = ErrorFile::AtPath(dir.File("error.json"));
  ASSERT_EQ(mkfifo(file->path().c_str(), 0600), 0);
  EXPECT_EQ(file->Read(), "");
}

TEST(ErrorFileTest, AtPath_FolderInItsPlace_SaysSo) {
  const auto file = ErrorFile::AtPath("/usr");
  EXPECT_THAT(std::string(file.status().message()), ::testing::HasSubstr("can't replace the error file '/usr'"));
}

}  // namespace
}  // namespace ddprun::launcher
