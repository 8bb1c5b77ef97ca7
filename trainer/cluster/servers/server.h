// SPDX-License-Identifier: Apache-2.0
// One parameter server: its members, the texts that they exchange through it, its part of the
// weights, and the end of the run. It knows no sockets: receive() takes messages, an Outlet sends
// them, and look() is called regularly, so that a test can script every event.
//
// It listens only to peers that said hello as a task of the run. Messages of other peers and
// invalid messages are counted and reported, and change nothing.
//
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/cluster/servers/cluster.h"
#include "trainer/cluster/servers/frame.h"
#include "trainer/cluster/servers/message.h"
#include "trainer/cluster/servers/part_store.h"

namespace penstock::cluster {

/// Timeouts for other members.
struct ServerPatience {
  Nanoseconds rendezvous = std::chrono::seconds(60);  ///< until all workers have said hello
  Nanoseconds silence = std::chrono::seconds(30);     ///< of one worker, and of a step
  Nanoseconds goodbye = std::chrono::seconds(10);     ///< after the end of the run
};

class Server {
 public:
  class Outlet {
   public:
    virtual ~Outlet() = default;
    /// `stays`: see PartStore::Send. Never blocks.
    virtual void send(const std::string& peer, const ServerHeader& header,
                      std::span<const std::byte> data, bool stays) = 0;
    /// Gets a sentence for the server's operator.
    virtual void say(const std::string& sentence) = 0;
  };

  /// Server `task` of the cluster. The references outlive it.
  Server(Cluster cluster, std::int32_t task, const ServerPatience& patience, Clock& clock,
         Outlet& outlet);

  void receive(Received message);
  /// The tasks that use that connection.
  std::vector<std::int32_t> tasks_on(int connection) const;
  /// The task's connection has ended, and all its earlier messages were received.
  void connection_ended(std::int32_t task);
  /// Checks the deadlines. Called a few times a second.
  void look();
  /// Ends the run for all members, for that reason.
  void end(const std::string& why) { conclude(why); }

  /// True: no member needs the server any more.
  bool done() const;
  /// Why the run did not complete; empty: it completed.
  const std::string& failure() const noexcept { return failure_; }
  std::int64_t rejected() const noexcept { return rejected_; }

 private:
  struct Worker {
    std::string peer;
    int connection = -1;
    bool joined = false, left = false;
    Time heard{};
    WorkerPhase phase = WorkerPhase::joining;
    std::uint64_t step = 0;
    std::optional<std::string> text;  ///< of the current meeting
  };

  std::int32_t task_of(const std::string& peer) const;
  void hello(const Received& message, const ServerHeader& header);
  void dispatch(std::int32_t task, const ServerHeader& header, Frame data);
  void gather(std::int32_t task, const ServerHeader& header, std::span<const std::byte> data);
  void define(std::int32_t task, std::span<const std::byte> data);
  void goodbye(std::int32_t task, const ServerHeader& header);
  PartStore& store(const ServerHeader& header);
  void look_at_meeting(Time now);
  void look_at_step(Time now);
  void reject(const Received& message, const std::string& why);
  void conclude(const std::string& why);
  std::string where(std::int32_t task) const;
  void reply(const std::string& peer, MessageKind kind, const ServerHeader& to,
             std::string_view text = {});

  const Cluster cluster_;
  const std::int32_t task_;
  const ServerPatience patience_;
  Clock& clock_;
  Outlet& outlet_;
  const Time started_;
  std::vector<Worker> workers_;
  std::map<std::string, std::int32_t> tasks_;  // by peer
  std::unique_ptr<PartStore> store_;
  std::vector<std::pair<std::int32_t, ServerHeader>> early_pulls_;  // arrived before the layout
  std::uint64_t meeting_ = 0;
  std::optional<Time> meeting_ends_;
  std::string meeting_about_;
  Time pushed_{};  ///< time of the last push
  std::string failure_;
  Time ends_{};  ///< set after a failure
  std::int64_t rejected_ = 0;
};

}  // namespace penstock::cluster
