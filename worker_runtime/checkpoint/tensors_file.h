#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_TENSORS_FILE_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_TENSORS_FILE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_runtime/checkpoint/tensor_bytes.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

// Single safetensors files, as Python's safetensors.torch reads and writes them. Thread-safe, as far as the tensors and
// modules are not used by others meanwhile. No rank talks to another here.
namespace ddprun {

// Python's save_file: writes `tensors` to `path`, atomically and with checksums. Any device and strides; tensors that
// share memory are written once each. `metadata`: UTF-8.
// Errors: InvalidArgument names a tensor that the format can't take, or that is there twice; those of FileSystem.
absl::Status SaveTensors(const NamedTensors& tensors, const std::string& path,
                         const std::map<std::string, std::string>& metadata = {});

struct LoadedTensors {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;
  bool checked = false;  // false: the file has no checksums (Python wrote it), damage inside tensors is not seen
};

// Python's load_file: all tensors of a file, each on `device`, whatever device it was saved from. On the CPU they are
// not copied: they lie in the mapped file, which is kept as long as one of them lives; writing to them does not change
// it.
// Errors: NotFound, PermissionDenied, Unavailable: it can't be read; DataLoss: it is damaged. All name file and tensor.
absl::StatusOr<LoadedTensors> LoadTensors(const std::string& path, c10::Device device = c10::DeviceType::CPU);

// The parameters and buffers of `module` under the names of Python's state_dict. Tied ones are written once, under the
// name that comes first in the alphabet; the other names stand in the metadata, as Python's save_model has it.
// Errors as SaveTensors.
absl::Status SaveModule(const torch::nn::Module& module, const std::string& path,
                        const std::map<std::string, std::string>& metadata = {});

// Python's load_model: sets all parameters and buffers of `module`, on the devices and with the dtypes that they have.
// Errors: those of LoadTensors; InvalidArgument names what is missing in the file, what the module does not have, and
// what has another shape; the module is unchanged then.
absl::Status LoadModule(const std::string& path, torch::nn::Module& module);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_TENSORS_FILE_H_
