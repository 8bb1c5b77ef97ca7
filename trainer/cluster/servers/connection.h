// SPDX-License-Identifier: Apache-2.0
// A worker's connection to all parameter servers of its run. It exchanges texts among workers, and
// gradients for weights. A separate thread sends, receives, sends signs of life, and notices lost
// servers. It wakes waiting callers with an answer or an exception.
//
//   replica's thread:    push() ... await()          (parts in their order, or by priority)
//   connection's thread:   |part 0|part 1|part 2|    at most `credit` bytes that have not left
//   servers:                   |answer 0|answer 1|   into the memory that the push named
//
// Thread-safety: one thread at a time; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/net/curve_setup.h"
#include "trainer/cluster/servers/cluster.h"
#include "trainer/cluster/servers/model_layout.h"
#include "trainer/optimizer.h"

namespace penstock::cluster {

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

  const Cluster& cluster() const noexcept;
  std::int32_t task() const noexcept;

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
  void begin(const PartPlan& plan, ServerRule rule, const Tensor& weights, const Tensor& running);

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
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace penstock::cluster
