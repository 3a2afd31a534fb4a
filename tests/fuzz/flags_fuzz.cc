// A command line, one word per line up to an empty line, followed by PET_ variables.
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "launcher/config/parse_options.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun::launcher;  // NOLINT
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(ddprun::fuzz::Bytes(data, size), absl::MaxSplits("\n\n", 1));
  const std::vector<std::string> words = absl::StrSplit(parts.first, '\n');
  const auto result = ParseOptions(words, ddprun::fuzz::Variables(parts.second));
  if (!result.ok()) FUZZ_CHECK(!result.status().message().empty());
  return 0;
}
