#include "worker_runtime/extras/amp/autocast.h"

#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>

namespace ddprun {

Autocast::Autocast(c10::DeviceType device_type, std::optional<c10::ScalarType> dtype, bool enabled)
    : device_type_(device_type) {
  TORCH_CHECK_VALUE(at::autocast::is_autocast_available(device_type), "Autocast does not support device type ",
                    c10::DeviceTypeName(device_type, /*lower_case=*/true));
  enabled_before_ = at::autocast::is_autocast_enabled(device_type);
  dtype_before_ = at::autocast::get_autocast_dtype(device_type);
  const c10::ScalarType chosen = dtype.value_or(dtype_before_);
  TORCH_CHECK_VALUE(chosen == at::kBFloat16 || chosen == at::kHalf, "Autocast supports BFloat16 and Half, not ",
                    c10::toString(chosen));
  at::autocast::set_autocast_enabled(device_type, enabled);
  at::autocast::set_autocast_dtype(device_type, chosen);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_type_, enabled_before_);
  at::autocast::set_autocast_dtype(device_type_, dtype_before_);
}

}  // namespace ddprun
