// For tests that see LibTorch.
#include "third_party/precompiled/libtorch.hpp"
#include "gtest/gtest.h"
