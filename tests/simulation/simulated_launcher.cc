#include "tests/simulation/simulated_launcher.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ddprun::testing {
namespace {

namespace effect = ddprun::launcher::effect;
namespace reconnect = ddprun::rendezvous::reconnect;
using rendezvous::ClientEvent;
using rendezvous::Connected;
using rendezvous::Disconnected;
using rendezvous::Reconnector;
using rendezvous::StreamProgress;

constexpr absl::Duration kMostLateness = absl::Milliseconds(20);  // lateness of a timer on a busy host
constexpr absl::Duration kLinger = absl::Seconds(2);              // equals the one of launcher/agent.cc

}  // namespace

Launcher::Launcher(Settings settings, Timeline* timeline, Network* network)
    : settings_(std::move(settings)),
      timeline_(timeline),
      network_(network),
      machine_(settings_.agent, timeline->now()),
      workers_(settings_.workers, timeline,
               {[this](const launcher::WorkerEnd& end) {
                  WhenAwake([=, this] {
                    Step([&](Machine* m, Machine::Effects* e) { m->OnWorkersEnded({end}, timeline_->now(), e); });
                  });
                },
                [this](int32_t local_rank, const launcher::LinkEvent& event) {
                  WhenAwake([=, this] {
                    Step([&](Machine* m, Machine::Effects* e) { m->OnLink(local_rank, event, timeline_->now(), e); });
                  });
                },
                [this](int32_t local_rank) {
                  WhenAwake([=, this] {
                    machine_.MayStartWorkers(timeline_->now()) ? workers_.OpenGate(local_rank)
                                                               : workers_.Kill({local_rank});
                  });
                },
                [this] { Changed(); }}) {}

Launcher::~Launcher() = default;

void Launcher::Changed() const {
  if (settings_.on_change) settings_.on_change();
}

void Launcher::Note(const std::string& text) const {
  timeline_->Note(absl::StrCat("node ", settings_.node, ": ", text));
}

// ---- the process

void Launcher::Start() {
  Note(absl::StrCat("starts as ", settings_.agent.join.node_id()));
  Step([this](Machine* m, Machine::Effects* e) { m->Start(timeline_->now(), e); });
  if (std::shared_ptr<Server> server = settings_.host_server(settings_.host)) return UseLocalClient(std::move(server));
  const absl::Duration patience = ToDuration(settings_.agent.join.settings().heartbeat_timeout()) / 12;
  client_ = std::make_unique<Reconnector>(
      Reconnector::Settings{"server", "server:1", patience, static_cast<uint32_t>(timeline_->Below(1'000'000))});
  StepClient([](Reconnector* client, Reconnector::Effects* effects) { client->Start(effects); });
}

void Launcher::WhenAwake(std::function<void()> what) {
  if (!alive_) return;
  frozen_ ? backlog_.push_back(std::move(what)) : what();
}

void Launcher::Later(absl::Duration wait, std::function<void()> what) {
  timeline_->In(wait, [this, life = std::weak_ptr<bool>(life_), what = std::move(what)] {
    if (!life.expired()) WhenAwake(what);
  });
}

void Launcher::Freeze() {
  if (!alive_ || frozen_) return;
  Note("hangs");
  frozen_ = true;
  if (hosted_ != nullptr) hosted_->Freeze();
  Changed();
}

void Launcher::Thaw() {
  if (!frozen_) return;
  Note("goes on");
  frozen_ = false;
  // Queued events and expired timers may be handled in either order.
  if (timeline_->Below(2) == 0) timer_from_ = timeline_->now() + timeline_->Random(kMostLateness);
  const bool server_first = timeline_->Below(2) == 0;
  if (hosted_ != nullptr && server_first) hosted_->Thaw();
  for (const auto& what : std::exchange(backlog_, {})) {
    if (alive_) what();
  }
  if (hosted_ != nullptr && !server_first) hosted_->Thaw();
  Changed();
}

void Launcher::Signal(int signal) {
  if (!alive_) return;
  Note(absl::StrCat("signal ", signal));
  WhenAwake([=, this] {
    Step([&](Machine* m, Machine::Effects* e) { m->OnSignal({signal, "a signal"}, timeline_->now(), e); });
  });
}

void Launcher::Kill() {
  if (!alive_) return;
  Note("is killed");
  End();
}

