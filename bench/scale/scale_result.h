// SPDX-License-Identifier: Apache-2.0
// What a ladder over ranks found out. Every file and table is a view of this.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/environment.h"
#include "bench/launch/hosts.h"
#include "bench/run_config.h"
#include "bench/runner.h"
#include "bench/statistics.h"

namespace penstock {

/// A run that gave no rate.
struct RungFailure {
  std::int32_t repetition = 0;  ///< from 0
  int exit_code = 0;            ///< of the launcher; 5 where it did not end in time
  std::string reason;
  std::string last_words;  ///< of the launcher and the ranks
};

/// One number of ranks.
struct Rung {
  std::int32_t ranks = 1;
  std::vector<Host> hosts;      ///< asked for, with the ranks of each; none: this machine
  std::string command;          ///< of each of its runs
  std::vector<RunResult> runs;  ///< that ended well
  std::vector<RungFailure> failures;

  /// Devices that really took part, by the runs' own account; without any, the ranks asked for.
  std::int64_t devices() const;
  std::optional<Spread> img_per_s() const;  ///< of all devices together; measured, not multiplied
  /// Ranks on each machine, by the names that the machines themselves gave.
  std::map<std::string, std::int32_t> ran_on() const;
};

struct ScaleResult {
  Environment environment;
  std::string command;
  std::string model;        ///< the table's own name
  std::string asked_model;  ///< as it was typed; empty: it was not
  std::int32_t batch_size = 0;
  std::string what;  ///< feeder, update and device, for people
  std::int32_t repetitions = 0;
  std::vector<Rung> rungs;  ///< ascending by ranks
  std::vector<std::string> notes;

  std::string name() const;  ///< "MODEL_bB" by the typed name, as tfperftest calls its files
};

/// Images per second of one device, from the rung with the fewest devices that ran; nothing: none
/// did. What other rungs would reach if they lost nothing is that times their devices.
struct IdealRate {
  std::int64_t devices = 1;  ///< of that rung; tfperftest's is always 1
  double per_device_img_per_s = 0;
};
std::optional<IdealRate> ideal_rate(const ScaleResult& result);

/// Did any run fail?
bool has_failures(const ScaleResult& result);

/// What a reader of the table must know about who ran: names that turned out to be one machine.
std::vector<std::string> notes_about_machines(const ScaleResult& result);

}  // namespace penstock
