// SPDX-License-Identifier: Apache-2.0
// One parameter server with workers that are lines of a test. The test sends every message and
// decides the order.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/cluster/servers/server.h"

namespace penstock {

/// A clock that stands still until the test advances it.
class StandingClock final : public Clock {
 public:
  Time now() const override { return now_; }
  void sleep_until(Time deadline, std::stop_token = {}) override { now_ = deadline; }
  void wake(Gate&) override {}
  void advance(Nanoseconds time) { now_ += time; }

 protected:
  bool wait_for_condition(std::unique_lock<std::mutex>&, Gate&, std::stop_token,
                          Condition ready) override {
    return ready();
  }

 private:
  Time now_ = Time() + std::chrono::hours(1);
};

class ServerScript : public cluster::Server::Outlet {
 public:
  struct Sent {
    cluster::ServerHeader header;
    std::string data;
    std::vector<float> floats() const {
      std::vector<float> values(data.size() / sizeof(float));
      std::memcpy(values.data(), data.data(), values.size() * sizeof(float));
      return values;
    }
  };

  explicit ServerScript(std::int32_t workers, std::int32_t servers = 1)
      : cluster(make_cluster(workers, servers)),
        server(cluster, 0,
               {.rendezvous = std::chrono::seconds(60), .silence = std::chrono::seconds(30)}, clock,
               *this) {}

  void send(const std::string& peer, const cluster::ServerHeader& header,
            std::span<const std::byte> data, bool) override {
    sent[peer].push_back({header, std::string(cluster::text_of(data))});
  }
  void say(const std::string& sentence) override { said.push_back(sentence); }

  static std::string peer(std::int32_t worker) {
    return std::string("peer-").append(std::to_string(worker));
  }

  /// A message as a socket would deliver it.
  void message(const std::string& from, cluster::ServerHeader header, std::string_view data = {},
               std::size_t frames = 0) {
    header.length = data.size();
    raw(from, cluster::to_bytes(header), data, frames > 0 ? frames : data.empty() ? 1 : 2);
  }
  void raw(const std::string& from, std::span<const std::byte> header, std::string_view data,
           std::size_t frames) {
    auto* const kept = new std::string(data);
    server.receive({.peer = from,
                    .address = "",
                    .connection = static_cast<int>(from.back()),
                    .frames = frames,
                    .header = header,
                    .data = {cluster::bytes_of(*kept), net::Frame::Owner(kept, [](void* object) {
                               delete static_cast<std::string*>(object);
                             })}});
  }
  void hello(std::int32_t worker) {
    message(peer(worker),
            {.kind = cluster::MessageKind::hello, .task = static_cast<std::uint32_t>(worker)},
            cluster.describe());
  }
  /// Begins with one part, whose elements all decay and have these initial weights.
  void begin(cluster::ServerRule rule, const std::string& optimizer,
             const std::vector<float>& weights) {
    for (std::int32_t worker = 0; worker < cluster.workers(); ++worker) hello(worker);
    const cluster::ModelLayout layout{
        rule,
        optimizer,
        {{.count = weights.size(), .segments = {{static_cast<std::uint32_t>(weights.size())}}}}};
    message(peer(0), {.kind = cluster::MessageKind::layout}, cluster::write_layout(layout, 0));
    message(peer(0), {.kind = cluster::MessageKind::first},
            cluster::text_of(std::as_bytes(std::span(weights))));
    sent.clear();
  }
  void push(std::int32_t worker, std::uint64_t step, const std::vector<float>& gradients,
            float rate, float scale, std::uint64_t version = 0) {
    message(peer(worker),
            {.kind = cluster::MessageKind::push,
             .task = static_cast<std::uint32_t>(worker),
             .step = step,
             .learning_rate = rate,
             .gradient_scale = scale,
             .version = version},
            cluster::text_of(std::as_bytes(std::span(gradients))));
  }
  /// Lets time pass while these workers are heard.
  void pass(Nanoseconds time, const std::vector<std::int32_t>& heard) {
    for (const Time end = clock.now() + time; clock.now() < end;) {
      clock.advance(std::chrono::milliseconds(500));
      for (const std::int32_t worker : heard) {
        message(peer(worker), {.kind = cluster::MessageKind::beat, .key = 2, .step = 4});
      }
      server.look();
    }
  }
  /// The messages to the worker since the last call.
  std::vector<Sent> take(std::int32_t worker) {
    return std::exchange(sent[peer(worker)], std::vector<Sent>{});
  }

  StandingClock clock;
  const cluster::Cluster cluster;
  std::map<std::string, std::vector<Sent>> sent;
  std::vector<std::string> said;
  cluster::Server server;

 private:
  static cluster::Cluster make_cluster(std::int32_t workers, std::int32_t servers) {
    cluster::Cluster made{.ps_hosts = {}, .worker_hosts = {}, .program = "a test"};
    for (std::int32_t i = 0; i < servers; ++i)
      made.ps_hosts.push_back(std::string("s:").append(std::to_string(i + 1)));
    for (std::int32_t i = 0; i < workers; ++i) {
      made.worker_hosts.push_back(std::string("w:").append(std::to_string(i + 1)));
    }
    return made;
  }
};

}  // namespace penstock
