// SPDX-License-Identifier: Apache-2.0
// Compares the zmq-consume feeder with bare libzmq that does only the necessary work: receive, and
// one memcpy into recycled slots. Rounds are interleaved in one program. Each round starts a
// zero-copy producer process at the other end of an ipc:// socket, with batches of 64x224x224x3
// bytes and their labels.
//
//   penstock_zmq_peer [rounds=9] [batches=300] [hwm=8] [slots=3] [malloc=default|keep]
//
// Prints GB/s (medians over rounds with the lowest and the highest), the ratio of each pair, and
// the CPU seconds per GB of this process (all its threads including libzmq's, without the
// producer). malloc=keep makes glibc keep the memory of freed messages instead of unmapping it.
#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "bench/record/machine.h"
#include "bench/record/statistics.h"
#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "dataflow/random.h"
#include "feeders/feeder.h"
#include "feeders/remote/wire/zmq_op.h"

namespace penstock {
namespace {

constexpr BatchSpec kSpec{.images = 64, .image = {224, 224, 3}};

struct Plan {
  std::int64_t rounds = 9, batches = 300, hwm = 8, slots = 3;
  bool keep_memory = false;

  /// Messages before the clock starts: more than both sockets can store.
  std::int64_t warm_up() const { return 3 * hwm + 10; }
};

struct Measured {
  double gb_per_s = 0, cpu_s_per_gb = 0, faults_per_batch = 0;
};

std::int64_t minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

/// Measures the time and the CPU time of all batches after the warm-up batches.
class Stopwatch {
 public:
  explicit Stopwatch(const Plan& plan) : plan_(plan) {}
  /// Call this after each batch. False: that was the last.
  bool lap() {
    if (++count_ == plan_.warm_up()) {
      start_ = std::chrono::steady_clock::now();
      cpu_s_ = process_cpu_seconds();
      faults_ = minor_faults();
    }
    return count_ < plan_.warm_up() + plan_.batches;
  }
  Measured measured() const {
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start_;
    const double gb =
        1e-9 * static_cast<double>(plan_.batches) * static_cast<double>(kSpec.bytes());
    return {gb / wall.count(), (process_cpu_seconds() - cpu_s_) / gb,
            static_cast<double>(minor_faults() - faults_) / static_cast<double>(plan_.batches)};
  }

