// A worker with relatives: a child in its process group, a child that leads its own session, and a daemon whose parent
// has died. Only SIGKILL ends them. Prints "<kind> <pid>" of each and "ready", and waits; `family N` then exits with N.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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
  Print("worker", getpid());
  // Each child reports when it is in place, so that "ready" means that all are.
  int placed[2];
  if (pipe(placed) != 0) return 97;
  for (const char* kind : {"group", "session", "daemon"}) {
    const pid_t child = fork();
    if (child == 0) {
      if (strcmp(kind, "group") != 0) setsid();
      if (strcmp(kind, "daemon") == 0 && fork() != 0) _exit(0);
      Print(kind, getpid());
      if (write(placed[1], "", 1) != 1) _exit(96);
      Outlast();
    }
    char byte;
    if (read(placed[0], &byte, 1) != 1) return 95;
    if (strcmp(kind, "daemon") == 0) waitpid(child, nullptr, 0);
  }
  if (write(STDOUT_FILENO, "ready\n", 6) != 6) return 94;
  if (argc > 1) return atoi(argv[1]);
  while (true) pause();
}
