#include "worker_runtime/checkpoint/background_writer.h"

#include <utility>

namespace ddprun {

BackgroundWriter::~BackgroundWriter() { Wait().IgnoreError(); }

void BackgroundWriter::Start(std::function<absl::Status()> job) {
  thread_ = std::thread([this, job = std::move(job)] { status_ = job(); });
}

absl::Status BackgroundWriter::Wait() {
  if (thread_.joinable()) thread_.join();
  return std::exchange(status_, absl::OkStatus());
}

}  // namespace ddprun
