#ifndef DDPRUN_TESTS_TESTING_TEXT_PROTO_H_
#define DDPRUN_TESTS_TESTING_TEXT_PROTO_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace ddprun {

// `base` with the fields of `text`, which is in protobuf's text format, in place of its own.
template <typename Message>
Message TextProto(absl::string_view text, Message base = {}) {
  using google::protobuf::TextFormat;
  Message given;
  EXPECT_TRUE(TextFormat::ParseFromString(std::string(text), &given)) << text;
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  given.GetReflection()->ListFields(given, &fields);
  for (const auto* field : fields) base.GetReflection()->ClearField(&base, field);
  TextFormat::MergeFromString(std::string(text), &base);  // sets zeros, too
  return base;
}

}  // namespace ddprun

#endif  // DDPRUN_TESTS_TESTING_TEXT_PROTO_H_
