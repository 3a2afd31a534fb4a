#ifndef DDPRUN_BASE_SIGNAL_NAME_H_
#define DDPRUN_BASE_SIGNAL_NAME_H_

#include <string>

namespace ddprun {

// "SIGKILL", "SIGRTMIN+3"; "signal 77" for a number that Linux does not have.
std::string SignalName(int signal);

}  // namespace ddprun

#endif  // DDPRUN_BASE_SIGNAL_NAME_H_
