// Texts of SLURM: slurm.conf, and squeue's output.
#include "launcher/cluster/slurm_text.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun::launcher;  // NOLINT
  const absl::string_view text = ddprun::fuzz::Bytes(data, size);
  FUZZ_CHECK(ParseSlurmConf(text).kill_wait >= absl::ZeroDuration());
  ReadEndTime(text, "1234", absl::UTCTimeZone());
  return 0;
}
