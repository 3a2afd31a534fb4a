#include "worker_runtime/extras/metrics/progress_line.h"

#include <sys/ioctl.h>

#include "worker_runtime/report_progress.h"

namespace ddprun {
namespace {

// Returns the terminal's width; 0: not a terminal.
int Columns(int fd) {
  constexpr int kUnknown = 80;
  if (!isatty(fd)) return 0;
  winsize size = {};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUnknown;
}

}  // namespace

ProgressLine::ProgressLine(int rank, ProgressOptions options, int fd) : fd_(fd) {
  if (rank == 0) meter_.emplace(std::move(options), SteadyNow());
}

ProgressLine::~ProgressLine() {
  if (inside_line_) Write("\n");
}

void ProgressLine::Update(int64_t step) {
  ReportProgress({.step = step});
  if (!meter_.has_value()) return;
  if (const std::string bytes = meter_->Update(step, metrics_, SteadyNow(), Columns(fd_)); !bytes.empty()) Write(bytes);
}

// Writes with one call, so that lines of several processes do not mix. Errors are ignored.
void ProgressLine::Write(const std::string& bytes) {
  [[maybe_unused]] const ssize_t written = write(fd_, bytes.data(), bytes.size());
  inside_line_ = bytes.back() != '\n';
}

}  // namespace ddprun