void Launcher::End() {
  alive_ = frozen_ = false;
  life_ = nullptr;
  lingers_.reset();
  backlog_.clear();
  workers_.Vanish();
  guard_kills_ = SteadyTime::InfiniteFuture();
  for (const auto& [unused, connection] : std::exchange(streams_, {})) network_->Put(connection, kUp, StreamEnd{});
  client_ = nullptr;
  local_ = nullptr;
  if (hosted_ != nullptr) hosted_->Die();
  Changed();
}

// A launcher that hosts the server stays for the others, as in RendezvousLink::LingerForOthers.
void Launcher::Linger() {
  if (!lingers_) return;
  if (hosted_->HasLaunchers() && timeline_->now() < lingers_->first) return;
  if (hosted_->HasLeavers() && timeline_->now() < lingers_->second) return;
  Note("is gone, and the server with it");
  End();
}

void Launcher::OnTime() {
  const SteadyTime now = timeline_->now();
  if (!alive_) return;
  if (guard_kills_ <= now) {
    guard_kills_ = SteadyTime::InfiniteFuture();
    workers_.KillAll();
  }
  if (frozen_) return;
  Linger();
  if (client_ != nullptr && client_->NextDeadline() <= now) {
    StepClient([&](Reconnector* client, Reconnector::Effects* effects) { client->OnDeadline(now, effects); });
  }
  if (alive_ && machine_.NextDeadline() <= now && timer_from_ <= now) {
    Step([&](Machine* m, Machine::Effects* e) { m->OnDeadline(now, e); });
  }
}

SteadyTime Launcher::NextDeadline() const {
  if (!alive_ || frozen_) return guard_kills_;
  SteadyTime next = std::min(guard_kills_, std::max(machine_.NextDeadline(), timer_from_));
  if (client_ != nullptr) next = std::min(next, client_->NextDeadline());
  if (lingers_) {
    for (const SteadyTime until : {lingers_->first, lingers_->second}) {
      if (until > timeline_->now()) next = std::min(next, until);
    }
  }
  return next;
}

// ---- the machine

template <typename Call>
void Launcher::Step(Call call) {
  if (!alive_ || lingers_) return;
  Machine::Effects effects;
  call(&machine_, &effects);
  guard_kills_ = machine_.WorkersMayRunUntil();
  timer_from_ = timeline_->now() + timeline_->Random(kMostLateness);
  for (const launcher::AgentEffect& effect : effects) {
    if (alive_) Execute(effect);
  }
  Changed();
}

void Launcher::Execute(const launcher::AgentEffect& e) {
  if (const auto* send = std::get_if<effect::Send>(&e)) {
    // After a takeover, all earlier servers and the launchers that hosted them have ended.
    rendezvous::LauncherMessage message = send->message;
    auto* join = std::get_if<rendezvous::Join>(&message);
    if (join != nullptr) join->mutable_origin()->set_server_node_ended(took_over_);
    if (client_ != nullptr) {
      const std::optional<uint64_t> stream = client_->Admit(send->message);
      if (stream) network_->Put(streams_.at(*stream), kUp, send->message);
    } else if (local_ != nullptr && local_join_first_.Admits(send->message)) {
      network_->Put(local_, kUp, std::move(message));
    }
  } else if (std::holds_alternative<effect::ResetConnection>(e)) {
    if (client_ != nullptr) return client_->Reset(timeline_->now());
    if (local_ == nullptr) return;
    network_->Put(std::exchange(local_, nullptr), kUp, StreamEnd{});
    Later(absl::ZeroDuration(), [this] { LocalStreamOver("silent"); });
  } else if (std::holds_alternative<effect::OpenStore>(e)) {
    const int port = settings_.new_port();
    Step([&](Machine* m, Machine::Effects* effects) { m->OnStoreOpened({port}, timeline_->now(), effects); });
  } else if (const auto* spawn = std::get_if<effect::SpawnWorkers>(&e)) {
    Note(absl::StrCat("workers of round ", spawn->assignment.round()));
    workers_.Start(spawn->ranks, spawn->assignment);
  } else if (const auto* tell = std::get_if<effect::SendToWorkers>(&e)) {
    const auto* suspend = std::get_if<worker_contract::LinkSuspend>(&tell->line);
    if (suspend != nullptr) workers_.Suspend(tell->ranks, *suspend);
  } else if (const auto* reform = std::get_if<effect::ReformWorkers>(&e)) {
    Note(absl::StrCat("workers go on in round ", reform->assignment.round()));
    workers_.Reform(reform->ranks, reform->assignment);
  } else if (const auto* sent = std::get_if<effect::SignalWorkers>(&e)) {
    if (sent->signal == SIGTERM) workers_.Terminate(sent->ranks);
  } else if (const auto* kill = std::get_if<effect::KillWorkers>(&e)) {
    workers_.Kill(kill->ranks);
  } else if (const auto* stuck = std::get_if<effect::DescribeStuck>(&e)) {
    Step([&](Machine* m, Machine::Effects* effects) { m->OnStuck(stuck->ranks, {}, timeline_->now(), effects); });
  } else if (const auto* print = std::get_if<effect::Print>(&e)) {
    Note(print->text);
    if (absl::StartsWith(print->text, "cut off")) ++fenced_;
  } else if (const auto* exit = std::get_if<effect::Exit>(&e)) {
    Note(absl::StrCat("exits with ", exit->code));
    exit_ = *exit;
    CloseClient();
    if (hosted_ == nullptr) return End();
    const SteadyTime now = timeline_->now();
    lingers_ = {now + (hosted_->JobsEnded() ? kLinger : absl::ZeroDuration()), now + settings_.agent.shutdown_timeout};
  }
}

