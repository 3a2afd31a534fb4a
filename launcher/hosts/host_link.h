#ifndef DDPRUN_LAUNCHER_HOSTS_HOST_LINK_H_
#define DDPRUN_LAUNCHER_HOSTS_HOST_LINK_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/hosts/pipe_writer.h"
#include "launcher/hosts/remote_start.h"
#include "launcher/os/child_watch.h"
#include "launcher/os/event_loop.h"
#include "launcher/os/process_end.h"
#include "launcher/os/unique_fd.h"
#include "proto/hosts.pb.h"

namespace ddprun::launcher {

// The connection to the agent of one host: the user's own ssh, or for this host a child process. Copies the program
// where it is missing. Belongs to the loop's thread, which must be the main thread (see CreateChild).
class HostLink {
 public:
  struct Callbacks {
    std::function<void()> on_connected;  // the agent runs
    std::function<void()> on_sign_of_life;
    std::function<void(const hosts::v1::HostReport&)> on_report;
    std::function<void(const std::string&)> on_stderr;      // of ssh and of the agent, once it runs
    std::function<void(const std::string& reason)> on_end;  // the last call
  };

  // `files` are copied if the host does not have them; `digest` is a name for their contents. InvalidArgument: there is
  // no ssh. Else the errors of CreateChild.
  static absl::StatusOr<std::unique_ptr<HostLink>> Open(EventLoop* loop, ChildWatch* children, const std::string& host,
                                                        const std::string& digest,
                                                        const std::vector<ProgramFile>& files, Callbacks callbacks);
  ~HostLink();
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;

  void Send(const hosts::v1::HostCommand& command);
  // Lets the agent end.
  void Close() { input_->Close(); }
  // -1: the process has ended.
  pid_t pid() const { return pid_; }
  // The process of this link has ended. Reads what it has left.
  void OnExit(const ProcessEnd& end);

  // True if a name means this host, without a question to a name server.
  static bool IsThisHost(const std::string& host);

 private:
  HostLink(EventLoop* loop, std::string host, std::vector<ProgramFile> files, Callbacks callbacks)
      : loop_(loop), host_(std::move(host)), files_(std::move(files)), callbacks_(std::move(callbacks)) {}
  absl::Status Start(ChildWatch* children, const std::string& digest);
  // Return 1: read; 0: nothing is there; -1: the stream has ended.
  int ReadOutput();
  int ReadErrors();
  void OnLine(const std::string& line);
  void TakeFrames();
  void Fail(const std::string& reason);

  EventLoop* const loop_;
  const std::string host_;
  const std::vector<ProgramFile> files_;
  const Callbacks callbacks_;
  pid_t pid_ = -1;
  std::unique_ptr<PipeWriter> input_;
  UniqueFd output_;
  UniqueFd errors_;
  StartStage stage_ = StartStage::kConnecting;
  bool executed_ = false;   // frames follow
  std::string bytes_;       // read but not used
  std::string error_text_;  // the end of what came on standard error
  std::string failure_;     // why we have ended the process
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_HOST_LINK_H_
