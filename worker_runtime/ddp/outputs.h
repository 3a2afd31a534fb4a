#ifndef DDPRUN_WORKER_RUNTIME_DDP_OUTPUTS_H_
#define DDPRUN_WORKER_RUNTIME_DDP_OUTPUTS_H_

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/functional/function_ref.h"

namespace ddprun {

using TensorVisitor = absl::FunctionRef<void(at::Tensor&)>;

namespace outputs_internal {

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

template <typename T>
inline constexpr bool kNever = false;

}  // namespace outputs_internal

// Calls `visit`, which may replace the tensor, with every tensor in the result of a module's forward. Supports tensors,
// optionals, tuples, pairs, ranges (vectors, maps by value) of these, and values without tensors (numbers, strings).
// For your own struct, add a method that visits its tensors:
//
//   struct Output {
//     at::Tensor logits, loss;
//     void VisitTensors(ddprun::TensorVisitor visit) { visit(logits); visit(loss); }
//   };
template <typename T>
void VisitTensors(T& value, TensorVisitor visit) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    visit(value);
  } else if constexpr (requires { value.VisitTensors(visit); }) {
    value.VisitTensors(visit);
  } else if constexpr (outputs_internal::kIsOptional<T>) {
    if (value.has_value()) VisitTensors(*value, visit);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_convertible_v<T, std::string> ||
                       std::is_const_v<T>) {
    // Contains no tensors.
  } else if constexpr (requires { value.begin() != value.end(); }) {
    for (auto& element : value) VisitTensors(element, visit);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([visit](auto&... elements) { (VisitTensors(elements, visit), ...); }, value);
  } else {
    static_assert(outputs_internal::kNever<T>, "give this type a method void VisitTensors(ddprun::TensorVisitor)");
  }
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_OUTPUTS_H_
