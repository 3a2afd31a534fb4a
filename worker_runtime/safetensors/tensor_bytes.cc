#include "worker_runtime/safetensors/tensor_bytes.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ddprun {
namespace {

struct TypePair {
  c10::ScalarType type;
  SafetensorsDtype dtype;
};

constexpr TypePair kTypes[] = {
    {c10::ScalarType::Double, SafetensorsDtype::kF64},
    {c10::ScalarType::Float, SafetensorsDtype::kF32},
    {c10::ScalarType::Half, SafetensorsDtype::kF16},
    {c10::ScalarType::BFloat16, SafetensorsDtype::kBF16},
    {c10::ScalarType::Long, SafetensorsDtype::kI64},
    {c10::ScalarType::Int, SafetensorsDtype::kI32},
    {c10::ScalarType::Short, SafetensorsDtype::kI16},
    {c10::ScalarType::Char, SafetensorsDtype::kI8},
    {c10::ScalarType::UInt64, SafetensorsDtype::kU64},
    {c10::ScalarType::UInt32, SafetensorsDtype::kU32},
    {c10::ScalarType::UInt16, SafetensorsDtype::kU16},
    {c10::ScalarType::Byte, SafetensorsDtype::kU8},
    {c10::ScalarType::Bool, SafetensorsDtype::kBool},
    {c10::ScalarType::ComplexFloat, SafetensorsDtype::kC64},
    {c10::ScalarType::Float8_e4m3fn, SafetensorsDtype::kF8E4M3},
    {c10::ScalarType::Float8_e5m2, SafetensorsDtype::kF8E5M2},
    {c10::ScalarType::Float8_e4m3fnuz, SafetensorsDtype::kF8E4M3Fnuz},
    {c10::ScalarType::Float8_e5m2fnuz, SafetensorsDtype::kF8E5M2Fnuz},
    {c10::ScalarType::Float8_e8m0fnu, SafetensorsDtype::kF8E8M0},
};

}  // namespace

std::optional<SafetensorsDtype> ToSafetensorsDtype(c10::ScalarType type) {
  for (const TypePair& pair : kTypes) {
    if (pair.type == type) return pair.dtype;
  }
  return std::nullopt;
}

c10::ScalarType ToScalarType(SafetensorsDtype dtype) {
  for (const TypePair& pair : kTypes) {
    if (pair.dtype == dtype) return pair.type;
  }
  return c10::ScalarType::Undefined;
}

absl::StatusOr<std::vector<SafetensorsTensor>> DescribeTensors(const NamedTensors& tensors) {
  std::vector<SafetensorsTensor> described;
  described.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const auto refuse = [&name = name](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat("tensor \"", OneLine(name, 120), "\" can't be saved: ", why));
    };
    if (!tensor.defined()) return refuse("it is undefined");
    if (tensor.layout() != c10::Layout::Strided) return refuse("it is not dense");
    const std::optional<SafetensorsDtype> dtype = ToSafetensorsDtype(tensor.scalar_type());
    if (!dtype) return refuse(absl::StrCat("safetensors does not support dtype ", c10::toString(tensor.scalar_type())));
    described.push_back({name, *dtype, tensor.sizes().vec(), 0, 0});
  }
  return described;
}

at::Tensor ToHost(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().to(c10::DeviceType::CPU).contiguous();
}

absl::string_view HostBytes(const at::Tensor& host) {
  return absl::string_view(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
}

at::Tensor TensorOnBytes(const SafetensorsTensor& tensor, char* bytes) {
  return at::from_blob(bytes, tensor.shape, at::TensorOptions().dtype(ToScalarType(tensor.dtype)));
}

at::Tensor ReadableTensor(const SafetensorsTensor& tensor, absl::string_view bytes) {
  // Only ever read: LibTorch has no tensors of constant bytes.
  char* const place = const_cast<char*>(bytes.data());
  if (reinterpret_cast<uintptr_t>(place) % SafetensorsDtypeBytes(tensor.dtype) == 0)
    return TensorOnBytes(tensor, place);
  at::Tensor moved = at::empty(tensor.shape, at::TensorOptions().dtype(ToScalarType(tensor.dtype)));
  std::memcpy(moved.mutable_data_ptr(), bytes.data(), bytes.size());
  return moved;
}

absl::Status CheckValues(absl::string_view file, const SafetensorsTensor& tensor, absl::string_view bytes) {
  if (tensor.dtype != SafetensorsDtype::kBool) return absl::OkStatus();
  const bool fine = std::all_of(bytes.begin(), bytes.end(), [](char value) { return value == 0 || value == 1; });
  if (fine) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(file, " is damaged: tensor \"", OneLine(tensor.name, 120),
                                          "\" of dtype BOOL has values that are neither 0 nor 1"));
}

}  // namespace ddprun
