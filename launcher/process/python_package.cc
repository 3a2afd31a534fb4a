#include "launcher/process/python_package.h"

#include <glob.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "launcher/process/companion_file.h"

namespace ddprun::launcher {

absl::StatusOr<std::string> PythonPackage() {
  absl::StatusOr<std::string> companion = CompanionFile("ddprun_python/ddprun");
  if (companion.ok()) return companion;
  absl::StatusOr<std::string> bin = CompanionFile(".");
  if (!bin.ok()) return bin;
  // "." is the folder of pip install --target.
  for (const char* site :
       {"lib/python3*/site-packages", "lib64/python3*/site-packages", "lib/python3*/dist-packages", "."}) {
    glob_t found = {};
    const std::string package = absl::StrCat(bin->substr(0, bin->rfind("/bin/")), "/", site, "/ddprun");
    const bool any = glob(absl::StrCat(package, "/in_place").c_str(), 0, nullptr, &found) == 0 && found.gl_pathc > 0;
    const std::string folder = any ? found.gl_pathv[0] : "";
    globfree(&found);
    if (any) return folder.substr(0, folder.rfind('/'));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the Python package of ddprun is missing: ", companion.status().message(),
                   ", and no site-packages of that prefix has it; reinstall ddprun"));
}

}  // namespace ddprun::launcher
