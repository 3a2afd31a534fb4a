// Messages from a launcher to the rendezvous server.

#include "rendezvous/wire/envelope.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun;              // NOLINT
  using namespace ddprun::rendezvous;  // NOLINT
  v1::LauncherMessage proto;
  if (!proto.ParseFromArray(data, static_cast<int>(size))) return 0;
  const absl::StatusOr<LauncherMessage> message = FromProto(proto);
  if (!message.ok()) return 0;
  // An accepted message can be sent, and is decoded identically.
  const absl::StatusOr<LauncherMessage> again = FromProto(ToProto(*message));
  FUZZ_CHECK(again.ok() && *again == *message);
  return 0;
}
