#include "worker_contract/crash_report.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "worker_contract/environment.h"
#include "worker_contract/process_copy.h"

namespace ddprun::worker_contract {
namespace {

struct Signal {
  int number;
  const char* name;
  const char* reason;
};
constexpr Signal kFatal[] = {{SIGSEGV, "SIGSEGV", "invalid memory access"},
                             {SIGBUS, "SIGBUS", "invalid memory access"},
                             {SIGILL, "SIGILL", "illegal instruction"},
                             {SIGFPE, "SIGFPE", "arithmetic error"},
                             {SIGABRT, "SIGABRT", "abort() was called"}};
constexpr int kMaxFrames = 1024;
constexpr int kMaxPrinted = 64;
// Limits for folding repeated calls: they are counted instead of printed from kLeastRepeated on.
constexpr int kMaxPeriod = 32;
constexpr int kLeastRepeated = 8;
constexpr int kMaxName = 1024;

Symbolizer symbolize_function = nullptr;
pid_t installed_in = 0;
alignas(16) char stack_of_handler[64 * 1024];  // used by a thread whose own stack has overflowed

// ---- in a copy of the crashed process: any call may be made, and may never return ----

void* InLibrary(const char* library, const char* name) {
  void* const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  return handle == nullptr ? nullptr : dlsym(handle, name);
}

void Demangle(char* name) {
  using Function = char* (*)(const char*, char*, size_t*, int*);
  const auto demangle = reinterpret_cast<Function>(InLibrary("libstdc++.so.6", "__cxa_demangle"));
  if (demangle == nullptr || strncmp(name, "_Z", 2) != 0) return;
  int status = -1;
  const char* const readable = demangle(name, nullptr, nullptr, &status);
  if (status == 0) snprintf(name, kMaxName, "%s", readable);
}

// "#3 0x7f04c8 at::native::add(at::Tensor const&)+0x4c (libtorch_cpu.so+0x1234)"
void PrintFrame(int out, int index, void* pc) {
  // A return address may lie past the end of the calling function.
  const char* const inside = static_cast<char*>(pc) - (index > 0 ? 1 : 0);
  char name[kMaxName] = "";
  Dl_info info = {};
  const bool known = dladdr(inside, &info) != 0;
  if (symbolize_function != nullptr && symbolize_function(inside, name, sizeof name)) {
  } else if (known && info.dli_sname != nullptr) {
    snprintf(name, sizeof name, "%s", info.dli_sname);
    Demangle(name);
  }
  dprintf(out, "  #%d %p", index, pc);
  if (name[0] != '\0') dprintf(out, " %s", name);
  if (known && info.dli_fname != nullptr) {
    const char* const slash = strrchr(info.dli_fname, '/');
    dprintf(out, " (%s+0x%zx)", slash == nullptr ? info.dli_fname : slash + 1,
            static_cast<size_t>(static_cast<char*>(pc) - static_cast<char*>(info.dli_fbase)));
  }
  dprintf(out, "\n");
}

// Prints frames begin .. end - 1, folding recursion. `equal` compares two frames by index.
template <typename Equal, typename Print>
void PrintFolded(int out, int begin, int end, const Equal& equal, const Print& print) {
  int printed = 0;
  for (int i = begin; i < end && printed < kMaxPrinted;) {
    int period = 0, repeated = 0;
    while (repeated < kLeastRepeated && period < kMaxPeriod && period < i - begin) {
      ++period;
      for (repeated = 0; i + repeated < end && equal(i + repeated, i + repeated - period);) ++repeated;
    }
    if (repeated < kLeastRepeated || repeated < period) {
      print(i++);
      ++printed;
    } else {
      dprintf(out, "  ... %d%s more calls like the last %d\n", repeated, i + repeated == kMaxFrames ? " or" : "",
              period);
      i += repeated;
    }
  }
}

void PrintNativeStack(int out, const void* crashed_at) {
  void* frames[kMaxFrames];
  const int count = backtrace(frames, kMaxFrames);
  int first = 0;  // the frames before it are this handler's
  while (first < count && frames[first] != crashed_at) ++first;
  if (first == count) first = 0;  // a jump to nowhere
  dprintf(out, "Native stack (most recent call first):\n");
  PrintFolded(
      out, first, count, [&frames](int a, int b) { return frames[a] == frames[b]; },
      [&](int i) { PrintFrame(out, i - first, frames[i]); });
}

// Uses Python's public functions (3.9 and newer). They require the interpreter's lock, but this copy has no other
// thread.
void PrintPythonStack(int out) {
  using Object = void*;
  int (*is_initialized)();
  int (*has_lock)();
  Object (*this_thread)();
  PythonFrames python;
  if (!FindSymbol("Py_IsInitialized", &is_initialized) || !is_initialized() ||
      !FindSymbol("PyGILState_Check", &has_lock) || !FindSymbol("PyGILState_GetThisThreadState", &this_thread) ||
      !python.FindAll()) {
    return;
  }
  const Object thread = this_thread();
  if (thread == nullptr) return;  // this thread never ran Python
  // A thread that waits in native code has released the lock and is not the current one.
  if (!has_lock()) python.make_current(thread);
  Object frame = python.frame_of(thread);
  if (frame == nullptr) return;
  dprintf(out, "Python stack (most recent call first):\n");
  struct Call {
    Object code;
    int line;
  };
  static Call calls[kMaxFrames];
  int count = 0;
  for (; frame != nullptr && count < kMaxFrames; frame = python.caller_of(frame)) {
    calls[count++] = {python.code_of(frame), python.line_of(frame)};
  }
  PrintFolded(
      out, 0, count, [](int a, int b) { return calls[a].code == calls[b].code && calls[a].line == calls[b].line; },
      [&](int i) { python.PrintLine(out, calls[i].code, calls[i].line); });
}

// ---- in the crashed process: system calls alone ----

// Text builder without the C library's formatting.
class Text {
 public:
  Text& operator<<(const char* text) {
    while (*text != '\0' && size_ + 1 < sizeof text_) text_[size_++] = *text++;
    text_[size_] = '\0';
    return *this;
  }
  Text& Number(uint64_t value, unsigned base) {
    char digits[24];
    char* next = digits + sizeof digits - 1;
    *next = '\0';
    do *--next = "0123456789abcdef"[value % base];
    while ((value /= base) != 0);
    return *this << next;
  }
  const char* c_str() const { return text_; }

