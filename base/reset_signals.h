#ifndef DDPRUN_BASE_RESET_SIGNALS_H_
#define DDPRUN_BASE_RESET_SIGNALS_H_

#include <pthread.h>
#include <signal.h>

namespace ddprun {

// Restores the default action of every signal and unblocks all of them: a program inherits both from its parent, and
// with SIGCHLD ignored no child's exit status can be read, with SIGTERM blocked the program can't be stopped. SIGHUP,
// SIGINT and SIGQUIT stay ignored, because nohup and shells (for background jobs) ignore them on purpose. Call first in
// main.
inline void ResetSignals() {
  for (int number = 1; number < NSIG; ++number) {
    if (number == SIGHUP || number == SIGINT || number == SIGQUIT) continue;
    struct sigaction action;
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace ddprun

#endif  // DDPRUN_BASE_RESET_SIGNALS_H_
