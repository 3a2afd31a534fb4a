#ifndef DDPRUN_BASE_RANDOM_ID_H_
#define DDPRUN_BASE_RANDOM_ID_H_

#include <string>

namespace ddprun {

// Returns a new random name of 32 lower-case hexadecimal digits (128 bits from the kernel). Thread-safe.
std::string RandomId();

}  // namespace ddprun

#endif  // DDPRUN_BASE_RANDOM_ID_H_
