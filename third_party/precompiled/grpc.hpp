// For files that use gRPC.
#include <grpcpp/grpcpp.h>

#include "third_party/precompiled/base.hpp"
