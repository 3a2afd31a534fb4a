// A worker with relatives: a child in its process group, a child that leads its own session, one that has an empty
// environment, too ("stranger"), and a daemon whose parent has died. Only SIGKILL ends them. Prints "<kind> <pid>" of
// each and "ready", and waits; `family N` then exits with N.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

void Print(const char* kind, pid_t pid) {
  char line[64];
  const int size = snprintf(line, sizeof(line), "%s %d\n", kind, pid);
  if (write(STDOUT_FILENO, line, size) != size) _exit(98);
}

[[noreturn]] void Outlast() {
  for (int signal = 1; signal <= 31; ++signal) ::signal(signal, SIG_IGN);
  while (true) pause();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) {
    Print("stranger", getpid());
    if (write(atoi(argv[2]), "", 1) != 1) return 93;
    Outlast();
  }
  Print("worker", getpid());
  // Each child reports when it is in place, so that "ready" means that all are.
  int placed[2];
  if (pipe(placed) != 0) return 97;
  for (const std::string_view kind : {"group", "session", "daemon", "stranger"}) {
    const pid_t child = fork();
    if (child == 0) {
      if (kind != "group") setsid();
      if (kind == "daemon" && fork() != 0) _exit(0);
      if (kind == "stranger") {
        std::string fd = std::to_string(placed[1]);
        char* const words[] = {argv[0], argv[0], fd.data(), nullptr};
        char* const nothing[] = {nullptr};
        execve("/proc/self/exe", words, nothing);
        _exit(92);
      }
      Print(kind.data(), getpid());
      if (write(placed[1], "", 1) != 1) _exit(96);
      Outlast();
    }
    char byte;
    if (read(placed[0], &byte, 1) != 1) return 95;
    if (kind == "daemon") waitpid(child, nullptr, 0);
  }
  if (write(STDOUT_FILENO, "ready\n", 6) != 6) return 94;
  if (argc > 1) return atoi(argv[1]);
  while (true) pause();
}
