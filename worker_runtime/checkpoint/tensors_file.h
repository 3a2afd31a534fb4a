#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_TENSORS_FILE_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_TENSORS_FILE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/safetensors/tensor_bytes.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

// Single safetensors files, compatible with Python's safetensors.torch. Thread-safe, as long as no other thread uses
// the same tensors and modules. Nothing here is collective.
namespace ddprun {

// Like Python's save_file: writes `tensors` to `path`, atomically and with checksums. Any device and strides; tensors
// that share memory are written separately. `metadata`: UTF-8.
// Errors: InvalidArgument names a tensor that the format does not support, or a duplicate name; those of FileSystem.
absl::Status SaveTensors(const NamedTensors& tensors, const std::string& path,
                         const std::map<std::string, std::string>& metadata = {});

struct LoadedTensors {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;
  bool checked = false;  // false: the file has no checksums (written by Python), so damaged tensors are not detected
};

// Like Python's load_file: loads all tensors of a file to `device`, regardless of the device they were saved from. On
// the CPU they are not copied but refer to the mapped file, which stays mapped while any of them exists; writing to
// them does not change the file.
// Errors: NotFound, PermissionDenied, Unavailable: it can't be read; DataLoss: it is damaged. All name file and tensor.
absl::StatusOr<LoadedTensors> LoadTensors(const std::string& path, c10::Device device = c10::DeviceType::CPU);

// Saves the parameters and buffers of `module` under the names of Python's state_dict. Tied tensors are written once,
// under the alphabetically first name; the other names are in the metadata, as with Python's save_model.
// Errors: those of SaveTensors.
absl::Status SaveModule(const torch::nn::Module& module, const std::string& path,
                        const std::map<std::string, std::string>& metadata = {});

// Like Python's load_model: sets all parameters and buffers of `module`, which keep their devices and dtypes.
// Errors: those of LoadTensors; InvalidArgument lists missing keys, unexpected keys and size mismatches, and the module
// is unchanged.
absl::Status LoadModule(const std::string& path, torch::nn::Module& module);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_TENSORS_FILE_H_
