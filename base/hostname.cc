#include "base/hostname.h"

#include <sys/utsname.h>

namespace ddprun {

std::string Hostname() {
  utsname name;
  if (uname(&name) != 0 || name.nodename[0] == '\0') return "localhost";
  return name.nodename;
}

}  // namespace ddprun
