#include "launcher/hang/rank_state.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

using hang::v1::Frame;
using hang::v1::Process;
using hang::v1::Rank;
using Frames = google::protobuf::RepeatedPtrField<Frame>;

// A worker whose processes use this much of a processor, or move this many bytes a second, works.
constexpr double kBusyProcessor = 0.10;
constexpr double kBusyBytes = 64 * 1024;
// A host with more work than processors: ready to run or running for this part of the time.
constexpr double kBusyReady = 0.50;

constexpr int kMaxFrames = 8;  // per stack in a report
constexpr int kMaxTensors = 3;
constexpr size_t kMaxNameBytes = 80;
constexpr size_t kMaxTargetBytes = 160;

template <size_t kSize>
bool ContainsAny(absl::string_view text, const std::array<absl::string_view, kSize>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](absl::string_view part) { return absl::StrContains(text, part); });
}

template <size_t kSize>
bool IsAnyOf(absl::string_view text, const std::array<absl::string_view, kSize>& names) {
  return std::find(names.begin(), names.end(), text) != names.end();
}

constexpr std::array<absl::string_view, 4> kDeviceWaits = {"StreamSynchronize", "EventSynchronize", "DeviceSynchronize",
                                                           "CtxSynchronize"};
constexpr std::array<absl::string_view, 5> kCollectives = {"c10d::", "gloo::", "ncclAllReduce", "ProcessGroupGloo",
                                                           "ProcessGroupNCCL"};
constexpr std::array<absl::string_view, 2> kStore = {"TCPStore", "c10d::PrefixStore"};
constexpr std::array<absl::string_view, 2> kSleeps = {"clock_nanosleep", "nanosleep"};
constexpr std::array<absl::string_view, 2> kSelects = {"select", "pselect6"};
constexpr std::array<absl::string_view, 6> kPolls = {"poll",     "ppoll",      "select",
                                                     "pselect6", "epoll_wait", "epoll_pwait"};
constexpr std::array<absl::string_view, 5> kReads = {"read", "readv", "pread64", "recvfrom", "recvmsg"};
constexpr std::array<absl::string_view, 5> kWrites = {"write", "writev", "pwrite64", "sendto", "sendmsg"};
constexpr std::array<absl::string_view, 2> kFileLocks = {"flock", "fcntl"};
constexpr std::array<absl::string_view, 3> kOnDescriptor = {"fsync", "fdatasync", "ioctl"};
constexpr std::array<absl::string_view, 4> kDebuggerFolders = {"/debugpy/", "/pydevd", "/IPython/", "/ipdb/"};
constexpr std::array<absl::string_view, 3> kDebuggers = {"pdb.py", "bdb.py", "code.py"};
// Beginnings of names in native stacks that are not the user's program: libraries, and namespaces of code that is
// linked into it.
constexpr std::array<absl::string_view, 15> kLibraries = {"ld-linux",  "libasan", "libc.so",   "libc10",   "libcu",
                                                          "libddprun", "libgcc",  "libgomp",   "libm.so",  "libnccl.",
                                                          "libnv",     "libpthr", "libstdc++", "libtorch", "linux-vd"};
constexpr std::array<absl::string_view, 13> kNamespaces = {
    "_start", "absl::",    "at::",  "c10::",   "c10d::",      "caffe2::", "ddprun::",
    "gloo::", "operator ", "std::", "torch::", "__gnu_cxx::", "__libc_"};
constexpr std::array<absl::string_view, 2> kHelpers = {"resource_tracker", "forkserver"};
constexpr std::array<absl::string_view, 3> kQueues = {"queues.py", "connection.py", "_utils/worker.py"};

std::string Clean(absl::string_view bytes, size_t max_bytes = kMaxNameBytes) { return OneLine(bytes, max_bytes); }

double Positive(double value) { return value > 0 && value < 1e12 ? value : 0; }

absl::string_view FileName(absl::string_view path) { return path.substr(path.rfind('/') + 1); }

