// SPDX-License-Identifier: Apache-2.0
// A feeder supplies batches. It sees a ring to fill, and nothing of the model that reads it.
//
// To add one: a file in this folder that ends in `extern constinit const FeederEntry
// NAME_feeder{...}`, and one line `penstock_component(feeder NAME)` in CMakeLists.txt.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "dataflow/batch_ring.h"
#include "dataflow/clock.h"
#include "dataflow/device.h"
#include "dataflow/entry.h"
#include "dataflow/file_list.h"
#include "dataflow/mark.h"
#include "dataflow/memory_limit.h"
#include "dataflow/options.h"
#include "dataflow/probe.h"
#include "dataflow/source.h"

namespace penstock {

/// What to do about a sample or a message that cannot be used.
struct BadSamplePolicy {
  enum class Action : std::uint8_t { by_default, fail, skip };
  Action action = Action::by_default;  ///< by default files fail and messages are skipped
  std::int64_t limit = -1;             ///< skip at most so many, then fail; -1: no limit
};

/// All that a feeder may know. References outlive the feeder.
struct FeederContext {
  BatchSpec spec{};
  Device& device;  ///< memory of the ring that it fills; for feeders of device slots, that device
  Clock& clock;
  const Options& options;
  DataPlan data{};
  Probe& probe;
  Marks marks{};  ///< for the stages of its work
  BadSamplePolicy on_bad_sample{};
  Nanoseconds timeout{};     ///< how long an outside producer may stay silent
  std::int32_t threads = 1;  ///< workers that it may run, its own thread included
  std::int32_t slots = 1;    ///< of the ring that it fills
  std::uint64_t seed = 1;
};

/// What a feeder knows of its data; zeros where they have no end, or are none of its own.
struct DataExtent {
  std::uint64_t examples = 0;  ///< in one epoch of all ranks: a run counts its epochs by them
  std::uint64_t share = 0;     ///< in one epoch of this rank's share
  std::int32_t classes = 0;
};

class Feeder {
 public:
  virtual ~Feeder() = default;
  virtual DataExtent extent() const noexcept { return {}; }
  /// The files that it reads while it runs; null: none. They live as long as the feeder.
  virtual const FileList* files() const noexcept { return nullptr; }
  /// Has it found out what it has to while a run warms up, such as how many threads it needs? From
  /// any thread.
  virtual bool is_settled() const { return true; }
  /// What it has not found out by now stays as it is: a window begins. From any thread, between
  /// steps.
  virtual void settle() {}
  /// Fills batches until the ring closes, a stop is requested, or the data end. Called once, on a
  /// thread of its own. Returning ends the data; throwing fails the run with that reason. Must
  /// return within a second of a stop request.
  virtual void run(BatchRing& out, std::stop_token stop) = 0;
};

/// The body of a feeder's thread: runs it, and then ends the ring, with its data or its failure.
void run_to_end(Feeder& feeder, BatchRing& out, std::stop_token stop) noexcept;

struct FeederEntry {
  std::string_view name{}, summary{};
  /// device: made once per rank, fills device slots itself. Otherwise one feeder serves all ranks
  /// of the process from a host ring, and a stager copies for each device.
  MemoryKind slots = MemoryKind::pinned;
  /// Reads DataPlan::directory, which is then made or checked before the feeder is.
  bool reads_files = false;
  /// Its batches cost nothing to supply: what others cost is measured against its rate.
  bool is_ceiling = false;
  /// Receives from a process of its own, which a sweep starts unless option `endpoint` or
  /// `producer` is given; its options then include `endpoint`, `bind`, `hwm` and `producer`.
  bool needs_producer = false;
  std::span<const OptionSpec> options{};
  /// Makes of batches of bytes those that the options ask for. Null: bytes. Throws ConfigError.
  void (*shape_batches)(const Options&, BatchSpec&) = nullptr;
  /// Opens files and sockets, so that what is missing is said before anything starts.
  std::unique_ptr<Feeder> (*make)(const FeederContext&) = nullptr;
  /// Batches that may lie ready outside our rings when the window begins, given the options:
  /// sockets' buffers. Null: none.
  std::int64_t (*outside_reserve)(const Options&, const BatchSpec&) = nullptr;
  /// What batches outside our rings take of this process's memory, as far as the options bound it.
  /// Null: nothing.
  std::vector<MemoryNeed> (*memory_needs)(const Options&, const BatchSpec&) = nullptr;
};

/// Every feeder of this program; generated from the component lists.
const Table<FeederEntry>& feeder_table();

}  // namespace penstock
