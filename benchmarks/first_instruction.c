/* A worker that records its start: appends "NS PID RANK" to the file named by BENCH_FILE, then waits to be killed.
 * NS is CLOCK_MONOTONIC, which all processes of a machine share. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  const char* rank = getenv("RANK");
  const char* path = getenv("BENCH_FILE");
  const int fd = path != NULL ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
  char line[128];
  const int length = snprintf(line, sizeof line, "%lld %d %s\n", t.tv_sec * 1000000000LL + t.tv_nsec, (int)getpid(),
                              rank != NULL ? rank : "-1");
  if (fd < 0 || write(fd, line, (size_t)length) != length) return 1;
  for (;;) pause();
}
