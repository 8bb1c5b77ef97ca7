// SPDX-License-Identifier: Apache-2.0
// A worker's connection to all parameter servers of its run. It exchanges texts among workers, and
// gradients for weights. A separate thread sends, receives, sends signs of life, and notices lost
// servers. It wakes waiting callers with an answer or an exception.
//
//   replica's thread:    push() ... await()          (parts in their order, or by priority)
//   connection's thread:   |part 0|part 1|part 2|    at most `credit` bytes that have not left
//   servers:                   |answer 0|answer 1|   into the memory that the push named
//
// Thread-safety: one thread at a time, not always the same one. Stops may be requested from any
// thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/machine/file_descriptor.h"
#include "dataflow/net/curve_setup.h"
#include "dataflow/net/message_sockets.h"
#include "trainer/cluster/liveness/rank_states.h"
#include "trainer/cluster/processes.h"
#include "trainer/cluster/servers/cluster.h"
#include "trainer/cluster/servers/message.h"
#include "trainer/cluster/servers/model_layout.h"
#include "trainer/optimizer.h"

namespace penstock::cluster {

/// What a resumed run continues from, beside the weights.
struct ResumedFrom {
  OptimizerState state{};  ///< of worker 0's optimizer, for the servers'; may be empty
  std::int64_t step = 0;   ///< steps taken before
};

class ServerConnection {
 public:
  struct Arguments {
    Cluster cluster;
    std::int32_t task = 0;
    std::string optimizer;  ///< applied by the servers, as given in --optimizer
    Nanoseconds rendezvous = std::chrono::seconds(60);
    Nanoseconds silence = std::chrono::seconds(30);  ///< timeout for a server, and for a step
    int io_threads = 1;
    net::CurveFiles curve{};  ///< client keys, or none
    std::stop_token stop{};   ///< requested when the run is ended from outside
  };
  /// Joins the run; blocks until every server has answered. Throws TimeoutError, and ConfigError if
  /// a server refuses or the keys are wrong. `clock` outlives it.
  ServerConnection(Arguments arguments, Clock& clock);
  /// Leaves with exit code 0, unless leave() was called.
  ~ServerConnection();

  ServerConnection(const ServerConnection&) = delete;
  ServerConnection& operator=(const ServerConnection&) = delete;

  const Cluster& cluster() const noexcept { return arguments_.cluster; }
  std::int32_t task() const noexcept { return arguments_.task; }

  /// Returns every worker's text, by task, through server 0. All workers call it in the same order.
  std::vector<std::string> all_gather(std::string_view text, Nanoseconds patience,
                                      std::string_view what);
  /// Tells the servers the exit code of this process. No other call is allowed after it.
  void leave(int exit_code);

  // ---- training ----

  /// On a request to `stopping`, waits leave with an Error within Processes::kGrace; on a request
  /// to `abandon`, at once.
  void attach(std::stop_token stopping, std::stop_token abandon);
  /// Agrees on the parts, and copies worker 0's weights and running statistics into every worker's
  /// arenas. All workers call it once.
  void begin(const PartPlan& plan, ServerRule rule, const Tensor& weights, const Tensor& running,
             const ResumedFrom& resumed = {});
  /// Copies the servers' weights, and their optimizers' state, into these arenas. Blocks. Called
  /// between steps, while no push is unanswered.
  void pull(const PartPlan& plan, const Tensor& weights, const OptimizerState& state);

  struct Push {
    std::uint32_t part = 0;              ///< key
    std::span<const float> gradients{};  ///< must stay valid until they are answered
    std::span<float> into{};             ///< receives the server's answer
    std::int32_t priority = 0;           ///< higher priorities go first
  };
  /// The other values of a push; see Hyper.
  struct Terms {
    Hyper hyper{};
    float gradient_scale = 1;
  };
  /// Does not block. Throws the same exceptions as await().
  void push(const Push& push, const Terms& terms);
  /// Limits the bytes on their way to the servers, so that a later push with a higher priority can
  /// overtake the rest; 0: no limit.
  void set_credit(std::size_t bytes);

  /// Summary of the answers of a step.
  struct Answers {
    double value = 0;            ///< sum over parts: weight decay's share of the loss
    std::int64_t staleness = 0;  ///< updates between pull and push, of the first part
  };
  /// Blocks until every push is answered. Throws TimeoutError if a server or another worker is
  /// lost, Error if the run is being stopped.
  Answers await();
  /// Blocks until this process's arenas are no longer read or written. If that does not happen by
  /// itself, closes the connection.
  void release() noexcept;

