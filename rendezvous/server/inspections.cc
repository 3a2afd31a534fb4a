#include "rendezvous/server/inspections.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {

absl::StatusOr<uint64_t> Inspections::NewId(const std::string& job_id) {
  const auto of_job = static_cast<size_t>(
      std::count_if(calls_.begin(), calls_.end(), [&](const auto& call) { return call.second.job_id == job_id; }));
  if (calls_.size() >= kMaxCalls || of_job >= kMaxCallsPerJob) {
    return absl::ResourceExhaustedError(absl::StrCat("too many callers ask for stacks, output or usage of ",
                                                     of_job >= kMaxCallsPerJob ? absl::StrCat("job ", job_id) : "jobs",
                                                     " at the same time; try again in a few seconds"));
  }
  return ++last_id_;
}

Inspections::Answers Inspections::Begin(const v1::Inspect& question, const std::string& job_id,
                                        const InspectedNodes& nodes, SteadyTime now, v1::InspectResponse* response,
                                        Answer answer) {
  Call begun{job_id, question.what(), nodes.round, now + kPatience, {}, 0, response, std::move(answer)};
  const auto call = calls_.emplace(question.id(), std::move(begun)).first;
  response->set_round(nodes.round);
  for (const InspectedNodes::Node& node : nodes.nodes) {
    if (node.asked) {
      call->second.missing.emplace(NodeKey(job_id, node.node_id, node.incarnation), node);
    } else {
      AddSilent(node.host, "not connected", response);
    }
  }
  Answers ended;
  EndIfComplete(call, &ended);
  return ended;
}

Inspections::Answers Inspections::OnInspection(const NodeKey& from, Inspection inspection) {
  Answers ended;
  const auto found = calls_.find(inspection.id());
  if (found == calls_.end() || found->second.round != inspection.round()) return ended;
  Call& call = found->second;
  const auto node = call.missing.find(from);
  if (node == call.missing.end()) return ended;
  // Launchers that know no other kind answer every question with stacks.
  const bool misread = call.what != v1::Inspect::WHAT_STACKS && !inspection.ranks().empty();
  bool fits = true;
  switch (call.what) {
    case v1::Inspect::WHAT_STACKS:
      fits = Take(inspection.mutable_ranks(), true, &node->second, &call, call.response->mutable_ranks());
      break;
    case v1::Inspect::WHAT_OUTPUT:
      fits = Take(inspection.mutable_outputs(), false, &node->second, &call, call.response->mutable_outputs());
      break;
    case v1::Inspect::WHAT_USAGE:
      fits = Take(inspection.mutable_usages(), true, &node->second, &call, call.response->mutable_usages());
      break;
    default: break;
  }
  if (misread) AddSilent(node->second.host, "its launcher is too old for this", call.response);
  if (!fits) AddSilent(node->second.host, "too much for one answer: name some ranks", call.response);
  if (misread || !fits || inspection.last()) call.missing.erase(node);
  EndIfComplete(found, &ended);
  return ended;
}

Inspections::Answers Inspections::OnGone(const NodeKey& node) {
  Answers ended;
  for (auto call = calls_.begin(); call != calls_.end();) {
    const auto next = std::next(call);
    if (const auto missing = call->second.missing.find(node); missing != call->second.missing.end()) {
      AddSilent(missing->second.host, "lost its connection", call->second.response);
      call->second.missing.erase(missing);
      EndIfComplete(call, &ended);
    }
    call = next;
  }
  return ended;
}

Inspections::Answers Inspections::OnDeadline(SteadyTime now) {
  Answers ended;
  for (auto call = calls_.begin(); call != calls_.end();) {
    const auto next = std::next(call);
    if (call->second.deadline <= now) {
      for (const auto& [key, node] : call->second.missing) {
        AddSilent(node.host, "did not answer in time", call->second.response);
      }
      call->second.missing.clear();
      EndIfComplete(call, &ended);
    }
    call = next;
  }
  return ended;
}

Inspections::Answers Inspections::TakeAll() {
  Answers ended;
  for (auto& [id, call] : calls_) ended.push_back(std::move(call.answer));
  calls_.clear();
  bytes_ = 0;
  return ended;
}

SteadyTime Inspections::NextDeadline() const {
  return calls_.empty() ? SteadyTime::InfiniteFuture() : calls_.begin()->second.deadline;
}

template <typename List>
bool Inspections::Take(List* answers, bool once, InspectedNodes::Node* node, Call* call, List* response) {
  std::vector<int32_t>& asked = node->ranks;
  for (auto& answer : *answers) {
    const auto of_rank = std::lower_bound(asked.begin(), asked.end(), answer.rank());
    if (of_rank == asked.end() || *of_rank != answer.rank()) continue;
    if (once) asked.erase(of_rank);
    answer.set_host(node->host);
    const size_t bytes = answer.ByteSizeLong();
    if (call->bytes + bytes > kMaxBytes || bytes_ + bytes > kMaxBytesOfAll) return false;
    call->bytes += bytes;
    bytes_ += bytes;
    *response->Add() = std::move(answer);
  }
  return true;
}

void Inspections::AddSilent(const std::string& host, const char* reason, v1::InspectResponse* response) {
  v1::InspectResponse::SilentNode* const silent = response->add_silent();
  silent->set_host(host);
  silent->set_reason(reason);
}

void Inspections::EndIfComplete(Calls::iterator call, Answers* ended) {
  if (!call->second.missing.empty()) return;
  v1::InspectResponse* const response = call->second.response;
  // Stable: parts of one stream are in order.
  const auto by_rank = [](const auto& a, const auto& b) { return a.rank() < b.rank(); };
  std::stable_sort(response->mutable_ranks()->begin(), response->mutable_ranks()->end(), by_rank);
  std::stable_sort(response->mutable_outputs()->begin(), response->mutable_outputs()->end(), by_rank);
  std::stable_sort(response->mutable_usages()->begin(), response->mutable_usages()->end(), by_rank);
  bytes_ -= call->second.bytes;
  ended->push_back(std::move(call->second.answer));
  calls_.erase(call);
}

}  // namespace ddprun::rendezvous
