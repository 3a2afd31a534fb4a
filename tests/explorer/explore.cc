#include "tests/explorer/explore.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tests/explorer/arena.h"

namespace ddprun::testing {
namespace {

// A world in the arena.
World* NewWorld(const World::Settings& settings) {
  Arena::Clear();
  const Arena::Scope scope;
  return new World(settings);
}

void Take(World* world, const Choice& choice) {
  const Arena::Scope scope;
  world->Take(choice);
}

// Libraries allocate some things once, which must not lie in the arena.
void WarmUp(const World::Settings& settings) {
  std::mt19937 random(1);
  for (int run = 0; run < 50; ++run) {
    World world(settings);
    for (int step = 0; step < 400; ++step) {
      const std::vector<Choice> choices = world.Choices();
      if (choices.empty()) break;
      world.Take(choices[random() % choices.size()]);
      world.Digest();
    }
  }
}

class Explorer {
 public:
  explicit Explorer(const World::Settings& settings) : settings_(settings) {}

  Exploration Run(size_t most, bool compare) {
    WarmUp(settings_);
    world_ = NewWorld(settings_);
    Visit(0, Choice{});
    while (!stack_.empty() && result_.violation.empty() && result_.unequal.empty() && ids_.size() < most) Step(compare);
    result_.states = ids_.size();
    result_.transitions = edges_.size();
    if (result_.violation.empty() && result_.unequal.empty() && ids_.size() < most) CheckEnds();
    return std::move(result_);
  }

 private:
  struct Frame {
    uint32_t id;
    std::string memory;
    std::vector<Choice> choices;
    size_t next = 0;
  };
  struct Origin {
    uint32_t from;
    Choice choice;
  };

  // The world is in a state that `choice` led to.
  void Visit(uint32_t from, const Choice& choice) {
    const auto [it, is_new] = ids_.try_emplace(world_->Digest(), static_cast<uint32_t>(ids_.size()));
    const uint32_t id = it->second;
    if (!stack_.empty()) edges_.emplace_back(from, id);
    if (!is_new) return;
    origins_.push_back({from, choice});
    if (!world_->violation().empty()) return Fail(id, world_->violation());
    if (world_->ended()) ends_.push_back(id);
    Frame frame{id, "", world_->Choices()};
    if (frame.choices.size() > 1) frame.memory = Arena::Save();
    stack_.push_back(std::move(frame));
    result_.depth = std::max(result_.depth, stack_.size());
  }

  void Step(bool compare) {
    if (stack_.back().next == stack_.back().choices.size()) return stack_.pop_back();
    Frame& frame = stack_.back();
    if (frame.next > 0) Arena::Restore(frame.memory);
    const Choice choice = frame.choices[frame.next++];
    const uint32_t id = frame.id;
    Take(world_, choice);
    if (compare) Compare(id, choice);
    Visit(id, choice);
  }

  // The state's first visit and this one have the same successors.
  void Compare(uint32_t from, const Choice& choice) {
    const uint64_t digest = world_->Digest();
    const std::string memory = Arena::Save();
    uint64_t successors = world_->violation().empty();
    for (const Choice& next : world_->Choices()) {
      Take(world_, next);
      successors += world_->Digest();  // the order of choices depends on the past
      Arena::Restore(memory);
    }
    const auto [it, is_new] = successors_.try_emplace(digest, successors);
    if (is_new || it->second == successors) return;
    std::vector<Choice> way = WayTo(from);
    way.push_back(choice);
    result_.unequal = absl::StrCat(Replay(WayTo(ids_.at(digest))), "\n---- the other:\n", Replay(way));
  }

  // Every state has a way to an end.
  void CheckEnds() {
    std::vector<uint32_t> first(ids_.size() + 1), sources(edges_.size());
    for (const auto& [from, to] : edges_) ++first[to];
    for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    for (const auto& [from, to] : edges_) sources[--first[to]] = from;
    std::vector<bool> reached(ids_.size());
    std::vector<uint32_t> open = ends_;
    for (const uint32_t id : open) reached[id] = true;
    while (!open.empty()) {
      const uint32_t to = open.back();
      open.pop_back();
      for (uint32_t i = first[to]; i < first[to + 1]; ++i) {
        if (reached[sources[i]]) continue;
        reached[sources[i]] = true;
        open.push_back(sources[i]);
      }
    }
    result_.ends = ends_.size();
    const auto it = std::find(reached.begin(), reached.end(), false);
    if (it != reached.end()) Fail(static_cast<uint32_t>(it - reached.begin()), "4: some launchers never end");
  }

  void Fail(uint32_t id, std::string violation) {
    result_.violation = std::move(violation);
    result_.history = Replay(WayTo(id));
  }

  std::vector<Choice> WayTo(uint32_t id) const {
    std::vector<Choice> way;
    for (; id != 0; id = origins_[id].from) way.push_back(origins_[id].choice);
    std::reverse(way.begin(), way.end());
    return way;
  }

  std::string Replay(const std::vector<Choice>& way) const {
    World world(settings_);
    world.KeepNotes();
    for (const Choice& choice : way) world.Take(choice);
    return world.history();
  }

  const World::Settings settings_;
  World* world_ = nullptr;
  std::vector<Frame> stack_;
  absl::flat_hash_map<uint64_t, uint32_t> ids_;         // key: digest
  absl::flat_hash_map<uint64_t, uint64_t> successors_;  // key: digest
  std::vector<Origin> origins_;                         // index: id; the first way to the state
  std::vector<std::pair<uint32_t, uint32_t>> edges_;
  std::vector<uint32_t> ends_;
  Exploration result_;
};

}  // namespace

Exploration Explore(const World::Settings& settings, size_t most, bool compare) {
  return Explorer(settings).Run(most, compare);
}

}  // namespace ddprun::testing
