// libddprun_crash.so: makes a Python worker that crashes in native code, or ends with an uncaught exception, leave an
// error file with its stack. The launcher preloads this library into workers that run Python. C++ programs call
// worker_contract/crash_report themselves.
//
// It also keeps a Python worker from hanging in pthread_join (see below), and answers the launcher's questions about
// one that hangs (worker_contract/answers.h).
//
// In Python the library removes itself from LD_PRELOAD, so that the worker's environment and its child processes are as
// without it. Only the Pythons that multiprocessing starts (torch.multiprocessing.spawn) are given it again: they
// answer questions too, but report no crashes. In other programs, such as scripts that choose a Python, it does
// nothing.
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <initializer_list>

#include "worker_contract/answers.h"
#include "worker_contract/crash_report.h"
#include "worker_contract/process_copy.h"

namespace ddprun::launcher {
namespace {

using Object = void*;
using worker_contract::FindSymbol;

// The interpreter raises the first event before it calls sys.excepthook, with (hook, type, exception, traceback); the
// fork server raises the second one, with the last three, because it calls sys.excepthook itself.
constexpr char kInterpreterEvent[] = "sys.excepthook";
constexpr char kForkServerEvent[] = "ddprun.uncaught_exception";
// The interpreter is about to free its hooks.
constexpr char kHooksEndEvent[] = "cpython._PySys_ClearAuditHooks";

// Sets `message` and `stack`. The message has the form of torch's @record. The stack is first made without modules, in
// case that they can't be imported now. They come from the standard library and by its own importers, because a file
// beside the script may have the name of one (tokenize.py), and neither it nor an importer of the script must run now.
// The launcher reads at most 1 MiB; a character takes at most 7 bytes of JSON.
constexpr char kFormat[] = R"(
import sys

def encode(text):
    if len(text) > 65536:
        text = f"{text[:32768]}\n... {len(text) - 65536} characters not shown ...\n{text[-32768:]}"
    return text.encode("utf-8", "backslashreplace").replace(b"\0", b"\\0")

line = type.__dict__["__name__"].__get__(kind)
try:
    text = str(error)
except BaseException:
    text = "<exception str() failed>"
if text:
    line = f"{line}: {text}"
message = encode(line[:16384])

frames, at = ["Traceback (most recent call last):\n"] if trace else [], trace
while at:
    code = at.tb_frame.f_code
    frames.append(f'  File "{code.co_filename}", line {at.tb_lineno}, in {code.co_name}\n')
    at = at.tb_next
stack = encode("".join(frames) + line)

path, importers = sys.path, sys.meta_path
library = sys.modules["encodings"].__path__[0].rpartition("/")[0]
try:
    from _frozen_importlib import BuiltinImporter, FrozenImporter
    from _frozen_importlib_external import PathFinder
    sys.path = [library, f"{library}/lib-dynload"]
    sys.meta_path = [BuiltinImporter, FrozenImporter, PathFinder]
    import ast, linecache, tokenize, traceback
finally:
    sys.path, sys.meta_path = path, importers
stack = encode("".join(traceback.format_exception(kind, error, trace)))
)";
constexpr int kStatements = 257;  // Py_file_input

// Public functions and an object of the interpreter, which require its lock.
struct Python {
  Object (*current_frame)();
  Object (*builtins)();
  Object (*new_dict)();
  int (*set_item)(Object dict, const char* name, Object value);
  Object (*item)(Object dict, const char* name);      // borrowed
  Object (*tuple_item)(Object tuple, ssize_t index);  // borrowed
  Object (*run)(const char* source, int kind, Object globals, Object locals);
  char* (*bytes_of)(Object bytes);
  const char* (*class_name)(Object type);
  int (*matches)(Object type, Object base);
  void (*release)(Object object);
  void (*clear_error)();
  Object* keyboard_interrupt;