bool IsPackage(absl::string_view file) {
  return absl::StrContains(file, "/site-packages/") || absl::StrContains(file, "/dist-packages/");
}

bool IsLibrary(absl::string_view file) {
  if (IsPackage(file) || absl::StartsWith(file, "<frozen ") || file == "<string>") return true;
  const size_t at = file.find("/lib/python3");
  return at != absl::string_view::npos && file.find('/', at + 5) != absl::string_view::npos;
}

bool IsDebugger(absl::string_view file) {
  return ContainsAny(file, kDebuggerFolders) || (IsLibrary(file) && IsAnyOf(FileName(file), kDebuggers));
}

bool HasUserCode(const Frames& frames) {
  return std::any_of(frames.begin(), frames.end(), [](const Frame& frame) { return !IsLibrary(frame.file()); });
}

// "train.py:31 in load": the innermost line of the user's program, else of a package that is not PyTorch, else of any.
std::string LineOf(const Frames& frames) {
  const Frame* best = nullptr;
  int best_kind = 3;
  for (const Frame& frame : frames) {
    const absl::string_view file = frame.file();
    const int kind = !IsLibrary(file) ? 0 : IsPackage(file) && !absl::StrContains(file, "/torch/") ? 1 : 2;
    if (kind < best_kind) {
      best = &frame;
      best_kind = kind;
    }
  }
  if (best == nullptr) return "";
  return absl::StrCat(Clean(FileName(best->file())), ":", best->line(), " in ", Clean(best->function()));
}

std::string At(const Frames& frames) {
  const std::string line = LineOf(frames);
  return line.empty() ? "" : absl::StrCat(" at ", line);
}

// Frames of the thread that holds the interpreter's lock, if it is not the main one; else nullptr.
const Frames* LockHolder(const Process& process) {
  for (const auto& thread : process.threads()) {
    if (thread.holds_lock()) return &thread.frames();
  }
  return nullptr;
}

// Stacks of the first two other threads in the user's program, such as autograd's that run a Python backward.
std::vector<const Frames*> UserThreads(const Process& process) {
  std::vector<const Frames*> found;
  for (const auto& thread : process.threads()) {
    if (found.size() < 2 && HasUserCode(thread.frames())) found.push_back(&thread.frames());
  }
  return found;
}

template <size_t kSize>
bool StartsWithAny(absl::string_view text, const std::array<absl::string_view, kSize>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](absl::string_view beginning) { return absl::StartsWith(text, beginning); });
}

// Frame of a native stack: "#3 0x7f04c8 train::Step(at::Tensor const&) (trainer+0x1234)".
struct NativeFrame {
  absl::string_view function;  // empty: unknown
  absl::string_view place;     // "trainer+0x1234"
};

NativeFrame ReadNativeFrame(absl::string_view line) {
  const size_t open = line.rfind('(');
  if (open == line.npos || !absl::ConsumeSuffix(&line, ")")) return {};
  NativeFrame frame{"", line.substr(open + 1)};
  absl::string_view function = line.substr(0, open);
  for (int i = 0; i < 2; ++i) {  // number and address
    const size_t space = function.find(' ');
    if (space == function.npos) return frame;
    function.remove_prefix(space + 1);
  }
  frame.function = absl::StripAsciiWhitespace(function);
  return frame;
}

// Index of the innermost line of the native stack that is in the user's C++ program; the number of lines if there is
// none, or if the process is Python.
int UserLine(const Process& process) {
  const int lines = std::min(process.native_size(), kMaxNativeLines);
  int found = lines;
  for (int i = lines; i-- > 0;) {
    const NativeFrame frame = ReadNativeFrame(process.native(i));
    if (absl::StrContains(frame.place, "python")) return lines;
    const size_t offset = frame.place.rfind("+0x");
    const bool in_program = offset != frame.place.npos && offset > 0 && !StartsWithAny(frame.place, kLibraries);
    if (in_program && !StartsWithAny(frame.function, kNamespaces)) found = i;
  }
  const absl::string_view program = absl::string_view(process.command()).substr(0, process.command().find(' '));
  return process.frames().empty() && !absl::StrContains(FileName(program), "python") ? found : lines;
}

