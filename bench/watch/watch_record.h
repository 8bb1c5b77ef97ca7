// SPDX-License-Identifier: Apache-2.0
// What `penstock watch` knows of a training: the steps of each process that iterated a watched
// loop. Reads the files that python/penstock_bench/watching.py writes while the training runs, and
// writes and reads the record of --json. README.md describes both forms.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/record/environment.h"
#include "bench/record/json_field.h"
#include "bench/record/wait_cause.h"
#include "bench/watch/worker_states.h"

namespace penstock::watch {

/// A batch that a loop took, until it asked for the next one.
struct Step {
  double wait_us = 0;  ///< in the loader's `next`; for the first of an epoch also in its `iter`
  double step_us = 0;  ///< from the beginning of this `next` to that of the following one
  std::int32_t images = 0;  ///< in the unit of the loop; 0: not known
  bool begins_epoch = false;
  /// The part of the wait in which the GPU had no work of the loop's stream.
  std::optional<double> gpu_wait_us{};

  bool operator==(const Step&) const = default;
};

/// What the processes that load the samples of a DataLoader did since its loop began.
struct Loading {
  double batches = 0, samples = 0;  ///< 0: they are not timed
  double samples_us = 0, collate_us = 0;
  double samples_cpu_us = 0;  ///< of processors; with threads beside the loading one it may be more
  double core_wait_us = 0;    ///< runnable, without a processor; also while collating
  double slowest_batch_us = 0;

  double batch_ms() const { return batches > 0 ? (samples_us + collate_us) / batches / 1e3 : 0; }
  double sample_ms() const { return samples > 0 ? samples_us / samples / 1e3 : 0; }
  double collate_ms() const { return batches > 0 ? collate_us / batches / 1e3 : 0; }
  /// The shares of the time for samples, from 0 to 1: on a processor, and waiting for one.
  double computing() const { return share(samples_cpu_us); }
  double waiting_for_core() const { return std::min(share(core_wait_us), 1 - computing()); }
  double share(double us) const { return samples_us > 0 ? std::min(1.0, us / samples_us) : 0; }
  bool operator==(const Loading&) const = default;
};

/// One loop of the script, in one process.
struct Loop {
  std::string name;              ///< "train.py:42", or the name that the script gave
  bool in_thread = false;        ///< it runs in another thread than the main thread
  std::string unit = "samples";  ///< what `images` of its steps are: img, samples, tokens, ...
  std::string problem{};         ///< why nothing is counted; empty: it is
  std::vector<Step> steps{};
  std::vector<double> ends_us{};  ///< waits of `next` that found the end of an epoch
  bool waits_for_first = false;   ///< it has asked for its first batch, which has not come
  LoaderSettings settings{};
  Loading loading{};
  std::vector<std::int32_t> workers{};  ///< processes that load now; only while the training runs
  WorkerStates states{};                ///< of all its workers so far

  double total_us() const;  ///< sum of step_us
  /// What workers did while they loaded samples, in per cent. Empty: too few were seen.
  WorkerStates loading_percent() const;
  bool operator==(const Loop&) const = default;
};

/// A process that iterated a watched loop.
struct Rank {
  std::int32_t rank = 0;  ///< as its launcher numbers it; 0 without a launcher
  std::int64_t pid = 0;
  std::string host{};  ///< empty: not known
  bool cuda = false;   ///< torch.cuda was initialised
  /// The main loop first: of those in the main thread, the one with the longest total time.
  std::vector<Loop> loops;

  bool operator==(const Rank&) const = default;
};

struct WatchRecord {
  std::vector<std::string> command{};
  double seconds = 0;              ///< since the start of the command
  std::optional<int> exit_code{};  ///< none: the command still runs
  Environment environment{};
  std::vector<Rank> ranks{};            ///< by rank, then by process
  std::vector<std::string> left_out{};  ///< what could not be read, and why
};

/// One training that several `penstock watch` recorded, one on each host. Needs at least one
/// record.
WatchRecord join_records(std::vector<WatchRecord> records);

/// Reads the files of all processes as they grow. One thread.
class StepFiles {
 public:
  explicit StepFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Reads the lines that were added since the last call. A damaged line ends the reading of its
  /// file; its steps so far are kept. Throws nothing about the content of files.
  void read();
  /// Also adds what the workers of all loops do at this moment.
  void look_at_workers() noexcept;
  /// All steps so far, and what was left out.
  void put_into(WatchRecord& record) const;

 private:
  struct File {
    std::uint64_t read = 0;  // bytes
    Rank rank;
    std::string problem;  // empty: none
  };
  static void read_more(const std::filesystem::path& path, File& file);

  const std::filesystem::path folder_;
  std::map<std::filesystem::path, File> files_;
};

/// Adds the steps of one line of a file. Throws DataError, and then changes nothing.
void add_line(std::string_view line, Rank& rank);

nlohmann::ordered_json to_json(const WatchRecord& record);
/// Throws DataError, which names the wrong value.
WatchRecord parse_record(std::string_view text);
/// The record in `file`, or in the watch.json of a folder; none if it is something else or cannot
/// be read. Throws DataError if it is damaged.
std::optional<WatchRecord> read_record(const std::filesystem::path& file);

}  // namespace penstock::watch