void Launcher::CloseClient() {
  if (client_ != nullptr) {
    StepClient([](Reconnector* client, Reconnector::Effects* effects) { client->Close(false, effects); });
  } else if (local_ != nullptr) {
    network_->Put(std::exchange(local_, nullptr), kUp, StreamEnd{});
  }
}

// ---- the client

template <typename Call>
void Launcher::StepClient(Call call) {
  if (client_ == nullptr) return;
  Reconnector::Effects effects;
  call(client_.get(), &effects);
  CarryOut(std::move(effects));
  Changed();
}

void Launcher::CarryOut(Reconnector::Effects effects) {
  for (rendezvous::ReconnectEffect& e : effects) {
    if (std::holds_alternative<reconnect::Resolve>(e)) {
      StepClient([this](Reconnector* client, Reconnector::Effects* effects) {
        client->OnResolved(std::vector<rendezvous::ServerAddress>{{"server", "server"}}, timeline_->now(), effects);
      });
    } else if (const auto* connect = std::get_if<reconnect::Connect>(&e)) {
      Connect(*connect);
    } else if (const auto* probe = std::get_if<reconnect::Probe>(&e)) {
      Probe(*probe);
    } else if (const auto* close = std::get_if<reconnect::Close>(&e)) {
      EndStream(close->stream);
    } else if (const auto* abandon = std::get_if<reconnect::Abandon>(&e)) {
      EndStream(abandon->stream);
    } else if (auto* report = std::get_if<reconnect::Report>(&e)) {
      Post(std::move(report->event));
    }
  }
}

void Launcher::Reach(std::function<void(std::shared_ptr<Server>)> answer) {
  const int from = settings_.host, to = settings_.server_host;
  timeline_->In(network_->Delay(), [=, this, life = std::weak_ptr<bool>(life_)] {
    if (life.expired()) return;
    if (network_->walled(from)) return WhenAwake([=] { answer(nullptr); });
    if (!network_->Reaches(from, to)) return;
    const std::shared_ptr<Server> server = settings_.listener();
    auto reply = [=, this] {
      timeline_->In(network_->Delay(), [=, this] {
        if (life.expired() || !network_->Reaches(to, from)) return;
        WhenAwake([=] { answer(server); });
      });
    };
    // The kernel accepts a connection to a frozen server, which answers only after Thaw. If no server listens, the
    // connection is refused at once.
    server == nullptr ? reply() : server->WhenAwake(reply);
  });
}

void Launcher::Connect(const reconnect::Connect& connect) {
  const uint64_t stream = connect.stream;
  connecting_.insert(stream);
  const auto failed = [=, this, generation = generation_](StreamProgress progress) {
    if (generation != generation_ || connecting_.erase(stream) == 0) return;
    StepClient([&](Reconnector* client, Reconnector::Effects* effects) {
      client->OnEnd(stream, rendezvous::StreamEnd{progress, absl::UnavailableError("no server")}, timeline_->now(),
                    effects);
    });
  };
  Later(connect.timeout, [=] { failed(StreamProgress::kTimedOut); });
  Reach([=, this, generation = generation_](const std::shared_ptr<Server>& server) {
    if (server == nullptr) return failed(StreamProgress::kNone);
    if (server->dead() || generation != generation_ || connecting_.erase(stream) == 0) return;
    const auto connection = network_->Open(settings_.host, settings_.server_host);
    connection->receivers[kDown] = [=, this, life = std::weak_ptr<bool>(life_)](Packet packet) {
      if (life.expired()) return;
      WhenAwake([=, this] {
        if (streams_.count(stream) == 0 || generation != generation_) return;
        StepClient([&](Reconnector* client, Reconnector::Effects* effects) {
          if (const auto* message = std::get_if<rendezvous::ServerMessage>(&packet)) {
            return client->OnMessage(stream, *message, effects);
          }
          streams_.erase(stream);
          client->OnEnd(stream, rendezvous::StreamEnd{StreamProgress::kOpen, absl::UnavailableError("lost")},
                        timeline_->now(), effects);
        });
      });
    };
    server->Accept(connection, false);
    streams_[stream] = connection;
    StepClient([&](Reconnector* client, Reconnector::Effects* effects) { client->OnOpen(stream, 0, effects); });
  });
}