  bool FindAll() {
    return FindSymbol("PyEval_GetFrame", &current_frame) && FindSymbol("PyEval_GetBuiltins", &builtins) &&
           FindSymbol("PyDict_New", &new_dict) && FindSymbol("PyDict_SetItemString", &set_item) &&
           FindSymbol("PyDict_GetItemString", &item) && FindSymbol("PyTuple_GetItem", &tuple_item) &&
           FindSymbol("PyRun_String", &run) && FindSymbol("PyBytes_AsString", &bytes_of) &&
           FindSymbol("PyExceptionClass_Name", &class_name) && FindSymbol("PyErr_GivenExceptionMatches", &matches) &&
           FindSymbol("Py_DecRef", &release) && FindSymbol("PyErr_Clear", &clear_error) &&
           FindSymbol("PyExc_KeyboardInterrupt", &keyboard_interrupt);
  }
};
Python python;

const char* Text(Object globals, const char* name, const char* otherwise) {
  const Object bytes = python.item(globals, name);
  const char* const text = bytes == nullptr ? nullptr : python.bytes_of(bytes);
  return text == nullptr ? otherwise : text;
}

// Makes room for the files that a report needs in a process that has used up its descriptors.
class MoreDescriptors {
 public:
  MoreDescriptors() {
    getrlimit(RLIMIT_NOFILE, &limit_);
    const rlimit highest = {limit_.rlim_max, limit_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &highest);
  }
  ~MoreDescriptors() { setrlimit(RLIMIT_NOFILE, &limit_); }

 private:
  rlimit limit_ = {};
};

// `arguments`: the type, the exception and its traceback from index `first` on.
void Report(Object arguments, ssize_t first) {
  const Object type = python.tuple_item(arguments, first);
  if (type == nullptr || python.matches(type, *python.keyboard_interrupt)) return python.clear_error();
  const MoreDescriptors more_descriptors;
  const Object globals = python.new_dict();
  if (globals == nullptr) return python.clear_error();
  python.set_item(globals, "__builtins__", python.builtins());
  python.set_item(globals, "kind", type);
  python.set_item(globals, "error", python.tuple_item(arguments, first + 1));
  python.set_item(globals, "trace", python.tuple_item(arguments, first + 2));
  if (const Object none = python.run(kFormat, kStatements, globals, globals)) python.release(none);
  python.clear_error();
  // Without memory the type alone is known.
  worker_contract::WriteExceptionReport(Text(globals, "message", python.class_name(type)), Text(globals, "stack", ""));
  python.clear_error();
  python.release(globals);
}

// Python's PyMemAllocatorEx.
struct Allocator {
  void* context;
  void* (*allocate)(void* context, size_t size);
  void* (*allocate_zeros)(void* context, size_t count, size_t size);
  void* (*resize)(void* context, void* memory, size_t size);
  void (*release)(void* context, void* memory);
};
constexpr int kRaw = 0;  // PYMEM_DOMAIN_RAW

// Python frees its hook when it ends, with the allocator that it uses then. That of its development mode and of
// PYTHONMALLOC=debug can't free what was allocated before Python started, and the process would crash. So the hook is
// freed by the allocator that it came from.
void (*get_allocator)(int domain, Allocator* allocator) = nullptr;
void (*set_allocator)(int domain, Allocator* allocator) = nullptr;
Allocator before_start;
Allocator at_end;
void* hook_memory = nullptr;

void* AllocateHook(void* context, size_t size) { return hook_memory = before_start.allocate(context, size); }

void Release(void* context, void* memory) {
  if (memory == nullptr || memory != hook_memory) return at_end.release(context, memory);
  hook_memory = nullptr;
  before_start.release(before_start.context, memory);
}

int OnAuditEvent(const char* event, Object arguments, void*) {
  static bool ended = false;  // the exception that ends the process was reported
  if (strcmp(event, kForkServerEvent) == 0) {
    Report(arguments, 0);
    ended = true;
  } else if (strcmp(event, kInterpreterEvent) == 0) {
    // Native code that prints an exception runs in a thread of its own, or was called by Python code. If it was called
    // by a program that embeds Python, the report is replaced should another exception end the process.
    if (!ended && gettid() == getpid() && python.current_frame() == nullptr) Report(arguments, 1);
  } else if (strcmp(event, kHooksEndEvent) == 0 && at_end.release == nullptr) {
    get_allocator(kRaw, &at_end);
    Allocator releasing = at_end;
    releasing.release = Release;
    if (at_end.release != before_start.release) set_allocator(kRaw, &releasing);
  }
  return 0;
}

// After this call, an exception that ends this Python process writes an error file with type, message and traceback, as
// torch's @record does, before Python prints it. KeyboardInterrupt and SystemExit write none. Nor do exceptions that do
// not end the process: those of threads, and those that native code prints.
//
// An audit hook of the interpreter, which Python 3.8 and newer have; older ones run without. Call before Python starts.
void ReportUncaughtExceptions() {
  int (*add_hook)(int (*)(const char*, Object, void*), void*);
  if (!python.FindAll() || !FindSymbol("PySys_AddAuditHook", &add_hook) ||
      !FindSymbol("PyMem_GetAllocator", &get_allocator) || !FindSymbol("PyMem_SetAllocator", &set_allocator)) {
    return;
  }
  get_allocator(kRaw, &before_start);
  Allocator remembering = before_start;
  remembering.allocate = AllocateHook;
  set_allocator(kRaw, &remembering);
  add_hook(OnAuditEvent, nullptr);
  set_allocator(kRaw, &before_start);
}

}  // namespace
}  // namespace ddprun::launcher

