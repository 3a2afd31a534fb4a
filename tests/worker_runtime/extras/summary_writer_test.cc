#include "worker_runtime/extras/summary_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr absl::Time kStart = absl::UnixEpoch();
constexpr size_t kTimeBytes = 9;  // wall_time, the first field of all events

std::string WithoutTime(const std::string& event) { return event.substr(kTimeBytes); }

// Events of a file without their times, which must be recent.
std::vector<std::string> EventsOf(const std::string& path) {
  std::vector<std::string> events;
  const std::string file = ReadFile(path);
  for (size_t at = 0; at < file.size();) {
    uint64_t length = 0;
    memcpy(&length, file.data() + at, sizeof(length));
    const std::string event = file.substr(at + 12, length);
    EXPECT_EQ(file.substr(at, 16 + length), TfRecord(event));
    double time = 0;
    memcpy(&time, event.data() + 1, sizeof(time));
    EXPECT_NEAR(time, absl::ToDoubleSeconds(absl::Now() - kStart), 3600);
    events.push_back(WithoutTime(event));
    at += 16 + length;
  }
  return events;
}

TEST(SummaryWriter, AddScalars_AllRanks_OnlyRankZeroWrites) {
  TempDir folder;
  const std::string runs = folder.File("runs/7");
  for (const int rank : {1, 0}) {
    auto writer = SummaryWriter::Create(rank, {.folder = runs});
    EXPECT_EQ((*writer)->AddScalar("loss", 2.5, 1), absl::OkStatus());
    const std::map<std::string, double> values = {{"accuracy", 0.5}, {"loss", std::numeric_limits<double>::infinity()}};
    EXPECT_EQ((*writer)->AddScalars(values, 2), absl::OkStatus());
    EXPECT_EQ(std::filesystem::exists(runs), rank == 0);
    if (rank != 0) continue;
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    EXPECT_THAT((*writer)->path(),
                MatchesRegex(absl::StrCat(runs, "/events\\.out\\.tfevents\\.[0-9]{10}\\.", host, "\\.", getpid())));
    EXPECT_THAT(EventsOf((*writer)->path()), ElementsAre(WithoutTime(FileVersionEvent(kStart)),
                                                         WithoutTime(ScalarsEvent(kStart, 1, {{"loss", 2.5}})),
                                                         WithoutTime(ScalarsEvent(kStart, 2, values))));
  }
}

TEST(SummaryWriter, AddScalar_RankBecomesRankZero_WritesItsOwnFile) {
  TempDir folder;
  int rank = 1;
  auto writer = SummaryWriter::Create([&rank] { return rank; }, {.folder = folder.File("runs"), .purge_step = 1});
  EXPECT_EQ((*writer)->AddScalar("loss", 2.5, 1), absl::OkStatus());
  EXPECT_EQ((*writer)->path(), "");
  rank = 0;
  EXPECT_EQ((*writer)->AddScalar("loss", 1.5, 2), absl::OkStatus());
  rank = 1;
  EXPECT_EQ((*writer)->AddScalar("loss", 0.5, 3), absl::OkStatus());
  EXPECT_THAT(EventsOf((*writer)->path()), ElementsAre(WithoutTime(FileVersionEvent(kStart)),
                                                       WithoutTime(ScalarsEvent(kStart, 2, {{"loss", 1.5}}))));
}

TEST(SummaryWriter, Create_PurgeStep_WritesASessionStart) {
  TempDir folder;
  auto writer = SummaryWriter::Create(0, {.folder = folder.File("runs"), .purge_step = 300});
  EXPECT_THAT(EventsOf((*writer)->path()),
              ElementsAre(WithoutTime(FileVersionEvent(kStart)), WithoutTime(SessionStartEvent(kStart, 300))));
}

TEST(SummaryWriter, Create_TwoOfTheSameName_ShareTheFile) {
  TempDir folder;
  auto first = SummaryWriter::Create(0, {.folder = folder.File("runs")});
  auto second = SummaryWriter::Create(0, {.folder = folder.File("runs")});
  ASSERT_TRUE(first.ok() && second.ok());
  for (int64_t step = 1; step <= 10; ++step) {
    EXPECT_EQ((*first)->AddScalar("a", 1, step), absl::OkStatus());
    EXPECT_EQ((*second)->AddScalar("b", 1, step), absl::OkStatus());
  }
  size_t events = 0;
  for (const std::string& path : std::set<std::string>{(*first)->path(), (*second)->path()}) {
    events += EventsOf(path).size();
  }
  EXPECT_EQ(events, 22);
}

TEST(SummaryWriter, Create_FolderCantBeCreated_ErrorNamesIt) {
  const absl::Status status = SummaryWriter::Create(0, {.folder = "/proc/runs"}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("can't create the folder /proc/runs"));
}

constexpr absl::Time kTime = absl::FromUnixMillis(1'500);

TEST(EventRecord, Crc32c_KnownInputs_EqualsTheStandard) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

// Expected bytes were written by tensorboard 2.21 (tensorboard.summary.writer.record_writer,
// Event(...).SerializeToString()).
TEST(EventRecord, Encode_KnownEvents_EqualTensorBoardsBytes) {
  EXPECT_EQ(absl::BytesToHexString(FileVersionEvent(kTime)), "09000000000000f83f1a0d627261696e2e4576656e743a32");
  EXPECT_EQ(absl::BytesToHexString(SessionStartEvent(kTime, 300)), "09000000000000f83f10ac023a020801");
  EXPECT_EQ(absl::BytesToHexString(ScalarsEvent(kTime, 5'000'000'000, {{"loss", 0.1}, {"train/\u03b1", -2}})),
            "09000000000000f83f1080e497d0122a1e0a0b0a046c6f737315cdcccc3d0a0f0a08747261696e2fceb115000000c0");
  EXPECT_EQ(absl::BytesToHexString(TfRecord("an event")), "0800000000000000ff86240f616e206576656e743e8de13d");
}

}  // namespace
}  // namespace ddprun::testing
