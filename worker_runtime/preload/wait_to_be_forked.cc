#include "worker_runtime/preload/wait_to_be_forked.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/stream_writer.h"
#include "worker_contract/exit_codes.h"
#include "worker_contract/fork_protocol.h"

namespace ddprun {
namespace {

// The mark that the launcher looks for in a program.
volatile const char kMark[] = DDPRUN_FORK_SERVER_MARK_BEGIN DDPRUN_FORK_SERVER_MARK_END;

constexpr size_t kMaxMessage = 8 << 20;
// Signals sent to the launcher's process group, or by a batch system to all processes as a warning: the launcher
// handles them.
constexpr int kHeldSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr const char* kDevices[] = {"/dev/nvidia", "/dev/kfd", "/dev/dri/"};

struct Message {
  std::vector<std::string> fields;  // none: the launcher is gone
  std::vector<int> fds;
};

struct Request {
  std::string ticket;
  std::string cpus;
  std::vector<std::string> environment;
  std::vector<int> fds;  // its stdout, stderr and gate
};

void Send(int channel, const std::vector<std::string>& fields) {
  const std::string text = absl::StrJoin(fields, absl::string_view("\0", 1));
  while (send(channel, text.data(), text.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

Message Receive(int channel) {
  std::string text(kMaxMessage, '\0');
  iovec buffer{text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))];
  msghdr packet{};
  packet.msg_iov = &buffer;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof control;
  ssize_t got;
  do {
    got = recvmsg(channel, &packet, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  Message message;
  if (got <= 0) return message;
  message.fields = absl::StrSplit(absl::string_view(text).substr(0, got), '\0');
  const cmsghdr* const header = CMSG_FIRSTHDR(&packet);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return message;
  message.fds.resize((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  memcpy(message.fds.data(), CMSG_DATA(header), message.fds.size() * sizeof(int));
  return message;
}

std::vector<std::string> Entries(const char* folder_name) {
  std::vector<std::string> names;
  DIR* const folder = opendir(folder_name);
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  closedir(folder);
  return names;
}

// Returns the reason why no worker can be forked from this process; empty: it can.
std::string ReasonNotForkable(pid_t launcher) {
  if (getppid() != launcher)
    return "the program is not a direct child of the launcher, so its workers would not be either";
  for (const std::string& thread : Entries("/proc/self/task")) {
    if (thread == absl::StrCat(getpid())) continue;
    std::string name;
    std::getline(std::ifstream(absl::StrCat("/proc/self/task/", thread, "/comm")), name);
    return absl::StrCat("a thread (", name, ") runs when RunWorker is called, and would be lost in a fork");
  }
  for (const std::string& fd : Entries("/proc/self/fd")) {
    char target[256] = "";
    if (readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), target, sizeof target - 1) < 0) continue;
    for (const char* const device : kDevices) {
      if (absl::StartsWith(target, device)) {
        return absl::StrCat(target, " is open when RunWorker is called, and can't be shared with forked workers");
      }
    }
  }
  return "";
}

// Device, inode, size, and the times of the last write and change. The first of these can be set, the second one not.
using Stamp = std::tuple<dev_t, ino_t, off_t, time_t, long, time_t, long>;

Stamp StampOf(const std::string& file) {
  struct stat status = {};
  if (stat(file.c_str(), &status) != 0) return {};
  const timespec written = status.st_mtim, changed = status.st_ctim;
  return {status.st_dev,   status.st_ino,  status.st_size, written.tv_sec,
          written.tv_nsec, changed.tv_sec, changed.tv_nsec};
}

// Stamps of the program and its libraries.
std::map<std::string, Stamp> MappedFiles() {
  std::map<std::string, Stamp> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos || line.find(" r-xp ") == std::string::npos) continue;
    const std::string file = line.substr(path);
    files.emplace(file, StampOf(file));
  }
  return files;
}

// Redirects a stream to `fd`, after output that was printed before RunWorker, which every worker repeats: the launcher
// passed a memory file as that stream. The file's position is shared with the other workers.
void MoveStream(int target, int fd) {
  struct stat kept = {};
  std::string text;
  if (fstat(target, &kept) == 0 && S_ISREG(kept.st_mode)) {
    text.resize(kept.st_size);
    text.resize(std::max<ssize_t>(0, pread(target, text.data(), text.size(), 0)));
  }
  dup2(fd, target);
  close(fd);
  WriteAll(target, text);
}

void Flush() {
  for (std::ostream* const stream : {&std::cout, &std::cerr, &std::clog}) stream->flush();
  fflush(nullptr);
}

// Shows the present environment in /proc/PID/environ. Without CONFIG_CHECKPOINT_RESTORE it stays the fork server's.
void ShowEnvironment() {
  std::string text;
  for (char** entry = environ; *entry != nullptr; ++entry) absl::StrAppend(&text, *entry, absl::string_view("\0", 1));
  std::string stat;
  std::getline(std::ifstream("/proc/self/stat"), stat);
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)), ' ');
  void* const at = mmap(nullptr, text.size() + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return;
  memcpy(at, text.data(), text.size());
  prctl_mm_map map{};
  // Numbers of proc(5); the first of `fields` is that of the second one.
  const std::pair<size_t, __u64*> kept[] = {{26, &map.start_code}, {27, &map.end_code}, {28, &map.start_stack},
                                            {45, &map.start_data}, {46, &map.end_data}, {47, &map.start_brk},
                                            {48, &map.arg_start},  {49, &map.arg_end}};
  for (const auto& [number, value] : kept) {
    if (number >= fields.size() + 2 || !absl::SimpleAtoi(fields[number - 2], value)) return;
  }
  map.brk = reinterpret_cast<__u64>(sbrk(0));
  map.env_start = reinterpret_cast<__u64>(at);
  map.env_end = map.env_start + text.size();
  map.exe_fd = -1;
  prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0);
}