namespace {

constexpr char kPreload[] = "LD_PRELOAD=";
constexpr char kName[] = "libddprun_crash.so";
constexpr long kShortJoinNanoseconds = 100'000'000;
// Beginnings of the names of PyTorch's threads that exist only with a process group. Not all backends name theirs
// (nccl2 of 2.15 does not).
constexpr const char* kGroupThreads[] = {"pt_gloo_", "pt_nccl_"};

// In place, so that nothing is allocated before the program starts.
void LeavePreload() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (strncmp(*entry, kPreload, sizeof kPreload - 1) != 0) continue;
    char* const list = *entry + sizeof kPreload - 1;
    char* library = list;
    size_t size = strcspn(library, ":");
    // It may follow a sanitizer's library.
    while (size < sizeof kName - 1 || strncmp(library + size - (sizeof kName - 1), kName, sizeof kName - 1) != 0) {
      if (library[size] == '\0') return;
      library += size + 1;
      size = strcspn(library, ":");
    }
    if (library[size] == ':') {
      memmove(library, library + size + 1, strlen(library + size + 1) + 1);
    } else if (library != list) {
      library[-1] = '\0';
    } else {
      do *entry = entry[1];
      while (*entry++ != nullptr);
    }
    return;
  }
}

char own_path[PATH_MAX] = "";  // this library; empty: unknown, or another program than Python

// True for the arguments with which multiprocessing's methods spawn and forkserver start Python.
bool IsMultiprocessing(char* const argv[]) {
  for (; argv[0] != nullptr && argv[1] != nullptr; ++argv) {
    if (strcmp(argv[0], "-c") != 0) continue;
    for (const char* const start : {"from multiprocessing.spawn import ", "from multiprocessing.forkserver import "}) {
      if (strncmp(argv[1], start, strlen(start)) == 0) return true;
    }
    return false;
  }
  return false;
}

// Python state of the calling thread if it holds the interpreter's lock, else null. PyGILState_Check is not sufficient:
// it is always true before Python starts, and in a process with subinterpreters.
void* LockedThread() {
  using Get = void* (*)();
  Get current = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "PyThreadState_GetUnchecked"));  // Python 3.13
  if (current == nullptr) current = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "_PyThreadState_UncheckedGet"));
  const Get own = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  if (current == nullptr || own == nullptr) return nullptr;
  void* const thread = current();
  return thread == own() ? thread : nullptr;
}

// The C library passes the program's arguments.
__attribute__((constructor)) void Load(int, char** argv, char**) {
  if (dlsym(RTLD_DEFAULT, "Py_IsInitialized") == nullptr) return;
  LeavePreload();
  Dl_info info = {};
  if (dladdr(own_path, &info) != 0 && info.dli_fname[0] == '/' && strlen(info.dli_fname) < sizeof own_path) {
    strcpy(own_path, info.dli_fname);
  }
  if (IsMultiprocessing(argv)) return;
  ddprun::worker_contract::ReportCrashes(nullptr);
  ddprun::launcher::ReportUncaughtExceptions();
}

}  // namespace

