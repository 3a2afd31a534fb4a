#!/usr/bin/env bash
# Runs a program on simulated GPUs, in a test's runfiles: run.sh PROGRAM [ARGUMENT...]. LD_PRELOAD is set here and not
# in the test's `env`, where it would reach Bazel's own scripts.
set -euo pipefail
FOLDER=$PWD/tests/simgpu
export SIMCUDA_OPS=$FOLDER/aten/libsimops.so
export LD_PRELOAD=$FOLDER/cuda/libcudart.so.13:$FOLDER/cuda/libcuda.so.1:$FOLDER/nccl/libnccl.so.2
export DDPRUN_NCCL_LIBRARY=$PWD/worker_runtime/process_group/nccl_plugin/libddprun_nccl.so
exec "$@"
