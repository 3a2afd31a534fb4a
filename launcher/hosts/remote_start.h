#ifndef DDPRUN_LAUNCHER_HOSTS_REMOTE_START_H_
#define DDPRUN_LAUNCHER_HOSTS_REMOTE_START_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// PURE. How ssh starts this program on another host, and what its errors mean.
namespace ddprun::launcher {

// The argument with which the program is an agent (host_agent.h).
inline constexpr char kAgentArgument[] = "--host-agent";
// Follows it if no ssh is needed.
inline constexpr char kFrontIsHere[] = "front-is-here";

// A file of the program, as it is copied to the hosts. The program itself is the last one.
struct ProgramFile {
  std::string name;  // "ddprun"
  std::string path;  // on this host
  int64_t bytes = 0;
};

// Arguments of ssh, its name included. The command, for any login shell, looks for the program in the folder `digest`
// of the user's cache, asks for its files if it is not there, and executes it as an agent. It writes lines to its
// standard output (RemoteLine), among which the login shell may write others; then the agent's frames follow.
std::vector<std::string> SshArguments(const std::string& host, const std::string& digest,
                                      const std::vector<ProgramFile>& files);

// A line that the command writes.
struct RemoteLine {
  enum class Kind {
    kOther,  // of the login shell
    kOn,     // the command runs; `text`: "Linux x86_64"
    kSend,   // the next file is expected; `text`: its name
    kRun,    // the program is executed: frames follow
  };
  Kind kind = Kind::kOther;
  std::string text;
};
RemoteLine ParseRemoteLine(absl::string_view line);

// How far the start on a host has come.
enum class StartStage { kConnecting, kCopying, kExecuting, kRunning };

// Says in one line, without the host's name, why the connection ended: from ssh's exit code (255: of ssh itself) and
// its standard error.
std::string ExplainSshEnd(StartStage stage, int exit_code, absl::string_view stderr_text, absl::string_view host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_REMOTE_START_H_
