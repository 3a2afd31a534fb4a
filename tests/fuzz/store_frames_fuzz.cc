// Bytes of a store client: the parsed requests are executed. The first byte determines the pieces in which the others
// arrive.
#include <algorithm>
#include <string>
#include <vector>

#include "launcher/store/key_value.h"
#include "launcher/store/request_parser.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun::launcher;  // NOLINT
  if (size == 0) return 0;
  constexpr size_t kMaxBytes = 1 << 20;
  const size_t piece = data[0] == 0 ? size : data[0];
  absl::string_view rest = ddprun::fuzz::Bytes(data + 1, size - 1);
  RequestLimits limits;
  limits.key_bytes = 256;
  limits.value_bytes = 4096;
  limits.list_items = 64;
  limits.request_bytes = 8192;
  RequestParser parser(limits);
  KeyValue store(kMaxBytes);
  std::vector<Reply> replies;
  ClientId client = 1;
  while (!rest.empty()) {
    parser.Append(rest.substr(0, piece));
    rest.remove_prefix(std::min(piece, rest.size()));
    for (Request request; parser.Next(&request) == RequestParser::Outcome::kRequest;) {
      for (const std::string& key : request.keys) FUZZ_CHECK(key.size() <= limits.key_bytes);
      for (const std::string& value : request.values) {
        FUZZ_CHECK(value.size() <= std::max(limits.value_bytes, limits.registration_bytes));
      }
      // Two clients, so that one can end the other's waits.
      client = 3 - client;
      if (!store.Apply(client, std::move(request), kMaxBytes, &replies).ok()) store.Forget(client);
      FUZZ_CHECK(store.bytes() <= kMaxBytes);
      replies.clear();
    }
    FUZZ_CHECK(parser.held_bytes() <= 4 * (size + 64 * 1024));
  }
  store.PendingWaits();
  return 0;
}