 private:
  /// A message to send. Borrowed data are sent without a copy.
  struct Outgoing {
    std::size_t server = 0;
    ServerHeader header{};
    std::string text{};
    std::span<const std::byte> borrowed{};
    std::int32_t priority = 0;
    std::uint64_t order = 0;
  };
  struct LaterFirst {
    bool operator()(const Outgoing& a, const Outgoing& b) const {
      return a.priority != b.priority ? a.priority < b.priority : a.order > b.order;
    }
  };
  struct PartState {
    ServerConnection* owner = nullptr;
    std::size_t server = 0;
    std::size_t bytes = 0;
    std::span<float> into{};
    bool requested = false;
    std::uint64_t version = 0, step = 0;  // version of the local weights; step of the next push
  };

  // ---- of callers' threads ----

  void stop_within(Time& moment, Nanoseconds grace);
  /// Blocks until `ready()`. Throws the failure if that is impossible, Error once `stops` has
  /// passed, and TimeoutError with `late()` once `deadline` has passed.
  void wait(std::unique_lock<std::mutex>& lock, Time deadline, const Time& stops,
            const std::function<bool()>& ready, const std::function<std::string()>& late = {});
  void throw_failure() const;
  void enqueue(Outgoing message);
  /// Requests a part of an arena: 0: the weights; from 1: the optimizer's.
  void ask(const Part& part, const Tensor& arena, std::size_t number);

  // ---- of the connection's thread ----

  /// Runs until this process leaves. Reports its own failures to waiting callers.
  void run() noexcept;
  void run_until_left();
  void receive_all();
  void send_what_may_go();
  void send(Outgoing& message);
  /// libzmq has sent borrowed data, of the PartState `hint`. Called on a libzmq thread.
  static void take_back(void* data, void* hint) noexcept;
  void take(std::size_t server, std::span<const std::byte> bytes, const net::Frame& data);
  void take_answer(const ServerHeader& header, const net::Frame& data);
  void send_beats(Time now);
  void check_servers(Time now);
  void fail(std::exception_ptr why);
  void fail_locked(std::exception_ptr why);
  RankState state() const;

  const Arguments arguments_;
  Clock& clock_;
  const Nanoseconds beat_;

  std::mutex mutex_;
  Gate gate_;
  // All members up to the line are protected by the mutex.
  std::priority_queue<Outgoing, std::vector<Outgoing>, LaterFirst> outgoing_;
  std::uint64_t next_order_ = 0;
  std::exception_ptr failure_;
  std::optional<Time> wait_until_;  // set while a caller waits
  /// When waits end because of a stop: all waits, and those of training.
  Time stop_at_ = Time::max(), training_stops_at_ = Time::max();
  liveness::RankStates servers_;  // as this worker sees them: they are where it is
  RankPhase phase_ = RankPhase::joining;
  std::uint64_t step_ = 0;
  std::uint64_t meeting_ = 0;
  std::optional<std::vector<std::string>> texts_;  // of the current meeting
  std::vector<PartState> parts_;                   // by key
  std::size_t unanswered_ = 0, credit_ = 0;
  Time progress_{};  // time of the last answer
  Answers answers_{};
  bool leaving_ = false, releasing_ = false, dropping_ = false, dropped_ = false;
  // ----

  std::atomic<std::int64_t> lent_{0};   // frames that libzmq still reads
  std::atomic<std::size_t> unsent_{0};  // bytes of those frames
  EventFd wake_;
  std::unique_ptr<net::MessageSockets>
      sockets_;  // only the connection's thread uses them, once it runs
  Time beaten_{};
  std::stop_callback<std::function<void()>> on_stop_;
  std::optional<std::stop_callback<std::function<void()>>> on_stopping_, on_abandon_;
  std::jthread thread_;  // last, because it uses the others
};

/// The workers as the Processes of their run: ranks are the workers' tasks, and their texts go
/// through server 0. Tasks with the same host in --worker-hosts are on the same host. The replicas
/// have no exchange among each other, so make_group must not be called. `connection` outlives it.
std::unique_ptr<Processes> make_worker_processes(ServerConnection& connection);

}  // namespace penstock::cluster
