// For files that include LibTorch. A header here should be one that nearly all of them include, because its templates
// cost each of them instantiation time.
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/nn/module.h>
