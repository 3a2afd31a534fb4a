// Runs a target on every file of the given folders, and on randomly changed copies. For machines without libFuzzer, and
// to keep inputs that libFuzzer found as tests.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

constexpr int kChangedInputs = 5000;

void Run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

void Change(std::mt19937* random, std::string* input) {
  const auto below = [&](size_t end) { return (*random)() % end; };
  if (input->empty()) input->push_back('x');
  switch (below(4)) {
    case 0: (*input)[below(input->size())] = static_cast<char>((*random)()); break;
    case 1: input->resize(below(input->size() + 1)); break;
    case 2: input->insert(below(input->size() + 1), 1 + below(8), static_cast<char>((*random)())); break;
    default: {
      const size_t from = below(input->size());
      input->insert(below(input->size() + 1), input->substr(from, 1 + below(16)));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> corpus;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  if (corpus.empty()) {
    std::cerr << "no input\n";
    return 1;
  }
  std::sort(corpus.begin(), corpus.end());
  const char* chosen = std::getenv("DDPRUN_TEST_SEED");
  const uint32_t seed =
      chosen != nullptr ? static_cast<uint32_t>(std::strtoul(chosen, nullptr, 10)) : std::random_device()();
  std::cerr << corpus.size() << " inputs, DDPRUN_TEST_SEED=" << seed << std::endl;
  for (const std::string& input : corpus) Run(input);
  std::mt19937 random(seed);
  for (int i = 0; i < kChangedInputs; ++i) {
    std::string input = corpus[random() % corpus.size()];
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes) Change(&random, &input);
    Run(input);
  }
  return 0;
}
