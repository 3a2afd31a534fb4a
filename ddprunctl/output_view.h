#ifndef DDPRUN_DDPRUNCTL_OUTPUT_VIEW_H_
#define DDPRUN_DDPRUNCTL_OUTPUT_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/control.pb.h"
#include "proto/rendezvous.pb.h"

namespace ddprun::ctl {

// One line of `ddprunctl logs`.
struct OutputLine {
  int32_t rank = 0;
  std::string host;
  bool is_stderr = false;
  bool gap = false;  // output is missing here; no text
  std::string text;  // clean, without a line end
};

// "[rank3 node-b]: step 7"
std::string LineText(const OutputLine& line);

// PURE: turns answers about output into lines, and knows from where to ask next. Lines that are not complete are kept
// until they are, or until they have kMaxLine bytes.
class OutputView {
 public:
  static constexpr size_t kMaxLine = 1 << 20;

  // `lines`: of each stream, at most this many of the first answer are shown.
  explicit OutputView(size_t lines) : lines_(lines) {}

  // Adds the positions for the next question; none before the first answer.
  void AddPositions(v1::Inspect* question) const;

  // Returns the lines of an answer, in the order of ranks. `last`: no other answer follows, so also incomplete lines.
  std::vector<OutputLine> Take(const v1::InspectResponse& response, bool last);
  // Returns incomplete lines, at the end.
  std::vector<OutputLine> Finish();

  // Returns what to tell about the last answer, once each: streams that launchers do not see, and nodes without an
  // answer.
  std::vector<std::string> TakeNotes();

 private:
  using Stream = std::pair<int32_t, bool>;  // rank, is_stderr
  struct Shown {
    std::string host;
    uint64_t end = 0;
    std::string partial;  // start of a line
    bool cut = false;     // bytes up to the next line end belong to a line whose start is missing
    bool unseen = false;
  };

  void Feed(const v1::RankOutput& output, Shown* shown, std::vector<OutputLine>* lines);
  static void Emit(const Stream& stream, Shown* shown, std::vector<OutputLine>* lines);

  const size_t lines_;
  bool began_ = false;
  std::map<Stream, Shown> streams_;
  std::map<bool, std::vector<int32_t>> unseen_;  // ranks by is_stderr; not told yet
  std::set<std::string> told_;
  std::vector<std::string> notes_;
};

}  // namespace ddprun::ctl

#endif  // DDPRUN_DDPRUNCTL_OUTPUT_VIEW_H_
