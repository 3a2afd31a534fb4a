#ifndef DDPRUN_BASE_STATUS_MACROS_H_
#define DDPRUN_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Macros of functions that return absl::Status or absl::StatusOr, in the style of Abseil's users:
//
//   DDPRUN_RETURN_IF_ERROR(group->Barrier());
//   DDPRUN_ASSIGN_OR_RETURN(auto ddp, ddprun::MakeDistributedDataParallel(model, group));
//   DDPRUN_ASSIGN_OR_RETURN(const double mean, ddprun::LossAveragedOverRanks(loss, *group));
//
// DDPRUN_ASSIGN_OR_RETURN declares a variable, or assigns to one, so it can't be the only statement of an `if`. A
// declaration with a comma outside of parentheses (std::map<int, int> m) needs auto.
#define DDPRUN_RETURN_IF_ERROR(...)                                        \
  do {                                                                     \
    if (absl::Status ddprun_status = (__VA_ARGS__); !ddprun_status.ok()) { \
      return ddprun_status;                                                \
    }                                                                      \
  } while (false)

#define DDPRUN_ASSIGN_OR_RETURN(variable, ...) \
  DDPRUN_ASSIGN_OR_RETURN_(DDPRUN_JOIN_(ddprun_status_or_, __LINE__), variable, (__VA_ARGS__))

#define DDPRUN_ASSIGN_OR_RETURN_(status_or, variable, expression) \
  auto status_or = expression;                                    \
  if (!status_or.ok()) return std::move(status_or).status();      \
  variable = *std::move(status_or)

#define DDPRUN_JOIN_(a, b) DDPRUN_JOIN_INNER_(a, b)
#define DDPRUN_JOIN_INNER_(a, b) a##b

#endif  // DDPRUN_BASE_STATUS_MACROS_H_
