#ifndef DDPRUN_TESTS_RENDEZVOUS_SERVER_RAW_CLIENT_H_
#define DDPRUN_TESTS_RENDEZVOUS_SERVER_RAW_CLIENT_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/rendezvous.pb.h"

namespace ddprun::rendezvous {

// A peer that says whatever a test wants, also what no launcher would. Blocking; of one thread.
class RawClient {
 public:
  // `authorization`: of the stream; empty for none. `method`: the stream's.
  explicit RawClient(int port, const std::string& authorization = "",
                     const std::string& method = "/ddprun.v1.Rendezvous/Session");
  ~RawClient();

  // ---- one stream, opened by the first of these calls ----
  // False: the stream is broken.
  bool WriteBytes(const std::string& message);
  bool Write(const v1::LauncherMessage& message) { return WriteBytes(message.SerializeAsString()); }
  // nullopt: the server ended the stream.
  std::optional<std::string> ReadBytes();
  std::optional<v1::ServerMessage> Read();
  void HalfClose();
  // Reads to the end; the stream's status.
  absl::Status Finish();

  // ---- single calls ----
  absl::StatusOr<v1::ListJobsResponse> ListJobs(int page_size, const std::string& page_token);
  absl::StatusOr<v1::Job> GetJob(const std::string& job_id);
  // The name of the state.
  absl::StatusOr<std::string> Health(const std::string& service);
  // The first state that a watch tells.
  absl::StatusOr<std::string> WatchHealth(const std::string& service);
  // The bytes of the reflection service's list of services, which hold their names.
  absl::StatusOr<std::string> Reflect();
  absl::Status CallUnknownMethod();

 private:
  struct Impl;
  void Open();
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_RENDEZVOUS_SERVER_RAW_CLIENT_H_
