#include "launcher/io/line_prefixer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "launcher/config/output_settings.h"

namespace ddprun::launcher {
namespace {

// Long lines are rare and streams many, so larger buffers are freed.
constexpr size_t kKeptBytes = 64 * 1024;

}  // namespace

LinePrefixer::LinePrefixer(std::string prefix, size_t max_line, std::function<std::string()> time)
    : prefix_(std::move(prefix)),
      max_line_(max_line),
      time_(absl::StrContains(prefix_, kTimeMacro) ? std::move(time) : nullptr) {}

void LinePrefixer::Feed(absl::string_view bytes, std::string* out, std::string* matching) {
  while (!bytes.empty()) {
    if (std::exchange(after_return_, false) && bytes.front() == '\n') {
      out->push_back('\n');
      if (matching != nullptr && matched_) matching->push_back('\n');
      bytes.remove_prefix(1);
      continue;
    }
    const size_t room = max_line_ - line_.size();
    const size_t end = bytes.substr(0, room + 1).find_first_of("\n\r");
    if (end != absl::string_view::npos) {
      after_return_ = bytes[end] == '\r';
      Emit(bytes.substr(0, end + 1), out, matching);
      bytes.remove_prefix(end + 1);
    } else if (bytes.size() > room) {
      Emit(absl::StrCat(bytes.substr(0, room), "\n"), out, matching);
      bytes.remove_prefix(room);
    } else {
      line_.append(bytes.data(), bytes.size());
      return;
    }
  }
}

void LinePrefixer::Finish(std::string* out, std::string* matching) {
  if (line_.empty()) return;
  Emit("\n", out, matching);
}

void LinePrefixer::Emit(absl::string_view rest, std::string* out, std::string* matching) {
  const size_t begin = out->size();
  out->append(time_ ? absl::StrReplaceAll(prefix_, {{kTimeMacro, time_()}}) : prefix_);
  const size_t text = out->size();
  out->append(line_);
  out->append(rest.data(), rest.size());
  line_.clear();
  if (line_.capacity() > kKeptBytes) line_.shrink_to_fit();
  const absl::string_view line = absl::string_view(*out).substr(text);
  matched_ = std::any_of(filters_.begin(), filters_.end(),
                         [line](const std::string& filter) { return absl::StrContains(line, filter); });
  if (matching != nullptr && matched_) matching->append(*out, begin);
}

}  // namespace ddprun::launcher
