#include "rendezvous/wire/message_json.h"

#include <google/protobuf/descriptor.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "proto/time.h"

namespace ddprun::rendezvous {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using nlohmann::json;

// "last_call" for STATE_LAST_CALL of Job.State; the number for a value of a newer server.
json EnumToJson(const FieldDescriptor& field, int number) {
  const auto* value = field.enum_type()->FindValueByNumber(number);
  if (value == nullptr) return number;
  const std::string prefix = absl::StrCat(absl::AsciiStrToUpper(std::string(field.enum_type()->name())), "_");
  return absl::AsciiStrToLower(absl::StripPrefix(value->name(), prefix));
}

json MessageToJson(const Message& message) {
  if (const auto* duration = dynamic_cast<const google::protobuf::Duration*>(&message)) {
    return absl::ToDoubleSeconds(ToDuration(*duration));
  }
  if (const auto* time = dynamic_cast<const google::protobuf::Timestamp*>(&message)) {
    return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6SZ", ToTime(*time), absl::UTCTimeZone());
  }
  return ToJson(message);
}

// `index`: of an element of a repeated field; -1: the field is singular.
json ValueToJson(const Message& message, const FieldDescriptor& field, int index) {
  const auto& r = *message.GetReflection();
  const bool one = index < 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return one ? r.GetInt32(message, &field) : r.GetRepeatedInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return one ? r.GetInt64(message, &field) : r.GetRepeatedInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return one ? r.GetUInt32(message, &field) : r.GetRepeatedUInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT64:
      return one ? r.GetUInt64(message, &field) : r.GetRepeatedUInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return one ? r.GetDouble(message, &field) : r.GetRepeatedDouble(message, &field, index);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return one ? r.GetFloat(message, &field) : r.GetRepeatedFloat(message, &field, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return one ? r.GetBool(message, &field) : r.GetRepeatedBool(message, &field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumToJson(field, one ? r.GetEnumValue(message, &field) : r.GetRepeatedEnumValue(message, &field, index));
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string text = one ? r.GetString(message, &field) : r.GetRepeatedString(message, &field, index);
      return field.type() == FieldDescriptor::TYPE_BYTES ? absl::BytesToHexString(text) : text;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(one ? r.GetMessage(message, &field) : r.GetRepeatedMessage(message, &field, index));
  }
  return nullptr;
}

}  // namespace

nlohmann::json ToJson(const Message& message) {
  json object = json::object();
  const auto& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (field.is_repeated()) {
      json list = json::array();
      for (int k = 0; k < reflection.FieldSize(message, &field); ++k) list.push_back(ValueToJson(message, field, k));
      object[field.name()] = std::move(list);
    } else if (!field.has_presence() || reflection.HasField(message, &field)) {
      object[field.name()] = ValueToJson(message, field, -1);
    }
  }
  return object;
}

}  // namespace ddprun::rendezvous
