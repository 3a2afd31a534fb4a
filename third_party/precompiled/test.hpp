// For tests.
#include <filesystem>
#include <fstream>

#include "third_party/precompiled/base.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
