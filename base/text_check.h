#ifndef DDPRUN_BASE_TEXT_CHECK_H_
#define DDPRUN_BASE_TEXT_CHECK_H_

#include "absl/strings/string_view.h"

// Checks whether foreign bytes are acceptable as a name that is compared and displayed (text.h makes them so).
namespace ddprun {

bool IsUtf8(absl::string_view bytes);

// True if it contains a control character (C0 with line ends and tabs, DEL, C1) or invalid UTF-8.
bool HasControl(absl::string_view bytes);

}  // namespace ddprun

#endif  // DDPRUN_BASE_TEXT_CHECK_H_
