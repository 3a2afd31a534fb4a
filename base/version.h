#ifndef DDPRUN_BASE_VERSION_H_
#define DDPRUN_BASE_VERSION_H_

namespace ddprun {

// Version of all programs in this repository.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace ddprun

#endif  // DDPRUN_BASE_VERSION_H_
