// SPDX-License-Identifier: Apache-2.0
// The result of a ladder over ranks. Every file and table is a view of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/config/run_config.h"
#include "bench/record/environment.h"
#include "bench/record/run_result.h"
#include "bench/record/statistics.h"
#include "bench/scaling/launch/hosts.h"

namespace penstock::scaling {

/// A run without a rate.
struct RungFailure {
  std::int32_t repetition = 0;  ///< from 0
  int exit_code = 0;            ///< of the launcher; 5 on a timeout
  std::string reason;
  std::string last_words;  ///< last output of the launcher and the ranks
};

/// The runs with one number of ranks.
struct Rung {
  std::int32_t ranks = 1;
  std::vector<Host> hosts;      ///< the requested hosts, with their ranks; none: this machine
  std::string command;          ///< the command of each run
  std::vector<RunResult> runs;  ///< runs that ended well
  std::vector<RungFailure> failures;

  /// Devices that took part, as the runs report; without runs, the ranks asked for.
  std::int64_t devices() const;
  std::optional<Spread> img_per_s() const;  ///< of all devices together; measured, not multiplied
  /// Ranks on each machine, by the names that the machines report.
  std::map<std::string, std::int32_t> ran_on() const;
};

struct ScaleResult {
  Environment environment;
  std::string command;
  std::string model;            ///< the model's name in the table
  std::string requested_model;  ///< the model as typed; empty: not typed
  std::int32_t batch_size = 0;
  std::string what;  ///< feeder, update and device, as text
  std::int32_t repetitions = 0;
  std::vector<Rung> rungs;  ///< ascending by ranks
  std::vector<std::string> notes;

  std::string name() const;  ///< "MODEL_bB" with the typed name, as tfperftest names its files
};

/// Images per second of one device, from the successful rung with the fewest devices; none if no
/// rung ran. The ideal rate of another rung is this times its devices.
struct IdealRate {
  std::int64_t devices = 1;  ///< of that rung; always 1 in tfperftest
  double per_device_img_per_s = 0;
};
std::optional<IdealRate> ideal_rate(const ScaleResult& result);

/// Did any run fail?
bool has_failures(const ScaleResult& result);

/// Notes about the machines for readers of the table: names that turned out to be one machine.
std::vector<std::string> notes_about_machines(const ScaleResult& result);

}  // namespace penstock::scaling
