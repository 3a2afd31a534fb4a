#include "worker_runtime/safetensors/file_system.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/checkpoint/hooked_files.h"

namespace ddprun::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::Status WriteAll(const std::string& path, absl::string_view content, FileSystem& files) {
  DDPRUN_ASSIGN_OR_RETURN(auto file, AtomicFile::Create(path, files));
  DDPRUN_RETURN_IF_ERROR(file->Append(content));
  return file->Commit();
}

TEST(AtomicFile, Commit_FileExists_ReplacesIt) {
  TempDir folder;
  ASSERT_TRUE(WriteAll(folder.File("a.safetensors"), "old", FileSystem::Real()).ok());
  ASSERT_TRUE(WriteAll(folder.File("a.safetensors"), "new", FileSystem::Real()).ok());
  EXPECT_EQ(ReadFile(folder.File("a.safetensors")), "new");
  EXPECT_THAT(ListFolder(folder.path()).value(), ElementsAre("a.safetensors"));
}

TEST(AtomicFile, Destructor_WithoutCommit_KeepsTheOldFile) {
  TempDir folder;
  ASSERT_TRUE(WriteAll(folder.File("a.safetensors"), "old", FileSystem::Real()).ok());
  {
    auto file = AtomicFile::Create(folder.File("a.safetensors"), FileSystem::Real());
    ASSERT_TRUE((*file)->Append("half").ok());
  }
  EXPECT_EQ(ReadFile(folder.File("a.safetensors")), "old");
  EXPECT_THAT(ListFolder(folder.path()).value(), ElementsAre("a.safetensors"));
}

TEST(AtomicFile, AnyOperation_Fails_OneLineErrorAndNoFileLeft) {
  for (const std::string failing : {"create", "write", "sync", "rename"}) {
    TempDir folder;
    ASSERT_TRUE(WriteAll(folder.File("a.safetensors"), "old", FileSystem::Real()).ok());
    HookedFiles files([&](const std::string& operation, const std::string& path) {
      if (operation != failing) return absl::OkStatus();
      return absl::ResourceExhaustedError(absl::StrCat("can't write ", path, ": No space left on device"));
    });
    const absl::Status status = WriteAll(folder.File("a.safetensors"), "new content", files);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << failing;
    EXPECT_EQ(ReadFile(folder.File("a.safetensors")), "old") << failing;
    EXPECT_THAT(ListFolder(folder.path()).value(), ElementsAre("a.safetensors")) << failing;
  }
}

TEST(AtomicFile, Create_BadFolder_ErrorNamesIt) {
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

TEST(MakeFolder, MakeFolder_NestedOrTaken_CreatesOrReturnsError) {
  TempDir folder;
  EXPECT_TRUE(MakeFolder(folder.File("a/b/c")).ok());
  EXPECT_TRUE(MakeFolder(folder.File("a/b/c")).ok());
  EXPECT_TRUE(MakeFolder(folder.File("a/b/c/")).ok());
  EXPECT_TRUE(ListFolder(folder.File("a/b/c")).ok());
  ASSERT_TRUE(WriteAll(folder.File("file"), "x", FileSystem::Real()).ok());
  EXPECT_THAT(MakeFolder(folder.File("file")).message(), HasSubstr("file"));
  EXPECT_FALSE(MakeFolder(folder.File("file")).ok());
}

// Page-aligned bytes, each different from the one a page earlier.
absl::string_view PageAligned(std::vector<char>& memory, size_t bytes) {
  memory.resize(bytes + 4096);
  char* const begin = memory.data() + (4096 - reinterpret_cast<uintptr_t>(memory.data()) % 4096) % 4096;
  for (size_t i = 0; i < bytes; ++i) begin[i] = static_cast<char>(i % 251);
  return {begin, bytes};
}

// Number of pages of a file in the page cache.
size_t CachedPages(const std::string& path, size_t bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const mapping = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  std::vector<unsigned char> cached((bytes + 4095) / 4096);
  EXPECT_EQ(::mincore(mapping, bytes, cached.data()), 0);
  ::munmap(mapping, bytes);
  return static_cast<size_t>(std::count_if(cached.begin(), cached.end(), [](unsigned char c) { return (c & 1) != 0; }));
}

TEST(FileSystemDirect, Write_AllSizesAndAlignments_ReadBackEqual) {
  // A disk, and memory, where O_DIRECT may not be possible.
  for (const std::string& where : {TempDir().path(), std::string("/dev/shm")}) {
    const std::string path = absl::StrCat(where, ".", ::getpid(), ".direct");
    std::vector<char> memory;
    const absl::string_view bytes = PageAligned(memory, (20 << 20) + 5);
    std::string expected;
    auto file = AtomicFile::Create(path, FileSystem::Direct());
    const auto append = [&](absl::string_view piece) {
      EXPECT_EQ((*file)->Append(piece), absl::OkStatus());
      absl::StrAppend(&expected, piece);
    };
    append(std::string(4096, 'h'));     // from anywhere
    append(bytes);                      // in large pieces, then five bytes
    append(bytes.substr(0, 8192));      // at a place that is not aligned
    append(bytes.substr(1, 4096 - 5));  // memory that is not aligned
    append(bytes.substr(4096, 2 * 4096));
    append("");
    EXPECT_EQ((*file)->Commit(), absl::OkStatus());
    EXPECT_TRUE(ReadFile(path) == expected) << where;
    ::unlink(path.c_str());
  }
}

TEST(FileSystemDirect, Write_LargePiece_BypassesThePageCache) {
  TempDir folder;
  const std::string probe = folder.File("probe");
  const int fd = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
  if (fd < 0) GTEST_SKIP() << "no O_DIRECT on the file system of " << folder.path();
  ::close(fd);
  constexpr size_t kBytes = 16 << 20;
  std::vector<char> memory;
  const absl::string_view bytes = PageAligned(memory, kBytes);
  ASSERT_TRUE(WriteAll(folder.File("real"), bytes, FileSystem::Real()).ok());
  ASSERT_TRUE(WriteAll(folder.File("direct"), bytes, FileSystem::Direct()).ok());
  EXPECT_GT(CachedPages(folder.File("real"), kBytes), kBytes / 4096 / 2);
  EXPECT_EQ(CachedPages(folder.File("direct"), kBytes), 0u);
}

}  // namespace
}  // namespace ddprun::testing
