#ifndef DDPRUN_PROTO_EQUAL_H_
#define DDPRUN_PROTO_EQUAL_H_

#include <google/protobuf/message.h>
#include <google/protobuf/util/message_differencer.h>

#include <concepts>

// Found by argument-dependent lookup for the messages of proto/.
namespace ddprun::v1 {

template <std::derived_from<google::protobuf::Message> M>
bool operator==(const M& a, const M& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

}  // namespace ddprun::v1

#endif  // DDPRUN_PROTO_EQUAL_H_
