// A launcher's registration with a store.
#include "launcher/store/join_watch.h"
#include "launcher/store/registration.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun::launcher;  // NOLINT
  const auto node = DecodeRegistration(ddprun::fuzz::Bytes(data, size));
  if (!node.ok()) return 0;
  FUZZ_CHECK(ddprun::fuzz::IsOneLine(node->host));
  const auto again = DecodeRegistration(EncodeRegistration(*node));
  FUZZ_CHECK(again.ok() && *again == *node);
  JoinWatch watch;
  watch.BeginRound(node->round, 64);
  const absl::Status status = watch.Register(*node, "10.0.0.1");
  FUZZ_CHECK(watch.Missing().size() == 64);
  if (status.ok()) FUZZ_CHECK(watch.Register(*node, "10.0.0.1").ok());
  return 0;
}
