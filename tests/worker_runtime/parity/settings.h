#ifndef DDPRUN_TESTS_WORKER_RUNTIME_PARITY_SETTINGS_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_PARITY_SETTINGS_H_

#include <map>
#include <string>
#include <vector>

namespace ddprun::testing {

// One training run: a line of "key=value" words, the same for C++ and Python. A plain value.
//   name            of the run
//   ws              world sizes, as "1,2,3"
//   model           gpt, mlp, branches, two_outputs, normed, cnn, tied
//   opt             sgd, momentum, adam, adamw, stock_adamw; with kernel=loop, foreach, fused
//   groups, sched   1: two parameter groups, one of them without weight decay; a learning rate that changes
//   lambda          1: LambdaLR with CosineWithWarmup
//   autocast        bf16, fp16: forward and loss run under it
//   scaler, growth  a GradScaler with this init_scale, growth_interval; the scale is written too
//   cap             bucket_cap_mb; absent: none is given
//   view, static, find     1: gradient_as_bucket_view, static_graph, find_unused_parameters
//   zero            1: zero_grad fills with zeros instead of removing the gradients
//   clip, dropout, lr
//   accumulate      backward passes per step, all but the last under no_sync
//   hook            allreduce, fp16, bf16
//   branch          alternate, same
//   expect          differs: a known exception, explained in docs/ddp_parity.md
//   steps, layers, width, block   of the run, of the GPT
class Settings {
 public:
  explicit Settings(const std::string& line);

  std::string Text(const std::string& key, const std::string& otherwise) const;
  int Number(const std::string& key, int otherwise) const;
  double Real(const std::string& key, double otherwise) const;
  bool Has(const std::string& key) const { return values_.contains(key); }
  bool RunsWith(int world_size) const;
  std::string name() const { return Text("name", ""); }

 private:
  std::map<std::string, std::string> values_;
};

// Reads a file with one run per line.
std::vector<Settings> ReadSettings(const std::string& path);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_PARITY_SETTINGS_H_
