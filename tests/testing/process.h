#ifndef DDPRUN_TESTS_TESTING_PROCESS_H_
#define DDPRUN_TESTS_TESTING_PROCESS_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace ddprun::testing {

// A real program under test, with what it prints collected. Thread-compatible, but for the reading of its output,
// which a thread of its own does. The destructor kills it with SIGKILL if it still runs.
class Process {
 public:
  // Long enough for a loaded machine; reaching it means that something hangs.
  static constexpr absl::Duration kPatience = absl::Seconds(120);

  // Starts argv[0] (a path) with the test's environment changed by `environment` ("" removes a name). Standard
  // output and standard error are collected apart.
  Process(std::vector<std::string> argv, std::map<std::string, std::string> environment = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }

  // Waits for the end and returns the exit code, or 128 + signal; -1 if it has not ended after `patience`.
  int Wait(absl::Duration patience = kPatience);

  void Signal(int signal);

  // All that was printed so far.
  std::string Out();
  std::string Err();

  // Waits until the output holds `text`; false if it ended or kPatience passed without it.
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

// Names of files in a folder that is removed with everything in it at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A TCP port on which nothing listens. No other test gets it while this process lives, and the kernel gives it to
// nobody.
int FreePort();

// Whether something listens on this port of 127.0.0.1.
bool CanConnect(int port);

// Whether a process of this id runs. A dead one that nobody has reaped yet counts as gone.
bool Alive(pid_t pid);

// The whole text of a file; empty if it can't be read.
std::string ReadFile(const std::string& path);

// Where the source tree lies, found from a file among the test's data.
std::string SourceRoot();

// The Python of the project's virtual environment; empty if it has none.
std::string VenvPython();

bool WaitUntil(bool (*condition)(void*), void* argument);

// Polls `condition` until it holds; false after Process::kPatience.
template <typename Condition>
bool Eventually(Condition condition) {
  return WaitUntil([](void* c) -> bool { return (*static_cast<Condition*>(c))(); }, &condition);
}

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_TESTING_PROCESS_H_
