#include "tests/launcher/hang/job_builder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {

using hang::v1::Process;
using hang::v1::Rank;

RankBuilder::RankBuilder(int32_t rank) {
  rank_.set_rank(rank);
  rank_.set_recorded(true);
  rank_.mutable_process()->set_pid(1000 + rank);
  Sleep();
}

hang::v1::Group& RankBuilder::Group(const std::string& name) {
  for (auto& group : *rank_.mutable_groups()) {
    if (group.name() == name) return group;
  }
  auto* group = rank_.add_groups();
  group->set_name(name);
  return *group;
}

RankBuilder& RankBuilder::Join(const std::string& group, const std::vector<int32_t>& members) {
  Group(group).mutable_members()->Assign(members.begin(), members.end());
  return *this;
}

RankBuilder& RankBuilder::Enter(const std::string& name, const std::string& tensor, bool pending,
                                const std::string& group_name) {
  auto& group = Group(group_name);
  group.set_entered(group.entered() + 1);
  auto* operation = group.add_collectives();
  operation->set_number(group.entered());
  operation->set_name(name);
  if (!tensor.empty()) operation->add_tensors(tensor);
  operation->set_pending(pending);
  operation->set_age_ms(40'000);
  operation->set_timeout_ms(600'000);
  if (order_ > 0) operation->set_order(order_++);
  Process& process = *rank_.mutable_process();
  if (!pending || process.state() == "T") return *this;
  process.set_call("futex");
  process.clear_native();
  process.add_native("#0 pthread_cond_wait (libc.so.6)");
  process.add_native("#1 c10d::Work::wait(std::chrono::duration<long>) (libtorch_cpu.so)");
  process.clear_frames();
  auto* frame = process.add_frames();
  frame->set_file("/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py");
  frame->set_line(2810);
  frame->set_function("all_reduce");
  frame = process.add_frames();
  frame->set_file("/home/user/train.py");
  frame->set_line(50);
  frame->set_function("main");
  return *this;
}

RankBuilder& RankBuilder::PointToPoint(const std::string& name, const std::string& group) {
  auto* operation = Group(group).add_point_to_point();
  operation->set_number(Group(group).point_to_point_size());
  operation->set_name(name);
  operation->set_pending(true);
  operation->set_age_ms(40'000);
  operation->set_timeout_ms(600'000);
  if (order_ > 0) operation->set_order(order_++);
  rank_.mutable_process()->clear_native();
  rank_.mutable_process()->add_native("#1 cudaStreamSynchronize (libcudart.so.12)");
  return *this;
}

RankBuilder& RankBuilder::OnDevice() {
  order_ = 1;
  return *this;
}

RankBuilder& RankBuilder::Sleep() {
  Process& process = *rank_.mutable_process();
  process.set_state("S");
  process.set_call("clock_nanosleep");
  process.clear_native();
  process.add_native("#0 clock_nanosleep (libc.so.6)");
  process.clear_frames();
  auto* frame = process.add_frames();
  frame->set_file("/home/user/train.py");
  frame->set_line(31);
  frame->set_function("load");
  return *this;
}

RankBuilder& RankBuilder::Stop() {
  rank_.mutable_process()->set_state("T");
  rank_.mutable_process()->clear_native();
  rank_.clear_groups();  // none of its threads answers
  rank_.set_recorded(false);
  return *this;
}

RankBuilder& RankBuilder::Cpu(double processors) {
  rank_.set_cpu(processors);
  return *this;
}

JobEvidence JobOf(const std::vector<Rank>& ranks) {
  return JobOf(std::vector<std::vector<Rank>>{ranks}, static_cast<int32_t>(ranks.size()));
}

JobEvidence JobOf(const std::vector<std::vector<Rank>>& nodes, int32_t world_size) {
  JobEvidence job{world_size, static_cast<int32_t>(nodes.size()), {}};
  for (const auto& ranks : nodes) {
    auto& node = job.nodes.emplace_back();
    node.set_host(absl::StrCat("node-", std::string(1, static_cast<char>('a' + job.nodes.size() - 1))));
    for (const Rank& rank : ranks) *node.add_ranks() = rank;
  }
  return job;
}

}  // namespace ddprun::launcher
