/* The wheel's rendezvousd and, with another COMMAND, ddprunctl: runs the program in the same folder, which contains all
 * commands (programs.cc). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef COMMAND
#define COMMAND "rendezvousd"
#endif

int main(int argc, char** argv) {
  static const char name[] = "ddprun";
  char path[PATH_MAX + sizeof name];
  const ssize_t size = readlink("/proc/self/exe", path, PATH_MAX);
  (void)argc;
  if (size > 0) {
    path[size] = '\0';
    strcpy(strrchr(path, '/') + 1, name);
    argv[0] = COMMAND;
    execv(path, argv);
  }
  fprintf(stderr, COMMAND ": can't run %s: %s; the wheel installs it beside " COMMAND "\n", size > 0 ? path : name,
          strerror(errno));
  return 127;
}
