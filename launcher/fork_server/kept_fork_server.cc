// The part of ForkServer that uses servers of earlier jobs, and leaves its own behind.
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/text.h"
#include "launcher/fork_server/fork_server.h"
#include "launcher/fork_server/kept_sockets.h"
#include "launcher/fork_server/process_facts.h"
#include "launcher/os/resolve_program.h"

namespace ddprun::launcher {
namespace {

// Limit for a server to be kept.
constexpr int kKeepMillis = 2000;
// Most kept servers of a user.
constexpr size_t kMostKept = 2;
constexpr size_t kMaxReasonBytes = 500;

void Append(const std::vector<std::string>& part, std::vector<std::string>* fields) {
  fields->push_back(absl::StrCat(part.size()));
  fields->insert(fields->end(), part.begin(), part.end());
}

std::string RealPath(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) == nullptr ? path : resolved;
}

// Logs why servers are not kept or used.
void Refuse(absl::string_view why) { Log(LogLevel::kInfo, absl::StrCat("--preload-keep: ", why)); }

}  // namespace

std::vector<std::string> ForkServer::KeyFields() const {
  const size_t flags_end = settings_.script - (settings_.is_module ? 1 : 0);
  const std::vector<std::string> command(settings_.worker_argv.begin(), settings_.worker_argv.begin() + flags_end);
  std::vector<std::string> facts = facts_;
  facts.push_back(absl::StrCat("interpreter ", absl::StrJoin(command, " "), " ", StampText(command.front())));
  struct stat folder = {};
  stat(".", &folder);
  facts.push_back(absl::StrCat("working-folder ", RealPath("."), " ", folder.st_dev, " ", folder.st_ino));
  for (const std::string& text : KeptServerKey()) facts.push_back(text);
  facts.push_back(absl::StrCat("ignored-signals ", absl::StrJoin(settings_.ignored_signals, " ")));
  std::vector<std::string> fields;
  Append(facts, &fields);
  Append(settings_.environment, &fields);
  return fields;
}

std::vector<std::string> ForkServer::KeptServerKey() const {
  const std::string script = RealPath(settings_.worker_argv[settings_.script]);
  // One worker or several: the launcher sets it.
  std::string threads = "OMP_NUM_THREADS not set";
  for (const std::string& entry : settings_.environment) {
    if (absl::StartsWith(entry, "OMP_NUM_THREADS=")) threads = entry;
  }
  return {absl::StrCat("Python ", settings_.worker_argv.front()), absl::StrCat("working folder ", RealPath(".")),
          settings_.is_module ? "modules (-m)" : absl::StrCat("scripts in ", script.substr(0, script.rfind('/') + 1)),
          threads};
}

bool ForkServer::AskKeptServer() {
  const absl::StatusOr<KeptSockets> sockets = KeptSockets::Open(/*create=*/false);
  if (!sockets.ok()) {
    Refuse(absl::IsNotFound(sockets.status()) ? "no server is kept" : sockets.status().message());
    return false;
  }
  const std::vector<std::string> key = KeptServerKey();
  absl::StatusOr<UniqueFd> channel = KeptSockets::Connect(sockets->PathOf(key));
  if (!channel.ok()) {
    Refuse(absl::IsNotFound(channel.status()) ? sockets->WhyNone(key) : std::string(channel.status().message()));
    return false;
  }
  const std::optional<std::vector<int>> passed = InheritableDescriptors();
  if (!passed || !passed->empty()) {
    // A warning: it is the same in the next job of this shell.
    const std::string number = passed ? absl::StrCat(passed->front()) : "?";
    Log(LogLevel::kWarning,
        absl::StrCat("--preload-keep: the kept server is not used, because workers inherit descriptor ", number,
                     " of ddprun: close it, as in `ddprun ... ", number, "<&-`"));
    return false;
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
  asking_kept_.reset(ends[0]);
  const UniqueFd theirs(ends[1]), folder(open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::vector<std::string> fields = {"job"};
  for (std::string& field : KeyFields()) fields.push_back(std::move(field));
  for (std::string& field : SetupFields()) fields.push_back(std::move(field));
  channel_ = *std::move(channel);
  const absl::Status sent =
      SendMessage(absl::StrJoin(fields, absl::string_view("\0", 1)), {STDIN_FILENO, folder.get(), theirs.get()});
  if (sent.ok()) {
    // Its progress is watched: it may have to answer many jobs first.
    ucred peer{};
    socklen_t size = sizeof peer;
    if (getsockopt(channel_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) server_.pid = peer.pid;
    return true;
  }
  Refuse(sent.message());
  asking_kept_.reset();
  channel_.reset();
  return false;
}

void ForkServer::Keep() {
  // Not if it is still importing, or a copy of a kept one.
  if (settings_.keep == absl::ZeroDuration() || !ready_ || ended_ || !server_.pidfd.valid()) return;
  const absl::StatusOr<KeptSockets> sockets = KeptSockets::Open(/*create=*/true);
  if (!sockets.ok()) return Refuse(sockets.status().message());
  const std::string path = sockets->PathOf(KeptServerKey());
  std::vector<std::string> fields = {"keep", absl::StrCat(absl::ToDoubleSeconds(settings_.keep)), path};
  for (std::string& field : KeyFields()) fields.push_back(std::move(field));
  const std::vector<std::string> others = sockets->All();
  size_t left = kMostKept - 1;
  for (const std::string& other : others) {
    if (other == path || left == 0) {
      KeptSockets::Ask(other, "stop");
    } else {
      --left;
    }
  }
  std::string answer(kMaxReasonBytes, '\0');
  absl::Status sent = SendMessage(absl::StrJoin(fields, absl::string_view("\0", 1)), {});
  pollfd answered{channel_.get(), POLLIN, 0};
  if (!sent.ok() || poll(&answered, 1, kKeepMillis) <= 0) return Refuse("the fork server does not answer");
  answer.resize(std::max<ssize_t>(0, recv(channel_.get(), answer.data(), answer.size(), MSG_DONTWAIT)));
  const std::pair<std::string, std::string> parts = absl::StrSplit(answer, absl::MaxSplits('\0', 1));
  if (answer.empty()) return Refuse("the fork server died");
  if (parts.first != "kept")
    return Refuse(absl::StrCat("the server is not kept, because ", OneLine(parts.second, kMaxReasonBytes)));
  Refuse(absl::StrCat("fork server ", server_.pid, " stays for ", absl::FormatDuration(settings_.keep)));
  server_ = Child{};
}

}  // namespace ddprun::launcher
