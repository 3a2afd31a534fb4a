#ifndef DDPRUN_LAUNCHER_REPORT_MASK_SECRETS_H_
#define DDPRUN_LAUNCHER_REPORT_MASK_SECRETS_H_

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// PURE: removes obvious secrets from text that leaves the terminal, such as the last lines of a worker's stderr in a
// report (launcher/job_end.h) or a capsule (launcher/capsule). MaskSecrets recognizes
//   - values by their names (password, secret, token, API or access key, Authorization), as in NAME=VALUE,
//     "NAME: VALUE", JSON and "--name value",
//   - tokens by their shape: those of AWS, GitHub, GitLab, Google, Hugging Face, OpenAI, npm and Slack, JWTs,
//   - passwords in URLs, and private keys in PEM, also without their first lines.
// Names of files and the vocabulary of language models (pad_token='<pad>', next_token=17) are no secrets. A secret
// without name or known shape stays, so this makes accidents rarer, and no text safe to publish.
namespace ddprun::launcher {

// Returns `text` with each secret replaced by "***". Takes linear time; masking twice changes nothing.
std::string MaskSecrets(absl::string_view text);

// Masks what MaskSecrets finds, and the values of secrets in the environment and the command line wherever they occur,
// also in part where a text was cut. Values of less than 6 bytes may be part of any text and stay.
class SecretMask {
 public:
  // `given`: "NAME=VALUE" of the environment, and words of the command line.
  explicit SecretMask(const std::vector<std::string>& given);

  std::string Mask(absl::string_view text) const;
  // Masks all texts of the message, and makes them valid UTF-8 (CleanText).
  void Mask(google::protobuf::Message* message) const;

 private:
  std::vector<std::string> values_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_MASK_SECRETS_H_
