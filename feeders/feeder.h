// SPDX-License-Identifier: Apache-2.0
// The interface of feeders. A feeder fills a ring with batches and knows nothing of the model that
// reads them.
//
// To add a feeder, write a file in this folder that ends in `extern constinit const FeederEntry
// NAME_feeder{...}`, and add the line `penstock_component(feeder NAME)` to CMakeLists.txt.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataflow/batch_ring.h"
#include "dataflow/clock.h"
#include "dataflow/device.h"
#include "dataflow/entry.h"
#include "dataflow/file_list.h"
#include "dataflow/machine/memory_limit.h"
#include "dataflow/mark.h"
#include "dataflow/options.h"
#include "dataflow/probe.h"
#include "dataflow/source.h"

namespace penstock {

/// What to do with a sample or a message that cannot be used.
struct BadSamplePolicy {
  enum class Action : std::uint8_t { by_default, fail, skip };
  Action action = Action::by_default;  ///< by_default: bad files fail, bad messages are skipped
  std::int64_t limit = -1;             ///< samples to skip before the run fails; -1: no limit
};

/// The sources that FeederEntry::describe_batches started. FeederEntry::make takes that of its rank
/// over, so that each starts once.
class StartedSource {
 public:
  virtual ~StartedSource() = default;
};

/// All that a feeder may know. What the references name outlives the feeder.
struct FeederContext {
  BatchSpec spec{};
  Device& device;  ///< memory of the ring to fill; the rank's device if slots are on a device
  Clock& clock;
  const Options& options;
  DataPlan data{};
  Probe& probe;
  Marks marks{};  ///< marks the stages of its work
  BadSamplePolicy on_bad_sample{};
  Nanoseconds timeout{};     ///< how long an outside producer may stay silent
  Nanoseconds launch{};      ///< how long a loop takes to launch a step; for loaders
  std::int32_t threads = 1;  ///< workers that it may run, its own thread included
  std::int32_t slots = 1;    ///< of the ring to fill
  std::uint64_t seed = 1;
  std::shared_ptr<StartedSource> started{};  ///< by describe_batches, of this entry; may be null
  bool whole_batches = false;  ///< batches that are larger than a slot are refused, not cut off
};

/// What a feeder knows about its data. Zeros if the data have no end or come from another process.
struct DataExtent {
  std::uint64_t examples = 0;  ///< in one epoch of all ranks; a run counts epochs with it
  std::uint64_t share = 0;     ///< in the share of this rank in one epoch
  std::int32_t classes = 0;
};

/// The batches that an outside source yields, found before anything else is made.
struct FeederBatches {
  std::int32_t images = 0;  ///< or samples
  ImageShape image{};
  std::string outline{};  ///< of batches that are no images: "dict of x float32[16,8]"; else empty
  /// Options that state them, so that later runs need not ask the source.
  std::vector<std::pair<std::string, std::string>> options;
  std::shared_ptr<StartedSource> started{};  ///< ends with its last owner
};

class Feeder {
 public:
  virtual ~Feeder() = default;
  virtual DataExtent extent() const noexcept { return {}; }
  /// The files that the feeder reads during the run; null if none. They live as long as the feeder.
  virtual const FileList* files() const noexcept { return nullptr; }
  /// Whether the feeder has finished its search for settings during warm-up, such as the number of
  /// threads. Callable from any thread.
  virtual bool is_settled() const { return true; }
  /// Ends that search and keeps the present settings, because a measurement window begins. Callable
  /// from any thread, between steps.
  virtual void settle() {}
  /// Fills batches until the ring closes, a stop is requested, or the data end. Called once, on the
  /// feeder's thread. A return ends the data; an exception fails the run with that reason. Must
  /// return within a second of a stop request.
  virtual void run(BatchRing& out, std::stop_token stop) = 0;
};

/// Body of the feeder's thread: calls run(), then closes the ring or fails it with the exception.
inline void run_to_end(Feeder& feeder, BatchRing& out, std::stop_token stop) noexcept {
  try {
    feeder.run(out, std::move(stop));
    out.close();
  } catch (...) {
    out.fail(std::current_exception());
  }
}

struct FeederEntry {
  std::string_view name{}, summary{};
  /// device: each rank has one feeder, which fills device slots itself. Otherwise one feeder fills
  /// a host ring for all ranks of the process, and a stager copies batches to each device.
  MemoryKind slots = MemoryKind::pinned;
  /// The feeder reads DataPlan::directory. The directory is created or checked before the feeder.
  bool reads_files = false;
  /// The feeder decodes the samples of a source. Its options include those of
  /// feeders/image_decoding.h, and no others.
  bool decodes_samples = false;
  /// The feeder fills batches of either layout, as BatchSpec::planar says. Otherwise they are NHWC
  /// unless `shape_batches` says otherwise.
  bool takes_layout = false;
  /// Batches cost nothing to supply: the cost of other feeders is measured against this rate.
  bool is_ceiling = false;
  /// The feeder receives from a separate process. A sweep starts that process unless option
  /// `endpoint` or `producer` is given. Its options include `endpoint`, `bind`, `hwm` and
  /// `producer`.
  bool needs_producer = false;
  std::span<const OptionSpec> options{};
  /// Adjusts the batch spec to the options. Null: batches stay bytes. Throws ConfigError.
  void (*shape_batches)(const Options&, BatchSpec&) = nullptr;
  /// Opens files and sockets, so that missing ones are reported before the run starts.
  std::unique_ptr<Feeder> (*make)(const FeederContext&) = nullptr;
  /// Asks the source of a plan's rank what batches it yields. `feeders`: how many a run is about to
  /// make in this process, for that rank and those after it; their sources start at the same time.
  /// 0: no run follows. Empty: nothing was started, since the options state the batches, or there
  /// is no source. Null: the feeder makes what the run asks for. Throws ConfigError, DataError,
  /// TimeoutError; Error if the plan's stop is requested.
  std::optional<FeederBatches> (*describe_batches)(const Options&, const DataPlan&,
                                                   std::int32_t feeders) = nullptr;
  /// Whether the options name a user's loader, which the run asks for batches when a training
  /// loop does (RunConfig::loop): its rings have the loop's depth. Null: no.
  bool (*is_loader)(const Options&) = nullptr;
  /// What a sample of its batches is called in rates, such as "img". Null: "img".
  std::string_view (*unit)(const Options&) = nullptr;
  /// The option with which the feeder counts the time of a loader's code (kLoadTime); empty: none.
  std::string_view profile_option{};
  /// How many batches may wait outside our rings, in socket buffers, when the window begins.
  /// Depends on the options. Null: none.
  std::int64_t (*outside_reserve)(const Options&, const BatchSpec&) = nullptr;
  /// Memory of this process for batches outside our rings, if the options limit it. Null: none.
  std::vector<MemoryNeed> (*memory_needs)(const Options&, const BatchSpec&) = nullptr;
};

/// FeederEntry::make for the class `Made`.
template <typename Made>
std::unique_ptr<Feeder> make_feeder(const FeederContext& context) {
  return std::make_unique<Made>(context);
}

/// All feeders of this program; generated from the component lists.
const Table<FeederEntry>& feeder_table();

}  // namespace penstock