 private:
  const Plan& plan_;
  std::int64_t count_ = 0, faults_ = 0;
  double cpu_s_ = 0;
  std::chrono::steady_clock::time_point start_;
};

/// Sends the same three batches, without a copy, until it is killed.
[[noreturn]] void produce(const std::string& endpoint, std::int64_t hwm) {
  const remote::BatchLayout layout(kSpec, kSpec.images);
  std::vector<std::vector<std::byte>> messages(3, std::vector<std::byte>(layout.size()));
  for (std::vector<std::byte>& message : messages) {
    Random(1, 0, static_cast<std::uint64_t>(&message - messages.data()))
        .fill(std::span(message).subspan(remote::BatchLayout::kPixelsAt, kSpec.pixel_bytes()));
    layout.write_headers(message);
  }
  zmq::context_t context;
  zmq::socket_t socket(context, ZMQ_PUSH);
  socket.set(zmq::sockopt::sndhwm, static_cast<int>(hwm));
  socket.connect(endpoint);
  for (std::size_t count = 0;; ++count) {
    std::vector<std::byte>& bytes = messages[count % messages.size()];
    zmq::message_t message(
        bytes.data(), bytes.size(), [](void*, void*) {}, nullptr);
    socket.send(message, zmq::send_flags::none);
  }
}

class ProducerChild {
 public:
  ProducerChild(const std::string& endpoint, std::int64_t hwm) : pid_(fork()) {
    if (pid_ < 0) throw Error("cannot fork a producer");
    if (pid_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    produce(endpoint, hwm);
  }
  ProducerChild(const ProducerChild&) = delete;
  ProducerChild& operator=(const ProducerChild&) = delete;
  ~ProducerChild() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

Measured bare_libzmq(const Plan& plan, const std::string& endpoint) {
  const ProducerChild producer(endpoint, plan.hwm);
  zmq::context_t context;
  zmq::socket_t socket(context, ZMQ_PULL);
  socket.set(zmq::sockopt::rcvhwm, static_cast<int>(plan.hwm));
  socket.set(zmq::sockopt::rcvtimeo, 30'000);
  socket.bind(endpoint);
  SteadyClock clock;
  HostDevice device(clock);
  std::vector<Buffer> slots;
  for (std::int64_t i = 0; i < plan.slots; ++i) {
    slots.push_back(device.allocate(kSpec.bytes(), MemoryKind::pinned));
  }
  Stopwatch watch(plan);
  zmq::message_t message;
  for (std::size_t count = 0;; ++count) {
    if (!socket.recv(message)) throw TimeoutError("the producer sends nothing");
    const std::size_t bytes = std::min(message.size(), kSpec.bytes());
    std::memcpy(slots[count % slots.size()].bytes().data(), message.data(), bytes);
    if (!watch.lap()) return watch.measured();
  }
}

Measured our_feeder(const Plan& plan, const std::string& endpoint) {
  const ProducerChild producer(endpoint, plan.hwm);
  SteadyClock clock;
  HostDevice device(clock);
  Device* const reader = &device;
  Probe probe;
  const FeederEntry& entry = find_entry(feeder_table(), "zmq-consume");
  const Options options(
      entry.name, entry.options,
      parse_component(fmt::format("zmq-consume:endpoint={},hwm={}", endpoint, plan.hwm)));
  BatchRing ring(kSpec, static_cast<std::size_t>(plan.slots), device, MemoryKind::pinned,
                 std::span(&reader, 1), Order::relaxed, clock);
  const std::unique_ptr<Feeder> feeder =
      entry.make(FeederContext{.spec = kSpec,
                               .device = device,
                               .clock = clock,
                               .options = options,
                               .probe = probe,
                               .timeout = std::chrono::seconds(30)});
  const std::jthread feeding([&](const std::stop_token& stop) {
    try {
      feeder->run(ring, stop);
    } catch (...) {
      ring.fail(std::current_exception());
    }
  });
  Stopwatch watch(plan);
  while (ring.next(0, {})) {
    if (!watch.lap()) return watch.measured();
  }
  throw Error("the feeder ended early");
}

void print(const std::string& name, const std::vector<Measured>& rounds) {
  std::vector<double> rates, cpu, faults;
  for (const Measured& round : rounds) {
    rates.push_back(round.gb_per_s);
    cpu.push_back(round.cpu_s_per_gb);
    faults.push_back(round.faults_per_batch);
  }
  const Spread rate = spread(rates), seconds = spread(cpu);
  fmt::print(
      "{:<24}{:6.2f} GB/s ({:.2f} to {:.2f}){:8.3f} CPU s/GB ({:.3f} to {:.3f}){:8.1f} page faults "
      "a "
      "batch\n",
      name, rate.median, rate.low, rate.high, seconds.median, seconds.low, seconds.high,
      median(faults));
}

Plan parse(int count, char** arguments) {
  Plan plan;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "malloc" && (value == "keep" || value == "default")) {
      plan.keep_memory = value == "keep";
      continue;
    }
    std::int64_t* const field = key == "rounds"    ? &plan.rounds
                                : key == "batches" ? &plan.batches
                                : key == "hwm"     ? &plan.hwm
                                : key == "slots"   ? &plan.slots
                                                   : nullptr;
    if (field == nullptr)
      throw ConfigError("'{}' is none of rounds, batches, hwm, slots, malloc", word);
    *field = parse_integer(value, key);
    if (*field < 1) throw ConfigError(word + "; expected at least 1");
  }
  return plan;
}

void measure(const Plan& plan) {
  if (plan.keep_memory) {
    // glibc refuses a threshold above 32 MiB on 64-bit machines.
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
  }
  std::string folder = "/tmp/penstock-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) throw ConfigError("cannot make a folder in /tmp");
  const std::string endpoint = fmt::format("ipc://{}/feed", folder);
  std::vector<Measured> bare, ours;
  std::vector<double> ratios;
  for (std::int64_t round = 0; round < plan.rounds; ++round) {
    bare.push_back(bare_libzmq(plan, endpoint));
    unlink((folder + "/feed").c_str());
    ours.push_back(our_feeder(plan, endpoint));
    ratios.push_back(ours.back().gb_per_s / bare.back().gb_per_s);
  }
  rmdir(folder.c_str());
  fmt::print("{} rounds of {} batches of {:.2f} MB, hwm {}, {} slots, malloc {}\n", plan.rounds,
             plan.batches, 1e-6 * static_cast<double>(kSpec.bytes()), plan.hwm, plan.slots,
             plan.keep_memory ? "keep" : "default");
  print("libzmq and one memcpy", bare);
  print("zmq-consume into a ring", ours);
  const Spread ratio = spread(ratios);
  fmt::print("ratio of each pair{:12.2f}      ({:.2f} to {:.2f})\n", ratio.median, ratio.low,
             ratio.high);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  try {
    penstock::measure(penstock::parse(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "penstock_zmq_peer: {}\n", error.what());
    return 2;
  }
}
