#include "launcher/status_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "launcher/report/wait_text.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kNarrow = 20;

size_t TerminalWidth() {
  winsize size = {};
  return ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

StatusLine::StatusLine() : terminal_(isatty(2) == 1) {}

void StatusLine::Show(absl::string_view text) {
  if (!terminal_ || text == shown_) return;
  shown_ = std::string(text);
  // A wrapped line could not be erased.
  std::string line =
      text.empty() ? "" : FitLine(absl::StrCat("ddprun: ", text), std::max(TerminalWidth(), kNarrow) - 1);
  line.insert(0, "\r\033[K");
  LogVerbatim(line);
}

}  // namespace ddprun::launcher
