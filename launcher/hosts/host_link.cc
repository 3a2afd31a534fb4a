#include "launcher/hosts/host_link.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/hostname.h"
#include "base/loopback.h"
#include "launcher/hosts/frames.h"
#include "launcher/os/errno_status.h"
#include "launcher/os/own_environment.h"
#include "launcher/os/resolve_program.h"
#include "launcher/os/spawn_process.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kKeptErrorBytes = 16 << 10;
constexpr size_t kMaxLineBytes = 1 << 20;  // of what a login shell writes

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// "Linux x86_64".
std::string ThisSystem() {
  utsname name;
  return uname(&name) == 0 ? absl::StrCat(name.sysname, " ", name.machine) : "";
}

// Returns 1: read; 0: nothing there; -1: ended.
int ReadSome(int fd, std::string* bytes) {
  char buffer[64 << 10];
  const ssize_t got = read(fd, buffer, sizeof(buffer));
  if (got > 0) {
    bytes->append(buffer, got);
    return 1;
  }
  return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

}  // namespace

bool HostLink::IsThisHost(const std::string& host) {
  const std::string name = Hostname();
  return IsLoopbackHost(host) || host == name || host == name.substr(0, name.find('.'));
}

absl::StatusOr<std::unique_ptr<HostLink>> HostLink::Open(EventLoop* loop, ChildWatch* children, const std::string& host,
                                                         const std::string& digest,
                                                         const std::vector<ProgramFile>& files, Callbacks callbacks) {
  std::unique_ptr<HostLink> link(new HostLink(loop, host, files, std::move(callbacks)));
  if (absl::Status status = link->Start(children, digest); !status.ok()) return status;
  return link;
}

HostLink::~HostLink() {
  if (output_.valid()) loop_->RemoveFd(output_.get());
  if (errors_.valid()) loop_->RemoveFd(errors_.get());
}

absl::Status HostLink::Start(ChildWatch* children, const std::string& digest) {
  SpawnRequest request;
  if (IsThisHost(host_)) {
    request.program = "/proc/self/exe";
    request.argv = {"ddprun", kAgentArgument, kFrontIsHere};
    stage_ = StartStage::kExecuting;
    executed_ = true;
  } else {
    const absl::StatusOr<std::string> ssh = ResolveProgram("ssh", SearchPath());
    if (!ssh.ok())
      return absl::InvalidArgumentError("there is no ssh on this host, by which --hosts starts the others");
    request.program = *ssh;
    request.argv = SshArguments(host_, digest, files_);
  }
  request.environment = OwnEnvironment();
  request.dies_with_parent = false;  // it ends with its input, and an agent then stops its launcher first
  absl::StatusOr<Pipe> input = MakePipe(), output = MakePipe(), errors = MakePipe();
  for (const auto* pipe : {&input, &output, &errors}) {
    if (!pipe->ok()) return pipe->status();
  }
  request.stdin_fd = input->read.get();
  request.stdout_fd = output->write.get();
  request.stderr_fd = errors->write.get();
  absl::StatusOr<std::unique_ptr<PipeWriter>> writer =
      PipeWriter::Create(loop_, std::move(input->write), callbacks_.on_sign_of_life);
  if (!writer.ok()) return writer.status();
  input_ = *std::move(writer);
  for (const auto& [fd, read] : {std::pair(&output_, &output->read), std::pair(&errors_, &errors->read)}) {
    *fd = std::move(*read);
    if (fcntl(fd->get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "fcntl");
  }
  absl::Status status = loop_->AddFd(output_.get(), EPOLLIN, [this](uint32_t) {
    if (ReadOutput() < 0) loop_->RemoveFd(output_.get());
  });
  if (!status.ok()) return status;
  status = loop_->AddFd(errors_.get(), EPOLLIN, [this](uint32_t) {
    if (ReadErrors() < 0) loop_->RemoveFd(errors_.get());
  });
  if (!status.ok()) return status;
  absl::StatusOr<Child> child = CreateChild(request);
  if (!child.ok()) return child.status();
  pid_ = child->pid;
  child->gate.Open();
  status = children->Watch(*std::move(child));
  if (status.ok() && executed_) loop_->Post([this] { callbacks_.on_connected(); });
  return status;
}

void HostLink::Send(const hosts::v1::HostCommand& command) {
  std::string frame;
  AppendFrame(command, &frame);
  input_->Write(std::move(frame));
}

int HostLink::ReadOutput() {
  const int got = ReadSome(output_.get(), &bytes_);
  if (got <= 0 || !failure_.empty()) return got;
  callbacks_.on_sign_of_life();
  while (!executed_ && failure_.empty()) {
    const size_t end = bytes_.find('\n');
    if (end == std::string::npos) break;
    const std::string line = bytes_.substr(0, end);
    bytes_.erase(0, end + 1);
    OnLine(line);
  }
  if (executed_) {
    TakeFrames();
  } else if (bytes_.size() > kMaxLineBytes) {
    bytes_.clear();
  }
  return got;
}

int HostLink::ReadErrors() {
  std::string text;
  const int got = ReadSome(errors_.get(), &text);
  absl::StrAppend(&error_text_, text);
  if (error_text_.size() > kKeptErrorBytes) error_text_.erase(0, error_text_.size() - kKeptErrorBytes);
  if (!text.empty() && stage_ == StartStage::kRunning) callbacks_.on_stderr(text);
  return got;
}

void HostLink::OnLine(const std::string& text) {
  const RemoteLine line = ParseRemoteLine(text);
  switch (line.kind) {
    case RemoteLine::Kind::kOther: return;
    case RemoteLine::Kind::kOn:
      stage_ = StartStage::kCopying;
      if (line.text != ThisSystem()) {
        Fail(absl::StrCat("it has ", line.text, ", this host ", ThisSystem(),
                          ": start the job from a host of the same architecture"));
      }
      return;
    case RemoteLine::Kind::kSend: {
      const auto file =
          std::find_if(files_.begin(), files_.end(), [&](const ProgramFile& f) { return f.name == line.text; });
      UniqueFd source(file == files_.end() ? -1 : open(file->path.c_str(), O_RDONLY | O_CLOEXEC));
      if (!source.valid()) return Fail(absl::StrCat("can't read ", line.text, " of this program"));
      return input_->WriteFile(std::move(source), file->bytes);
    }
    case RemoteLine::Kind::kRun:
      stage_ = StartStage::kExecuting;
      executed_ = true;
      error_text_.clear();
      return callbacks_.on_connected();
  }
}

void HostLink::TakeFrames() {
  bool error = false;
  while (std::optional<std::string> frame = TakeFrame(&bytes_, &error)) {
    hosts::v1::HostReport report;
    if (!report.ParseFromString(*frame)) error = true;
    if (error) break;
    stage_ = StartStage::kRunning;
    callbacks_.on_report(report);
  }
  if (error) Fail("its answer is not ddprun's: does its login shell write to standard output?");
}

void HostLink::Fail(const std::string& reason) {
  failure_ = reason;
  input_->Close();
  kill(-pid_, SIGKILL);
}

void HostLink::OnExit(const ProcessEnd& end) {
  // Others may still hold the pipes (the master of a shared connection), so their ends are not waited for.
  loop_->RemoveFd(output_.get());
  loop_->RemoveFd(errors_.get());
  while (ReadErrors() > 0 || ReadOutput() > 0) {
  }
  pid_ = -1;
  callbacks_.on_end(!failure_.empty() ? failure_ : ExplainSshEnd(stage_, end.ExitCode(), error_text_, host_));
}

}  // namespace ddprun::launcher
