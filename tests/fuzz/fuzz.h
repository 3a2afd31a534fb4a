#ifndef DDPRUN_TESTS_FUZZ_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

// Helpers of the fuzz targets. Each target is a function that must neither crash nor violate the contract of the
// parser's header for any bytes: libFuzzer calls it (scripts/fuzz), and so does replay_main.cc (bazel test).
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace ddprun::fuzz {

#define FUZZ_CHECK(condition)                                                        \
  do {                                                                               \
    if (!(condition)) {                                                              \
      fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                       \
    }                                                                                \
  } while (false)

inline absl::string_view Bytes(const uint8_t* data, size_t size) {
  return absl::string_view(reinterpret_cast<const char*>(data), size);
}

// Checks that a message is one line without control characters.
inline bool IsOneLine(absl::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  return true;
}

// "NAME=value" lines as environment variables.
class Variables {
 public:
  explicit Variables(absl::string_view lines) {
    for (absl::string_view line : absl::StrSplit(lines, '\n')) {
      std::pair<std::string, std::string> variable = absl::StrSplit(line, absl::MaxSplits('=', 1));
      values_.insert(std::move(variable));
    }
  }
  std::optional<std::string> operator()(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) return std::nullopt;
    return found->second;
  }

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace ddprun::fuzz

#endif  // DDPRUN_TESTS_FUZZ_FUZZ_H_
