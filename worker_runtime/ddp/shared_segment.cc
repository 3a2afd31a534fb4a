#include "worker_runtime/ddp/shared_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/process.h"
#include "base/steady_time.h"

namespace ddprun {
namespace {

constexpr size_t kAlignment = 64;
// Values of RankState::gone.
constexpr uint32_t kHere = 0, kLeft = 1, kGaveUp = 2;
constexpr int kSpins = 2000;
// Maximum delay until the death of a peer, or an error of the caller's check, is noticed.
constexpr absl::Duration kLook = absl::Milliseconds(20);

uint64_t RandomToken() {
  uint64_t token = 0;
  if (getrandom(&token, sizeof(token), 0) != sizeof(token)) token = static_cast<uint64_t>(getpid()) << 32;
  return token;
}

// Start time of the process, in clock ticks since boot; together with its id it identifies a process permanently. 0 if
// there is no such process.
uint64_t StartOfProcess(pid_t pid) {
  const int fd = open(absl::StrCat("/proc/", pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[1024];
  const ssize_t length = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (length <= 0) return 0;
  const absl::string_view stat(text, static_cast<size_t>(length));
  // The name is in parentheses and may contain any character.
  const size_t name_end = stat.rfind(')');
  if (name_end == absl::string_view::npos) return 0;
  const std::vector<absl::string_view> fields = absl::StrSplit(stat.substr(name_end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kState = 0, kStartTime = 19;
  uint64_t start = 0;
  if (fields.size() <= kStartTime || fields[kState] == "Z" || fields[kState] == "X") return 0;
  return absl::SimpleAtoi(fields[kStartTime], &start) ? start : 0;
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void FutexWait(std::atomic<uint32_t>* word, uint32_t value, absl::Duration patience) {
  const timespec time = absl::ToTimespec(patience);
  // Not FUTEX_PRIVATE_FLAG: the other ranks may be other processes. The wait may end early, which callers expect.
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, value, &time, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

// Start of the shared memory; a RankState for each rank and the slots follow.
struct alignas(kAlignment) SharedSegment::Header {
  uint64_t token;
  uint64_t size;
  uint64_t slot_bytes;
  // Counts arrivals; sleeping ranks wait on it.
  std::atomic<uint32_t> arrivals;
  std::atomic<uint32_t> sleepers;
};

struct alignas(kAlignment) SharedSegment::RankState {
  std::atomic<uint32_t> turns;  // barriers that this rank has entered
  std::atomic<uint32_t> gone;
  std::atomic<int64_t> pid;  // 0 until the rank has opened the segment
  std::atomic<uint64_t> started;
};

SharedSegment::SharedSegment(int fd, void* memory, size_t bytes, int rank)
    : fd_(fd), memory_(memory), bytes_(bytes), rank_(rank) {
  state(rank).started.store(StartOfProcess(getpid()));
  state(rank).pid.store(getpid());
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Make(int size, size_t slot_bytes) {
  const size_t bytes = sizeof(Header) + size * (sizeof(RankState) + slot_bytes);
  const int fd = memfd_create("ddprun", MFD_CLOEXEC);
  void* memory = MAP_FAILED;
  // Allocated now: running out of memory later would raise a signal in the middle of a write.
  const bool made = fd >= 0 && posix_fallocate(fd, 0, static_cast<off_t>(bytes)) == 0;
  if (made) memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    if (fd >= 0) close(fd);
    return absl::ResourceExhaustedError(absl::StrCat("can't allocate ", bytes,
                                                     " bytes of shared memory: ", strerror(errno),
                                                     "; raise the container's limit, or use a smaller segment"));
  }
  auto* header = new (memory) Header();
  header->token = RandomToken();
  header->size = static_cast<uint64_t>(size);
  header->slot_bytes = slot_bytes;
  return std::unique_ptr<SharedSegment>(new SharedSegment(fd, memory, bytes, 0));
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Open(absl::string_view address, int rank) {
  const std::vector<std::string> fields = absl::StrSplit(address, '\t');
  uint64_t token = 0;
  if (fields.size() != 4 || !absl::SimpleAtoi(fields[3], &token)) {
    return absl::FailedPreconditionError("invalid address of shared memory");
  }
  const absl::Status elsewhere = absl::FailedPreconditionError(absl::StrCat(
      "rank ", rank, " on host ", Hostname(), " can't reach the shared memory of rank 0 on host ", fields[0],
      "; shared memory requires all ranks on one host, in one container, as one user; use the group's all-reduce"));
  const int fd = open(absl::StrCat("/proc/", fields[1], "/fd/", fields[2]).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return elsewhere;
  struct stat info;
  const bool large_enough = fstat(fd, &info) == 0 && static_cast<size_t>(info.st_size) >= sizeof(Header);
  const size_t bytes = large_enough ? static_cast<size_t>(info.st_size) : 0;
  void* memory = large_enough ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (memory == MAP_FAILED) return elsewhere;
  const auto* header = static_cast<const Header*>(memory);
  // Another namespace may have a process with this id and descriptor, too.
  if (header->token != token || static_cast<uint64_t>(rank) >= header->size) {
    munmap(memory, bytes);
    return elsewhere;
  }
  return std::unique_ptr<SharedSegment>(new SharedSegment(-1, memory, bytes, rank));
}

SharedSegment::~SharedSegment() {
  state(rank_).gone.store(kLeft);
  Wake();
  CloseAddress();
  munmap(memory_, bytes_);
}

std::string SharedSegment::address() const {
  return absl::StrCat(Hostname(), "\t", getpid(), "\t", fd_, "\t", static_cast<Header*>(memory_)->token);
}

void SharedSegment::CloseAddress() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

int SharedSegment::size() const { return static_cast<int>(static_cast<Header*>(memory_)->size); }
size_t SharedSegment::slot_bytes() const { return static_cast<Header*>(memory_)->slot_bytes; }

SharedSegment::RankState& SharedSegment::state(int rank) const {
  auto* const states = reinterpret_cast<RankState*>(static_cast<std::byte*>(memory_) + sizeof(Header));
  return states[rank];
}

std::byte* SharedSegment::slot(int rank) const {
  return static_cast<std::byte*>(memory_) + sizeof(Header) + size() * sizeof(RankState) + rank * slot_bytes();
}

bool SharedSegment::AllArrived(uint32_t turn) const {
  for (int rank = 0; rank < size(); ++rank) {
    // Turns wrap around; no rank is ahead or behind by more than one.
    if (static_cast<int32_t>(state(rank).turns.load(std::memory_order_acquire) - turn) < 0) return false;
  }
  return true;
}

std::vector<int> SharedSegment::Missing(uint32_t turn) const {
  std::vector<int> missing;
  for (int rank = 0; rank < size(); ++rank) {
    if (static_cast<int32_t>(state(rank).turns.load() - turn) < 0) missing.push_back(rank);
  }
  return missing;
}

absl::Status SharedSegment::CheckPeers(uint32_t turn) const {
  const std::vector<int> missing = Missing(turn);
  for (int rank = 0; rank < size(); ++rank) {
    const RankState& peer = state(rank);
    const auto pid = static_cast<pid_t>(peer.pid.load());
    const uint32_t gone = peer.gone.load();
    const char* what = nullptr;
    if (gone == kGaveUp) {
      what = "failed with another error";
    } else if (std::find(missing.begin(), missing.end(), rank) == missing.end()) {
      continue;  // arrived at this barrier; its state since then does not matter
    } else if (gone == kLeft) {
      what = "left";
    } else if (pid != 0 && pid != getpid() && StartOfProcess(pid) != peer.started.load()) {
      what = "is dead";
    }
    if (what == nullptr) continue;
    return absl::UnavailableError(
        absl::StrCat("rank ", rank, " (process ", pid, " on this host ", Hostname(), ") ", what));
  }
  return absl::OkStatus();
}

void SharedSegment::Wake() const {
  auto* const header = static_cast<Header*>(memory_);
  header->arrivals.fetch_add(1);
  if (header->sleepers.load() > 0) FutexWakeAll(&header->arrivals);
}

absl::Status SharedSegment::EnterBarrier(absl::Duration timeout, const Check& check) {
  auto* const header = static_cast<Header*>(memory_);
  const uint32_t turn = ++turn_;
  state(rank_).turns.store(turn, std::memory_order_release);
  Wake();
  for (int spin = 0; spin < kSpins; ++spin) {
    if (AllArrived(turn)) return absl::OkStatus();
    Pause();
  }
  const SteadyTime deadline = SteadyNow() + timeout;
  while (true) {
    // Announced before the check, so that a rank that arrives after the check wakes us.
    header->sleepers.fetch_add(1);
    const uint32_t arrivals = header->arrivals.load();
    const bool all_came = AllArrived(turn);
    if (!all_came) FutexWait(&header->arrivals, arrivals, kLook);
    header->sleepers.fetch_sub(1);
    if (all_came || AllArrived(turn)) return absl::OkStatus();
    absl::Status status = check == nullptr ? absl::OkStatus() : check();
    if (status.ok()) status = CheckPeers(turn);
    if (status.ok() && SteadyNow() >= deadline) {
      status = absl::DeadlineExceededError(absl::StrCat("timed out after ", absl::FormatDuration(timeout),
                                                        " waiting for rank ", absl::StrJoin(Missing(turn), ", ")));
    }
    if (status.ok()) continue;
    // A rank that arrived and has left since then counts as arrived.
    if (AllArrived(turn)) return absl::OkStatus();
    state(rank_).gone.store(kGaveUp);
    Wake();
    return status;
  }
}

}  // namespace ddprun
