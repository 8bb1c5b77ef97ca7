// SPDX-License-Identifier: Apache-2.0
// One run, from a configuration to a result. run_parts.h connects feeder, rings, stagers and
// replicas; run_session.h runs them. A sweep calls this in a child process for every repetition.
#pragma once

#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "bench/config/run_config.h"
#include "bench/record/run_result.h"
#include "bench/run/observe/run_listener.h"
#include "dataflow/batch.h"
#include "dataflow/clock.h"
#include "feeders/feeder.h"
#include "trainer/backend.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"
#include "trainer/update_strategy.h"

namespace penstock::cluster {

class Processes;
class ServerConnection;
}  // namespace penstock::cluster

namespace penstock {

class Trace;

class Runner {
 public:
  /// Resolves the configuration and opens everything that may be missing: data, sockets, devices.
  /// Throws ConfigError, Unavailable, TimeoutError. `clock` must outlive the runner.
  Runner(const RunConfig& config, Clock& clock);
  /// The components of a run, which need not be in the tables.
  struct Components {
    const FeederEntry* feeder = nullptr;
    const ModelEntry* model = nullptr;
    const BackendEntry* backend = nullptr;
    const UpdateEntry* update = nullptr;
    const OptimizerEntry* optimizer = nullptr;
    cluster::Processes* processes = nullptr;  ///< must outlive the run; null: one process
    /// Connection to parameter servers in other processes; must outlive the run. Null: none.
    cluster::ServerConnection* servers = nullptr;
    std::shared_ptr<StartedSource> started{};  ///< by adopt_batches, for the run's feeder; or null
  };
  /// `trace` records the first steps of the window; it is null or must outlive the runner. A stop
  /// request ends the compilation of the model with an Error.
  Runner(const RunConfig& config, Clock& clock, const Components& components,
         Trace* trace = nullptr, std::stop_token stop = {});
  ~Runner();

  const RunConfig& config() const noexcept;
  /// Training examples in an epoch: of the data, or ImageNet's if the feeder does not know.
  double examples_per_epoch() const noexcept;

  /// The current state of its rings, upstream first. Callable from any thread, also during the run.
  std::vector<QueueGauge> queues() const;

  /// Call once. A failure during the run is in the result, not thrown; earlier measurements are
  /// kept.
  RunResult run(RunListener& listener, std::stop_token stop);

 private:
  class Wiring;
  std::unique_ptr<Wiring> wiring_;
};

/// Finds the components that a configuration names. Throws ConfigError or Unavailable.
Runner::Components find_components(const RunConfig& config);

/// If the feeder's batches come from a source that decides their shape, asks the source, and states
/// the shape in --batch-size, --image-size and the feeder's options. Otherwise returns `config`
/// unchanged. Leaves the source in `components`, whose run takes it over. Throws ConfigError, also
/// if a typed size differs; what the source throws.
RunConfig adopt_batches(RunConfig config, Runner::Components& components,
                        const std::stop_token& stop);
/// As adopt_batches(), where runs follow that start sources themselves.
RunConfig state_batches(RunConfig config, Runner::Components components,
                        const std::stop_token& stop);
/// The same for all rows of a sweep, which then train on batches of one size. Rows that cannot run
/// here stay unchanged.
void state_batches(std::span<RunConfig> rows, const std::stop_token& stop);

/// Replaces automatic values of `config` by actual ones.
RunConfig resolve(RunConfig config, const Runner::Components& components);

/// The options of a component: the typed ones, and defaults from its table for the others.
Options options_of(std::string_view text, std::span<const OptionSpec> specs);

}  // namespace penstock
