#include "rendezvous/ha/leader_lookup.h"

#include <utility>

namespace ddprun::rendezvous {
namespace {

// Launchers that wait longer should try another server instead.
constexpr absl::Duration kPatience = absl::Seconds(2);

}  // namespace

LeaderLookup::LeaderLookup(EtcdClient* client, EtcdKeys keys) : client_(client), keys_(std::move(keys)) {
  thread_ = std::thread([this] { Run(); });
}

LeaderLookup::~LeaderLookup() { Stop(); }

void LeaderLookup::Ask(Done done) {
  bool stopped = false;
  {
    MutexLock lock(&mutex_);
    stopped = stopping_;
    if (!stopped) waiting_.push_back(std::move(done));
  }
  if (stopped) return done(absl::CancelledError("stopping"));
  wake_.NotifyAll();
}

void LeaderLookup::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void LeaderLookup::Run() {
  while (true) {
    std::vector<Done> asked;
    bool stop = false;
    {
      MutexLock lock(&mutex_);
      while (waiting_.empty() && !stopping_) wake_.Wait(&mutex_);
      asked.swap(waiting_);
      stop = stopping_;
    }
    const absl::StatusOr<LeaderView> view = stop ? absl::StatusOr<LeaderView>(absl::CancelledError("stopping"))
                                                 : AskForLeader(client_, keys_, SteadyNow() + kPatience);
    for (const Done& done : asked) done(view);
    if (stop) return;
  }
}

}  // namespace ddprun::rendezvous
