// For files that see LibTorch. A header here must be one that nearly all of them include, for what it leaves to be
// instantiated costs each of them time.
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/nn/module.h>
