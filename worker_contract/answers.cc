#include "worker_contract/answers.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>

#include "worker_contract/environment.h"
#include "worker_contract/process_copy.h"

// A thread answers. It sleeps until it is asked, blocks all signals, runs no Python code and never takes Python's lock.
// The recorders have locks of their own; stacks are read in a copy of the process. A forked child has no such thread
// and starts its own when it makes a group.
namespace ddprun::worker_contract {
namespace {

constexpr size_t kMaxAnswer = 16 << 20;  // the launcher reads no more
constexpr int kMaxCopySeconds = 2;
constexpr size_t kStackBytes = 512 << 10;

std::atomic<pid_t> served{0};     // the process that has the thread
std::atomic<int> connection{-1};  // its end of the worker link
std::atomic<bool> exiting{false};

void Stop() {
  exiting = true;
  shutdown(connection, SHUT_RDWR);
}

// Also in a forked child: it must not keep the parent's connection open.
void CloseConnection() {
  if (const int inherited = connection.exchange(-1); inherited >= 0) close(inherited);
}

bool SendAll(const void* data, size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = send(connection, next, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    next += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool SendAnswer(const void* data, size_t size) {
  if (size > kMaxAnswer) size = 0;  // a part of it can't be parsed
  const unsigned char length[] = {static_cast<unsigned char>(size), static_cast<unsigned char>(size >> 8),
                                  static_cast<unsigned char>(size >> 16), static_cast<unsigned char>(size >> 24)};
  return SendAll(length, sizeof length) && SendAll(data, size);
}

// ---- flight recorders ----

// Layout of libstdc++'s std::string.
struct StringFields {
  const char* data;
  size_t size;
  union {
    char local[16];
    size_t capacity;
  };
};
void* recorder_library = nullptr;  // the one that is being asked
// A std::string that a function of libtorch has returned: like that, it is returned in memory because of its
// destructor.
struct String : StringFields {
  ~String() {
    if (data == local) return;
    void (*release)(const void*);  // operator delete: the program's, or that of a library that libtorch depends on
    if (!FindSymbol("_ZdlPv", &release)) {
      release = reinterpret_cast<void (*)(const void*)>(dlsym(recorder_library, "_ZdlPv"));
    }
    release(data);
  }
};

struct Recorder {
  const char* library;
  const char* function;  // std::string dump(bool entries, bool active_only [, const std::string& backend])
  const char* backend;
};
constexpr char kDumpOfBackend[] =
    "_ZN4c10d18dump_fr_trace_jsonEbbRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
constexpr Recorder kRecorders[] = {{"libtorch_cpu.so", "_ZN4c10d18dump_fr_trace_jsonB5cxx11Ebb", "gloo"},
                                   {"libtorch_cpu.so", kDumpOfBackend, "gloo"},
                                   {"libtorch_cpu.so", kDumpOfBackend, "nccl2"},
                                   {"libtorch_cuda.so", "_ZN4c10d20dump_nccl_trace_jsonB5cxx11Ebb", "nccl"}};

// The entries of NCCL's recorder query CUDA events. In this thread that must not create a context on another device,
// nor invalidate the capture of a CUDA graph in another thread. False: it might.
bool MayQueryEvents(void* torch_cuda) {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return true;
  const auto count_devices = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  const auto state_of = reinterpret_cast<int (*)(int, unsigned*, int*)>(dlsym(driver, "cuDevicePrimaryCtxGetState"));
  const auto set_device = reinterpret_cast<int (*)(int)>(dlsym(torch_cuda, "cudaSetDevice"));
  const auto set_mode = reinterpret_cast<int (*)(int*)>(dlsym(torch_cuda, "cudaThreadExchangeStreamCaptureMode"));
  dlclose(driver);
  int count = 0;
  if (count_devices == nullptr || state_of == nullptr || count_devices(&count) != 0) return true;  // CUDA is not in use
  for (int device = 0; device < count; ++device) {
    unsigned flags = 0;
    int active = 0;
    if (state_of(device, &flags, &active) != 0 || active == 0) continue;
    int relaxed = 2;  // cudaStreamCaptureModeRelaxed
    return set_device != nullptr && set_mode != nullptr && set_device(device) == 0 && set_mode(&relaxed) == 0;
  }
  return true;
}

struct Buffer {
  ~Buffer() { free(data); }
  void Append(const char* more, size_t length) {
    if (length > kMaxAnswer - size) return;
    char* const grown = static_cast<char*>(realloc(data, size + length));
    if (grown == nullptr) return;
    data = grown;
    memcpy(data + size, more, length);
    size += length;
  }
  char* data = nullptr;
  size_t size = 0;
};

bool AnswerCollectives(bool entries) {
  using Dump = String (*)(bool, bool, const StringFields&);  // an argument that a function does not take is ignored
  Buffer answer;
  for (const Recorder& recorder : kRecorders) {
    void* const library = dlopen(recorder.library, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    const auto dump = reinterpret_cast<Dump>(dlsym(library, recorder.function));
    recorder_library = library;
    try {
      const bool is_cuda = strcmp(recorder.library, "libtorch_cuda.so") == 0;
      if (dump != nullptr && !exiting) {
        const StringFields backend = {recorder.backend, strlen(recorder.backend), {}};
        const String text = dump(entries && (!is_cuda || MayQueryEvents(library)), false, backend);
        answer.Append(text.data, text.size);
        answer.Append("\n", 1);
      }
    } catch (...) {
      // A text that is not UTF-8.
    }
    dlclose(library);
  }
  return SendAnswer(answer.data, answer.size);
}

// ---- stacks, in a copy of the process ----

using Object = void*;

// Takes Python's lock from the thread that holds it, and returns that thread's state; null: none does. Only Python 3.13
// needs this, in which PyThreadState_Swap waits for the lock; its runtime describes its own layout (_Py_DebugOffsets).
Object SeizeLock(Object interpreter) {
  constexpr int kVersion = 0, kFreeThreaded = 1, kLocked = 16, kHolder = 17;  // 8 bytes each, after the cookie
  const char* runtime;
  if (!FindSymbol("_PyRuntime", &runtime) || memcmp(runtime, "xdebugpy", 8) != 0) return nullptr;
  uint64_t fields[kHolder + 1];
  memcpy(fields, runtime + 8, sizeof fields);
  if (fields[kVersion] >> 16 != 0x030d || fields[kFreeThreaded] != 0) return nullptr;
  char* const state = static_cast<char*>(interpreter);
  int& locked = *reinterpret_cast<int*>(state + fields[kLocked]);
  if (locked == 0) return nullptr;
  locked = 0;
  return *reinterpret_cast<Object*>(state + fields[kHolder]);
}

// For versions that do not export faulthandler's function: 3.9, 3.10 and 3.13.
void PrintThreads(int out) {
  Object (*first_interpreter)();
  Object (*first_thread)(Object interpreter);
  Object (*next_thread)(Object thread);
  Object (*current)();
  PythonFrames python;
  if (!FindSymbol("PyInterpreterState_Head", &first_interpreter) ||
      !FindSymbol("PyInterpreterState_ThreadHead", &first_thread) || !FindSymbol("PyThreadState_Next", &next_thread) ||
      !python.FindAll()) {
    return;
  }
  const Object interpreter = first_interpreter();
  const Object holder = FindSymbol("_PyThreadState_UncheckedGet", &current) ? current() : SeizeLock(interpreter);
  for (Object thread = first_thread(interpreter); thread != nullptr; thread = next_thread(thread)) {
    python.make_current(thread);
    dprintf(out, "%s %p (most recent call first):\n", thread == holder ? "Current thread" : "Thread", thread);
    for (Object frame = python.frame_of(thread); frame != nullptr; frame = python.caller_of(frame)) {
      if (!python.PrintLine(out, python.code_of(frame), python.line_of(frame))) break;
    }
    dprintf(out, "\n");
  }
}

bool AnswerStacks() {
  if (dlsym(RTLD_DEFAULT, "Py_IsInitialized") == nullptr) return SendAnswer(nullptr, 0);
  const int file = memfd_create("stacks", MFD_CLOEXEC);
  InCopy(kMaxCopySeconds, [file] {
    const char* (*dump)(int fd, Object interpreter, Object current);
    Object (*current)();
    if (!FindSymbol("_Py_DumpTracebackThreads", &dump)) return PrintThreads(file);
    // Since 3.12 the current thread is the calling one, and the holder of the lock is unknown.
    dump(file, nullptr, FindSymbol("_PyThreadState_UncheckedGet", &current) ? current() : nullptr);
  });
  struct stat status = {};
  const size_t size = fstat(file, &status) == 0 ? static_cast<size_t>(status.st_size) : 0;
  void* const text = size == 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (text == MAP_FAILED) return SendAnswer(nullptr, 0);
  const bool sent = SendAnswer(text, size);
  munmap(text, size);
  return sent;
}

// ---- the thread ----

// Connects to the launcher, if it runs as this process's user. False: there is no launcher that asks.
bool Connect() {
  const char* const link = getenv(kWorkerLink);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (link == nullptr || link[0] != '@' || strlen(link) > sizeof address.sun_path) return false;
  const size_t length = strlen(link);
  memcpy(address.sun_path + 1, link + 1, length - 1);
  connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  ucred peer = {};
  socklen_t peer_size = sizeof peer;
  char probe[80];
  const int probe_size = snprintf(probe, sizeof probe, "{\"type\":\"probe\",\"version\":3,\"pid\":%d}\n", getpid());
  return connection >= 0 && connect(connection, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
         getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) == 0 && peer.uid == geteuid() &&
         SendAll(probe, static_cast<size_t>(probe_size));
}

bool Answer(char question) {
  if (question == 'c' || question == 'e') return AnswerCollectives(question == 'e');
  return question == 't' ? AnswerStacks() : SendAnswer(nullptr, 0);
}

void* Serve(void*) {
  bool connected = Connect();
  while (connected && !exiting) {
    char question;
    const ssize_t got = recv(connection, &question, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    connected = got == 1 && Answer(question);
  }
  CloseConnection();
  return nullptr;
}

}  // namespace

void AnswerQuestions() {
  if (getenv(kWorkerLink) == nullptr) return;
  const pid_t before = served.exchange(getpid());
  if (before == getpid()) return;
  if (before == 0) {
    // The recorders are not asked while the libraries' static objects are being destroyed.
    atexit(Stop);
    pthread_atfork(nullptr, nullptr, CloseConnection);
  }
  sigset_t all, saved;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &saved);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  (void)pthread_create(&thread, &attributes, Serve, nullptr);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &saved, nullptr);
}

}  // namespace ddprun::worker_contract
