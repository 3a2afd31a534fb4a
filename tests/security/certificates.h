#ifndef DDPRUN_TESTS_SECURITY_CERTIFICATES_H_
#define DDPRUN_TESTS_SECURITY_CERTIFICATES_H_

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ddprun::testing {

// Creates a folder whose name begins with `name`.
std::string NewFolder(const std::string& name);
void WriteFile(const std::string& path, const std::string& text);
// Replaces the file by a FIFO: opening it for reading blocks, as on a file system that stalls.
void StallReaders(const std::string& path);

// Signs certificates for tests (P-256, PEM). Its files in the folder are NAME.crt, NAME.key, and ca.crt.
class TestCa {
 public:
  explicit TestCa(const std::string& folder);
  ~TestCa();

  std::string ca() const { return folder_ + "/ca.crt"; }
  std::string cert(const std::string& name) const { return folder_ + "/" + name + ".crt"; }
  std::string key(const std::string& name) const { return folder_ + "/" + name + ".key"; }

  // `names` in OpenSSL's form: "DNS:node1,IP:127.0.0.1". Valid from one hour before `until` or now, if that is earlier.
  void Issue(const std::string& name, const std::string& names, absl::Time until = absl::Now() + absl::Hours(24));

 private:
  struct Impl;
  const std::string folder_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SECURITY_CERTIFICATES_H_
