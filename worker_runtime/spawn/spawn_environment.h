#ifndef DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_ENVIRONMENT_H_
#define DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_ENVIRONMENT_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun {

// The environment variable that identifies a program executed by Spawn; its value is a SpawnMark.
inline constexpr char kSpawnVariable[] = "DDPRUN_SPAWN";

struct SpawnMark {
  int call = 0;       // number of the Spawn call in the program, from 1
  pid_t parent = 0;   // the process that waits in that call
  int error_fd = -1;  // the descriptor of the error file

  std::string Text() const;
  // nullopt: not written by Spawn.
  static std::optional<SpawnMark> FromText(absl::string_view text);

  friend bool operator==(const SpawnMark&, const SpawnMark&) = default;
};

// Path of the error file with this descriptor; only the worker itself can open it.
std::string ErrorFileOf(int error_fd);

struct SpawnedWorker {
  int rank = 0;
  int nprocs = 1;
  int store_port = 0;  // on 127.0.0.1
  SpawnMark mark;
};

// Returns a worker's environment ("NAME=value" each): `parents` without variables of other launchers, and with those of
// worker_contract/environment.h. Pure.
std::vector<std::string> EnvironmentOf(const SpawnedWorker& worker, const std::vector<std::string>& parents);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_SPAWN_SPAWN_ENVIRONMENT_H_
