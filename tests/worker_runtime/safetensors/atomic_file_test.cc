#include "worker_runtime/safetensors/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/checkpoint/hooked_files.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::HookedFiles;
using ::testing::IsEmpty;
using testing::TempDir;

absl::Status WriteAll(const std::string& path, absl::string_view content, FileSystem& files) {
  auto file = AtomicFile::Create(path, files);
  if (!file.ok()) return file.status();
  if (absl::Status status = (*file)->Append(content); !status.ok()) return status;
  return (*file)->Commit();
}

TEST(AtomicFile, Commit_OverAnOldFile_ReplacesIt) {
  TempDir folder;
  ASSERT_TRUE(WriteAll(folder.File("a.safetensors"), "old", FileSystem::Real()).ok());
  ASSERT_TRUE(WriteAll(folder.File("a.safetensors"), "new", FileSystem::Real()).ok());
  EXPECT_EQ(testing::ReadFile(folder.File("a.safetensors")), "new");
  EXPECT_THAT(ListFolder(folder.path()).value(), ElementsAre("a.safetensors"));
}

TEST(AtomicFile, Destructor_WithoutCommit_LeavesTheOldFileAlone) {
  TempDir folder;
  ASSERT_TRUE(WriteAll(folder.File("a.safetensors"), "old", FileSystem::Real()).ok());
  {
    auto file = AtomicFile::Create(folder.File("a.safetensors"), FileSystem::Real());
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Append("half").ok());
  }
  EXPECT_EQ(testing::ReadFile(folder.File("a.safetensors")), "old");
  EXPECT_THAT(ListFolder(folder.path()).value(), ElementsAre("a.safetensors"));
}

TEST(AtomicFile, AnyOperation_Fails_OneLineAndNothingLeft) {
  for (const std::string failing : {"create", "write", "sync", "rename"}) {
    TempDir folder;
    ASSERT_TRUE(WriteAll(folder.File("a.safetensors"), "old", FileSystem::Real()).ok());
    HookedFiles files([&](const std::string& operation, const std::string& path) {
      if (operation != failing) return absl::OkStatus();
      return absl::ResourceExhaustedError(absl::StrCat("can't write ", path, ": No space left on device"));
    });
    const absl::Status status = WriteAll(folder.File("a.safetensors"), "new content", files);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << failing;
    EXPECT_EQ(testing::ReadFile(folder.File("a.safetensors")), "old") << failing;
    EXPECT_THAT(ListFolder(folder.path()).value(), ElementsAre("a.safetensors")) << failing;
  }
}

TEST(AtomicFile, Create_BadFolders_SayWhich) {
  TempDir folder;
  const absl::Status missing = WriteAll(folder.File("none/a"), "x", FileSystem::Real());
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr(folder.File("none/")));
  EXPECT_THAT(missing.message(), HasSubstr("No such file or directory"));
  ASSERT_TRUE(WriteAll(folder.File("file"), "x", FileSystem::Real()).ok());
  EXPECT_EQ(WriteAll(folder.File("file/a"), "x", FileSystem::Real()).code(), absl::StatusCode::kNotFound);
  if (::geteuid() != 0) {  // root may write everywhere
    ASSERT_EQ(::chmod(folder.path().c_str(), 0500), 0);
    EXPECT_EQ(WriteAll(folder.File("a"), "x", FileSystem::Real()).code(), absl::StatusCode::kPermissionDenied);
    ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
  }
}

TEST(MakeFolder, NestedOrTaken_MakesOrSaysSo) {
  TempDir folder;
  EXPECT_TRUE(MakeFolder(folder.File("a/b/c")).ok());
  EXPECT_TRUE(MakeFolder(folder.File("a/b/c")).ok());
  EXPECT_TRUE(MakeFolder(folder.File("a/b/c/")).ok());
  EXPECT_TRUE(ListFolder(folder.File("a/b/c")).ok());
  ASSERT_TRUE(WriteAll(folder.File("file"), "x", FileSystem::Real()).ok());
  EXPECT_THAT(MakeFolder(folder.File("file")).message(), HasSubstr("file"));
  EXPECT_FALSE(MakeFolder(folder.File("file")).ok());
}

}  // namespace
}  // namespace ddprun
