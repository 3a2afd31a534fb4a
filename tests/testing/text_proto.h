#ifndef DDPRUN_TESTS_TESTING_TEXT_PROTO_H_
#define DDPRUN_TESTS_TESTING_TEXT_PROTO_H_

#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace ddprun {

// `base` with the fields in `text`, which is in protobuf's text format.
template <typename Message>
Message TextProto(absl::string_view text, Message base = {}) {
  EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(std::string(text), &base)) << text;
  return base;
}

}  // namespace ddprun

#endif  // DDPRUN_TESTS_TESTING_TEXT_PROTO_H_
