#include "launcher/os/line_prefixer.h"

#include <utility>

namespace ddprun::launcher {

LinePrefixer::LinePrefixer(std::string prefix, size_t max_line) : prefix_(std::move(prefix)), max_line_(max_line) {}

void LinePrefixer::Feed(absl::string_view bytes, std::string* out) {
  while (!bytes.empty()) {
    if (std::exchange(after_return_, false) && bytes.front() == '\n') {
      out->push_back('\n');
      bytes.remove_prefix(1);
      continue;
    }
    const size_t room = max_line_ - line_.size();
    const size_t end = bytes.substr(0, room + 1).find_first_of("\n\r");
    if (end != absl::string_view::npos) {
      after_return_ = bytes[end] == '\r';
      Emit(bytes.substr(0, end + 1), out);
      bytes.remove_prefix(end + 1);
    } else if (bytes.size() > room) {
      Emit(bytes.substr(0, room), out);
      out->push_back('\n');
      bytes.remove_prefix(room);
    } else {
      line_.append(bytes.data(), bytes.size());
      return;
    }
  }
}

void LinePrefixer::Finish(std::string* out) {
  if (line_.empty()) return;
  Emit("\n", out);
}

void LinePrefixer::Emit(absl::string_view rest, std::string* out) {
  out->append(prefix_);
  out->append(line_);
  out->append(rest.data(), rest.size());
  line_.clear();
}

}  // namespace ddprun::launcher
