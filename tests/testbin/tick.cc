// A worker that records when it runs: `tick FILE GATE [stubborn]` appends the line "ROUND WORLD_SIZE PID NANOSECONDS"
// (of CLOCK_MONOTONIC, which all namespaces share) to FILE every 20 ms until GATE exists; then it exits with 0. A
// stubborn one ignores SIGTERM.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  if (argc > 3 && strcmp(argv[3], "stubborn") == 0) signal(SIGTERM, SIG_IGN);
  const int file = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  const char* round = getenv("DDPRUN_ROUND");
  const char* world = getenv("WORLD_SIZE");
  if (file < 0 || round == nullptr || world == nullptr) return 2;
  while (access(argv[2], F_OK) != 0) {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    char line[128];
    const int length = snprintf(line, sizeof line, "%s %s %d %lld\n", round, world, static_cast<int>(getpid()),
                                static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
    if (write(file, line, length) != length) return 3;
    usleep(20'000);
  }
  return 0;
}
