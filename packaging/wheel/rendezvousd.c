/* The wheel's rendezvousd: the program beside it has both commands (programs.cc). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  static const char name[] = "ddprun";
  char path[PATH_MAX + sizeof name];
  const ssize_t size = readlink("/proc/self/exe", path, PATH_MAX);
  (void)argc;
  if (size > 0) {
    path[size] = '\0';
    strcpy(strrchr(path, '/') + 1, name);
    argv[0] = "rendezvousd";
    execv(path, argv);
  }
  fprintf(stderr, "rendezvousd: can't run %s: %s; the wheel installs it beside rendezvousd\n", size > 0 ? path : name,
          strerror(errno));
  return 127;
}
