/* Runs a command and writes "WALL_NS MAXRSS_KB STATUS" to a file: the time from fork to the command's exit, and the
 * largest resident set of the command or of a child that it has waited for.
 *
 * usage: measure FILE COMMAND [ARGUMENT]...
 *
 * Small and static, because Linux includes the memory of the forking process in the child's maximum. */

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long NowNs(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: measure FILE COMMAND [ARGUMENT]...\n");
    return 2;
  }
  FILE* file = fopen(argv[1], "w");
  if (file == NULL) {
    perror(argv[1]);
    return 2;
  }
  const long long began = NowNs();
  const pid_t pid = fork();
  if (pid < 0) {
    perror("fork");
    return 2;
  }
  if (pid == 0) {
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    _exit(127);
  }
  int status = 0;
  struct rusage usage;
  wait4(pid, &status, 0, &usage);
  const long long ended = NowNs();
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  fprintf(file, "%lld %ld %d\n", ended - began, usage.ru_maxrss, code);
  return fclose(file) == 0 ? code : 2;
}
