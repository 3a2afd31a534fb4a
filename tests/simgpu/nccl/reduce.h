#ifndef DDPRUN_TESTS_SIMGPU_NCCL_REDUCE_H_
#define DDPRUN_TESTS_SIMGPU_NCCL_REDUCE_H_

#include <nccl.h>
#include <stddef.h>

#include <vector>

namespace simgpu {

size_t ElementSize(int type);

// Reduces `count` elements of each of `from` into `to`, in the order of the ranks, so that every rank computes equal
// bits. 16-bit types are added as floats and rounded once.
void Reduce(char* to, const std::vector<const char*>& from, size_t count, int type, int op);

}  // namespace simgpu

#endif  // DDPRUN_TESTS_SIMGPU_NCCL_REDUCE_H_
