/* Functions of newer C libraries that Debian 12's static libraries and our own code call, for a program that is linked
 * against glibc 2.28. The linker reports functions that are missing here as undefined symbols. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

/* glibc 2.32: true if atomic operations may be omitted. Always false here. */
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

/* glibc 2.36, called by std::random_device. */
__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t number;
  ssize_t size;
  do {
    size = getrandom(&number, sizeof number, 0);
  } while (size < 0 && errno == EINTR);
  if (size != sizeof number) abort();
  return number;
}

/* glibc 2.32 */
__attribute__((visibility("hidden"))) const char* sigabbrev_np(int number) {
  static const char* const names[] = {
      [SIGHUP] = "HUP",   [SIGINT] = "INT",       [SIGQUIT] = "QUIT", [SIGILL] = "ILL",   [SIGTRAP] = "TRAP",
      [SIGABRT] = "ABRT", [SIGBUS] = "BUS",       [SIGFPE] = "FPE",   [SIGKILL] = "KILL", [SIGUSR1] = "USR1",
      [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2",     [SIGPIPE] = "PIPE", [SIGALRM] = "ALRM", [SIGTERM] = "TERM",
      [SIGCHLD] = "CHLD", [SIGSTKFLT] = "STKFLT", [SIGCONT] = "CONT", [SIGSTOP] = "STOP", [SIGTSTP] = "TSTP",
      [SIGTTIN] = "TTIN", [SIGTTOU] = "TTOU",     [SIGURG] = "URG",   [SIGXCPU] = "XCPU", [SIGXFSZ] = "XFSZ",
      [SIGPROF] = "PROF", [SIGVTALRM] = "VTALRM", [SIGPOLL] = "POLL", [SIGPWR] = "PWR",   [SIGWINCH] = "WINCH",
      [SIGSYS] = "SYS",
  };
  if (number < 0 || number >= (int)(sizeof names / sizeof names[0])) return NULL;
  return names[number];
}
