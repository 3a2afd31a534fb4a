#include "tests/simulation/simulated_server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::testing {
using rendezvous::Join;

Server::Server(Timeline* timeline, Network* network, int host, bool by_launcher, rendezvous::SavedState* records,
               int* rounds_told)
    : timeline_(timeline),
      network_(network),
      host_(host),
      by_launcher_(by_launcher),
      records_(records),
      rounds_told_(rounds_told),
      registry_(timeline->now(), records != nullptr) {
  if (records != nullptr) registry_.Restore(*records);
}

void Server::Accept(const std::shared_ptr<Connection>& connection, bool in_process) {
  streams_[connection->id] = Stream{connection, in_process, false, std::nullopt};
  connection->receivers[kUp] = [weak = weak_from_this(), network = network_,
                                raw = std::weak_ptr<Connection>(connection)](Packet packet) {
    const std::shared_ptr<Connection> connection = raw.lock();
    const std::shared_ptr<Server> server = weak.lock();
    if (connection == nullptr) return;
    // The host of a dead server resets the connection.
    if (server == nullptr || server->dead_) return network->Put(connection, kDown, StreamEnd{});
    server->WhenAwake([server, connection, packet] { server->OnPacket(connection, packet); });
  };
}

void Server::WhenAwake(std::function<void()> what) {
  if (dead_) return;
  frozen_ ? backlog_.push_back(std::move(what)) : what();
}

void Server::Thaw() {
  if (!frozen_) return;
  frozen_ = false;
  // After a freeze, expired timers and queued packets may be handled in either order.
  if (timeline_->Below(2) == 0) OnDeadline();
  for (const auto& what : std::exchange(backlog_, {})) what();
}

void Server::Die() {
  dead_ = true;
  backlog_.clear();
  for (const auto& [unused, stream] : std::exchange(streams_, {})) {
    network_->LoseSome(stream.connection, kDown);
    network_->Put(stream.connection, kDown, StreamEnd{});
  }
  joined_.clear();
}

void Server::OnDeadline() {
  rendezvous::Effects effects;
  registry_.OnDeadline(timeline_->now(), &effects);
  CarryOut(std::move(effects));
}

void Server::OnPacket(const std::shared_ptr<Connection>& connection, Packet packet) {
  const auto it = streams_.find(connection->id);
  if (it == streams_.end() || dead_) return;  // the server has closed it
  if (std::holds_alternative<StreamEnd>(packet)) return OnEnd(connection);
  rendezvous::LauncherMessage message = std::get<rendezvous::LauncherMessage>(std::move(packet));
  Stream& stream = it->second;
  if (auto* join = std::get_if<Join>(&message)) {
    join->mutable_origin()->set_in_process(stream.in_process);
    stream.key = Key(join->job_id(), join->node_id(), join->incarnation());
    joined_[*stream.key] = connection;
  }
  if (!stream.key) return;
  const auto [job_id, node_id, incarnation] = *stream.key;
  const auto* leave = std::get_if<rendezvous::Leave>(&message);
  if (leave != nullptr) stream.left = true;
  const bool ends = leave != nullptr && !leave->has_workers();
  Note(node_id, incarnation, message);
  rendezvous::Effects effects;
  registry_.OnMessage(job_id, node_id, incarnation, message, timeline_->now(), &effects);
  CarryOut(std::move(effects));
  if (ends) End(connection);
}

void Server::OnEnd(const std::shared_ptr<Connection>& connection) {
  const Stream stream = streams_[connection->id];
  streams_.erase(connection->id);
  if (!stream.key) return;
  joined_.erase(*stream.key);
  rendezvous::Effects effects;
  const auto& [job_id, node_id, incarnation] = *stream.key;
  registry_.OnStreamClosed(job_id, node_id, incarnation, timeline_->now(), &effects);
  CarryOut(std::move(effects));
}

void Server::End(std::shared_ptr<Connection> connection) {
  const auto it = streams_.find(connection->id);
  if (it == streams_.end()) return;
  if (it->second.key) joined_.erase(*it->second.key);
  streams_.erase(it);
  network_->Put(connection, kDown, StreamEnd{});
}

void Server::Note(const std::string& node_id, uint64_t incarnation, const rendezvous::LauncherMessage& message) {
  Said& said = said_[node_id];
  if (incarnation < said.incarnation) return;
  said.incarnation = incarnation;
  if (const auto* join = std::get_if<Join>(&message)) {
    said.round = join->has_current() ? join->current().round() : 0;
    said.survivors.clear();
    if (join->phase() != Join::PHASE_IDLE) return;
    said.survivors.assign(join->survivors().begin(), join->survivors().end());
    said.plain = join->has_current() && !join->can_reform();
  }
  const auto* ready = std::get_if<rendezvous::Ready>(&message);
  if (ready == nullptr || ready->left_round() != said.round) return;
  said.survivors.assign(ready->survivors().begin(), ready->survivors().end());
  said.plain = !ready->can_reform();
}

void Server::CheckRounds(const rendezvous::Effects& effects) {
  std::map<std::string, Places> jobs;
  for (const rendezvous::Effect& effect : effects) {
    const auto* assign = rendezvous::ToldMessage<rendezvous::Assign>(effect);
    if (assign == nullptr) continue;
    const auto& tell = std::get<rendezvous::Tell>(effect);
    if (assign->assignment().round() <= last_round_[tell.job_id]) continue;
    jobs[tell.job_id].push_back({assign->assignment(), &said_[tell.node_id]});
  }
  for (auto& [unused, places] : jobs) CheckRound(std::move(places));
}

