#ifndef DDPRUN_RENDEZVOUS_WIRE_PARTS_H_
#define DDPRUN_RENDEZVOUS_WIRE_PARTS_H_

#include <vector>

#include "proto/rendezvous.pb.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/wire/fields.h"

// Conversion of what several messages have in common. `fields` is the reader of the part itself. Thread-safe.
namespace ddprun::rendezvous {

v1::JobSettings ToProto(const JobSettings& settings);
JobSettings FromProto(const v1::JobSettings& proto, FieldReader fields);

v1::WorkerFailure ToProto(const WorkerFailure& failure);
WorkerFailure FromProto(const v1::WorkerFailure& proto, FieldReader fields);

v1::Verdict ToProto(const Verdict& verdict);
Verdict FromProto(const v1::Verdict& proto, FieldReader fields);

// Their order and local ranks are checked by CheckSurvivors.
void SetSurvivors(const std::vector<Survivor>& survivors, google::protobuf::RepeatedPtrField<v1::Survivor>* proto);
std::vector<Survivor> FromProto(const google::protobuf::RepeatedPtrField<v1::Survivor>& proto);

v1::RankProgress ToProto(const RankProgress& rank);

v1::Assignment ToProto(const Assignment& assignment);
Assignment FromProto(const v1::Assignment& proto, FieldReader fields);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_PARTS_H_
