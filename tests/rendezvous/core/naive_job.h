#ifndef DDPRUN_TESTS_RENDEZVOUS_CORE_NAIVE_JOB_H_
#define DDPRUN_TESTS_RENDEZVOUS_CORE_NAIVE_JOB_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/steady_time.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/lateness.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

// What a node reports; 0: no round.
inline uint64_t RoundOf(const Join& join) { return join.current ? join.current->round : 0; }

// docs/protocol.md a second time, as simply as can be: every event changes some facts, then rules are applied until
// nothing changes, each by looking at all nodes. No notices (section 6), no texts. What is said is a line
// "node#incarnation what". Node names and topologies are letters followed by one number.
class NaiveJob {
 public:
  enum class State { kWaiting, kLastCall, kStopping, kRunning, kRecovering, kFinished, kFailed };
  using Lines = std::vector<std::string>;

  // Who is gone, with the incarnation of its last stream, and when its workers are gone as well.
  struct GoneNode {
    uint64_t incarnation;
    SteadyTime workers_gone;
  };
  struct Past {
    SteadyTime server_began;
    uint64_t floor = 0;
    uint64_t recover_from = 1;
    int restarts = 0;
    std::map<std::string, GoneNode> gone;
    bool gone_are_all = false;
    bool unreported = false;
    const Lateness* lateness = nullptr;
    bool keeps_records = false;
    uint64_t earlier_round = 0;   // of the job of this id before
    std::string earlier_verdict;  // the line that tells it
  };
  NaiveJob(const Join& first, const Past& past, SteadyTime now);
  // The same job on a server that was started again at `now` and remembers it. Who was lost before, and which of those
  // may have workers, is known as of the last record.
  void Restart(SteadyTime now, const Lateness* lateness, const JobRecord& record);

  void OnJoin(const Join& join, SteadyTime now, Lines* lines);
  void OnMessage(const std::string& node_id, uint64_t incarnation, const LauncherMessage& message, SteadyTime now,
                 Lines* lines);
  void OnStreamClosed(const std::string& node_id, uint64_t incarnation, SteadyTime now, Lines* lines);
  void OnTime(SteadyTime now, Lines* lines);

  // It is told that its job is over, this one or an earlier one of the same id.
  void ToldEnd(const Join& join, SteadyTime now);
  // Of a node that left or was told the end, and stops its workers.
  bool BeatOfGone(const std::string& node_id, uint64_t incarnation, SteadyTime now);

  State state = State::kWaiting;
  uint64_t round = 0;
  uint64_t highest = 0;  // round known of
  int restarts = 0;
  std::string verdict;      // the line that tells it
  bool unreported = false;  // it ended before all nodes of its round came to this server
  bool ended() const { return state == State::kFinished || state == State::kFailed; }
  // The last round was given out by a server that keeps records, and nobody has heard of a later one.
  bool names_all() const { return !members_.empty() && round == highest; }

  struct Node {
    Join join;  // with the newest incarnation, store port and address
    Join::Phase phase = Join::Phase::kIdle;
    bool connected = true;
    SteadyTime stamp;
    absl::Duration allowance;  // after that, because the server was late
    uint64_t order = 0;
    uint64_t round = 0;
    int rank = -1;
    std::string place;                // the rest of its assignment
    std::vector<Survivor> survivors;  // while it is idle
    bool plain = false;
    bool can_sit_out = false, told_to_sit_out = false;
    bool claims = false;  // may say that it is in touch
    bool owes = false;    // said in recovery that its workers stop, and not yet why
    bool busy() const { return phase != Join::Phase::kIdle || !connected; }
    bool works() const { return phase == Join::Phase::kRunning || phase == Join::Phase::kSucceeded; }
    bool may_have_workers() const { return phase == Join::Phase::kRunning || phase == Join::Phase::kStopping; }
  };
  std::vector<Node> nodes;  // in the order in which they joined
  std::map<std::string, GoneNode> gone;
  std::set<std::string> lost;  // ids; they hear the verdict when they come back

