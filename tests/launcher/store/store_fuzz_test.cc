// Hostile clients: whatever they send, the store neither crashes nor grows, and continues to serve other clients.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "launcher/store/registration.h"
#include "tests/launcher/store/raw_store_client.h"
#include "tests/launcher/store/request_bytes.h"
#include "tests/launcher/store/store_on_loop.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxBytes = 32 << 20;

uint32_t Seed() {
  uint32_t seed = 0;
  const char* chosen = std::getenv("DDPRUN_TEST_SEED");
  return chosen != nullptr && absl::SimpleAtoi(chosen, &seed) ? seed : std::random_device()();
}

StoreOptions SmallStore() {
  StoreOptions options;
  options.max_bytes = kMaxBytes;
  return options;
}

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

class StoreFuzzTest : public testing::Test {
 protected:
  StoreFuzzTest() { RecordProperty("seed", std::to_string(seed_)); }

  size_t Random(size_t below) { return random_() % below; }
  std::string RandomBytes(size_t most) {
    std::string bytes(Random(most + 1), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }
  std::string RandomKey() { return "/" + std::string(1, static_cast<char>('a' + Random(5))); }
  // A wrong length that exercises an edge case.
  std::string RandomLength() {
    const uint64_t lengths[] = {
        0, 1, 8192, 8193, 8 << 20, (8 << 20) + 1, 131072, 131073, UINT64_MAX, uint64_t{1} << 63};
    return Number(lengths[Random(std::size(lengths))]);
  }
  std::string RandomRequest() {
    switch (Random(16)) {
      case 0: return Set(RandomKey(), RandomBytes(2000));
      case 1: return Get(RandomKey());
      case 2: return Add(RandomKey(), static_cast<int64_t>(random_()));
      case 3: return Wait({RandomKey(), RandomKey()});
      case 4: return CancelWait();
      case 5: return MultiSet({{RandomKey(), RandomBytes(50)}, {RandomKey(), ""}});
      case 6: return MultiGet({RandomKey(), RandomKey(), "/none"});
      case 7: return QueuePush(RandomKey(), RandomBytes(100));
      case 8: return QueuePop(RandomKey());
      case 9: return Barrier(RandomKey(), static_cast<int64_t>(Random(4)));
      case 10: return ListKeys() + NumKeys();
      case 11: return CompareSet(RandomKey(), "", RandomBytes(20)) + DeleteKey(RandomKey());
      case 12: return Op(Random(2) == 0 ? Opcode::kRegisterNode : Opcode::kEvidence) + Text(RandomRegistration());
      case 13: return std::string(1, static_cast<char>(Random(20))) + RandomLength() + RandomBytes(40);
      case 14: return RandomBytes(60);
      default: return Ping(random_());
    }
  }
  std::string RandomRegistration() {
    std::string payload = EncodeRegistration({1, static_cast<int32_t>(Random(5)), "host", {1, 2, 3}});
    if (Random(2) == 0) payload[Random(payload.size())] = static_cast<char>(random_());
    return payload.substr(0, Random(3) == 0 ? Random(payload.size()) : payload.size());
  }

  const uint32_t seed_ = Seed();
  testing::ScopedTrace trace_{__FILE__, __LINE__, testing::Message() << "DDPRUN_TEST_SEED=" << seed_};
  std::mt19937 random_{seed_};
};

TEST_F(StoreFuzzTest, RandomClients_NeitherCrashNorGrow) {
  StoreOnLoop store(SmallStore());
  std::vector<std::unique_ptr<RawClient>> clients(8);
  for (int step = 0; step < 15000; ++step) {
    auto& client = clients[Random(clients.size())];
    if (client == nullptr || Random(40) == 0) client = std::make_unique<RawClient>(store.port(), Random(20) != 0);
    std::string bytes = RandomRequest();
    if (Random(15) == 0) bytes.resize(Random(bytes.size() + 1));
    const bool was_closed = !client->connected() || !client->Send(bytes);
    if (was_closed) client.reset();
  }
  clients.clear();
  EXPECT_LT(store.Call([](StoreServer& server) { return server.used_bytes(); }), kMaxBytes);
  RawClient good(store.port());
  EXPECT_EQ(good.Ask(Set("/good", "1") + Get("/good")), Text("1"));
}

TEST_F(StoreFuzzTest, HugeLengths_NothingAllocated) {
  StoreOnLoop store(SmallStore());
  const size_t before = ResidentBytes();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<RawClient>(store.port()));
    // The longest allowed value and list, announced but not sent.
    clients.back()->Send(i % 2 == 0 ? Op(Opcode::kSet) + Text("/a") + Number<uint64_t>(8 << 20)
                                    : Op(Opcode::kWait) + Number<uint64_t>(131072));
  }
  EXPECT_LT(store.Call([](StoreServer& server) { return server.used_bytes(); }), size_t{2} << 20);
  EXPECT_LT(ResidentBytes() - std::min(before, ResidentBytes()), size_t{100} << 20);
}

TEST_F(StoreFuzzTest, ConnectionFlood_Ended_MemoryIsReleased) {
  StoreOnLoop store(SmallStore());
  size_t after_first = 0;
  for (int wave = 0; wave < 10; ++wave) {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 200; ++i) {
      clients.push_back(std::make_unique<RawClient>(store.port(), /*hello=*/false));
      clients.back()->Send(Random(2) == 0 ? Validate() + Wait({RandomKey()}) : RandomBytes(20));
    }
    if (wave == 0) after_first = ResidentBytes();
  }
  EXPECT_LT(ResidentBytes(), after_first + (size_t{100} << 20));
  RawClient good(store.port());
  EXPECT_EQ(good.Ask(Add("/good", 1)), Number<int64_t>(1));
}

}  // namespace
}  // namespace ddprun::launcher
