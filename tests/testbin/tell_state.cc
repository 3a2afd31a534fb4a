// Prints the state it was started with, one item per line, to standard output, or to the descriptor argv[1].
#include <dirent.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

extern char** environ;

namespace {

void PrintSignals(const char* title, bool (*has)(int)) {
  printf("%s:", title);
  for (int signal = 1; signal <= 64; ++signal) {
    if (has(signal)) printf(" %d", signal);
  }
  printf("\n");
}

bool IsBlocked(int signal) {
  sigset_t mask;
  sigprocmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

bool IsIgnored(int signal) {
  struct sigaction action;
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void PrintDescriptors() {
  DIR* folder = opendir("/proc/self/fd");
  printf("fds:");
  while (const dirent* entry = readdir(folder)) {
    const int fd = atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != dirfd(folder)) printf(" %d", fd);
  }
  printf("\n");
  closedir(folder);
}

}  // namespace

int main(int argc, char** argv) {
  PrintDescriptors();
  if (argc > 1) dup2(atoi(argv[1]), STDOUT_FILENO);
  PrintSignals("blocked", IsBlocked);
  PrintSignals("ignored", IsIgnored);
  int death_signal = 0;
  prctl(PR_GET_PDEATHSIG, &death_signal);
  printf("pid: %d\nparent: %d\ngroup: %d\nsession: %d\ndeath signal: %d\n", getpid(), getppid(), getpgrp(), getsid(0),
         death_signal);
  for (int i = 0; i < argc; ++i) printf("argument: %s\n", argv[i]);
  for (char** variable = environ; *variable != nullptr; ++variable) printf("variable: %s\n", *variable);
  return fflush(stdout) == 0 ? 0 : 1;
}
