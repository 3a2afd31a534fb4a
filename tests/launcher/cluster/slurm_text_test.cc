#include "launcher/cluster/slurm_text.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

TEST(SlurmText, EndTime_IsThatOfTheJobInLocalTime) {
  const absl::TimeZone zone = absl::FixedTimeZone(2 * 60 * 60);
  const absl::Time noon = absl::FromCivil(absl::CivilSecond(2026, 11, 21, 12, 0, 5), zone);
  EXPECT_EQ(ReadEndTime("1234 2026-11-21T12:00:05 1:00\n", "1234", zone), noon);
  EXPECT_EQ(ReadEndTime("1233 2026-11-21T13:00:00 1:00\n1234 2026-11-21T12:00:05 2-00:00:00\n", "1234", zone), noon);
  for (const char* text :
       {"", "1234", "1234 NONE UNLIMITED\n", "1234 2027-11-21T12:00:05 UNLIMITED", "1234 N/A 1:00",
        "12345 2026-11-21T12:00:05 1:00", "1234 2026-13-21T12:00:05 1:00", "slurm_load_jobs error: x"}) {
    EXPECT_EQ(ReadEndTime(text, "1234", zone), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace ddprun::launcher
