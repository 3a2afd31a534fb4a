#ifndef DDPRUN_LAUNCHER_HOSTS_REMOTE_START_H_
#define DDPRUN_LAUNCHER_HOSTS_REMOTE_START_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message_lite.h"

// PURE. How ssh starts this program on another host, what its errors mean, and the bytes that travel then.
namespace ddprun::launcher {

// The argument with which the program is an agent (host_agent.h).
inline constexpr char kAgentArgument[] = "--host-agent";

// A file of the program, as it is copied to the hosts. The program itself is the last one.
struct ProgramFile {
  std::string name;  // "ddprun"
  std::string path;  // on this host
  int64_t bytes = 0;
};

// Arguments of ssh, its name included. The command, for any login shell, looks for the program in the folder `digest`
// of the user's cache, asks for its files if it is not there, and executes it as an agent. It writes lines to its
// standard output, among which the login shell may write others; then the agent's frames follow:
//   DDPRUN on Linux x86_64    the command runs
//   DDPRUN send NAME          the file with this name is expected
//   DDPRUN run                the program is executed
std::vector<std::string> SshArguments(const std::string& host, const std::string& digest,
                                      const std::vector<ProgramFile>& files);

// How far the start on a host has come.
enum class StartStage { kConnecting, kCopying, kExecuting, kRunning };

// Says in one line, without the host's name, why the connection ended: from ssh's exit code (255: of ssh itself) and
// its standard error.
std::string ExplainSshEnd(StartStage stage, int exit_code, absl::string_view stderr_text, absl::string_view host);

// A message in a stream of bytes comes after its length, 4 bytes, the highest first.
void AppendFrame(const google::protobuf::MessageLite& message, std::string* bytes);
// Takes the first message from the front of `bytes`. False: it is not complete yet, or `error` was set because the
// bytes are no messages; nothing can be read after that.
bool TakeFrame(std::string* bytes, google::protobuf::MessageLite* message, bool* error);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_REMOTE_START_H_
