#include "worker_runtime/base/last_words.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <streambuf>
#include <utility>

#include "absl/debugging/symbolize.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/stream_writer.h"
#include "base/text.h"
#include "worker_contract/crash_report.h"
#include "worker_contract/error_file_json.h"
#include "worker_runtime/base/torch_try.h"

namespace ddprun {
namespace {

constexpr size_t kMaxMessageBytes = 4000;

int terminating_rank = 0;  // set before any thread can end the process, read when it ends

std::string Line(int rank, absl::string_view message) {
  const std::string line = OneLine(message, kMaxMessageBytes);
  const std::string prefix = absl::StrCat("rank ", rank, ": ");
  return absl::StartsWith(line, prefix) ? line : absl::StrCat(prefix, line);
}

// Replaces the buffer of std::cerr, to which LibTorch writes each log line in one piece.
class HoldingBuffer : public std::streambuf {
 public:
  explicit HoldingBuffer(std::streambuf* to) : to_(to) {}

  std::pair<std::string, int> Take() {
    MutexLock lock(&mutex_);
    return {std::exchange(held_, ""), std::exchange(lines_, 0)};
  }

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    const absl::string_view line(text, static_cast<size_t>(size));
    // "[E1127 20:07:41.123456789 ProcessGroupNCCL.cpp:685] ...". Fatal errors are not held.
    if (line.size() < 3 || line.substr(0, 2) != "[E" || !absl::ascii_isdigit(line[2])) return to_->sputn(text, size);
    MutexLock lock(&mutex_);
    ++lines_;
    // The first ones tell the cause.
    if (held_.size() < kMostHeldBytes) absl::StrAppend(&held_, line);
    return size;
  }
  int_type overflow(int_type c) override {
    return traits_type::eq_int_type(c, traits_type::eof()) ? traits_type::not_eof(c)
                                                           : to_->sputc(traits_type::to_char_type(c));
  }
  int sync() override { return to_->pubsync(); }

 private:
  static constexpr size_t kMostHeldBytes = 64 << 10;

  std::streambuf* const to_;
  Mutex mutex_;
  std::string held_ ABSL_GUARDED_BY(mutex_);
  int lines_ ABSL_GUARDED_BY(mutex_) = 0;
};

HoldingBuffer* holding = nullptr;  // set before there are threads

[[noreturn]] void OnTerminate() {
  std::string text = "std::terminate was called";
  if (const std::exception_ptr exception = std::current_exception()) {
    const absl::Status status =
        TorchTry("uncaught exception", [&]() -> absl::Status { std::rethrow_exception(exception); });
    text = std::string(status.message());
  }
  if (absl::StrContains(text, "enforce fail") && absl::StrContains(text, "gloo/")) {
    absl::StrAppend(&text,
                    "; the ranks passed tensors of different sizes or dtypes, or called different collectives; "
                    "TORCH_DISTRIBUTED_DEBUG=DETAIL shows which");
  }
  ReportWorkerError(terminating_rank, "", absl::InternalError(text));
  worker_contract::WriteCrashReport(Line(terminating_rank, text).c_str());
  abort();
}

}  // namespace

void ReportWorkerError(int rank, const std::string& error_file, const absl::Status& status) {
  const std::string line = Line(rank, status.message());
  if (holding != nullptr) WriteAll(STDERR_FILENO, holding->Take().first);
  WriteAll(STDERR_FILENO, absl::StrCat(line, "\n"));
  if (error_file.empty()) return;
  // Not through a temporary file: the launcher may pass a file that exists only in memory and can't be replaced.
  const int fd = open(error_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return;
  WriteAll(fd, worker_contract::ErrorFileJson({.message = line, .at = absl::Now()}));
  close(fd);
}

void HoldLogOfTorch() {
  if (holding != nullptr || getenv("TORCH_CPP_LOG_LEVEL") != nullptr) return;
  holding = new HoldingBuffer(std::cerr.rdbuf());
  std::cerr.rdbuf(holding);
}

int DropHeldLog() { return holding == nullptr ? 0 : holding->Take().second; }

void InstallCrashReporter(int rank) {
  terminating_rank = rank;
  std::set_terminate(OnTerminate);
  absl::InitializeSymbolizer(program_invocation_name);
  worker_contract::ReportCrashes(absl::Symbolize);
}

}  // namespace ddprun
