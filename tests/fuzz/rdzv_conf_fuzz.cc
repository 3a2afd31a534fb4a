// The value of --rdzv-conf.
#include "launcher/config/rdzv_conf.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun::launcher;  // NOLINT
  const auto conf = ParseRdzvConf(ddprun::fuzz::Bytes(data, size));
  if (!conf.ok()) return 0;
  FUZZ_CHECK(conf->heartbeat_timeout.value_or(kMinHeartbeatTimeout) >= kMinHeartbeatTimeout);
  FUZZ_CHECK(ddprun::ToDuration(conf->job.join_timeout()) >= absl::ZeroDuration());
  FUZZ_CHECK(ddprun::ToDuration(conf->job.last_call()) >= absl::ZeroDuration());
  FUZZ_CHECK(conf->reconnect_timeout.value_or(absl::ZeroDuration()) >= absl::ZeroDuration());
  FUZZ_CHECK(ddprun::ToDuration(conf->job.reconnect_grace()) >= absl::ZeroDuration());
  return 0;
}
