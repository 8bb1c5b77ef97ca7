// SPDX-License-Identifier: Apache-2.0
// Compares the path of parameter servers with bare libzmq that does only the necessary work: a
// DEALER sends parts without a copy, and a ROUTER sends the same number of bytes back. Rounds are
// interleaved. Each round starts a server process and a process for each worker but the first, over
// TCP on loopback.
//
//   penstock_ps_peer [rounds=9] [steps=30] [mib=100] [part=4096000] [workers=1] [rule=sum|together]
//
// A worker has the parts of one step in transit at a time, and measures all steps but the first
// three. Prints GB/s of worker 0, pushed and pulled together, medians over rounds with the lowest
// and the highest, and the ratio of each pair.
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "bench/record/statistics.h"
#include "dataflow/error.h"
#include "dataflow/options.h"
#include "trainer/cluster/servers/connection.h"
#include "trainer/cluster/servers/server.h"

namespace penstock {
namespace {

constexpr std::int64_t kWarmUp = 3;

struct Plan {
  std::int64_t rounds = 9, steps = 30, mib = 100, part = 4'096'000, workers = 1;
  cluster::ServerRule rule = cluster::ServerRule::sum;

  std::size_t elements() const { return (static_cast<std::size_t>(mib) << 20) / sizeof(float); }
};

/// Both sides use the same parts.
cluster::PartPlan parts_of(const Plan& plan, std::vector<float>& weights) {
  ParameterSet set;
  set.weights = set.gradients = {weights.data(), weights.size()};
  return cluster::plan_parts(set, Placement::first, 1, static_cast<std::size_t>(plan.part));
}

std::string free_address() {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool bound = bind(probe, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     getsockname(probe, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  close(probe);
  if (!bound) throw ConfigError("no port of 127.0.0.1 is free");
  return fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
}

/// Measures the time of all steps after the warm-up.
class Stopwatch {
 public:
  explicit Stopwatch(const Plan& plan) : plan_(plan) {}
  void lap(std::int64_t step) {
    if (step + 1 == kWarmUp) start_ = std::chrono::steady_clock::now();
  }
  double gb_per_s() const {
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start_;
    const double bytes = 2. * sizeof(float) * static_cast<double>(plan_.elements());
    return 1e-9 * bytes * static_cast<double>(plan_.steps) / wall.count();
  }

 private:
  const Plan& plan_;
  std::chrono::steady_clock::time_point start_;
};

class Child {
 public:
  template <typename Body>
  explicit Child(const Body& body) : pid_(fork()) {
    if (pid_ < 0) throw Error("cannot fork");
    if (pid_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = 0;
    try {
      body();
    } catch (const std::exception& error) {
      fmt::print(stderr, "penstock_ps_peer: {}\n", error.what());
      code = 2;
    }
    std::_Exit(code);
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&&) = delete;
  /// Bare libzmq servers and workers run until they are killed.
  ~Child() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void wait() { waitpid(std::exchange(pid_, -1), nullptr, 0); }

 private:
  pid_t pid_;
};

// ---- bare libzmq ------------------------------------------------------------

[[noreturn]] void serve_bare(const Plan& plan, const std::string& address) {
  zmq::context_t context;
  zmq::socket_t socket(context, ZMQ_ROUTER);
  socket.set(zmq::sockopt::sndhwm, 0);
  socket.set(zmq::sockopt::rcvhwm, 0);
  socket.bind("tcp://" + address);
  std::vector<float> memory(plan.elements());
  const cluster::PartPlan parts = parts_of(plan, memory);
  std::map<std::uint32_t, std::vector<std::string>> waiting;
  while (true) {
    zmq::message_t peer, key, data;
    static_cast<void>(socket.recv(peer));
    static_cast<void>(socket.recv(key));
    static_cast<void>(socket.recv(data));
    std::vector<std::string>& peers = waiting[*key.data<std::uint32_t>()];
    peers.push_back(peer.to_string());
    if (peers.size() < static_cast<std::size_t>(plan.workers)) continue;
    const cluster::Part& part = parts.parts.at(*key.data<std::uint32_t>());
    for (const std::string& name : std::exchange(peers, {})) {
      socket.send(zmq::buffer(name), zmq::send_flags::sndmore);
      socket.send(zmq::buffer(&part.key, sizeof part.key), zmq::send_flags::sndmore);
      zmq::message_t answer(
          memory.data() + part.first, part.count * sizeof(float), [](void*, void*) {}, nullptr);
      socket.send(answer, zmq::send_flags::none);
    }
  }
}

double work_bare(const Plan& plan, const std::string& address) {
  zmq::context_t context;
  zmq::socket_t socket(context, ZMQ_DEALER);
  socket.set(zmq::sockopt::sndhwm, 0);
  socket.set(zmq::sockopt::rcvhwm, 0);
  socket.set(zmq::sockopt::rcvtimeo, 30'000);
  socket.connect("tcp://" + address);
  std::vector<float> gradients(plan.elements()), weights(plan.elements());
  const cluster::PartPlan parts = parts_of(plan, weights);
  Stopwatch watch(plan);
  for (std::int64_t step = 0; step < kWarmUp + plan.steps; ++step) {
    for (const cluster::Part& part : parts.parts) {
      socket.send(zmq::buffer(&part.key, sizeof part.key), zmq::send_flags::sndmore);
      zmq::message_t data(
          gradients.data() + part.first, part.count * sizeof(float), [](void*, void*) {}, nullptr);
      socket.send(data, zmq::send_flags::none);
    }
    for (std::size_t i = 0; i < parts.parts.size(); ++i) {
      zmq::message_t key, data;
      if (!socket.recv(key) || !socket.recv(data)) throw TimeoutError("no answer of the server");
      const cluster::Part& part = parts.parts.at(*key.data<std::uint32_t>());
      std::memcpy(weights.data() + part.first, data.data(), data.size());
    }
    watch.lap(step);
  }
  return watch.gb_per_s();
}

double bare_libzmq(const Plan& plan) {
  const std::string address = free_address();
  const Child server([&] { serve_bare(plan, address); });
  std::vector<Child> others;
  for (std::int64_t i = 1; i < plan.workers; ++i) {
    others.emplace_back([&] { work_bare(plan, address); });
  }
  const double rate = work_bare(plan, address);
  for (Child& other : others) other.wait();
  return rate;
}

// ---- Penstock ---------------------------------------------------------------

double work(const Plan& plan, const cluster::Cluster& cluster, std::int32_t task) {
  SteadyClock clock;
  cluster::ServerConnection servers({.cluster = cluster, .task = task, .optimizer = "sgd"}, clock);
  std::vector<float> gradients(plan.elements()), weights(plan.elements());
  const cluster::PartPlan parts = parts_of(plan, weights);
  servers.begin(parts, plan.rule, {weights.data(), weights.size()}, {});
  Stopwatch watch(plan);
  for (std::int64_t step = 0; step < kWarmUp + plan.steps; ++step) {
    for (const cluster::Part& part : parts.parts) {
      servers.push({.part = part.key,
                    .gradients = std::span(gradients).subspan(part.first, part.count),
                    .into = std::span(weights).subspan(part.first, part.count)},
                   {.hyper = {.step = step}});
    }
    static_cast<void>(servers.await());
    watch.lap(step);
  }
  const double rate = watch.gb_per_s();
  servers.release();
  return rate;
}

double our_servers(const Plan& plan) {
  cluster::Cluster cluster{
      .ps_hosts = {free_address()}, .worker_hosts = {}, .program = "penstock_ps_peer"};
  for (std::int64_t i = 0; i < plan.workers; ++i) {
    cluster.worker_hosts.push_back(fmt::format("127.0.0.1:{}", i + 1));
  }
  Child server([&] {
    SteadyClock clock;
    const auto say = [](const std::string& sentence) { fmt::print(stderr, "{}\n", sentence); };
    static_cast<void>(cluster::serve_parameters({.cluster = cluster}, clock, say, {}));
  });
  std::vector<Child> others;
  for (std::int32_t task = 1; task < plan.workers; ++task) {
    others.emplace_back([&, task] { work(plan, cluster, task); });
  }
  const double rate = work(plan, cluster, 0);
  for (Child& other : others) other.wait();
  server.wait();
  return rate;
}

// ---- both -------------------------------------------------------------------

Plan parse(int count, char** arguments) {
  Plan plan;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "rule" && (value == "sum" || value == "together")) {
      plan.rule = value == "sum" ? cluster::ServerRule::sum : cluster::ServerRule::together;
      continue;
    }
    std::int64_t* const field = key == "rounds"    ? &plan.rounds
                                : key == "steps"   ? &plan.steps
                                : key == "mib"     ? &plan.mib
                                : key == "part"    ? &plan.part
                                : key == "workers" ? &plan.workers
                                                   : nullptr;
    if (field == nullptr) {
      throw ConfigError("'{}' is none of rounds, steps, mib, part, workers, rule", word);
    }
    *field = parse_integer(value, key);
    if (*field < 1) throw ConfigError(word + "; expected at least 1");
  }
  return plan;
}

void print(const std::string& name, const std::vector<double>& rounds) {
  const Spread rate = spread(rounds);
  fmt::print("{:<24}{:6.2f} GB/s ({:.2f} to {:.2f})\n", name, rate.median, rate.low, rate.high);
}

void measure(const Plan& plan) {
  std::vector<double> bare, ours, ratios;
  for (std::int64_t round = 0; round < plan.rounds; ++round) {
    bare.push_back(bare_libzmq(plan));
    ours.push_back(our_servers(plan));
    ratios.push_back(ours.back() / bare.back());
  }
  fmt::print("{} rounds of {} steps of {} MiB in parts of {} bytes, {} workers, the server {}\n",
             plan.rounds, plan.steps, plan.mib, plan.part, plan.workers, to_string(plan.rule));
  print("libzmq, and one memcpy", bare);
  print("parameter server", ours);
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
    fmt::print(stderr, "penstock_ps_peer: {}\n", error.what());
    return 2;
  }
}
