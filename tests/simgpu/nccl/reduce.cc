#include "tests/simgpu/nccl/reduce.h"

#include <stdint.h>
#include <string.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <type_traits>

namespace simgpu {
namespace {

template <typename T>
void ReduceAs(char* to, const std::vector<const char*>& from, size_t count, int op) {
  using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
  for (size_t i = 0; i < count; ++i) {
    Wide result{};
    for (size_t r = 0; r < from.size(); ++r) {
      T element;
      memcpy(&element, from[r] + i * sizeof(T), sizeof(T));
      const Wide value = element;
      if (r == 0) {
        result = value;
      } else if (op == ncclProd) {
        result = result * value;
      } else if (op == ncclMax) {
        result = std::max(result, value);
      } else if (op == ncclMin) {
        result = std::min(result, value);
      } else {
        result = result + value;
      }
    }
    if (op == ncclAvg) result = result / static_cast<Wide>(from.size());
    const T element = static_cast<T>(result);
    memcpy(to + i * sizeof(T), &element, sizeof(T));
  }
}

}  // namespace

size_t ElementSize(int type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

void Reduce(char* to, const std::vector<const char*>& from, size_t count, int type, int op) {
  switch (type) {
    case ncclInt8: return ReduceAs<int8_t>(to, from, count, op);
    case ncclUint8: return ReduceAs<uint8_t>(to, from, count, op);
    case ncclInt32: return ReduceAs<int32_t>(to, from, count, op);
    case ncclUint32: return ReduceAs<uint32_t>(to, from, count, op);
    case ncclInt64: return ReduceAs<int64_t>(to, from, count, op);
    case ncclUint64: return ReduceAs<uint64_t>(to, from, count, op);
    case ncclFloat16: return ReduceAs<c10::Half>(to, from, count, op);
    case ncclBfloat16: return ReduceAs<c10::BFloat16>(to, from, count, op);
    case ncclFloat32: return ReduceAs<float>(to, from, count, op);
    case ncclFloat64: return ReduceAs<double>(to, from, count, op);
    default: memset(to, 0xff, count * ElementSize(type));  // NaN: 8-bit floats are not simulated
  }
}

}  // namespace simgpu
