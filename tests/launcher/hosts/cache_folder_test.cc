#include "launcher/hosts/cache_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "launcher/os/unique_fd.h"

namespace ddprun::launcher {
namespace {

class CacheFolderTest : public ::testing::Test {
 protected:
  CacheFolderTest()
      : cache_(
            absl::StrCat(::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  void Make(const std::string& file) {
    const std::filesystem::path path = cache_ + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << "x";
  }
  bool Has(const std::string& file) const { return std::filesystem::exists(cache_ + "/" + file); }
  void RemoveAfter(int days) { RemoveOldCacheFiles(cache_, absl::Now() + absl::Hours(24 * days)); }
  UniqueFd Lock(const std::string& file) const {
    UniqueFd fd(open((cache_ + "/" + file).c_str(), O_RDWR | O_CLOEXEC));
    HoldJobFile(fd.get());
    return fd;
  }

  const std::string cache_;
};

constexpr char kCopy[] = "1.2.3-0123456789abcdef/";

TEST_F(CacheFolderTest, CopiesThatWereNotUsed_AreRemoved) {
  Make(absl::StrCat(kCopy, "ddprun"));
  Make(absl::StrCat(kCopy, ".used"));
  Make("1.2.4-0000000000000000/libddprun_crash.so");  // incomplete
  RemoveAfter(29);
  EXPECT_TRUE(Has(kCopy));
  RemoveAfter(31);
  EXPECT_FALSE(Has(kCopy));
  EXPECT_FALSE(Has("1.2.4-0000000000000000"));
}

TEST_F(CacheFolderTest, CopyInUse_Stays) {
  Make(absl::StrCat(kCopy, "ddprun"));
  RemoveAfter(1000);
  EXPECT_TRUE(Has(kCopy)) << "unknown whether it is in use";
  Make(absl::StrCat(kCopy, ".used"));
  {
    const UniqueFd lock = Lock(absl::StrCat(kCopy, ".used"));
    RemoveAfter(1000);
    EXPECT_TRUE(Has(kCopy));
  }
  RemoveAfter(1000);
  EXPECT_FALSE(Has(kCopy));
}

TEST_F(CacheFolderTest, ForeignFiles_Stay) {
  for (const char* file : {"notes/x", "1.2.3/ddprun", "1.2.3-0123/.used", "x-0123456789abcdef/.used"}) Make(file);
  Make("elsewhere/.used");
  std::filesystem::create_directory_symlink("elsewhere", cache_ + "/1.0-0123456789abcdef");
  RemoveAfter(1000);
  for (const char* file : {"notes/x", "1.2.3/ddprun", "1.2.3-0123/.used", "x-0123456789abcdef/.used", "elsewhere/.used",
                           "1.0-0123456789abcdef"}) {
    EXPECT_TRUE(Has(file)) << file;
  }
}

TEST_F(CacheFolderTest, OutputOfJobs_IsKeptFor90Days_AndWhileTheyRun) {
  Make("jobs/old/a.log");
  Make("jobs/runs/a.log");
  Make("jobs/runs/b.log");
  Make("jobs/token/token");
  const UniqueFd lock = Lock("jobs/runs/b.log");
  RemoveAfter(89);
  EXPECT_TRUE(Has("jobs/old/a.log"));
  RemoveAfter(91);
  EXPECT_FALSE(Has("jobs/old"));
  EXPECT_TRUE(Has("jobs/runs/a.log"));
  EXPECT_TRUE(Has("jobs/token/token"));
  RemoveAfter(366);
  EXPECT_FALSE(Has("jobs/token"));
}

}  // namespace
}  // namespace ddprun::launcher
