#include "launcher/io/segmented_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

class SegmentedLogTest : public ::testing::Test {
 protected:
  SegmentedLogTest()
      : folder_(
            absl::StrCat(::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
    stem_ = folder_ + "/out";
  }
  // Reads from a position to the end.
  std::string ReadFrom(int64_t position, int64_t* lost) {
    std::string all;
    while (true) {
      const LogPiece piece = ReadSegmentedLog(stem_, position);
      *lost += piece.lost;
      position = piece.position;
      if (piece.bytes.empty()) return all;
      all += piece.bytes;
    }
  }

  const std::string folder_;
  std::string stem_;
};

TEST_F(SegmentedLogTest, Read_ContinuesAtAnyPosition) {
  int64_t lost = 0;
  EXPECT_EQ(ReadFrom(0, &lost), "") << "no file is there yet";
  SegmentedLogWriter writer(stem_);
  std::string written;
  for (int i = 0; static_cast<int64_t>(written.size()) < 2 * kSegmentBytes; ++i) {
    const std::string line = absl::StrCat("line ", i, std::string(100000, 'x'), "\n");
    writer.Write(line);
    written += line;
  }
  for (const int64_t position : {int64_t{0}, int64_t{5}, kSegmentBytes - 1, kSegmentBytes, kSegmentBytes + 1}) {
    EXPECT_TRUE(ReadFrom(position, &lost) == written.substr(position)) << position;
  }
  EXPECT_EQ(ReadFrom(static_cast<int64_t>(written.size()), &lost), "");
  EXPECT_EQ(lost, 0);
}

TEST_F(SegmentedLogTest, Write_OldSegments_AreRemovedAndReportedAsLost) {
  SegmentedLogWriter writer(stem_);
  const std::string segment(kSegmentBytes, 'x');
  for (int i = 0; i < kSegments + 2; ++i) writer.Write(segment);
  writer.Write("end");
  const std::filesystem::directory_iterator files(folder_);
  EXPECT_EQ(std::distance(begin(files), end(files)), kSegments);
  int64_t lost = 0;
  const std::string all = ReadFrom(10, &lost);
  EXPECT_EQ(lost, 3 * kSegmentBytes - 10);
  EXPECT_EQ(static_cast<int64_t>(all.size()), (kSegments - 1) * kSegmentBytes + 3);
  EXPECT_EQ(all.substr(all.size() - 3), "end");
}

TEST_F(SegmentedLogTest, Write_DiskFull_LosesBytesAndContinues) {
  std::filesystem::create_directory(stem_ + ".0.log");  // no file can be opened
  SegmentedLogWriter writer(stem_);
  writer.Write("lost");
  std::filesystem::remove(stem_ + ".0.log");
  writer.Write("kept");
  int64_t lost = 0;
  EXPECT_EQ(ReadFrom(0, &lost), "kept");
}

}  // namespace
}  // namespace ddprun::launcher