// Lines of the native stack, without those of the user's program and its callers.
std::string Native(const Process& process) {
  return absl::StrJoin(process.native().begin(), process.native().begin() + UserLine(process), "\n");
}

// " at train.py:31 in load", in C++ " in train::Load() (trainer+0x1234)", which addr2line finds; empty: unknown.
std::string At(const Process& process) {
  if (const std::string line = At(process.frames()); !line.empty()) return line;
  const int line = UserLine(process);
  if (line >= std::min(process.native_size(), kMaxNativeLines)) return "";
  const auto [function, place] = ReadNativeFrame(process.native(line));
  if (function.empty()) return absl::StrCat(" at ", Clean(place));
  return absl::StrCat(" in ", Clean(function), " (", Clean(place), ")");
}

// Object of the call in which the main thread waits; descriptors without a name become "a pipe", "a socket".
std::string TargetOf(const Process& process) {
  for (const absl::string_view kind : {"pipe", "socket"}) {
    if (absl::StartsWith(process.target(), absl::StrCat(kind, ":["))) return absl::StrCat("a ", kind);
  }
  return Clean(process.target(), kMaxTargetBytes);
}

// Reason for which a main thread waits.
struct Wait {
  enum class For { kOther, kCollective, kPeer, kDevice, kThread, kInput, kChild };
  For reason = For::kOther;
  std::string text;  // a phrase with a verb
};

Wait WaitOf(const Process& process) {
  using For = Wait::For;
  const absl::string_view state = process.state();
  const absl::string_view call = process.call();
  const std::string target = TargetOf(process);
  const std::string wchan = Clean(process.wchan());
  const std::string native = Native(process);
  const absl::string_view function =
      process.frames().empty() ? absl::string_view() : absl::string_view(process.frames(0).function());
  const bool in_threading = !process.frames().empty() && IsLibrary(process.frames(0).file()) &&
                            FileName(process.frames(0).file()) == "threading.py";

  if (state == "T" || state == "t") {
    return {For::kOther, process.traced() ? "is stopped by a debugger" : "is stopped (SIGSTOP)"};
  }
  if (state == "Z" || state == "X") return {For::kOther, "has exited"};
  // A thread that waits for it wakes up 200 times a second.
  const bool waits_or_wakes = call == "futex" || (state == "R" && call.empty());
  if (waits_or_wakes && LockHolder(process) != nullptr) return {For::kOther, "waits for Python's lock (GIL)"};
  if ((call == "openat" || call == "open") && wchan == "wait_for_partner") {
    return {For::kOther, absl::StrCat("opens the FIFO ", target, ", which no process opens at the other end")};
  }
  if (state == "D") {
    return {For::kOther, absl::StrCat("is stuck in the kernel (", wchan.empty() ? Clean(call) : wchan,
                                      target.empty() ? "" : ", ", target, ")")};
  }
  if (ContainsAny(native, kDeviceWaits)) return {For::kDevice, "waits for its GPU"};
  if (ContainsAny(native, kStore)) return {For::kOther, "waits for a key of the store"};
  if (absl::StrContains(native, "RecvWork")) return {For::kPeer, "waits for another rank to send"};
  if (absl::StrContains(native, "SendWork")) return {For::kPeer, "waits for another rank to receive"};
  if (ContainsAny(native, kCollectives)) return {For::kCollective, "waits in a collective"};
  // A busy machine may leave no time for the native stack.
  if (native.empty() && !process.frames().empty() &&
      absl::EndsWith(process.frames(0).file(), "/torch/distributed/distributed_c10d.py")) {
    if (function == "recv") return {For::kPeer, "waits for another rank to send"};
    if (function == "send") return {For::kPeer, "waits for another rank to receive"};
    if (function == "_new_process_group_helper") return {For::kOther, "waits for the ranks of a new group"};
    return {For::kCollective, "waits in a collective"};
  }
  if (IsAnyOf(call, kSleeps) ||
      (IsAnyOf(call, kSelects) && function != "select" && absl::StrContains(native, "time_sleep"))) {
    return {For::kOther, "sleeps"};
  }
  if (call == "wait4" || call == "waitid") return {For::kChild, "waits for a child process"};
  const std::string object = target.empty() ? "a descriptor" : target;
  if (IsAnyOf(call, kReads)) return {For::kInput, absl::StrCat("reads ", object)};
  if (IsAnyOf(call, kWrites)) return {For::kOther, absl::StrCat("writes to ", object)};
  if (IsAnyOf(call, kFileLocks)) return {For::kOther, absl::StrCat("waits for the lock of ", object)};
  if (call == "connect") return {For::kOther, absl::StrCat("connects to ", object)};
  if (call == "accept" || call == "accept4") return {For::kInput, absl::StrCat("waits for a connection to ", object)};
  if (IsAnyOf(call, kOnDescriptor)) return {For::kOther, absl::StrCat("waits in ", call, " of ", object)};
  if (IsAnyOf(call, kPolls)) {
    return {For::kInput, absl::StrCat("waits for input", target.empty() ? "" : " from ", target)};
  }
  if (call == "futex") {
    if (in_threading && function == "_shutdown") {
      return {For::kThread, "has run to the end of its program and waits for another thread"};
    }
    // Conditions, events and joined threads are locks, too.
    if (in_threading) return {For::kThread, "waits for another thread"};
    if (absl::StrContains(native, "(_multiprocessing.")) return {For::kOther, "waits for a lock of multiprocessing"};
    const bool lock = absl::StrContains(native, "PyThread_acquire_lock") || absl::StrContains(native, "lock_") ||
                      absl::StrContains(native, "pthread_mutex_lock") || absl::StrContains(function, "acquire");
    return lock ? Wait{For::kOther, "waits for a lock"} : Wait{For::kThread, "waits for another thread"};
  }
  if (state == "R") return {For::kOther, "runs"};
  const std::string where = !call.empty() ? Clean(call) : wchan.empty() ? "the kernel" : wchan;
  return {For::kOther, absl::StrCat("waits in ", where)};
}

