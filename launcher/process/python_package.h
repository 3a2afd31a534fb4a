#ifndef DDPRUN_LAUNCHER_PROCESS_PYTHON_PACKAGE_H_
#define DDPRUN_LAUNCHER_PROCESS_PYTHON_PACKAGE_H_

#include <string>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

// Folder of the Python package `ddprun` that was installed with this program: in the CompanionFile ddprun_python of a
// build or prefix, else in the site-packages of the prefix, where pip puts a wheel's. InvalidArgument, with the places,
// if it is in none. Thread-safe.
absl::StatusOr<std::string> PythonPackage();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_PYTHON_PACKAGE_H_
