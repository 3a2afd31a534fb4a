#ifndef DDPRUN_BASE_WRITE_ALL_H_
#define DDPRUN_BASE_WRITE_ALL_H_

#include "absl/strings/string_view.h"

namespace ddprun {

// Writes all of `bytes`, in as many calls as that takes. Blocks, also if another process made the shared file
// non-blocking. Returns 0 or an errno.
int WriteAll(int fd, absl::string_view bytes);

}  // namespace ddprun

#endif  // DDPRUN_BASE_WRITE_ALL_H_
