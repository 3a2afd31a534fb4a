#include "launcher/hang/process_evidence.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/socket_address.h"
#include "base/text.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/proc_files.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMostChildStacks = 4;
constexpr size_t kMostDescribed = 16;    // descendants in the evidence
constexpr size_t kMostDescendants = 64;  // in a sample
constexpr int kMostConnections = 256;
constexpr size_t kMaxCommand = 200;
constexpr size_t kMaxTarget = 300;
constexpr int kMostPolled = 8;
constexpr int kMostReaders = 64;
// The main thread's stack is asked for when /proc was read, or after this time.
constexpr absl::Duration kReadPatience = absl::Milliseconds(500);

// ---- TCP ----

// States in which a connection exists, as bits (the kernel's tcp_states.h): established, SYN-SENT, both FIN-WAIT and
// CLOSE-WAIT.
constexpr uint32_t kStates = 1U << 1 | 1U << 2 | 1U << 4 | 1U << 5 | 1U << 8;

// "10.0.0.5:29500", "[::1]:29500"
std::string EndText(int family, const void* address, uint16_t port) {
  SocketAddress end;
  if (family == AF_INET) {
    auto& in = *reinterpret_cast<sockaddr_in*>(end.get());
    in.sin_family = AF_INET;
    memcpy(&in.sin_addr, address, sizeof in.sin_addr);
    end.size = sizeof in;
  } else {
    auto& in6 = *reinterpret_cast<sockaddr_in6*>(end.get());
    in6.sin6_family = AF_INET6;
    memcpy(&in6.sin6_addr, address, sizeof in6.sin6_addr);
    end.size = sizeof in6;
  }
  const std::string text = AddressText(end);
  return absl::StrContains(text, ':') ? absl::StrCat("[", text, "]:", ntohs(port))
                                      : absl::StrCat(text, ":", ntohs(port));
}

// One message of the answer, without its header.
void ReadTcpMessage(const char* data, size_t size, std::vector<TcpConnection>* connections) {
  inet_diag_msg message;
  if (size < sizeof message) return;
  memcpy(&message, data, sizeof message);
  TcpConnection& found = connections->emplace_back();
  found.inode = message.idiag_inode;
  hang::v1::Connection& evidence = found.evidence;
  evidence.set_own(EndText(message.idiag_family, message.id.idiag_src, message.id.idiag_sport));
  evidence.set_peer(EndText(message.idiag_family, message.id.idiag_dst, message.id.idiag_dport));
  evidence.set_unacknowledged(message.idiag_wqueue);
  for (size_t at = NLMSG_ALIGN(sizeof message); at + sizeof(nlattr) <= size;) {
    nlattr attribute;
    memcpy(&attribute, data + at, sizeof attribute);
    if (attribute.nla_len < sizeof attribute || at + attribute.nla_len > size) return;
    if (attribute.nla_type == INET_DIAG_INFO) {
      tcp_info info{};  // older kernels have less of it
      memcpy(&info, data + at + sizeof attribute, std::min(sizeof info, attribute.nla_len - sizeof attribute));
      evidence.set_backoff(info.tcpi_backoff);
      evidence.set_retransmits(info.tcpi_retransmits);
      evidence.set_silent_ms(info.tcpi_last_data_recv);
      found.bytes = info.tcpi_bytes_acked + info.tcpi_bytes_received;
    }
    at += NLMSG_ALIGN(attribute.nla_len);
  }
}

