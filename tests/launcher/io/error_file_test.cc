#include "launcher/io/error_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

void RunInShell(const std::string& command, const std::string& error_file) {
  SpawnRequest request = RequestFor({"/bin/sh", "-c", command});
  request.environment.push_back("TORCHELASTIC_ERROR_FILE=" + error_file);
  const Child child = MustSpawn(request);
  EXPECT_TRUE(WaitFor(child).ok());
}

TEST(ErrorFileTest, InMemory_WorkerWritesByName_IsRead) {
  const auto file = ErrorFile::CreateInMemory(), other = ErrorFile::CreateInMemory();
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->Read(), "");
  RunInShell("head -c 5000000 /dev/zero > $TORCHELASTIC_ERROR_FILE", file->path());
  EXPECT_EQ(file->Read().size(), ErrorFile::kMaxRead);
  RunInShell("echo '{}' > $TORCHELASTIC_ERROR_FILE", file->path());  // truncates, as Python's open(.., "w")
  EXPECT_EQ(file->Read(), "{}\n");
  EXPECT_EQ(other->Read(), "") << "each has its own";
}

TEST(ErrorFileTest, AtPath_OldFile_IsRemoved) {
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

TEST(ErrorFileTest, AtPath_FifoOrFolder_IsAnError) {
  const testing::TempDir dir;
  const auto file = ErrorFile::AtPath(dir.File("error.json"));
  ASSERT_EQ(mkfifo(file->path().c_str(), 0600), 0);
  EXPECT_EQ(file->Read(), "") << "without waiting for a writer";
  EXPECT_THAT(ErrorFile::AtPath("/usr").status().message(), ::testing::HasSubstr("'/usr'"));
}

TEST(ErrorFolderTest, Close_FilesOfOthers_AreKept) {
  testing::TempDir dir;
  setenv("TMPDIR", dir.path().c_str(), 1);
  std::string kept;
  {
    ErrorFolder folder("id1");
    EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "made on demand";
    const std::string first = folder.For(0);
    EXPECT_EQ(folder.For(0), first) << "the next round";
    EXPECT_NE(folder.For(1), first);
    std::ofstream(first + "/error.json") << "{}";
    kept = folder.For(2);
    std::ofstream(kept + "/error.json") << "{}";
    std::ofstream(kept + "/notes") << "a worker's own";
  }
  EXPECT_TRUE(std::filesystem::exists(kept + "/notes"));
  EXPECT_FALSE(std::filesystem::exists(kept + "/error.json"));
  std::filesystem::remove_all(kept);
  { ErrorFolder("id2").For(0); }
  ErrorFolder killed("id3");
  std::ofstream(killed.For(0) + "/error.json") << "{}";
  ErrorFolder::Remove("id3");
  ErrorFolder::Remove("none");
  int left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) left += entry.exists();
  EXPECT_EQ(left, 1) << "that in which something was";
  setenv("TMPDIR", "/no/such/folder", 1);
  EXPECT_EQ(ErrorFolder("id4").For(0), "");
}

TEST(ErrorFolderTest, For_AfterClose_CreatesNothing) {
  testing::TempDir dir;
  setenv("TMPDIR", dir.path().c_str(), 1);
  ErrorFolder folder("id");
  EXPECT_NE(folder.For(0), "");
  folder.Close();
  EXPECT_EQ(folder.For(1), "");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

// /dev/full refuses every write, like a full disk.
TEST(ErrorFileTest, WhyEmpty_DiskIsFull_NamesFileAndReason) {
  const testing::TempDir dir;
  const auto file = ErrorFile::AtPath(dir.File("error.json"));
  EXPECT_TRUE(file->WhyEmpty().ok());
  EXPECT_FALSE(std::filesystem::exists(file->path()));
  EXPECT_TRUE(ErrorFile::CreateInMemory()->WhyEmpty().ok());
  std::filesystem::create_symlink("/dev/full", file->path());
  EXPECT_THAT(std::string(file->WhyEmpty().message()),
              ::testing::AllOf(::testing::HasSubstr(file->path()), ::testing::HasSubstr("No space left on device")));
}

TEST(WriteErrorFileTest, ExistingFile_IsReplaced) {
  testing::TempDir dir;
  const std::string path = dir.File("error.json");
  std::ofstream(path) << "something longer";
  ASSERT_TRUE(WriteErrorFile(path, "{}").ok());
  EXPECT_EQ(ErrorFile::AtPath(dir.File("other"))->Read(), "");
  std::ifstream in(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "{}");
  EXPECT_THAT(std::string(WriteErrorFile("/no/such/file", "{}").message()), ::testing::HasSubstr("'/no/such/file'"));
}

}  // namespace
}  // namespace ddprun::launcher