void Server::CheckRound(Places places) {
  std::sort(places.begin(), places.end(),
            [](const auto& a, const auto& b) { return a.first.group_rank() < b.first.group_rank(); });
  const rendezvous::Assignment& round = places[0].first;
  bool plain = false, survivors = false;
  std::optional<int64_t> step;
  std::optional<int32_t> source;
  int32_t next_rank = 0, next_base = 0;
  for (const auto& [place, said] : places) {
    plain = plain || said->plain;
    survivors = survivors || !said->survivors.empty();
    if (place.keeps_workers() == said->survivors.empty()) violation_ = "keeps_workers is not what the node said";
    const bool fits =
        place.round() == round.round() && place.group_rank() == next_rank && place.base_rank() >= next_base;
    if (!fits || (place.group_rank() == 0) != (place.base_rank() == 0)) violation_ = "ranks are no permutation";
    ++next_rank;
    next_base = place.base_rank() + 1;
    for (const rendezvous::Survivor& survivor : said->survivors) {
      if (!survivor.has_committed_step() || survivor.committed_step() <= step.value_or(-1)) continue;
      step = survivor.committed_step();
      source = place.base_rank() + survivor.local_rank();
    }
  }
  if (next_rank != round.group_world_size()) violation_ = absl::StrCat("round ", round.round(), " lacks ranks");
  if (plain && survivors) violation_ = absl::StrCat("round ", round.round(), " keeps workers of a mixed job");
  const bool same_step = round.has_state_step() == step.has_value() && round.state_step() == step.value_or(0);
  if (!same_step || round.has_state_source() != source.has_value() || round.state_source() != source.value_or(0)) {
    violation_ = absl::StrCat("the state source is not the most advanced survivor of round ", round.round());
  }
}

// Appends the record, so that ended jobs stand in the order in which they ended.
void Server::Keep(const rendezvous::JobRecord& record) {
  std::vector<rendezvous::JobRecord>& jobs = records_->jobs;
  const auto same = [&](const rendezvous::JobRecord& job) { return job.job_id() == record.job_id(); };
  jobs.erase(std::remove_if(jobs.begin(), jobs.end(), same), jobs.end());
  jobs.push_back(record);
}

void Server::CarryOut(rendezvous::Effects effects) {
  CheckRounds(effects);
  bool sent = false;
  for (rendezvous::Effect& effect : effects) {
    if (ends_before_record_ && sent && std::holds_alternative<rendezvous::Persist>(effect)) return Die();
    sent = sent || std::holds_alternative<rendezvous::Tell>(effect);
    if (auto* tell = std::get_if<rendezvous::Tell>(&effect)) CarryOut(std::move(*tell));
    if (const auto* persist = std::get_if<rendezvous::Persist>(&effect)) Keep(*persist->record);
    if (const auto* close = std::get_if<rendezvous::Close>(&effect)) {
      const auto it = joined_.find(Key(close->job_id, close->node_id, close->incarnation));
      if (it != joined_.end()) End(it->second);
    }
  }
}

void Server::CarryOut(rendezvous::Tell tell) {
  const auto it = joined_.find(Key(tell.job_id, tell.node_id, tell.incarnation));
  if (it == joined_.end()) return;
  if (auto* m = std::get_if<rendezvous::Welcome>(&tell.message)) m->set_by_launcher(by_launcher_);
  if (const auto* m = std::get_if<rendezvous::Assign>(&tell.message)) {
    if (std::exchange(last_round_[tell.job_id], m->assignment().round()) != m->assignment().round()) ++*rounds_told_;
    said_[tell.node_id].survivors.clear();
    said_[tell.node_id].round = m->assignment().round();
    timeline_->Note(absl::StrCat("server: round ", m->assignment().round(), " to ", tell.node_id));
  }
  if (const auto* m = std::get_if<rendezvous::StopRound>(&tell.message)) {
    timeline_->Note(absl::StrCat("server: ", tell.node_id, " leaves round ", m->round(), ": ", m->reason()));
  }
  if (const auto* m = std::get_if<rendezvous::Finish>(&tell.message)) {
    finished_at_.try_emplace(tell.job_id, timeline_->now());
    timeline_->Note(absl::StrCat("server: ", tell.node_id, " finish: ", m->verdict().reason()));
  }
  network_->Put(it->second, kDown, std::move(tell.message));
}

bool Server::HasLaunchers() const {
  for (const auto& [unused, stream] : streams_) {
    if (stream.key && !stream.in_process) return true;
  }
  return false;
}

bool Server::JobsEnded() const {
  const std::vector<v1::Job> jobs = registry_.ListJobs(timeline_->now());
  const auto ended = [](const v1::Job& job) { return rendezvous::IsEnd(rendezvous::StateOf(job)); };
  return !jobs.empty() && std::all_of(jobs.begin(), jobs.end(), ended);
}

SteadyTime Server::FinishedAt(const std::string& job_id) const {
  const auto it = finished_at_.find(job_id);
  return it == finished_at_.end() ? SteadyTime::InfiniteFuture() : it->second;
}

bool Server::HasLeavers() const {
  for (const auto& [unused, stream] : streams_) {
    if (stream.left && !stream.in_process) return true;
  }
  return false;
}

}  // namespace ddprun::testing
