#ifndef DDPRUN_BASE_LOOPBACK_H_
#define DDPRUN_BASE_LOOPBACK_H_

#include "absl/strings/string_view.h"

// Recognizes names and addresses that always mean the host itself. Pure: nothing is looked up.
namespace ddprun {

// True for "localhost", "localhost.localdomain", "x.localhost" (RFC 6761: never sent to a name server), in any case.
bool IsLocalhostName(absl::string_view host);

// True for an address in 127.0.0.0/8, ::1 or ::ffff:127.0.0.0/104, without brackets.
bool IsLoopbackAddress(absl::string_view address);

// True for a localhost name, or a loopback address with or without brackets.
bool IsLoopbackHost(absl::string_view host);

}  // namespace ddprun

#endif  // DDPRUN_BASE_LOOPBACK_H_
