#ifndef DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_ENVIRONMENT_H_
#define DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_ENVIRONMENT_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun {

// The environment variable by which a program knows that Spawn executed it, and its content.
inline constexpr char kSpawnVariable[] = "DDPRUN_SPAWN";

struct SpawnMark {
  int call = 0;       // which of the program's calls of Spawn it is for: 1 is the first
  pid_t parent = 0;   // the process that waits in that call
  int error_fd = -1;  // the descriptor of the error file

  std::string Text() const;
  // nullopt: Spawn did not write this.
  static std::optional<SpawnMark> FromText(absl::string_view text);

  friend bool operator==(const SpawnMark&, const SpawnMark&) = default;
};

// The error file of a worker that has this descriptor, by a name that only the worker itself can open.
std::string ErrorFileOf(int error_fd);

struct SpawnedWorker {
  int rank = 0;
  int nprocs = 1;
  int store_port = 0;  // on 127.0.0.1
  SpawnMark mark;
};

// A worker's environment ("NAME=value" each): `parents` without what another launcher may have left there, and with
// what worker_contract/environment.h asks for. Pure.
std::vector<std::string> EnvironmentOf(const SpawnedWorker& worker, const std::vector<std::string>& parents);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_ENVIRONMENT_H_