bool ComputesOrIsStarved(const Rank& rank) {
  // A thread that waits for Python's lock wakes up 200 times a second.
  return Positive(rank.cpu()) >= kBusyProcessor ||
         (Positive(rank.cpu()) + Positive(rank.waited()) >= kBusyReady && LockHolder(rank.process()) == nullptr);
}

double BytesPerSecond(const Rank& rank) { return Positive(rank.io()) + Positive(rank.net()); }

// "; its child 4711 reads /tmp/x at data.py:8 in __getitem__": the first child that may be the cause.
std::string ChildPhrase(const Rank& rank, bool waits_for_child) {
  for (const Process& child : rank.children()) {
    if (ContainsAny(child.command(), kHelpers) || child.ancestor()) continue;
    const Wait wait = WaitOf(child);
    std::string text = absl::StrCat("; its child ", child.pid());
    if (child.frames().empty()) {
      if (!waits_for_child) continue;
      return absl::StrCat(text, " (", Clean(child.command()), ") ", wait.text);
    }
    const bool loads_data = std::any_of(child.frames().begin(), child.frames().end(), [](const Frame& frame) {
      return absl::StrContains(frame.file(), "/multiprocessing/") ||
             absl::StrContains(frame.file(), "/torch/utils/data/");
    });
    const absl::string_view innermost = child.frames(0).file();
    const bool unemployed = !IsAnyOf(child.call(), kWrites) &&
                            std::any_of(kQueues.begin(), kQueues.end(),
                                        [&](absl::string_view end) { return absl::EndsWith(innermost, end); });
    if ((loads_data || waits_for_child) && !unemployed) return absl::StrCat(text, " ", wait.text, At(child.frames()));
  }
  return "";
}

