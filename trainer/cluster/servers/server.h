// SPDX-License-Identifier: Apache-2.0
// One parameter server: its members, the texts that they exchange through it, its part of the
// weights, and the end of the run. It knows no sockets: receive() takes messages, an Outlet sends
// them, and look() is called regularly, so that a test can script every event. serve_parameters()
// gives it a socket.
//
// It listens only to peers that said hello as a task of the run. Messages of other peers and
// invalid messages are counted and reported, and change nothing.
//
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/net/curve_setup.h"
#include "dataflow/net/message_sockets.h"
#include "trainer/cluster/liveness/rank_states.h"
#include "trainer/cluster/servers/cluster.h"
#include "trainer/cluster/servers/message.h"
#include "trainer/cluster/servers/part_store.h"

namespace penstock::cluster {

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

  /// Server `task` of the cluster. The references outlive it. The timeouts: until all workers have
  /// said hello; silence of one worker, and of a step; after the end of the run.
  Server(Cluster cluster, std::int32_t task, const liveness::RankDeadlines& deadlines, Clock& clock,
         Outlet& outlet);

  void receive(net::Received message);
  /// The tasks that use that connection.
  std::vector<std::int32_t> tasks_on(int connection) const;
  /// The task's connection has ended, and all its earlier messages were received.
  void connection_ended(std::int32_t task);
  /// Checks the deadlines. Called a few times a second; see RankStates::lost.
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
    std::optional<std::string> text;  ///< of the current meeting
  };

  std::int32_t task_of(const std::string& peer) const;
  void hello(const net::Received& message, const ServerHeader& header);
  void dispatch(std::int32_t task, const ServerHeader& header, net::Frame data);
  void gather(std::int32_t task, const ServerHeader& header, std::span<const std::byte> data);
  void define(std::int32_t task, std::span<const std::byte> data);
  void heard(std::int32_t task, RankPhase phase, std::int64_t step);
  void goodbye(std::int32_t task, const ServerHeader& header);
  PartStore& store(const ServerHeader& header);
  std::vector<liveness::LostRank> absent(Time now) const;
  void reject(const net::Received& message, const std::string& why);
  void conclude(const std::string& why);
  /// Ends the run if any of these are lost.
  void conclude(std::span<const liveness::LostRank> lost);
  void reply(const std::string& peer, MessageKind kind, const ServerHeader& to,
             std::string_view text = {});

  const Cluster cluster_;
  const std::int32_t task_;
  const liveness::RankDeadlines deadlines_;
  Clock& clock_;
  Outlet& outlet_;
  liveness::RankStates states_;  // of the workers
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

struct ServeArguments {
  Cluster cluster;
  std::int32_t task = 0;
  bool insecure = false;    ///< may listen on addresses that other machines can reach
  net::CurveFiles curve{};  ///< server keys, or none
  int io_threads = 1;       ///< libzmq's I/O threads
  liveness::RankDeadlines patience{};
};

/// The outcome of a server.
struct Served {
  std::string failure;        ///< why the run did not complete; empty: it completed
  std::int64_t rejected = 0;  ///< messages for other receivers, or invalid ones
  std::int64_t refused = 0;   ///< connection attempts without the right key
  bool stopped = false;       ///< by a request to `stop`
};

/// Listens at its address in the cluster until all workers have said goodbye, one is lost, or
/// `stop` is requested. `say` gets progress messages. Throws ConfigError if it cannot listen,
/// Unavailable if this program was built without ZeroMQ.
Served serve_parameters(const ServeArguments& arguments, Clock& clock,
                        const std::function<void(const std::string&)>& say, std::stop_token stop);

}  // namespace penstock::cluster
