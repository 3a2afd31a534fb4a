#ifndef DDPRUN_RENDEZVOUS_CORE_NATURAL_ORDER_H_
#define DDPRUN_RENDEZVOUS_CORE_NATURAL_ORDER_H_

#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// Compares names with runs of decimal digits as numbers: node7 < node66 < node066b. Returns a negative value, 0 or a
// positive value if `a` is less than, equal to or greater than `b`. A total order: names that differ only in leading
// zeros are ordered by their bytes.
int NaturalCompare(absl::string_view a, absl::string_view b);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_NATURAL_ORDER_H_
