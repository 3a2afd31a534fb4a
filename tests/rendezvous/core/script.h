#ifndef DDPRUN_TESTS_RENDEZVOUS_CORE_SCRIPT_H_
#define DDPRUN_TESTS_RENDEZVOUS_CORE_SCRIPT_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "rendezvous/core/registry.h"

namespace ddprun::rendezvous {

// Carries out the lines of a scenario on a Registry, and says what came of it (tests/scenarios/README.md has the
// language). Launchers are minimal: they remember their last assignment and the phase that follows from it, and beat
// by themselves unless silenced.
class Script {
 public:
  Script();

  // Carries out one line; returns what the registry said, a line per effect (the same message to several nodes in
  // succession is one line), then the job's new state if it changed.
  std::string Run(absl::string_view line);

 private:
  struct Launcher {
    Join join = NewJoin();
    bool connected = false;
    bool silent = false;
  };
  // The words of a line: name=value pairs, and the others in order.
  struct Words {
    std::vector<std::string> plain;
    std::map<std::string, std::string> named;
    std::string rest;  // the line after its second word
    int Number(const std::string& name, int fallback) const;
    std::optional<std::string> Text(const std::string& name) const;
  };

  static Words Parse(absl::string_view line);
  Launcher& At(const std::string& name);
  void ApplySettings(const Words& words);
  void JoinOnce(Launcher* launcher, const Words& words, bool again);
  // An invalid message ends the stream, as at a real server.
  void Send(Launcher* launcher, LauncherMessage message);
  void Drop(Launcher* launcher);
  void Command(const Words& words);
  void LeaveOutUsualStart(const std::vector<std::string>& words);
  static void TakeSurvivors(Join* join, const Words& words);
  void Fail(Launcher* launcher, const Words& words);
  void ReportHang(Launcher* launcher, uint64_t round, const Words& words);
  void Advance(absl::Duration by);
  void Beat();
  Launcher* Find(const std::string& job_id, const std::string& node_id, uint64_t incarnation);
  void Do(const rendezvous::Command& command);
  void Take(const Tell& tell);
  void Take(const Close& close);
  void Take(const Persist& persist);
  void Take(const Report& report);
  void Flush();
  void WriteTells();

  std::unique_ptr<Registry> registry_ = std::make_unique<Registry>(SteadyTime::InfinitePast());
  SteadyTime now_ = SteadyTime::FromStart(absl::Seconds(1000));
  SteadyTime next_beat_;
  SteadyTime line_began_;
  JobSettings settings_ = DefaultSettings();
  std::map<std::string, Launcher> launchers_;
  int next_port_ = 5001;
  Effects effects_;
  Caller caller_;               // caller of the command
  bool keeps_records_ = false;  // the server has a state folder
  bool shows_events_ = false;
  bool shows_end_command_ = false;
  absl::Duration longest_life_;  // longest life of a server with records
  std::map<std::string, JobRecord> records_;
  std::map<std::string, std::string> shown_;  // the state of each job as it was last shown
  std::vector<Tell> tells_;                   // equal but for the ranks, to be written in one line
  std::string tells_when_;
  std::string output_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_CORE_SCRIPT_H_
