#ifndef DDPRUN_TESTS_WORKER_RUNTIME_ELASTIC_FAKE_LAUNCHER_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_ELASTIC_FAKE_LAUNCHER_H_

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "worker_contract/worker_link.h"

namespace ddprun::testing {

// The launcher's end of the worker link for one worker: sends messages for the test and waits for those of the worker.
class FakeLauncher {
 public:
  FakeLauncher();
  ~FakeLauncher();
  FakeLauncher(const FakeLauncher&) = delete;
  FakeLauncher& operator=(const FakeLauncher&) = delete;

  const std::string& address() const { return address_; }

  // Returns the worker's next message other than `progress`; the first call accepts its connection. nullopt: the worker
  // has closed the connection, or a minute has passed.
  std::optional<worker_contract::WorkerLinkMessage> Hear();

  // Returns the next message, which must be of this type; otherwise fails the test and returns an empty one.
  template <typename Line>
  Line Hear() {
    const std::optional<worker_contract::WorkerLinkMessage> line = Hear();
    if (line.has_value() && std::holds_alternative<Line>(*line)) return std::get<Line>(*line);
    ADD_FAILURE() << "the worker said " << (line.has_value() ? EncodeMessage(*line) : "nothing");
    return Line();
  }

  // Returns the next message of this type and skips others. nullopt: as Hear.
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

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_ELASTIC_FAKE_LAUNCHER_H_
