#ifndef DDPRUN_BASE_TEXT_CHECK_H_
#define DDPRUN_BASE_TEXT_CHECK_H_

#include "absl/strings/string_view.h"

// Whether foreign bytes may be a name that is compared and shown (text.h has what makes them fit).
namespace ddprun {

bool IsUtf8(absl::string_view bytes);

// Whether there is a control character (C0 with line ends and tabs, DEL, C1) in it, or what is not UTF-8.
bool HasControl(absl::string_view bytes);

}  // namespace ddprun

#endif  // DDPRUN_BASE_TEXT_CHECK_H_
