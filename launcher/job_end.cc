#include "launcher/job_end.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "base/stream_writer.h"
#include "launcher/process/proc_files.h"
#include "proto/rendezvous.pb.h"
#include "proto/time.h"
#include "rendezvous/wire/message_json.h"

namespace ddprun::launcher {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;  // the JSON's; grows if a field changes its meaning or is removed

v1::Job JobOf(const JobEnd& end) {
  const rendezvous::Verdict& verdict = end.summary.verdict();
  v1::Job job;
  job.set_job_id(end.job_id);
  job.set_state(verdict.succeeded() ? v1::Job::STATE_FINISHED : v1::Job::STATE_FAILED);
  job.set_reason(verdict.reason());
  *job.mutable_settings() = end.settings;
  *job.mutable_verdict() = verdict;
  *job.mutable_begin() = FromTime(end.begin);
  *job.mutable_end() = FromTime(end.end);
  *job.mutable_age() = FromDuration(end.end - end.begin);
  if (end.hang) *job.mutable_hang() = *end.hang;
  if (end.last_round) {
    job.set_round(end.last_round->round());
    job.set_restart_count(end.last_round->restart_count());
    job.set_node_count(end.last_round->group_world_size());
    job.set_world_size(end.last_round->world_size());
  }
  return job;
}

absl::StatusOr<UniqueFd> InMemory(absl::string_view text) {
  UniqueFd file(static_cast<int>(memfd_create("ddprun_job_end", MFD_CLOEXEC)));
  if (!file.valid()) return ErrnoStatus(errno, "memfd_create");
  if (const int error = WriteAll(file.get(), text); error != 0) return ErrnoStatus(error, "writing to a memfd");
  if (lseek(file.get(), 0, SEEK_SET) != 0) return ErrnoStatus(errno, "rewinding a memfd");
  return file;
}

}  // namespace

std::string JobEndJson(const JobEnd& end, const SecretMask& mask) {
  v1::Job job = JobOf(end);
  hosts::v1::JobFailure failure = end.summary;
  mask.Mask(&job);
  mask.Mask(&failure);
  json value = rendezvous::ToJson(job);
  // The launcher does not know them.
  for (const char* unknown : {"nodes", "owner"}) value.erase(unknown);
  value["version"] = kVersion;
  const json summary = rendezvous::ToJson(failure);
  for (const char* name : {"entrypoint", "others", "interpreter", "hint"}) value[name] = summary[name];
  return rendezvous::JsonText(value) + "\n";
}

absl::Status CheckResultFile(const std::string& path) {
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("--result=", path, ": ", what));
  };
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) return error("not a regular file");
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  if (stat(folder.c_str(), &info) != 0) return error(ErrnoStatus(errno, folder).message());
  if (!S_ISDIR(info.st_mode)) return error(absl::StrCat(folder, " is not a folder"));
  if (access(folder.c_str(), W_OK | X_OK) != 0) return error(ErrnoStatus(errno, folder).message());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<EndCommand>> EndCommand::Start(EventLoop* loop, const std::string& command,
                                                              absl::string_view input, std::function<void()> on_end,
                                                              absl::Duration limit) {
  DDPRUN_ASSIGN_OR_RETURN(const UniqueFd in, InMemory(input));
  SpawnRequest request;
  request.program = "/bin/sh";
  request.argv = {"sh", "-c", command};
  request.environment = OwnEnvironment();
  request.stdin_fd = in.get();
  DDPRUN_ASSIGN_OR_RETURN(Child child, CreateChild(request));
  std::unique_ptr<EndCommand> started(new EndCommand(loop, std::move(child), std::move(on_end)));
  EndCommand* const self = started.get();
  DDPRUN_RETURN_IF_ERROR(loop->AddFd(self->child_.pidfd.get(), EPOLLIN, [self](uint32_t) { self->OnExited(); }));
  self->kill_at_ = SteadyNow() + limit;
  self->timer_ = loop->AddTimer(
      [self] { return self->kill_at_; },
      [self, limit](SteadyTime) { self->Kill(absl::StrCat("it ran for ", absl::FormatDuration(limit))); });
  self->child_.gate.Open();
  return started;
}

void EndCommand::Kill(absl::string_view reason) {
  kill_at_ = SteadyTime::InfiniteFuture();
  if (!child_.pidfd.valid() || !killed_because_.empty()) return;
  killed_because_ = std::string(reason);
  KillGroup();
}

void EndCommand::OnExited() {
  const int status = End();
  if (!killed_because_.empty()) {
    result_ = absl::DeadlineExceededError(absl::StrCat("the command was killed: ", killed_because_));
  } else if (WIFSIGNALED(status)) {
    result_ = absl::AbortedError(absl::StrCat("the command was killed by ", SignalName(WTERMSIG(status))));
  } else if (WEXITSTATUS(status) != 0) {
    result_ = absl::AbortedError(absl::StrCat("the command exited with ", WEXITSTATUS(status)));
  }
  on_end_();
}

void EndCommand::KillGroup() {
  kill(-child_.pid, SIGKILL);
  SignalPidfd(child_.pidfd.get(), SIGKILL);  // it may not lead its group yet
}

int EndCommand::End() {
  if (!child_.pidfd.valid()) return 0;
  timer_ = nullptr;
  loop_->RemoveFd(child_.pidfd.get());
  siginfo_t exited = {};
  // Until it is reaped, its number names its process group and no other.
  const bool runs = waitid(P_PID, child_.pid, &exited, WEXITED | WNOWAIT | WNOHANG) == 0 && exited.si_pid == 0;
  if (runs) KillGroup();
  child_.pidfd.reset();
  int status = 0;
  while (waitpid(child_.pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace ddprun::launcher
