// SPDX-License-Identifier: Apache-2.0
// A worker's connection to all parameter servers of its run: texts among workers, and gradients
// against weights. One thread of its own sends, receives, says that this process lives, and notices
// when a server does not; whoever waits here is woken by it, with an answer or with why there will
// be none.
//
//   replica's thread:    push() ... await()          (parts in their order, or by priority)
//   connection's thread:   |part 0|part 1|part 2|    at most `credit` bytes that have not left
//   servers:                   |answer 0|answer 1|   into the memory that the push named
//
// Thread-safety: one thread at a time, whichever.
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
#include "dataflow/curve_setup.h"
#include "trainer/optimizer.h"
#include "trainer/servers/cluster.h"
#include "trainer/servers/model_layout.h"

namespace penstock {

class ServerConnection {
 public:
  struct Wish {
    Cluster cluster;
    std::int32_t task = 0;
    std::string optimizer;  ///< that servers apply, as --optimizer has it
    Nanoseconds rendezvous = std::chrono::seconds(60);
    Nanoseconds silence = std::chrono::seconds(30);  ///< of a server, and of a step
    int io_threads = 1;
    CurveFiles curve{};      ///< a client's keys, or none
    std::stop_token stop{};  ///< requested when someone outside ends the run
  };
  /// Joins the run; blocks until every server has answered. Throws TimeoutError, and ConfigError
  /// where a server refuses, or the keys are not the right ones. `clock` outlives it.
  ServerConnection(Wish wish, Clock& clock);
  /// Leaves with exit code 0, unless it has left.
  ~ServerConnection();

  const Cluster& cluster() const noexcept;
  std::int32_t task() const noexcept;

  /// Every worker's text, by task, through server 0. All workers call it in the same order.
  std::vector<std::string> all_gather(std::string_view text, Nanoseconds patience,
                                      std::string_view what);
  /// Tells the servers how this process ends; nothing else can be called then.
  void leave(int exit_code);

  // ---- training ----

  /// A request to `stopping` lets waits leave with an Error within Processes::kGrace, one to
  /// `abandon` at once.
  void attach(std::stop_token stopping, std::stop_token abandon);
  /// Agrees on the parts, and leaves worker 0's weights and running statistics in every worker's
  /// arenas. Called once, by all workers.
  void begin(const PartPlan& plan, ServerRule rule, const Tensor& weights, const Tensor& running);

  struct Push {
    std::uint32_t part = 0;              ///< key
    std::span<const float> gradients{};  ///< stay until they are answered
    std::span<float> into{};             ///< what the server answers
    std::int32_t priority = 0;           ///< higher ones go first
  };
  /// What belongs to a push beside gradients; see Hyper.
  struct Terms {
    Hyper hyper{};
    float gradient_scale = 1;
  };
  /// Does not block. Throws what await() does.
  void push(const Push& push, const Terms& terms);
  /// Bytes that may be on their way to the servers, so that what is pushed later with a higher
  /// priority can overtake the rest; 0: no limit.
  void set_credit(std::size_t bytes);

  /// What a step's answers say.
  struct Answers {
    double value = 0;            ///< sum over parts: weight decay's share of the loss
    std::int64_t staleness = 0;  ///< updates that came between pull and push, of the first part
  };
  /// Blocks until everything that was pushed is answered. Throws TimeoutError where a server or
  /// another worker is lost, Error where the run is being stopped.
  Answers await();
  /// Blocks until nothing of this process's arenas is read or written any more; where that does not
  /// come by itself, at the price of the connection.
  void release() noexcept;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace penstock
