#ifndef DDPRUN_DDPRUNCTL_PRELOAD_ANSWER_H_
#define DDPRUN_DDPRUNCTL_PRELOAD_ANSWER_H_

#include <string>

namespace ddprun::ctl {

// Shows ("status") or ends ("stop") the fork servers of this user that --preload-keep keeps on this host. Returns the
// lines to print.
std::string PreloadAnswer(const std::string& action, bool json);

}  // namespace ddprun::ctl

#endif  // DDPRUN_DDPRUNCTL_PRELOAD_ANSWER_H_