// Runs in a child of the launcher.
void BecomeWorker(const Request& request, pid_t launcher, int channel, const sigset_t& signals) {
  setsid();
  if (!request.cpus.empty()) {
    cpu_set_t* const cpus = CPU_ALLOC(CPU_SETSIZE * 8);
    const size_t bytes = CPU_ALLOC_SIZE(CPU_SETSIZE * 8);
    CPU_ZERO_S(bytes, cpus);
    for (const absl::string_view text : absl::StrSplit(request.cpus, ',')) {
      int cpu = 0;
      if (absl::SimpleAtoi(text, &cpu)) CPU_SET_S(cpu, bytes, cpus);
    }
    sched_setaffinity(0, bytes, cpus);
    CPU_FREE(cpus);
  }
  // Only now: it would fire when the parent that forked this process ends.
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (getppid() != launcher) _exit(worker_contract::ExitCodeOfSignal(SIGKILL));
  Send(channel, {"started", request.ticket, absl::StrCat(getpid())});
  close(channel);
  char go;
  ssize_t got;
  do {
    got = read(request.fds[2], &go, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1) _exit(worker_contract::ExitCodeOfSignal(SIGKILL));
  close(request.fds[2]);
  MoveStream(STDOUT_FILENO, request.fds[0]);
  MoveStream(STDERR_FILENO, request.fds[1]);
  // If output was printed before, stdout was initialized as a file.
  if (isatty(STDOUT_FILENO)) setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  for (const std::string& entry : request.environment) {
    const std::pair<std::string, std::string> change = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    if (absl::StrContains(entry, '=')) {
      setenv(change.first.c_str(), change.second.c_str(), /*overwrite=*/1);
    } else {
      unsetenv(entry.c_str());
    }
  }
  ShowEnvironment();
  pthread_sigmask(SIG_SETMASK, &signals, nullptr);
}

// Forks the workers as children of the launcher, which becomes their parent when the intermediate process has ended.
// Returns the index of the worker that this process has become, or -1 in the server.
int ForkWorkers(const std::vector<Request>& batch, int channel) {
  int gate[2];
  if (pipe2(gate, O_CLOEXEC) != 0) {
    for (const Request& request : batch) Send(channel, {"unforked", request.ticket, strerror(errno)});
    return -1;
  }
  const pid_t between = fork();
  if (between < 0) {
    for (const Request& request : batch) Send(channel, {"unforked", request.ticket, strerror(errno)});
  }
  if (between == 0) {
    for (size_t i = 0; i < batch.size(); ++i) {
      const pid_t forked = fork();
      if (forked < 0) Send(channel, {"unforked", batch[i].ticket, strerror(errno)});
      if (forked != 0) continue;
      close(gate[1]);
      char nothing;
      while (read(gate[0], &nothing, 1) < 0 && errno == EINTR) {
      }
      close(gate[0]);
      return static_cast<int>(i);
    }
    _exit(0);
  }
  close(gate[0]);
  while (between > 0 && waitpid(between, nullptr, 0) < 0 && errno == EINTR) {
  }
  close(gate[1]);
  return -1;
}

[[noreturn]] void EndServer(int channel, const std::vector<std::string>& answer) {
  Send(channel, answer);
  _exit(0);
}

}  // namespace

void WaitToBeForked() {
  const char* const text = getenv(worker_contract::kForkServer);
  int channel = -1;
  if (text == nullptr || !absl::SimpleAtoi(text, &channel) || kMark[0] == '\0') return;
  unsetenv(worker_contract::kForkServer);
  fcntl(channel, F_SETFD, FD_CLOEXEC);
  sigset_t held, signals;
  sigemptyset(&held);
  for (const int signal : kHeldSignals) sigaddset(&held, signal);
  pthread_sigmask(SIG_BLOCK, &held, &signals);

  const Message setup = Receive(channel);
  pid_t launcher = 0;
  if (setup.fields.size() < 2 || !absl::SimpleAtoi(setup.fields[1], &launcher)) _exit(0);
  if (const std::string why = ReasonNotForkable(launcher); !why.empty()) EndServer(channel, {"failed", why});
  Flush();
  const std::map<std::string, Stamp> files = MappedFiles();
  Send(channel, {"ready", absl::StrCat(static_cast<double>(clock()) / CLOCKS_PER_SEC)});

  std::vector<Request> batch;
  while (true) {
    Message message = Receive(channel);
    if (message.fields.empty()) _exit(0);
    if (message.fields[0] == "start" && message.fields.size() >= 3 && message.fds.size() == 3) {
      batch.push_back({message.fields[1],
                       message.fields[2],
                       {message.fields.begin() + 3, message.fields.end()},
                       std::move(message.fds)});
      continue;
    }
    for (const auto& [file, stamp] : files) {
      if (StampOf(file) != stamp) EndServer(channel, {"changed", file});
    }
    const int worker = ForkWorkers(batch, channel);
    for (int i = 0; i < static_cast<int>(batch.size()); ++i) {
      if (i == worker) continue;
      for (const int fd : batch[i].fds) close(fd);
    }
    if (worker >= 0) return BecomeWorker(batch[worker], launcher, channel, signals);
    batch.clear();
  }
}

}  // namespace ddprun
