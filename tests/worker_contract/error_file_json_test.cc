#include "worker_contract/error_file_json.h"

#include <gtest/gtest.h>

namespace ddprun::worker_contract {
namespace {

TEST(ErrorFileJson, ErrorFileJson_AnyError_EqualsTorchruns) {
  ReportedError error;
  error.message = "all \"went\" wrong\xff";
  error.at = absl::FromUnixSeconds(1700000000) + absl::Milliseconds(900);
  EXPECT_EQ(ErrorFileJson(error),
            "{\"message\":{\"extraInfo\":{\"py_callstack\":\"\",\"timestamp\":\"1700000000\"},"
            "\"message\":\"all \\\"went\\\" wrong\xef\xbf\xbd\"}}");
  error.message = "short";
  error.traceback = "a\nb";
  error.error_code = -9;
  EXPECT_EQ(ErrorFileJson(error),
            "{\"message\":{\"errorCode\":-9,\"extraInfo\":{\"py_callstack\":\"a\\nb\",\"timestamp\":\"1700000000\"},"
            "\"message\":\"short\"}}");
}

}  // namespace
}  // namespace ddprun::worker_contract
