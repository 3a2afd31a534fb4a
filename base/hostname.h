#ifndef DDPRUN_BASE_HOSTNAME_H_
#define DDPRUN_BASE_HOSTNAME_H_

#include <string>

namespace ddprun {

// Node name from uname; never empty.
std::string Hostname();

}  // namespace ddprun

#endif  // DDPRUN_BASE_HOSTNAME_H_
