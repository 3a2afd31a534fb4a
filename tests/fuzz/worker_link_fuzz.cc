// Messages between a worker and its launcher.
#include "tests/fuzz/fuzz.h"
#include "worker_contract/worker_link.h"

namespace {

using namespace ddprun;                   // NOLINT
using namespace ddprun::worker_contract;  // NOLINT

// A message that can be read can be written, and is read identically.
template <typename Line, typename Decode>
void CheckLine(const std::string& text, Decode decode) {
  const auto read = decode(text);
  if (!read.ok()) {
    FUZZ_CHECK(fuzz::IsOneLine(read.status().message()));
    return;
  }
  if (!read->has_value()) return;
  std::string written = EncodeMessage(Line(**read));
  FUZZ_CHECK(written.size() <= kMaxLinkLine);
  FUZZ_CHECK(written.find('\n') == written.size() - 1);
  written.pop_back();
  const auto again = decode(written);
  FUZZ_CHECK(again.ok() && again->has_value());
  FUZZ_CHECK(EncodeMessage(Line(**again)) == written + "\n");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The first byte is the size of the pieces in which the others arrive.
  const size_t piece = size == 0 ? 1 : 1 + data[0];
  const absl::string_view bytes = fuzz::Bytes(data, size).substr(size == 0 ? 0 : 1);
  LineReader whole, in_pieces;
  std::vector<std::string> lines, others;
  const bool read = whole.Read(bytes, &lines).ok();
  bool all = true;
  for (size_t at = 0; all && at < bytes.size(); at += piece)
    all = in_pieces.Read(bytes.substr(at, piece), &others).ok();
  FUZZ_CHECK(read == all);
  FUZZ_CHECK(lines == others);
  for (const std::string& line : lines) {
    FUZZ_CHECK(line.size() < kMaxLinkLine);
    CheckLine<WorkerLinkMessage>(line, DecodeWorkerMessage);
    CheckLine<LauncherLinkMessage>(line, DecodeLauncherMessage);
  }
  return 0;
}
