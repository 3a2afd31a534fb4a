#ifndef DDPRUN_WORKER_RUNTIME_DDP_REDUCER_H_
#define DDPRUN_WORKER_RUNTIME_DDP_REDUCER_H_

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "worker_runtime/ddp/ddp_options.h"

namespace ddprun {

// c10d's Reducer, with access to the internals that DDP needs. Internal to this directory: the header is slow to
// compile.
class Reducer : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  // The current buckets. They are rebuilt once, after the first iteration.
  BucketLayout layout() const {
    BucketLayout layout;
    for (const Bucket& bucket : buckets_) layout.push_back(bucket.variable_indices);
    return layout;
  }

  // True if a backward pass has started and not all of its gradients were reduced.
  bool unfinished() const { return require_finalize_; }

  // True if it reduces the gradients of the next backward pass: from prepare_for_backward until all are reduced.
  bool expects_gradients() const { return expect_autograd_hooks_; }
};

struct ReducerArguments {
  std::vector<at::Tensor> parameters;
  BucketLayout buckets;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::vector<bool> sparse;
  int64_t cap_bytes = 0;
  int64_t first_bytes = 0;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
  std::unordered_map<size_t, std::string> names;
};

// LibTorch versions differ in the constructor's last arguments, which are found from the type itself. A template, so
// that the branches for other versions are not compiled.
template <typename R = Reducer>
std::shared_ptr<R> MakeReducer(ReducerArguments a) {
  using Caps = std::vector<int64_t>;
  const auto make = [&a](auto... more) {
    return std::make_shared<R>(std::move(a.parameters), std::move(a.buckets), std::move(a.group), std::move(a.sparse),
                               a.cap_bytes, a.find_unused_parameters, a.gradient_as_bucket_view, std::move(a.names),
                               a.first_bytes, /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
                               std::move(more)...);
  };
  constexpr auto kTakes = []<typename... More>(std::type_identity<More>...) {
    return std::is_constructible_v<R, std::vector<at::Tensor>, BucketLayout, c10::intrusive_ptr<c10d::ProcessGroup>,
                                   std::vector<bool>, int64_t, bool, bool, std::unordered_map<size_t, std::string>,
                                   int64_t, bool, bool, More...>;
  };
  if constexpr (kTakes(std::type_identity<Caps>(), std::type_identity<bool>())) {
    return make(Caps(), /*batched_grad_copy=*/false);
  } else if constexpr (kTakes(std::type_identity<Caps>())) {
    return make(Caps());
  } else {
    return make();
  }
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_DDP_REDUCER_H_
