#include "tests/rendezvous/core/naive_server.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {
namespace {

using Phase = Join::Phase;

// What CheckJoin refuses, as far as the random events go.
bool Acceptable(const Join& join) {
  if (join.phase != Phase::kIdle && !join.current) return false;
  if (join.phase == Phase::kIdle && join.store_port == 0) return false;
  return !join.node_rank || *join.node_rank < join.settings.max_nodes;
}

}  // namespace

NaiveServer::NaiveServer(const NaiveServer& before, const SavedState& saved, SteadyTime began, const Lateness* lateness)
    : began_(began), lateness_(lateness), keeps_records_(true) {
  for (const auto& [job_id, job] : before.jobs) {
    const auto old = before.replaced_.find(job_id);
    const bool begun = job.ended() || job.round > 0;
    if (!begun && old == before.replaced_.end()) continue;
    const auto record = std::find_if(saved.jobs.begin(), saved.jobs.end(),
                                     [&, id = job_id](const JobRecord& r) { return r.job_id == id; });
    jobs.emplace(job_id, begun ? job : old->second).first->second.Restart(began, lateness, *record);
  }
}

void NaiveServer::OnMessage(const std::string& job_id, const std::string& node_id, uint64_t incarnation,
                            const LauncherMessage& message, SteadyTime now, NaiveJob::Lines* lines) {
  const std::string who = absl::StrCat(node_id, "#", incarnation);
  auto it = jobs.find(job_id);
  const bool ended = it != jobs.end() && it->second.ended();
  const bool belonged = ended && [&] {
    for (const auto& node : it->second.nodes) {
      if (node.join.node_id == node_id) return true;
    }
    return it->second.lost.contains(node_id);
  }();
  const auto* join = std::get_if<Join>(&message);
  if (join == nullptr) {
    if (ended && std::holds_alternative<Heartbeat>(message)) {
      const bool gone = it->second.BeatOfGone(node_id, incarnation, now);
      if (gone || belonged) lines->push_back(who + " ack");
    }
    if (it != jobs.end() && !ended) it->second.OnMessage(node_id, incarnation, message, now, lines);
    return;
  }
  if (!Acceptable(*join)) return lines->push_back(who + " rejected");
  NaiveJob::Past past;
  past.server_began = began_;
  past.lateness = lateness_;
  past.keeps_records = keeps_records_;
  if (ended) {
    const bool told = !it->second.nodes.empty();
    past.floor = it->second.highest;
    past.gone = it->second.gone;
    past.gone_are_all = it->second.names_all() && !it->second.unreported;
    past.unreported = it->second.unreported;
    const auto left = past.gone.find(node_id);
    const bool overtaken = left != past.gone.end() && incarnation <= left->second.incarnation;
    if (told && (belonged || (join->current && RoundOf(*join) <= it->second.highest))) {
      if (!overtaken) it->second.ToldEnd(*join, now);
      return lines->push_back(absl::StrCat(who, " ", it->second.verdict));
    }
    if (overtaken) return lines->push_back(who + " close");
    past.recover_from = told ? it->second.highest + 1 : it->second.highest;
    past.earlier_round = told ? it->second.highest : 0;
    past.earlier_verdict = it->second.verdict;
    past.restarts = told ? 0 : it->second.restarts;
    replaced_.insert_or_assign(job_id, it->second);
    jobs.erase(it);
    it = jobs.end();
  }
  if (it == jobs.end()) it = jobs.emplace(job_id, NaiveJob(*join, past, now)).first;
  it->second.OnJoin(*join, now, lines);
}

void NaiveServer::OnStreamClosed(const std::string& job_id, const std::string& node_id, uint64_t incarnation,
                                 SteadyTime now, NaiveJob::Lines* lines) {
  const auto it = jobs.find(job_id);
  if (it == jobs.end()) return;
  if (!it->second.ended()) return it->second.OnStreamClosed(node_id, incarnation, now, lines);
  const auto gone = it->second.gone.find(node_id);
  if (gone != it->second.gone.end() && gone->second.incarnation <= incarnation) it->second.gone.erase(gone);
}

void NaiveServer::OnTime(SteadyTime now, NaiveJob::Lines* lines) {
  for (auto& [unused, job] : jobs) {
    if (!job.ended()) job.OnTime(now, lines);
  }
}

}  // namespace ddprun::rendezvous
