#ifndef DDPRUN_TESTS_HOSTS_NAMESPACES_H_
#define DDPRUN_TESTS_HOSTS_NAMESPACES_H_

#include <string>

namespace ddprun::testing {

// Set by the main() of tests with hosts: why they are not in namespaces of their own; empty if they are. A test program
// that uses it gets that main() instead of gtest_main's.
extern std::string namespaces_error;

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_HOSTS_NAMESPACES_H_
