#pragma once

#include <stdexcept>

namespace gloo {

struct Exception : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct IoException : Exception {
  using Exception::Exception;
};

}  // namespace gloo
