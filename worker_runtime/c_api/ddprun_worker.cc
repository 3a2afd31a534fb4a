#include "worker_runtime/c_api/ddprun_worker.h"

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "worker_contract/environment.h"
#include "worker_runtime/base/last_words.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/c_api/worker_handle.h"
#include "worker_runtime/process_group/env_from_ranks.h"
#include "worker_runtime/report_progress.h"
#include "worker_runtime/stop_requested.h"

namespace ddprun::c_api {
namespace {

thread_local std::string last_error;

std::string Variable(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

int Call(absl::FunctionRef<absl::Status()> body) {
  const absl::Status status = TorchTry("", body);
  if (!status.ok()) last_error = std::string(status.message());
  return static_cast<int>(status.code());
}

absl::StatusOr<WorkerOptions> Options(const char* backend, double timeout_seconds) {
  WorkerOptions options;
  options.backend = backend == nullptr ? "gloo" : backend;
  if (options.backend != "gloo") {
    return absl::InvalidArgumentError(absl::StrCat("backend \"", options.backend, "\": must be \"gloo\" or NULL"));
  }
  if (!std::isfinite(timeout_seconds) || timeout_seconds < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout_seconds=", timeout_seconds, ": must be a positive number, or 0 for the default"));
  }
  if (timeout_seconds > 0) options.timeout = absl::Seconds(timeout_seconds);
  return options;
}

absl::StatusOr<std::shared_ptr<ProcessGroup>> Group(const ddprun_worker* worker) {
  if (worker == nullptr) return absl::InvalidArgumentError("worker is NULL");
  if (!worker->worker.has_group()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", worker->worker.env().rank, ": this worker has no group: it was shut down, or no round has begun"));
  }
  return worker->worker.group();
}

}  // namespace ddprun::c_api

using ddprun::c_api::Call;

namespace {
constexpr int kBroadcastBytes = 512;  // an address, or an error
}

int ddprun_api_version() { return DDPRUN_API_VERSION; }

const char* ddprun_last_error() { return ddprun::c_api::last_error.c_str(); }

int ddprun_create(const char* backend, double timeout_seconds, ddprun_worker** worker) {
  if (worker != nullptr) *worker = nullptr;
  return Call([&]() -> absl::Status {
    if (worker == nullptr) return absl::InvalidArgumentError("worker is NULL");
    DDPRUN_ASSIGN_OR_RETURN(const auto options, ddprun::c_api::Options(backend, timeout_seconds));
    DDPRUN_ASSIGN_OR_RETURN(auto env, ddprun::WorkerEnv::FromEnvironment());
    auto made = std::make_unique<ddprun_worker>(std::move(env), options);
    DDPRUN_RETURN_IF_ERROR(made->worker.InitProcessGroup());
    *worker = made.release();
    return absl::OkStatus();
  });
}

int ddprun_create_from_ranks(int rank, int world_size, int local_rank, int local_world_size,
                             int (*broadcast)(void* context, char* text, int32_t bytes), void* context,
                             double timeout_seconds, ddprun_worker** worker) {
  if (worker != nullptr) *worker = nullptr;
  return Call([&]() -> absl::Status {
    if (worker == nullptr || broadcast == nullptr) return absl::InvalidArgumentError("worker or broadcast is NULL");
    DDPRUN_ASSIGN_OR_RETURN(const auto options, ddprun::c_api::Options(nullptr, timeout_seconds));
    const auto send = [&](const std::string& text) -> absl::StatusOr<std::string> {
      std::array<char, kBroadcastBytes> buffer = {};
      text.copy(buffer.data(), buffer.size() - 1);
      if (const int result = broadcast(context, buffer.data(), kBroadcastBytes); result != 0) {
        return absl::UnknownError(absl::StrCat("rank ", rank, ": the caller's broadcast returned ", result));
      }
      buffer.back() = '\0';
      return std::string(buffer.data());
    };
    DDPRUN_ASSIGN_OR_RETURN(
        auto env, ddprun::EnvFromRanks({rank, world_size, local_rank, local_world_size}, send, options.timeout));
    auto made = std::make_unique<ddprun_worker>(std::move(env), options);
    DDPRUN_RETURN_IF_ERROR(made->worker.InitProcessGroup());
    *worker = made.release();
    return absl::OkStatus();
  });
}

void ddprun_destroy(ddprun_worker* worker) {
  Call([&] {
    delete worker;
    return absl::OkStatus();
  });
}

int ddprun_shutdown(ddprun_worker* worker) {
  return Call([&]() -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<ddprun::ProcessGroup> group, ddprun::c_api::Group(worker));
    DDPRUN_RETURN_IF_ERROR(group->Shutdown());
    worker->worker.set_group(nullptr);
    return absl::OkStatus();
  });
}

void ddprun_fail(ddprun_worker* worker, const char* text) {
  const std::string message = text == nullptr ? ddprun_last_error() : text;
  Call([&] {
    const absl::Status status = absl::UnknownError(message);
    if (worker == nullptr) {
      int rank = 0;
      if (!absl::SimpleAtoi(ddprun::c_api::Variable(ddprun::worker_contract::kRank), &rank)) rank = 0;
      ddprun::ReportWorkerError(rank, ddprun::c_api::Variable(ddprun::worker_contract::kErrorFile), status);
      return absl::OkStatus();
    }
    const ddprun::WorkerEnv& env = worker->worker.env();
    ddprun::ReportWorkerError(env.rank, env.error_file, status);
    if (worker->worker.has_group()) {
      worker->worker.group()->Abort(message);
      worker->worker.group()->AwaitReaders();
    }
    return absl::OkStatus();
  });
}

int ddprun_rank(const ddprun_worker* worker) { return worker == nullptr ? -1 : worker->worker.env().rank; }
int ddprun_world_size(const ddprun_worker* worker) { return worker == nullptr ? -1 : worker->worker.env().world_size; }
int ddprun_local_rank(const ddprun_worker* worker) { return worker == nullptr ? -1 : worker->worker.env().local_rank; }
int ddprun_local_world_size(const ddprun_worker* worker) {
  return worker == nullptr ? -1 : worker->worker.env().local_world_size;
}

int ddprun_report_progress(ddprun_worker* worker, int64_t step, int64_t samples) {
  return Call([&]() -> absl::Status {
    if (worker == nullptr) return absl::InvalidArgumentError("worker is NULL");
    if (step < 0) return absl::InvalidArgumentError(absl::StrCat("step=", step, ": must not be negative"));
    ddprun::ReportProgress({.step = step, .samples = samples < 0 ? std::nullopt : std::optional(samples)});
    return absl::OkStatus();
  });
}

int ddprun_seconds_until_stop(ddprun_worker* worker, double* seconds) {
  return Call([&]() -> absl::Status {
    if (seconds == nullptr) return absl::InvalidArgumentError("seconds is NULL");
    DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<ddprun::ProcessGroup> group, ddprun::c_api::Group(worker));
    DDPRUN_ASSIGN_OR_RETURN(const std::optional<absl::Time> stop, ddprun::StopRequested(*group));
    *seconds = stop.has_value() ? std::max(0.0, absl::ToDoubleSeconds(*stop - absl::Now())) : -1;
    return absl::OkStatus();
  });
}