void ReadTcpFamily(int family, std::vector<TcpConnection>* connections) {
  const UniqueFd netlink(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  const timeval patience = {1, 0};
  setsockopt(netlink.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } question{};
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  question.request.sdiag_family = static_cast<uint8_t>(family);
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.idiag_ext = 1 << (INET_DIAG_INFO - 1);
  question.request.idiag_states = kStates;
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  if (sendto(netlink.get(), &question, sizeof question, 0, reinterpret_cast<sockaddr*>(&kernel), sizeof kernel) < 0) {
    return;
  }
  std::vector<char> buffer(64 << 10);
  while (true) {
    const ssize_t got = recv(netlink.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    for (size_t at = 0; at + sizeof(nlmsghdr) <= static_cast<size_t>(got);) {
      nlmsghdr header;
      memcpy(&header, buffer.data() + at, sizeof header);
      if (header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR || header.nlmsg_len < sizeof header ||
          at + header.nlmsg_len > static_cast<size_t>(got)) {
        return;
      }
      ReadTcpMessage(buffer.data() + at + NLMSG_HDRLEN, header.nlmsg_len - NLMSG_HDRLEN, connections);
      at += NLMSG_ALIGN(header.nlmsg_len);
    }
  }
}

// Target of a symbolic link; empty if it can't be read.
std::string LinkTarget(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t size = readlink(path.c_str(), target, sizeof target);
  return size < 0 ? "" : std::string(target, size);
}

// Number in "socket:[INODE]"; 0: another text.
uint64_t SocketInode(absl::string_view target) {
  uint64_t inode = 0;
  return absl::ConsumePrefix(&target, "socket:[") && absl::ConsumeSuffix(&target, "]") &&
                 absl::SimpleAtoi(target, &inode)
             ? inode
             : 0;
}

std::set<uint64_t> SocketsOf(pid_t pid) {
  std::set<uint64_t> inodes;
  const std::string path = absl::StrCat("/proc/", pid, "/fd");
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  if (folder == nullptr) return inodes;
  while (const dirent* entry = readdir(folder.get())) {
    if (const uint64_t inode = SocketInode(LinkTarget(absl::StrCat(path, "/", entry->d_name)))) inodes.insert(inode);
  }
  return inodes;
}

// ---- system calls ----

enum class Waits { kOnDescriptor, kOnFirstPath, kOnSecondPath, kOnPoll, kOnOther };
struct SystemCall {
  long number;
  const char* name;
  Waits waits;
};
// System calls in which a thread may wait for long. aarch64 lacks some.
constexpr SystemCall kCalls[] = {
    {SYS_read, "read", Waits::kOnDescriptor},
    {SYS_write, "write", Waits::kOnDescriptor},
    {SYS_pread64, "pread64", Waits::kOnDescriptor},
    {SYS_pwrite64, "pwrite64", Waits::kOnDescriptor},
    {SYS_readv, "readv", Waits::kOnDescriptor},
    {SYS_writev, "writev", Waits::kOnDescriptor},
    {SYS_connect, "connect", Waits::kOnDescriptor},
    {SYS_accept, "accept", Waits::kOnDescriptor},
    {SYS_accept4, "accept4", Waits::kOnDescriptor},
    {SYS_sendto, "sendto", Waits::kOnDescriptor},
    {SYS_recvfrom, "recvfrom", Waits::kOnDescriptor},
    {SYS_sendmsg, "sendmsg", Waits::kOnDescriptor},
    {SYS_recvmsg, "recvmsg", Waits::kOnDescriptor},
    {SYS_fcntl, "fcntl", Waits::kOnDescriptor},
    {SYS_flock, "flock", Waits::kOnDescriptor},
    {SYS_fsync, "fsync", Waits::kOnDescriptor},
    {SYS_fdatasync, "fdatasync", Waits::kOnDescriptor},
    {SYS_ftruncate, "ftruncate", Waits::kOnDescriptor},
    {SYS_ioctl, "ioctl", Waits::kOnDescriptor},
    {SYS_getdents64, "getdents64", Waits::kOnDescriptor},
    {SYS_openat, "openat", Waits::kOnSecondPath},
    {SYS_newfstatat, "newfstatat", Waits::kOnSecondPath},
    {SYS_statx, "statx", Waits::kOnSecondPath},
    {SYS_unlinkat, "unlinkat", Waits::kOnSecondPath},
    {SYS_ppoll, "ppoll", Waits::kOnPoll},
    {SYS_pselect6, "pselect6", Waits::kOnOther},
    {SYS_epoll_pwait, "epoll_pwait", Waits::kOnOther},
    {SYS_futex, "futex", Waits::kOnOther},
    {SYS_nanosleep, "nanosleep", Waits::kOnOther},
    {SYS_clock_nanosleep, "clock_nanosleep", Waits::kOnOther},
    {SYS_wait4, "wait4", Waits::kOnOther},
    {SYS_waitid, "waitid", Waits::kOnOther},
    {SYS_mmap, "mmap", Waits::kOnOther},
    {SYS_madvise, "madvise", Waits::kOnOther},
    {SYS_rt_sigsuspend, "rt_sigsuspend", Waits::kOnOther},
    {SYS_rt_sigtimedwait, "rt_sigtimedwait", Waits::kOnOther},
#ifdef SYS_open
    {SYS_open, "open", Waits::kOnFirstPath},
    {SYS_stat, "stat", Waits::kOnFirstPath},
    {SYS_unlink, "unlink", Waits::kOnFirstPath},
    {SYS_rename, "rename", Waits::kOnFirstPath},
    {SYS_poll, "poll", Waits::kOnPoll},
    {SYS_select, "select", Waits::kOnOther},
    {SYS_epoll_wait, "epoll_wait", Waits::kOnOther},
    {SYS_pause, "pause", Waits::kOnOther},
#endif
};

// Bytes of a process's memory, as many of `size` as can be read.
std::string MemoryOf(pid_t pid, uint64_t address, size_t size) {
  const UniqueFd memory(open(absl::StrCat("/proc/", pid, "/mem").c_str(), O_RDONLY | O_CLOEXEC));
  std::string bytes(size, '\0');
  // Up to the end of the page if the next one is not mapped.
  ssize_t got = pread(memory.get(), bytes.data(), size, static_cast<off_t>(address));
  bytes.resize(std::max<ssize_t>(got, 0));
  return bytes;
}

// File, socket or connection of a descriptor of a process.
std::string DescriptorText(pid_t pid, int64_t fd, const std::vector<TcpConnection>& connections) {
  const std::string target = LinkTarget(absl::StrCat("/proc/", pid, "/fd/", fd));
  if (const uint64_t inode = SocketInode(target)) {
    for (const TcpConnection& connection : connections) {
      if (connection.inode == inode) return absl::StrCat("the connection to ", connection.evidence.peer());
    }
  }
  return OneLine(target, kMaxTarget);
}

std::string TargetText(pid_t pid, Waits waits, const std::vector<uint64_t>& arguments,
                       const std::vector<TcpConnection>& connections) {
  const auto path_at = [pid](uint64_t address) {
    const std::string bytes = MemoryOf(pid, address, PATH_MAX);
    return OneLine(bytes.substr(0, bytes.find('\0')), kMaxTarget);
  };
  switch (waits) {
    case Waits::kOnDescriptor: return DescriptorText(pid, static_cast<int32_t>(arguments[0]), connections);
    case Waits::kOnFirstPath: return path_at(arguments[0]);
    case Waits::kOnSecondPath: return path_at(arguments[1]);
    case Waits::kOnOther: return "";
    case Waits::kOnPoll: break;
  }
  if (arguments[1] > kMostPolled) return "";
  const std::string bytes = MemoryOf(pid, arguments[0], arguments[1] * sizeof(pollfd));
  std::vector<std::string> targets;
  for (size_t at = 0; at + sizeof(pollfd) <= bytes.size(); at += sizeof(pollfd)) {
    pollfd polled;
    memcpy(&polled, bytes.data() + at, sizeof polled);
    std::string target = polled.fd < 0 ? "" : DescriptorText(pid, polled.fd, connections);
    if (!target.empty()) targets.push_back(std::move(target));
  }
  return OneLine(absl::StrJoin(targets, ", "), kMaxTarget);
}

// Sets call and target from /proc/PID/syscall: "0 0x5 0x7ffd... ..." or "running".
void ReadSystemCall(pid_t pid, const std::vector<TcpConnection>& connections, hang::v1::Process* process) {
  const std::string text = ReadSmallFile(absl::StrCat("/proc/", pid, "/syscall"));
  const std::vector<absl::string_view> words = absl::StrSplit(absl::StripAsciiWhitespace(text), ' ');
  int64_t number = -1;
  if (words.size() < 7 || !absl::SimpleAtoi(words[0], &number) || number < 0) return;
  const auto call = std::find_if(std::begin(kCalls), std::end(kCalls),
                                 [number](const SystemCall& known) { return known.number == number; });
  if (call == std::end(kCalls)) return process->set_call(absl::StrCat("system call ", number));
  process->set_call(call->name);
  std::vector<uint64_t> arguments;
  for (int i = 1; i <= 6; ++i) {
    if (!absl::SimpleHexAtoi(words[i], &arguments.emplace_back())) return;
  }
  process->set_target(TargetText(pid, call->waits, arguments, connections));
}

}  // namespace

std::vector<TcpConnection> ReadTcpConnections() {
  std::vector<TcpConnection> connections;
  ReadTcpFamily(AF_INET, &connections);
  ReadTcpFamily(AF_INET6, &connections);
  return connections;
}

std::vector<TcpConnection> ConnectionsOf(const std::vector<pid_t>& processes,
                                         const std::vector<TcpConnection>& connections) {
  std::set<uint64_t> inodes;
  for (const pid_t pid : processes) inodes.merge(SocketsOf(pid));
  std::vector<TcpConnection> found;
  std::copy_if(connections.begin(), connections.end(), std::back_inserter(found),
               [&inodes](const TcpConnection& connection) { return inodes.count(connection.inode) != 0; });
  return found;
}

std::optional<hang::v1::Process> ReadProcess(pid_t pid, const std::vector<TcpConnection>& connections) {
  const std::string status = StatusOf(pid);
  if (status.empty()) return std::nullopt;
  hang::v1::Process process;
  process.set_pid(pid);
  process.set_state(StatusField(status, "State").substr(0, 1));
  const std::string tracer = StatusField(status, "TracerPid");
  process.set_traced(!tracer.empty() && tracer != "0");
  const std::string wchan = ReadSmallFile(absl::StrCat("/proc/", pid, "/wchan"));
  if (wchan != "0") process.set_wchan(OneLine(wchan, kMaxTarget));
  ReadSystemCall(pid, connections, &process);
  std::string command = ReadSmallFile(absl::StrCat("/proc/", pid, "/cmdline"));
  std::replace(command.begin(), command.end(), '\0', ' ');
  process.set_command(std::string(absl::StripAsciiWhitespace(command).substr(0, kMaxCommand)));
  return process;
}

// ---- activity ----

ActivitySample SampleActivity(pid_t worker, const std::vector<TcpConnection>& connections) {
  ActivitySample sample;
  sample.at = SteadyNow();
  std::vector<pid_t> pids = DescendantsOf(worker, kMostDescendants);
  pids.insert(pids.begin(), worker);
  for (const pid_t pid : pids) {
    ActivitySample::Process& process = sample.processes[pid];
    process.cpu = CpuTimeOf(pid);
    // "RAN WAITED SLICES", nanoseconds of the main thread.
    const std::string schedule = ReadSmallFile(absl::StrCat("/proc/", pid, "/schedstat"));
    const std::vector<absl::string_view> times = absl::StrSplit(schedule, ' ');
    int64_t waited = 0;
    if (times.size() > 1 && absl::SimpleAtoi(times[1], &waited)) process.waited = absl::Nanoseconds(waited);
    // Also data that was read ahead or is written late. Sockets count if they are used with read() and write().
    const std::string io = ReadSmallFile(absl::StrCat("/proc/", pid, "/io"));
    for (const char* const name : {"rchar", "wchar"}) {
      uint64_t bytes = 0;
      if (absl::SimpleAtoi(StatusField(io, name), &bytes)) process.io += bytes;
    }
  }
  for (const TcpConnection& connection : ConnectionsOf(pids, connections)) {
    sample.sockets[connection.inode] = connection.bytes;
  }
  return sample;
}

void SetActivity(const ActivitySample& before, const ActivitySample& after, hang::v1::Rank* rank) {
  const double seconds = absl::ToDoubleSeconds(after.at - before.at);
  if (!(seconds > 0)) return;
  // Processes and connections that are new have done all of theirs in between.
  absl::Duration cpu, waited;
  double io = 0, net = 0;
  for (const auto& [pid, now] : after.processes) {
    const auto found = before.processes.find(pid);
    const ActivitySample::Process then = found == before.processes.end() ? ActivitySample::Process() : found->second;
    cpu += std::max(absl::ZeroDuration(), now.cpu - then.cpu);
    waited += std::max(absl::ZeroDuration(), now.waited - then.waited);
    if (now.io > then.io) io += static_cast<double>(now.io - then.io);
  }
  for (const auto& [inode, bytes] : after.sockets) {
    const auto then = before.sockets.find(inode);
    const uint64_t earlier = then == before.sockets.end() ? 0 : then->second;
    if (bytes > earlier) net += static_cast<double>(bytes - earlier);
  }
  rank->set_cpu(absl::ToDoubleSeconds(cpu) / seconds);
  rank->set_waited(absl::ToDoubleSeconds(waited) / seconds);
  rank->set_io(io / seconds);
  rank->set_net(net / seconds);
}

// ---- all of it ----

namespace {

// Threads of this launcher that read /proc. One hangs if the kernel does; there must not be more of them each time.
std::atomic<int> readers{0};

}  // namespace

RankEvidence::RankEvidence(EventLoop* loop, int32_t rank, pid_t worker, const std::vector<WorkerProbe*>& probes,
                           std::optional<ActivitySample> before, std::function<void(hang::v1::Rank)> on_done,
                           Parts parts)
    : loop_(loop),
      rank_(rank),
      worker_(worker),
      parts_(parts),
      // Before a question makes a copy of a process.
      descendants_(parts == Parts::kCollectives ? std::vector<pid_t>() : DescendantsOf(worker, kMostDescribed)),
      before_(std::move(before)),
      on_done_(std::move(on_done)),
      deadline_(SteadyNow() + kPatience),
      read_deadline_(SteadyNow() + kReadPatience) {
  const bool own =
      std::any_of(probes.begin(), probes.end(), [worker](auto* probe) { return probe->process() == worker; });
  main_ = own || probes.empty() ? worker : probes[0]->process();
  timer_ = loop_->AddTimer(
      [this] {
        if (done_) return SteadyTime::InfiniteFuture();
        return stack_probes_.empty() && parts_ != Parts::kCollectives ? read_deadline_ : deadline_;
      },
      [this](SteadyTime now) {
        if (now >= deadline_) return Finish();
        AskForMainStacks();
      });
  missing_ = parts == Parts::kCollectives ? 1 : 2;
  for (WorkerProbe* const probe : probes) {
    if (parts != Parts::kStacks) AskForCollectives(probe);
    if (parts != Parts::kCollectives) AskForStacks(probe);
  }
  if (parts == Parts::kCollectives) {
    loop_->Post([this, alive = alive_] {
      if (*alive) OnPartDone();
    });
  } else {
    ReadFromOutside();
  }
}

RankEvidence::~RankEvidence() { *alive_ = false; }

void RankEvidence::ReadFromOutside() {
  if (readers >= kMostReaders) {
    return loop_->Post([this, alive = alive_] {
      if (*alive) OnRead({});
    });
  }
  ++readers;
  reading_ = std::make_unique<BackgroundCall<FromOutside>>(
      loop_,
      [worker = worker_, pids = descendants_]() mutable {
        pids.insert(pids.begin(), worker);
        FromOutside found;
        const std::vector<TcpConnection> connections = ReadTcpConnections();
        for (const pid_t pid : pids) {
          if (std::optional<hang::v1::Process> process = ReadProcess(pid, connections)) {
            found.processes.push_back(*std::move(process));
          }
        }
        found.connections = ConnectionsOf(pids, connections);
        found.activity = SampleActivity(worker, found.connections);
        --readers;
        return found;
      },
      [this](FromOutside found) { OnRead(std::move(found)); });
}

void RankEvidence::OnRead(FromOutside found) {
  from_outside_ = std::move(found);
  AskForMainStacks();
  OnPartDone();
}

void RankEvidence::AskForCollectives(WorkerProbe* probe) {
  ++missing_;
  using Groups = std::vector<hang::v1::Group>;
  const pid_t pid = probe->process();
  probe->Ask(WorkerProbe::Question::kCollectives, [this, alive = alive_, pid](std::optional<std::string> answer) {
    if (!*alive) return;
    if (!answer) return OnPartDone();
    // It may take tens of milliseconds.
    parsing_.push_back(std::make_unique<BackgroundCall<Groups>>(
        loop_, [now = absl::Now(), text = *std::move(answer)] { return ParseCollectives(text, now); },
        [this, pid](Groups groups) {
          groups_[pid] = std::move(groups);
          OnPartDone();
        }));
  });
}

void RankEvidence::AskForStacks(WorkerProbe* probe) {
  ++missing_;
  probe->Ask(WorkerProbe::Question::kStacks,
             [this, alive = alive_, pid = probe->process()](std::optional<std::string> answer) {
               if (!*alive) return;
               if (answer) ParsePythonStacks(*answer, &stacks_[pid]);
               OnPartDone();
             });
}

void RankEvidence::AskForMainStacks() {
  if (!stack_probes_.empty()) return;
  std::vector<pid_t> processes = descendants_;
  processes.insert(processes.begin(), worker_);
  processes.erase(std::remove(processes.begin(), processes.end(), main_), processes.end());
  processes.resize(std::min(processes.size(), kMostChildStacks));
  processes.push_back(main_);
  missing_ += static_cast<int>(processes.size()) - 1;
  // The handler of the signal runs in the main thread: what that does was read before.
  for (const pid_t pid : processes) {
    stack_probes_[pid] = std::make_unique<StackProbe>(
        loop_, pid,
        [this, pid](const std::string& text) {
          main_stacks_[pid] = text;
          OnPartDone();
        },
        StackProbe::Sources::kProcessOnly);
  }
}

void RankEvidence::OnPartDone() {
  if (--missing_ == 0) Finish();
}

void RankEvidence::Finish() {
  if (std::exchange(done_, true)) return;
  hang::v1::Rank rank;
  rank.set_rank(rank_);
  // Answers may tell about a process that could not be looked at.
  std::map<pid_t, hang::v1::Process>& processes = stacks_;
  for (const auto& [pid, text] : main_stacks_) {
    hang::v1::Process main;
    ParseMainStack(text, &main);
    if (main.frames().empty() && main.native().empty()) continue;
    hang::v1::Process& answered = processes[pid];
    if (main.frames_size() > 0) answered.clear_frames();
    answered.MergeFrom(main);
  }
  for (const hang::v1::Process& process : from_outside_ ? from_outside_->processes : std::vector<hang::v1::Process>()) {
    processes[static_cast<pid_t>(process.pid())].MergeFrom(process);
  }
  for (auto& [pid, process] : processes) {
    if (process.ByteSizeLong() == 0) continue;
    process.set_pid(pid);
    process.set_ancestor(pid == worker_ && pid != main_);
    *(pid == main_ ? rank.mutable_process() : rank.add_children()) = std::move(process);
  }
  rank.set_recorded(!groups_.empty());
  for (auto& [pid, groups] : groups_) {
    if (pid != main_ && (groups_.count(main_) != 0 || !rank.groups().empty())) continue;
    for (hang::v1::Group& group : groups) *rank.add_groups() = std::move(group);
  }
  if (from_outside_) {
    for (TcpConnection& connection : from_outside_->connections) {
      if (rank.connections_size() < kMostConnections) *rank.add_connections() = std::move(connection.evidence);
    }
    if (before_) SetActivity(*before_, from_outside_->activity, &rank);
  }
  const auto on_done = on_done_;  // a copy, because it may destroy this object
  on_done(std::move(rank));
}

}  // namespace ddprun::launcher
