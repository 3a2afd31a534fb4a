#include "launcher/status_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/log.h"

namespace ddprun::launcher {
namespace {

size_t TerminalWidth() {
  winsize size = {};
  return ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

StatusLine::StatusLine() : terminal_(isatty(2) == 1) {}

void StatusLine::Show(absl::string_view text) {
  if (!terminal_ || text == shown_) return;
  shown_ = std::string(text);
  std::string line = text.empty() ? "" : absl::StrCat("ddprun: ", text);
  // A line that wraps could not be taken back.
  line.resize(std::min(line.size(), TerminalWidth() - 1));
  line.insert(0, "\r\033[K");
  LogVerbatim(line);
}

}  // namespace ddprun::launcher
