#ifndef DDPRUN_TESTS_TESTING_PROCESS_H_
#define DDPRUN_TESTS_TESTING_PROCESS_H_

#include <sys/types.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace ddprun::testing {

// A real program under test, whose output is collected. Thread-compatible; an internal thread reads the output. The
// destructor kills the program with SIGKILL if it is still running.
class Process {
 public:
  // Long enough for a loaded machine; reaching it means that something hangs.
  static constexpr absl::Duration kPatience = absl::Seconds(120);

  // Starts argv[0] (a path) with the test's environment changed by `environment` ("" removes a variable). Standard
  // output and standard error are collected separately.
  Process(std::vector<std::string> argv, std::map<std::string, std::string> environment = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }

  // Waits for the exit and returns the exit code, or 128 + signal; -1 if it is still running after `patience`.
  int Wait(absl::Duration patience = kPatience);

  void Signal(int signal);

  // All output so far.
  std::string Out();
  std::string Err();

  // Waits until the output contains `text`; returns false if the program exits or kPatience passes without it.
  bool WaitForOut(const std::string& text);
  bool WaitForErr(const std::string& text);

 private:
  struct Stream {
    int fd = -1;
    std::string text;
    bool closed = false;
  };

  void ReadAll();
  bool WaitFor(const Stream& stream, const std::string& text);

  pid_t pid_ = -1;
  int exit_ = -1;
  bool reaped_ = false;
  Mutex mutex_;
  CondVar changed_;
  Stream out_;
  Stream err_;
  std::thread reader_;
};

// A temporary directory, which the destructor removes with its contents.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Returns a TCP port on which nothing listens. No other test gets it while this process lives, and it is outside the
// kernel's range of ephemeral ports.
int FreePort();

// True if something listens on this port of 127.0.0.1.
bool CanConnect(int port);

// True if a process with this id runs. A zombie counts as gone.
bool Alive(pid_t pid);

// The whole text of a file; empty if it cannot be read.
std::string ReadFile(const std::string& path);

// Path of the source tree, found through one of the test's data files.
std::string SourceRoot();

// Path of the Python that has the LibTorch of this build, in DDPRUN_PYTHON or .venv; empty if there is none.
std::string VenvPython();

bool WaitUntil(bool (*condition)(void*), void* argument);

// Polls `condition` until it is true; returns false after Process::kPatience.
template <typename Condition>
bool Eventually(Condition condition) {
  return WaitUntil([](void* c) -> bool { return (*static_cast<Condition*>(c))(); }, &condition);
}

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_TESTING_PROCESS_H_