 private:
  Node* Find(const std::string& node_id);
  void Say(const Node& node, const std::string& what);
  void SayAssign(const Node& node);
  void Touch(Node* node, SteadyTime now);
  void TakePhase(Node* node, const Join& join);
  void Rejoin(Node* node, const Join& join, SteadyTime now);
  void Report(Node* node, const Join& join);
  void HearOf(uint64_t reported);
  void Failed(Node* node, const WorkerFailed& message);
  void LearnRestarts(int used);
  // Whether the job goes on.
  bool Charge(const std::string& node_id, const WorkerFailure& failure);
  // With `signal`, it was told to stop.
  void Gone(size_t index, bool may_return, int signal = 0, bool at_step_end = false);
  void SayStop(const Node& node, bool cause);
  std::vector<Node*> Chosen();
  bool StopSurvivors();
  // Whom the next round begins without.
  std::vector<Node*> SittingOut();
  bool SitsOut(const Node& node);
  absl::Duration WaitLimit() const;
  bool WaitsInVain() const {
    return static_cast<int>(nodes.size()) < settings_.min_nodes && WaitLimit() == absl::ZeroDuration();
  }
  SteadyTime WorkersGone(const Node& node) const;
  void StopAll();
  // Connected, and missed after so long.
  bool Silent(const Node& node, absl::Duration limit, SteadyTime now) const;
  bool RemoveQuiet(SteadyTime now);
  void AssignAll();
  std::vector<Node*> Ranked();
  void End(State to, const std::string& line);
  void Settle(SteadyTime now);
  bool ApplyOneRule(SteadyTime now);
  bool Complete(SteadyTime now);

  JobSettings settings_;
  uint64_t recover_from_;
  uint64_t earlier_round_;
  std::string earlier_verdict_;
  int restarts_before_;
  const Lateness* lateness_;
  Lines* lines_ = nullptr;
  SteadyTime now_;
  uint64_t counter_ = 0;
  int world_nodes_ = 0;  // of the round
  std::string master_;
  std::optional<int> server_node_;
  SteadyTime began_;         // the server
  SteadyTime unknown_gone_;  // nodes of a server before
  bool keeps_records_;
  std::vector<std::string> members_;  // of the round by rank, if it was recorded
  bool restored_ = false;             // and the server has been started again since
  std::set<int> lost_;                // group ranks that the record says are gone
  bool veterans_ = false;
  std::set<std::string> succeeded_;  // node ids of the round, also gone ones
  std::set<int> reported_;
  bool broken_ = false;                                // the round has to be left
  bool charged_ = false;                               // in this recovery
  bool left_before_ = false;                           // the round, before the server was restarted
  bool nobody_yet_ = false;                            // has reported after a restart
  bool told_to_stop_ = false, gone_for_good_ = false;  // a node of the round that had not succeeded
  int loss_code_ = 1;
  bool has_cause_ = false;
  bool round_left_ = false;
  bool at_step_end_ = false;
  uint64_t given_out_ = 0;  // the last round
  std::set<std::string> suspects_;
  WorkerFailure held_;
  std::string held_node_;
  std::vector<SteadyTime> charges_;
  std::vector<WorkerFailure> failures_;     // first causes that were judged
  std::vector<std::string> failing_nodes_;  // of those that were charged
  // A node's cooldowns: how many, and until when the last one is.
  struct Cooldown {
    int times = 0;
    uint64_t order = 0;
    SteadyTime until;
    bool over = false;
  };
  std::map<std::string, Cooldown> cooldowns_;
  SteadyTime not_before_ = SteadyTime::InfinitePast();
  std::optional<SteadyTime> waiting_since_;
  SteadyTime last_call_end_, stop_by_, recover_by_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_CORE_NAIVE_JOB_H_
