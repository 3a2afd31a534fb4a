#ifndef DDPRUN_RENDEZVOUS_CORE_NATURAL_ORDER_H_
#define DDPRUN_RENDEZVOUS_CORE_NATURAL_ORDER_H_

#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// Negative, 0 or positive as `a` comes before, is equal to, or comes after `b` where runs of decimal digits count as
// numbers of any length: node7 < node66 < node066b. A total order: names that differ only in leading zeros
// are ordered by their bytes.
int NaturalCompare(absl::string_view a, absl::string_view b);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_NATURAL_ORDER_H_
