// The end of a worker's stderr.
#include "base/text.h"
#include "launcher/report/explain_end.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun;  // NOLINT
  using launcher::LastLines;
  const LastLines lines = launcher::ReadLastLines(fuzz::Bytes(data, size));
  FUZZ_CHECK(CleanText(lines.text) == lines.text);
  FUZZ_CHECK(lines.text.size() <= LastLines::kMaxLines * (LastLines::kMaxLineBytes + 1));
  FUZZ_CHECK(lines.error.size() <= LastLines::kMaxLineBytes && lines.last.size() <= LastLines::kMaxLineBytes);
  FUZZ_CHECK(lines.text.empty() == lines.last.empty());
  return 0;
}
