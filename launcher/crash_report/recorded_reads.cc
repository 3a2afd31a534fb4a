#include "launcher/crash_report/recorded_reads.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/crash_report/audit_hook.h"
#include "launcher/crash_report/find_symbol.h"

namespace {

using Object = void*;

constexpr char kSwitch[] = "DDPRUN_RECORD_READS";
constexpr char kNoRecord[] = "X no record";
constexpr char kOverflow[] = "X more reads than can be recorded";
// Actions of Python whose result no later process can repeat, or that depend on the whole environment.
constexpr const char* kActions[] = {"os.exec",          "os.fork",         "os.forkpty",     "os.posix_spawn",
                                    "os.system",        "socket.bind",     "socket.connect", "subprocess.Popen",
                                    "tempfile.mkdtemp", "tempfile.mkstemp"};

char record[1 << 20];  // not touched unless it is used
size_t size = 0;
volatile bool recording = false;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
char* (*next_getenv)(const char*) = nullptr;
char* (*next_secure_getenv)(const char*) = nullptr;

Object (*tuple_item)(Object tuple, ssize_t index) = nullptr;  // borrowed
const char* (*utf8_of)(Object text) = nullptr;
long (*long_of)(Object number) = nullptr;
void (*clear_error)() = nullptr;

void Add(char kind, const char* text) {
  const size_t length = strlen(text);
  pthread_mutex_lock(&mutex);
  if (size + length + 3 + sizeof kOverflow > sizeof record) {
    memcpy(record + size, kOverflow, sizeof kOverflow);
    size += sizeof kOverflow;
    recording = false;
  } else {
    record[size] = kind;
    record[size + 1] = ' ';
    memcpy(record + size + 2, text, length + 1);
    size += length + 3;
  }
  pthread_mutex_unlock(&mutex);
}

// Where the C library's function is not known yet.
char* Find(const char* name) {
  const size_t length = strlen(name);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  }
  return nullptr;
}

int OnAuditEvent(const char* event, Object arguments) {
  if (!recording) return 0;
  const bool opens = strcmp(event, "open") == 0;
  if (opens || strcmp(event, "os.listdir") == 0 || strcmp(event, "os.scandir") == 0) {
    const Object path = tuple_item(arguments, 0);
    const char* const text = path == nullptr ? nullptr : utf8_of(path);
    const Object flags = opens ? tuple_item(arguments, 2) : nullptr;
    const long mode = flags == nullptr ? O_RDONLY : long_of(flags);
    clear_error();
    // A file that is written is a result. Descriptors have no path; a folder may be None, the working folder.
    if (text != nullptr && (mode & O_ACCMODE) == O_RDONLY) Add(opens ? 'F' : 'D', text);
    if (text == nullptr && !opens) Add('D', ".");
    return 0;
  }
  for (const char* const action : kActions) {
    if (strcmp(event, action) == 0) Add('X', action);
  }
  return 0;
}

}  // namespace

namespace ddprun::launcher {

void RecordReads() {
  next_getenv = reinterpret_cast<char* (*)(const char*)>(dlsym(RTLD_NEXT, "getenv"));
  next_secure_getenv = reinterpret_cast<char* (*)(const char*)>(dlsym(RTLD_NEXT, "secure_getenv"));
  if (Find(kSwitch) == nullptr) return;
  unsetenv(kSwitch);
  if (!FindSymbol("PyTuple_GetItem", &tuple_item) || !FindSymbol("PyUnicode_AsUTF8", &utf8_of) ||
      !FindSymbol("PyLong_AsLong", &long_of) || !FindSymbol("PyErr_Clear", &clear_error)) {
    return;
  }
  recording = AddAuditHook(OnAuditEvent);
}

}  // namespace ddprun::launcher

// Replace the C library's functions. It and the dynamic loader read some variables by other ways: LD_*, LANG, LC_*,
// MALLOC_*, GLIBC_TUNABLES.
extern "C" __attribute__((visibility("default"))) char* getenv(const char* name) {
  if (recording) Add('E', name);
  return next_getenv == nullptr ? Find(name) : next_getenv(name);
}

extern "C" __attribute__((visibility("default"))) char* secure_getenv(const char* name) {
  if (recording) Add('E', name);
  return next_secure_getenv == nullptr ? nullptr : next_secure_getenv(name);
}

size_t ddprun_recorded_reads(const char** text) {
  if (size == 0) {
    *text = kNoRecord;
    return sizeof kNoRecord;
  }
  recording = false;
  *text = record;
  return size;
}

void ddprun_record_reads(bool on) {
  if (size > 0) recording = on;
}
