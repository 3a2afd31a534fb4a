#ifndef DDPRUN_TESTS_WORKER_RUNTIME_ELASTIC_FAKE_LAUNCHER_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_ELASTIC_FAKE_LAUNCHER_H_

#include <optional>
#include <string>
#include <vector>

#include "worker_contract/worker_link.h"

namespace ddprun::testing {

// The launcher's end of the worker link for one worker: says what it is told to, and waits for what the worker says.
class FakeLauncher {
 public:
  FakeLauncher();
  ~FakeLauncher();
  FakeLauncher(const FakeLauncher&) = delete;
  FakeLauncher& operator=(const FakeLauncher&) = delete;

  const std::string& address() const { return address_; }

  // The worker's next line other than `progress`; the first call accepts its connection. nullopt: it has closed it, or
  // a minute has passed.
  std::optional<worker_contract::WorkerLinkMessage> Hear();

  // The next line, which must be of this type; a value of its own otherwise, and a failed expectation.
  template <typename Line>
  Line Hear();

  // The next line of this type; others are passed over. nullopt: as Hear.
  template <typename Line>
  std::optional<Line> Await() {
    for (;;) {
      const std::optional<worker_contract::WorkerLinkMessage> line = Hear();
      if (!line.has_value()) return std::nullopt;
      if (std::holds_alternative<Line>(*line)) return std::get<Line>(*line);
    }
  }

  void SendToLauncher(const worker_contract::LauncherLinkMessage& line);
  void Close();

 private:
  bool Accept();

  std::string address_;
  int listener_ = -1;
  int connection_ = -1;
  worker_contract::LineReader reader_;
  std::vector<std::string> lines_;  // read, not returned yet
};

void ReportUnexpectedLine(const std::optional<worker_contract::WorkerLinkMessage>& line);

template <typename Line>
Line FakeLauncher::Hear() {
  const std::optional<worker_contract::WorkerLinkMessage> line = Hear();
  if (line.has_value() && std::holds_alternative<Line>(*line)) return std::get<Line>(*line);
  ReportUnexpectedLine(line);
  return Line();
}

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_ELASTIC_FAKE_LAUNCHER_H_
