#include "worker_runtime/process_group/failure_board.h"

#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker_runtime/base/torch_try.h"

namespace ddprun {
namespace {

constexpr char kAllReports[] = "failures";

// Exists once the rank has posted its report.
std::string ReportKey(int rank) { return absl::StrCat("failed/", rank); }
std::string ReadKey(int rank) { return absl::StrCat("read/", rank); }

}  // namespace

FailureBoard::FailureBoard(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
    : store_(std::move(store)), rank_(rank), size_(size) {}

FailureBoard::~FailureBoard() = default;

void FailureBoard::WithStore(absl::FunctionRef<void(c10d::Store&)> use) {
  {
    MutexLock lock(&mutex_);
    if (busy_ || lost_) return;
    busy_ = true;
  }
  absl::Status status = TorchTry("", [&] {
    use(*store_);
    return absl::OkStatus();
  });
  while (true) {
    std::optional<FailureReport> report;
    {
      MutexLock lock(&mutex_);
      // A wait that timed out is not a failure of the store.
      lost_ = lost_ || (!status.ok() && !absl::IsDeadlineExceeded(status));
      if (!lost_) report.swap(waiting_);
      busy_ = report.has_value();
    }
    if (!report.has_value()) return;
    status = TorchTry("", [&] {
      Write(*store_, *report);
      return absl::OkStatus();
    });
  }
}

bool FailureBoard::store_is_lost() {
  MutexLock lock(&mutex_);
  return lost_;
}

void FailureBoard::Post(const FailureReport& report) {
  {
    MutexLock lock(&mutex_);
    if (posted_) return;
    posted_ = true;
    if (busy_) {
      waiting_ = report;
      return;
    }
  }
  WithStore([&](c10d::Store& store) { Write(store, report); });
}

void FailureBoard::Write(c10d::Store& store, const FailureReport& report) const {
  const std::string line = EncodeMessage(rank_, report);
  if (store.hasExtendedApi()) store.append(kAllReports, std::vector<uint8_t>(line.begin(), line.end()));
  store.set(ReportKey(rank_), line);
  // A set has no reply; the reply to the next request shows that the store has the report.
  store.check({ReportKey(rank_)});
}

FailureReports FailureBoard::Read() {
  FailureReports reports;
  WithStore([&](c10d::Store& store) {
    if (store.hasExtendedApi()) {
      if (store.check({kAllReports})) reports = DecodeLines(store.get_to_str(kAllReports));
      return;
    }
    for (int rank = 0; rank < size_; ++rank) {
      if (store.check({ReportKey(rank)})) reports.merge(DecodeLines(store.get_to_str(ReportKey(rank))));
    }
  });
  return reports;
}

void FailureBoard::Await(int rank, absl::Duration timeout) {
  WithStore([&](c10d::Store& store) { store.wait({ReportKey(rank)}, absl::ToChronoMilliseconds(timeout)); });
}

void FailureBoard::AwaitAll(absl::Duration timeout) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size_; ++rank) keys.push_back(ReportKey(rank));
  WithStore([&](c10d::Store& store) { store.wait(keys, absl::ToChronoMilliseconds(timeout)); });
}

void FailureBoard::AnnounceRead() {
  WithStore([&](c10d::Store& store) { store.set(ReadKey(rank_), "read"); });
}

void FailureBoard::AwaitReaders(const std::set<int>& gone, absl::Duration timeout) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_ && !gone.contains(rank)) keys.push_back(ReadKey(rank));
  }
  WithStore([&](c10d::Store& store) { store.wait(keys, absl::ToChronoMilliseconds(timeout)); });
}

}  // namespace ddprun