 private:
  char text_[1024] = "";
  size_t size_ = 0;
};

void Write(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    data += written;
    size -= static_cast<size_t>(written);
  }
}

// Writes the inside of a JSON string.
void WriteEscaped(int fd, const char* data, size_t size) {
  char buffer[4096];
  size_t used = 0;
  for (size_t i = 0; i < size; ++i) {
    if (used + 6 > sizeof buffer) {
      Write(fd, buffer, used);
      used = 0;
    }
    const auto byte = static_cast<unsigned char>(data[i]);
    if (byte == '\n') {
      buffer[used++] = '\\';
      buffer[used++] = 'n';
    } else if (byte < 0x20) {
      memcpy(buffer + used, "\\u00", 4);
      buffer[used + 4] = "0123456789abcdef"[byte >> 4];
      buffer[used + 5] = "0123456789abcdef"[byte & 15];
      used += 6;
    } else {
      if (byte == '"' || byte == '\\') buffer[used++] = '\\';
      buffer[used++] = static_cast<char>(byte);
    }
  }
  Write(fd, buffer, used);
}

void WriteText(int fd, const char* text) { Write(fd, text, strlen(text)); }

// Writes a form of torchrun's error files that the launcher reads (launcher/report/error_file_format.h).
void WriteErrorFile(int fd, const char* message, int stack) {
  WriteText(fd, R"({"message": {"message": ")");
  WriteEscaped(fd, message, strlen(message));
  WriteText(fd, R"(", "extraInfo": {"py_callstack": ")");
  char buffer[4096];
  off_t offset = 0;
  for (ssize_t got; (got = pread(stack, buffer, sizeof buffer, offset)) > 0; offset += got) {
    WriteEscaped(fd, buffer, static_cast<size_t>(got));
  }
  Text end;
  end << R"(", "timestamp": ")";
  end.Number(static_cast<uint64_t>(time(nullptr)), 10) << "\"}}}\n";
  WriteText(fd, end.c_str());
}

// Opens the error file of this process. Negative: it has none, or has written one already that it keeps, or is not a
// worker.
int OpenErrorFile(bool keeps = true) {
  const char* const path = getenv(kErrorFile);
  // A worker leads a process group; a process that it forked has inherited the handler but leads none.
  if (path == nullptr || *path == '\0' || (getpid() != installed_in && getpid() != getpgrp())) return -1;
  const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  struct stat status = {};
  if (file < 0 || (fstat(file, &status) == 0 && status.st_size == 0)) return file;
  if (!keeps && ftruncate(file, 0) == 0) return file;
  close(file);
  return -1;
}

void Report(const char* message, const void* crashed_at) {
  const int file = OpenErrorFile();
  if (file < 0) return;
  const int stack = memfd_create("stack", MFD_CLOEXEC);
  InCopy(kMaxReportSeconds, [stack] { PrintPythonStack(stack); });
  InCopy(kMaxReportSeconds, [stack, crashed_at] { PrintNativeStack(stack, crashed_at); });
  WriteErrorFile(file, message, stack);
  close(stack);
  close(file);
}

const void* ProgramCounter(const void* context) {
  const mcontext_t& registers = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(registers.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(registers.pc);
#else
  return nullptr;
#endif
}

uintptr_t StackPointer(const void* context) {
  const mcontext_t& registers = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<uintptr_t>(registers.gregs[REG_RSP]);
#elif defined(__aarch64__)
  return registers.sp;
#else
  return 0;
#endif
}

// True if the address lies where the current function's frame would be, which is not mapped.
bool IsStackOverflow(const siginfo_t& info, const void* context) {
  constexpr uintptr_t kBelow = 64 << 10, kLargestFrame = 1 << 20;
  const uintptr_t stack = StackPointer(context), address = reinterpret_cast<uintptr_t>(info.si_addr);
  return stack != 0 && address + kBelow >= stack && address < stack + kLargestFrame;
}

// Cause of the signal, worded to follow "was killed by SIGSEGV: ".
Text Reason(const Signal& fatal, const siginfo_t& info, const void* context) {
  Text text;
  if (info.si_code <= 0 && info.si_pid != getpid()) {
    text << fatal.name << " was sent by process ";
    return text.Number(static_cast<uint64_t>(info.si_pid), 10);
  }
  text << (fatal.number == SIGSEGV && info.si_code > 0 && IsStackOverflow(info, context) ? "stack overflow"
                                                                                         : fatal.reason);
  if (fatal.number != SIGSEGV && fatal.number != SIGBUS) return text;
  if (info.si_code <= 0) return text << ", raised by the process itself";
  text << " at address 0x";
  return text.Number(reinterpret_cast<uintptr_t>(info.si_addr), 16);
}

void OnFatalSignal(int number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  Text message;
  for (const Signal& fatal : kFatal) {
    if (fatal.number == number) message = Reason(fatal, *info, context);
  }
  Report(message.c_str(), ProgramCounter(context));
  errno = saved_errno;
  // The default action is restored (SA_RESETHAND). A fault occurs again when the instruction is repeated, and a core
  // dump then shows where; a signal that was sent has to be sent again.
  if (info->si_code <= 0) raise(number);
}

// Answers the launcher's request for this process's stacks, which names one of the launcher's descriptors to write to.
void OnStackRequest(int, siginfo_t* info, void* context) {
  if (info->si_code != SI_QUEUE || (info->si_uid != getuid() && info->si_uid != 0)) return;
  const int saved_errno = errno;
  Text path;
  path << "/proc/";
  path.Number(static_cast<uint64_t>(info->si_pid), 10) << "/fd/";
  path.Number(static_cast<uint64_t>(info->si_value.sival_int), 10);
  const int out = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  if (out >= 0) {
    const void* const at = ProgramCounter(context);
    InCopy(kMaxReportSeconds, [out] { PrintPythonStack(out); });
    InCopy(kMaxReportSeconds, [out, at] { PrintNativeStack(out, at); });
    close(out);
  }
  errno = saved_errno;
}

}  // namespace

void ReportCrashes(Symbolizer symbolizer) {
  symbolize_function = symbolizer;
  installed_in = getpid();
  // Loads the unwinder now rather than during a crash.
  void* frame = nullptr;
  backtrace(&frame, 1);
  stack_t stack = {};
  if (sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_DISABLE) != 0) {
    stack = {};
    stack.ss_sp = stack_of_handler;
    stack.ss_size = sizeof stack_of_handler;
    sigaltstack(&stack, nullptr);
  }
  for (const Signal& fatal : kFatal) {
    struct sigaction action = {};
    if (sigaction(fatal.number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action = {};
    action.sa_sigaction = OnFatalSignal;
    action.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER | SA_ONSTACK;
    sigaction(fatal.number, &action, nullptr);
  }
  struct sigaction action = {};
  if (sigaction(kStackSignal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action = {};
  action.sa_sigaction = OnStackRequest;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigaction(kStackSignal, &action, nullptr);
}

void WriteCrashReport(const char* message) { Report(message, nullptr); }

void WriteExceptionReport(const char* message, const char* traceback) {
  static bool reported_before = false;
  const int file = OpenErrorFile(/*keeps=*/!reported_before);
  if (file < 0) return;
  const int stack = memfd_create("traceback", MFD_CLOEXEC);
  WriteText(stack, traceback);
  WriteErrorFile(file, message, stack);
  close(stack);
  close(file);
  reported_before = true;
}

}  // namespace ddprun::worker_contract