std::string FrameText(const Frame& frame) {
  return absl::StrCat("File \"", Clean(frame.file(), kMaxTargetBytes), "\", line ", frame.line(), " in ",
                      Clean(frame.function()));
}

constexpr absl::string_view kOrder = " (most recent call first):\n";

void AddPythonStacks(absl::string_view owner, const Process& process, std::string* text) {
  const auto add = [&](absl::string_view title, const Frames& frames) {
    if (frames.empty()) return;
    absl::StrAppend(text, owner, title, kOrder);
    for (const Frame& frame : frames) absl::StrAppend(text, "  ", FrameText(frame), "\n");
  };
  add("main thread", process.frames());
  for (const auto& thread : process.threads()) {
    add(thread.holds_lock() ? "thread that holds Python's lock (GIL)" : "thread", thread.frames());
  }
}

std::string SummaryOf(const Process& process) {
  if (process.state().empty()) return "its state is unknown";
  return absl::StrCat(WaitOf(process).text, "; state ", Clean(process.state()));
}

void AddFrames(absl::string_view indent, const Frames& frames, std::vector<std::string>* lines) {
  int added = 0;
  for (int i = 0; i < frames.size() && added < kMaxFrames; ++i) {
    const Frame& frame = frames[i];
    if (i > 0 && IsLibrary(frame.file())) continue;
    ++added;
    lines->push_back(absl::StrCat(indent, FrameText(frame)));
  }
}

}  // namespace

RankState::Activity RankState::activity() const {
  if (ended()) return Activity::kGone;
  if (!rank_->has_process()) return Activity::kUnknown;
  const Process& process = rank_->process();
  const absl::string_view state = process.state();
  // Attached debuggers count only while they hold the process; interactive ones are frames of its stack.
  if (process.traced() && (state == "T" || state == "t")) return Activity::kDebugger;
  for (const Frame& frame : process.frames()) {
    if (IsDebugger(frame.file())) return Activity::kDebugger;
  }
  if (stopped()) return Activity::kIdle;
  const bool busy =
      ComputesOrIsStarved(*rank_) || BytesPerSecond(*rank_) >= kBusyBytes || ContainsAny(Native(process), kDeviceWaits);
  return busy ? Activity::kBusy : Activity::kIdle;
}

RankState::Place RankState::place() const {
  const Process& process = rank_->process();
  if (process.native().empty() || stopped()) return Place::kUnknown;
  switch (WaitOf(process).reason) {
    case Wait::For::kDevice: return Place::kUnknown;
    case Wait::For::kCollective:
    case Wait::For::kPeer: return Place::kInCollective;
    default: return Place::kElsewhere;
  }
}

bool RankState::waits_for_device() const { return WaitOf(rank_->process()).reason == Wait::For::kDevice; }

std::string RankState::Phrase(absl::string_view operation) const {
  if (ended()) return Clean(rank_->ended(), kMaxTargetBytes);
  if (!rank_->has_process()) return "runs; nothing more is known about it";
  const Process& process = rank_->process();
  const Wait wait = WaitOf(process);
  std::string text = wait.text;
  if (activity() == Activity::kBusy) {
    if (ComputesOrIsStarved(*rank_)) {
      text = absl::StrFormat("is busy (%.0f%% of a processor)", 100 * Positive(rank_->cpu()));
    } else if (BytesPerSecond(*rank_) >= kBusyBytes) {
      absl::StrAppendFormat(&text, " and moves data (%.1f MB/s)", BytesPerSecond(*rank_) / 1e6);
    }
  } else if (wait.reason == Wait::For::kCollective && !operation.empty()) {
    text = absl::StrCat("waits in ", operation);
  }
  absl::StrAppend(&text, At(process));
  if (wait.reason == Wait::For::kThread) {
    for (const Frames* frames : UserThreads(process)) absl::StrAppend(&text, "; that may be one", At(*frames));
  }
  if (const Frames* holder = LockHolder(process); holder != nullptr && !holder->empty()) {
    absl::StrAppend(&text, "; the thread that holds it is", At(*holder));
  }
  // subprocess waits for the output of a child before it waits for its end.
  const bool for_child = wait.reason == Wait::For::kChild ||
                         (wait.reason == Wait::For::kInput &&
                          std::any_of(process.frames().begin(), process.frames().end(), [](const Frame& frame) {
                            return absl::EndsWith(frame.file(), "/subprocess.py");
                          }));
  return absl::StrCat(text, ChildPhrase(*rank_, for_child));
}

