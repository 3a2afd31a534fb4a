#include "tests/testing/process.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

extern char** environ;

namespace ddprun::testing {
namespace {

std::vector<std::string> Environment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (changes.count(text.substr(0, text.find('='))) == 0) result.push_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (!value.empty()) result.push_back(name + "=" + value);
  }
  return result;
}

std::vector<char*> Pointers(std::vector<std::string>* strings) {
  std::vector<char*> result;
  for (std::string& s : *strings) result.push_back(s.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Process::Process(std::vector<std::string> argv, std::map<std::string, std::string> environment) {
  std::vector<std::string> environment_strings = Environment(environment);
  std::vector<char*> arguments = Pointers(&argv), variables = Pointers(&environment_strings);
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) abort();
  pid_ = fork();
  if (pid_ == 0) {
    dup2(out[1], 1);
    dup2(err[1], 2);
    execve(arguments[0], arguments.data(), variables.data());
    _exit(126);
  }
  close(out[1]);
  close(err[1]);
  out_.fd = out[0];
  err_.fd = err[0];
  reader_ = std::thread([this] { ReadAll(); });
}

Process::~Process() {
  if (!reaped_) {
    kill(pid_, SIGKILL);
    int status;
    waitpid(pid_, &status, 0);
  }
  {
    MutexLock lock(&mutex_);
    // Do not wait for an orphan of the program that still holds the pipes.
    out_.closed = err_.closed = true;
  }
  reader_.join();
  close(out_.fd);
  close(err_.fd);
}

void Process::ReadAll() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (out_.closed && err_.closed) return;
    }
    pollfd fds[2] = {{out_.fd, POLLIN, 0}, {err_.fd, POLLIN, 0}};
    poll(fds, 2, 50);
    Stream* streams[2] = {&out_, &err_};
    for (int i = 0; i < 2; ++i) {
      if (fds[i].revents == 0) continue;
      char buffer[65536];
      const ssize_t got = read(fds[i].fd, buffer, sizeof buffer);
      MutexLock lock(&mutex_);
      if (got > 0) {
        streams[i]->text.append(buffer, got);
      } else {
        streams[i]->closed = true;
      }
      changed_.NotifyAll();
    }
  }
}

int Process::Wait(absl::Duration patience) {
  if (reaped_) return exit_;
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  pollfd poll_fd = {fd, POLLIN, 0};
  const int ready = poll(&poll_fd, 1, static_cast<int>(absl::ToInt64Milliseconds(patience)));
  close(fd);
  if (ready != 1) return -1;
  int status;
  waitpid(pid_, &status, 0);
  reaped_ = true;
  exit_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  // The last output may not have been read yet.
  const SteadyTime deadline = SteadyNow() + absl::Seconds(1);
  MutexLock lock(&mutex_);
  while (!(out_.closed && err_.closed) && SteadyNow() < deadline) changed_.WaitUntil(&mutex_, deadline);
  return exit_;
}

void Process::Signal(int signal) { kill(pid_, signal); }

std::string Process::Out() {
  MutexLock lock(&mutex_);
  return out_.text;
}

std::string Process::Err() {
  MutexLock lock(&mutex_);
  return err_.text;
}

bool Process::WaitFor(const Stream& stream, const std::string& text) {
  const SteadyTime deadline = SteadyNow() + kPatience;
  MutexLock lock(&mutex_);
  while (stream.text.find(text) == std::string::npos) {
    if (stream.closed || SteadyNow() >= deadline) return false;
    changed_.WaitUntil(&mutex_, deadline);
  }
  return true;
}

bool Process::WaitForOut(const std::string& text) { return WaitFor(out_, text); }
bool Process::WaitForErr(const std::string& text) { return WaitFor(err_, text); }

TempDir::TempDir() {
  const char* base = getenv("TEST_TMPDIR");
  std::string pattern = std::string(base != nullptr ? base : "/tmp") + "/dirXXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) abort();
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

int FreePort() {
  // Below the kernel's default range of ephemeral ports, which starts at 32768.
  constexpr int kFirst = 10240, kLast = 32767;
  static std::mt19937 random{std::random_device{}()};
  for (int tries = 0; tries < 10000; ++tries) {
    const int port = std::uniform_int_distribution<int>(kFirst, kLast)(random);
    // An abstract socket name, which the kernel frees with this process, reserves the port.
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    const int length = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "ddprun-test-port-%d", port);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
    const int claim = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (claim < 0) abort();
    if (bind(claim, reinterpret_cast<sockaddr*>(&name), size) == 0) {
      const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<uint16_t>(port));
      const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
      close(fd);
      if (free) return port;  // `claim` stays open
    }
    close(claim);
  }
  abort();
}

bool CanConnect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return connected;
}

bool Alive(pid_t pid) {
  const std::string stat = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && name_end + 2 < stat.size() && stat[name_end + 2] != 'Z' &&
         stat[name_end + 2] != 'X';
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string SourceRoot() {
  // A test's data files are links into the source tree.
  std::error_code error;
  const std::filesystem::path here = std::filesystem::canonical("WORKSPACE", error);
  return error ? "" : here.parent_path().string();
}

std::string VenvPython() {
  const char* const chosen = getenv("DDPRUN_PYTHON");
  const std::string python = chosen != nullptr ? chosen : SourceRoot() + "/.venv/bin/python";
  return access(python.c_str(), X_OK) == 0 ? python : "";
}

bool WaitUntil(bool (*condition)(void*), void* argument) {
  const SteadyTime deadline = SteadyNow() + Process::kPatience;
  while (!condition(argument)) {
    if (SteadyNow() >= deadline) return false;
    poll(nullptr, 0, 2);
  }
  return true;
}

}  // namespace ddprun::testing
