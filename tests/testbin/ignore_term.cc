// Ignores SIGTERM, prints "ready" and waits for SIGKILL.
#include <unistd.h>

#include <csignal>

int main() {
  signal(SIGTERM, SIG_IGN);
  if (write(STDOUT_FILENO, "ready\n", 6) != 6) return 1;
  while (true) pause();
}
