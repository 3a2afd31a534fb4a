#include "worker_runtime/extras/metrics/event_record.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace ddprun::testing {
namespace {

constexpr absl::Time kTime = absl::FromUnixMillis(1'500);

TEST(EventRecord, Crc32c_KnownValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

// As written by tensorboard 2.21: tensorboard.summary.writer.record_writer and Event(...).SerializeToString().
TEST(EventRecord, BytesAreTensorBoards) {
  EXPECT_EQ(absl::BytesToHexString(FileVersionEvent(kTime)), "09000000000000f83f1a0d627261696e2e4576656e743a32");
  EXPECT_EQ(absl::BytesToHexString(SessionStartEvent(kTime, 300)), "09000000000000f83f10ac023a020801");
  EXPECT_EQ(absl::BytesToHexString(ScalarsEvent(kTime, 5'000'000'000, {{"loss", 0.1}, {"train/\u03b1", -2}})),
            "09000000000000f83f1080e497d0122a1e0a0b0a046c6f737315cdcccc3d0a0f0a08747261696e2fceb115000000c0");
  EXPECT_EQ(absl::BytesToHexString(TfRecord("an event")), "0800000000000000ff86240f616e206576656e743e8de13d");
}

}  // namespace
}  // namespace ddprun::testing
