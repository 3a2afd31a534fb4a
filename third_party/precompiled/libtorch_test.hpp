// For tests that include LibTorch.
#include "third_party/precompiled/libtorch.hpp"
#include "gtest/gtest.h"
