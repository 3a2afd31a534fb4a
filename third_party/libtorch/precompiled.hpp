// What is compiled once for all files that see LibTorch: see precompiled.bzl. A header here must be one that nearly all
// of them include, for it takes about half a minute to read.
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/nn/module.h>