// Replaces the C library's pthread_join. A thread that joins another one while it holds the interpreter's lock waits
// forever if the other needs the lock to end. PyTorch does so: when DistributedDataParallel's reducer is freed, it may
// be the last owner of a ProcessGroupGloo, whose destructor joins a thread that frees the tensors of the last
// collective. So a join that takes long releases the lock meanwhile. A short one keeps it, since its caller may rely on
// that.
extern "C" __attribute__((visibility("default"))) int pthread_join(pthread_t thread, void** result) {
  const auto next = reinterpret_cast<int (*)(pthread_t, void**)>(dlsym(RTLD_NEXT, "pthread_join"));
  if (LockedThread() == nullptr) return next(thread, result);
  timespec until = {};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += kShortJoinNanoseconds;
  if (until.tv_nsec >= 1'000'000'000) {
    until.tv_nsec -= 1'000'000'000;
    ++until.tv_sec;
  }
  using TimedJoin = int (*)(pthread_t, void**, const timespec*);
  const int error = reinterpret_cast<TimedJoin>(dlsym(RTLD_NEXT, "pthread_timedjoin_np"))(thread, result, &until);
  if (error != ETIMEDOUT) return error;
  const auto unlock = reinterpret_cast<void* (*)()>(dlsym(RTLD_DEFAULT, "PyEval_SaveThread"));
  const auto lock = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "PyEval_RestoreThread"));
  void* const locked = unlock();
  const int joined = next(thread, result);
  lock(locked);
  return joined;
}

// Replaces the C library's execv, which multiprocessing calls in a new child, to preload this library into the same
// Python once more. The child may share its parent's memory (vfork): nothing but its stack is written.
extern "C" __attribute__((visibility("default"))) int execv(const char* path, char* const argv[]) noexcept {
  constexpr size_t kMostVariables = 4096;
  struct stat own = {}, started = {};
  size_t count = 0;
  while (environ[count] != nullptr) ++count;
  if (own_path[0] == '\0' || count > kMostVariables || !IsMultiprocessing(argv) || stat("/proc/self/exe", &own) != 0 ||
      stat(path, &started) != 0 || own.st_dev != started.st_dev || own.st_ino != started.st_ino) {
    return execve(path, argv, environ);
  }
  char preload[2 * PATH_MAX];
  char* variables[kMostVariables + 2];
  size_t used = 0;
  const char* others = nullptr;
  for (size_t i = 0; i < count; ++i) {
    if (strncmp(environ[i], kPreload, sizeof kPreload - 1) == 0) {
      others = environ[i] + sizeof kPreload - 1;
    } else {
      variables[used++] = environ[i];
    }
  }
  const int size = snprintf(preload, sizeof preload, "%s%s%s%s", kPreload, own_path, others == nullptr ? "" : ":",
                            others == nullptr ? "" : others);
  if (size < 0 || static_cast<size_t>(size) >= sizeof preload) return execve(path, argv, environ);
  variables[used++] = preload;
  variables[used] = nullptr;
  return execve(path, argv, variables);
}

// Replaces the C library's function to notice process groups: PyTorch names the first thread of one. Before that the
// process keeps the threads it has, and a Python process without a group never has the thread that answers.
extern "C" __attribute__((visibility("default"))) int pthread_setname_np(pthread_t thread, const char* name) noexcept {
  const auto next = reinterpret_cast<int (*)(pthread_t, const char*)>(dlsym(RTLD_NEXT, "pthread_setname_np"));
  for (const char* const group_thread : kGroupThreads) {
    if (strncmp(name, group_thread, strlen(group_thread)) == 0 && dlsym(RTLD_DEFAULT, "Py_IsInitialized") != nullptr) {
      ddprun::worker_contract::AnswerQuestions();
    }
  }
  return next(thread, name);
}

// Replaces the C library's connect to notice process groups whose threads have no names: each connects to the job's
// store first.
extern "C" __attribute__((visibility("default"))) int connect(int fd, const sockaddr* address, socklen_t size) {
  // Once: a forked child may call it while the loader's lock is held.
  static int (*next)(int, const sockaddr*, socklen_t) = nullptr;
  if (next == nullptr) next = reinterpret_cast<decltype(next)>(dlsym(RTLD_NEXT, "connect"));
  const int result = next(fd, address, size);
  const int error = errno;
  // Both families have the port in the same place.
  if (size >= sizeof(sockaddr_in) && (address->sa_family == AF_INET || address->sa_family == AF_INET6)) {
    const char* const store = getenv("MASTER_PORT");
    const int port = ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port);
    if (store != nullptr && port == atoi(store) && dlsym(RTLD_DEFAULT, "Py_IsInitialized") != nullptr) {
      ddprun::worker_contract::AnswerQuestions();
    }
  }
  errno = error;
  return result;
}