std::string RankState::Where() const { return At(rank_->process()); }

std::vector<std::string> RankState::StackLines(absl::string_view name) const {
  if (!rank_->has_process()) return {};
  const Process& process = rank_->process();
  const Wait wait = WaitOf(process);
  std::vector<std::string> lines = {absl::StrFormat("  %s, pid %d: %s; state %s, %.0f%% of a processor", name,
                                                    process.pid(), wait.text, Clean(process.state()),
                                                    100 * Positive(rank_->cpu()))};
  AddFrames("    ", process.frames(), &lines);
  for (int i = 0; i < std::min(process.native_size(), kMaxFrames) && process.frames().empty(); ++i) {
    lines.push_back(absl::StrCat("    ", Clean(process.native(i), kMaxTargetBytes)));
  }
  if (wait.reason == Wait::For::kThread) {
    for (const Frames* frames : UserThreads(process)) {
      lines.push_back("    another thread:");
      AddFrames("      ", *frames, &lines);
    }
  }
  if (const Frames* holder = LockHolder(process)) {
    lines.push_back("    the thread that holds Python's lock:");
    AddFrames("      ", *holder, &lines);
  }
  int shown = 0;
  for (const Process& child : rank_->children()) {
    if (child.frames().empty() || ContainsAny(child.command(), kHelpers) || ++shown > 4) continue;
    lines.push_back(absl::StrCat("    child ", child.pid(), ": ", WaitOf(child).text));
    AddFrames("      ", child.frames(), &lines);
  }
  return lines;
}

std::string RankState::Summary() const {
  return rank_->has_process() ? SummaryOf(rank_->process()) : "nothing is known about its process";
}

std::string RankState::PythonStacks() const {
  std::string text;
  AddPythonStacks("", rank_->process(), &text);
  for (const Process& child : rank_->children()) {
    absl::StrAppend(&text, "child ", child.pid(), " (", Clean(child.command()), "): ", SummaryOf(child), "\n");
    AddPythonStacks(absl::StrCat("child ", child.pid(), ", "), child, &text);
  }
  return text;
}

std::string RankState::NativeStack() const {
  std::string text;
  if (!rank_->process().native().empty()) absl::StrAppend(&text, "main thread, native", kOrder);
  for (const std::string& line : rank_->process().native())
    absl::StrAppend(&text, "  ", Clean(line, kMaxTargetBytes), "\n");
  return text;
}

std::string OperationText(const hang::v1::Collective& operation) {
  std::string text = absl::StrCat(Clean(operation.name()), " #", operation.number());
  const int shown = std::min(operation.tensors_size(), kMaxTensors);
  for (int i = 0; i < shown; ++i) {
    absl::StrAppend(&text, i == 0 ? " (" : ", ", Clean(operation.tensors(i)));
  }
  if (operation.tensors_size() > shown) absl::StrAppend(&text, " and ", operation.tensors_size() - shown, " more");
  if (shown > 0) absl::StrAppend(&text, ")");
  return text;
}

bool IsDefaultGroup(absl::string_view name) {
  return absl::ConsumePrefix(&name, kDefaultGroup) && (name.empty() || absl::StartsWith(name, " ("));
}

std::string GroupText(absl::string_view name) {
  if (!IsDefaultGroup(name)) return absl::StrCat("group ", Clean(name));
  absl::ConsumePrefix(&name, kDefaultGroup);
  return absl::StrCat("the default group", name.empty() ? "" : " ", Clean(name));
}

}  // namespace ddprun::launcher