void Launcher::Probe(const reconnect::Probe& probe) {
  const SteadyTime began = timeline_->now();
  const auto answered = [=, this, generation = generation_](std::optional<SteadyTime> refused) {
    if (generation != generation_) return;
    StepClient([&](Reconnector* client, Reconnector::Effects* effects) {
      client->OnProbed(probe.probe, refused, timeline_->now(), effects);
    });
  };
  Later(probe.timeout, [=] { answered(std::nullopt); });
  Reach([=](const std::shared_ptr<Server>& server) {
    answered(server == nullptr ? std::make_optional(began) : std::nullopt);
  });
}

void Launcher::EndStream(uint64_t stream) {
  connecting_.erase(stream);
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  network_->Put(it->second, kUp, StreamEnd{});
  streams_.erase(it);
}

void Launcher::Post(ClientEvent event) {
  Later(absl::ZeroDuration(), [this, generation = generation_, event = std::move(event)] {
    if (generation == generation_) Handle(event);
  });
}

void Launcher::Handle(const ClientEvent& event) {
  const SteadyTime now = timeline_->now();
  if (std::holds_alternative<Connected>(event)) {
    return Step([&](Machine* m, Machine::Effects* e) { m->OnConnected("", now, e); });
  }
  if (const auto* message = std::get_if<rendezvous::ServerMessage>(&event)) {
    if (const auto* welcome = std::get_if<rendezvous::Welcome>(message)) may_take_over_ = welcome->by_launcher();
    if (std::holds_alternative<rendezvous::ExcludedFromRound>(*message)) ++left_out_;
    return Step([&](Machine* m, Machine::Effects* e) { m->OnServerMessage(*message, now, e); });
  }
  const auto& lost = std::get<Disconnected>(event);
  Step([&](Machine* m, Machine::Effects* e) { m->OnDisconnected(lost.reason, lost.permanent, lost.refused, now, e); });
  if (alive_ && !lingers_ && !lost.permanent && may_take_over_) TakeOver();
}

// ---- the server in this process

void Launcher::TakeOver() {
  if (hosted_ != nullptr) return;
  std::shared_ptr<Server> server = settings_.host_server(settings_.host);
  if (server == nullptr) return;
  Note("takes over the server");
  took_over_ = true;
  StepClient([](Reconnector* client, Reconnector::Effects* effects) { client->Close(true, effects); });
  for (const auto& [unused, connection] : std::exchange(streams_, {})) network_->Put(connection, kUp, StreamEnd{});
  connecting_.clear();
  client_ = nullptr;
  UseLocalClient(std::move(server));
}

void Launcher::UseLocalClient(std::shared_ptr<Server> server) {
  hosted_ = std::move(server);
  ++generation_;
  OpenLocalStream();
}

void Launcher::OpenLocalStream() {
  local_ = network_->Open(settings_.host, settings_.host);
  local_->receivers[kDown] = [=, this, life = std::weak_ptr<bool>(life_), id = local_->id](Packet packet) {
    if (life.expired()) return;
    WhenAwake([=, this] {
      if (local_ == nullptr || local_->id != id) return;
      if (const auto* message = std::get_if<rendezvous::ServerMessage>(&packet)) return Handle(*message);
      local_ = nullptr;
      LocalStreamOver("ended");
    });
  };
  hosted_->Accept(local_, true);
  local_join_first_.OnNewStream();
  Post(Connected{});
}

void Launcher::LocalStreamOver(const std::string& reason) {
  Handle(Disconnected{reason});
  if (alive_ && !lingers_) OpenLocalStream();
}

}  // namespace ddprun::testing
