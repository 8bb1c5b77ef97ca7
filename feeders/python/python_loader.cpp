// SPDX-License-Identifier: Apache-2.0
// The feeders `python`, `python-queue` and `python-dataset`: a Python loader in a process of the
// user's interpreter. The loader copies each batch into shared memory; devices read it there, or it
// is copied into the slot if the device needs memory of this process.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "feeders/feeder.h"
#include "feeders/pixel_options.h"
#include "feeders/python/counted.h"
#include "feeders/python/loader_process.h"

namespace penstock::python {
namespace {

constexpr std::int64_t kMostPixels = 65536, kMostBytes = std::int64_t{1} << 34;

constexpr OptionValue kParts[] = {
    {"all", "everything"},
    {"handover", "the first batch is handed over again and again; the loader does not run"},
    {"collate", "PyTorch's DataLoader: each worker collates the samples of its first batch again"},
    {"samples", "PyTorch's DataLoader: samples are loaded, but not collated"},
};

constexpr std::array<OptionSpec, 14> options_with(std::string_view loader) {
  return {{
      {"loader", loader, "what yields the batches: FILE.py:FUNCTION or MODULE:FUNCTION"},
      {"args", "", "arguments of the function, as Python values: 'workers=8,path=\"x\"'"},
      {"python", "python3", "interpreter that runs the loader, such as /path/to/venv/bin/python"},
      {"env", "", "environment variables of the loader: 'OMP_NUM_THREADS=1,MKL_NUM_THREADS=1'"},
      {"part", "all", "what is done for each batch", kParts},
      {"profile", "false",
       "PyTorch's DataLoader: counts the time of each transform and line of code that loads "
       "samples"},
      {"start_timeout", "2min", "time for imports and the first batch"},
      {"batch", "",
       "the loader's batches: NxHxWxC, or NxBYTESB if they are no images; default: asked from it"},
      {"pixels_key", "", "entry of the batch that has the pixels; default: by name and shape"},
      {"labels_key", "", "entry of the batch that has the labels; default: by name and shape"},
      {"samples", "",
       "samples of a batch that has no images: their number, or an entry with one element for "
       "each"},
      {"count", "",
       "[UNIT=]KEY: what is counted in place of samples, such as tokens=input_ids: the numbers of "
       "that entry, or what a function of that name in the loader's file returns for a batch"},
      kPixelOptions[0],
      kPixelOptions[1],
  }};
}
constexpr auto kOptions = options_with("penstock:queue");
constexpr auto kDatasetOptions = options_with("penstock:constant");

/// True if the loader makes the batches that the run asks for.
bool is_constant(const Options& options) {
  return !options.given("loader") && !options.given("args");
}

/// Throws ConfigError.
const std::string& part_of(const Options& options) {
  const std::string& part = options.text("part");
  if (std::ranges::any_of(kParts, [&](const OptionValue& known) { return known.name == part; })) {
    return part;
  }
  throw ConfigError("option 'part' is '" + part + "'; expected all, handover, collate or samples");
}

/// What the option `count` counts.
Counted counted_of(const Options& options) {
  if (!options.given("count")) return {};
  for (const char* const other : {"samples", "pixels_key", "labels_key"}) {
    if (!options.given(other)) continue;
    throw ConfigError("option 'count' cannot be combined with '{}': one of them says what counts",
                      other);
  }
  return parse_counted(options.text("count"), "option 'count'");
}

/// Throws ConfigError for options about a loader that is not named.
void expect_loader(const Options& options) {
  if (!is_constant(options)) return;
  for (const auto& [option, flag] :
       std::initializer_list<std::pair<const char*, const char*>>{{"count", "--count"},
                                                                  {"samples", "--batch-samples"},
                                                                  {"pixels_key", "--pixels"},
                                                                  {"labels_key", "--labels"}}) {
    if (!options.given(option)) continue;
    throw ConfigError("{} is about a loader of yours; name it with --loader FILE.py:FUNCTION",
                      flag);
  }
}

LoaderCommand command_of(const Options& options, const DataPlan& data) {
  expect_loader(options);
  return {.python = options.text("python"),
          .loader = options.text("loader"),
          .arguments = options.text("args"),
          .environment = options.text("env"),
          .part = part_of(options),
          .profiles = options.flag("profile"),
          .pixels = options.text("pixels_key"),
          .labels = options.text("labels_key"),
          .samples = options.text("samples"),
          .count = std::string(counted_of(options).key),
          .rank = data.rank,
          .ranks = data.ranks,
          .local_rank = data.local_rank,
          .local_ranks = data.local_ranks};
}

LoaderCommand command_of(const Options& options, const DataPlan& data, const BatchSpec& spec) {
  LoaderCommand command = command_of(options, data);
  if (is_constant(options)) {
    command.arguments = fmt::format("images={},height={},width={},channels={}", spec.images,
                                    spec.image.height, spec.image.width, spec.image.channels);
  }
  return command;
}

std::string text_of(const LoaderBatches& batches) {
  if (batches.opaque_bytes > 0) return fmt::format("{}x{}B", batches.images, batches.opaque_bytes);
  return fmt::format("{}x{}x{}x{}", batches.images, batches.image.height, batches.image.width,
                     batches.image.channels);
}

/// "64x224x224x3": images; "16x4096B": arrays of any kind, in a slot of 4096 bytes.
bool states_opaque(const Options& options) { return options.text("batch").ends_with('B'); }

/// Takes the batches that the option `batch` states.
void shape_batches(const Options& options, BatchSpec& spec) {
  constexpr std::string_view kWhat = "option 'batch'";
  if (!options.given("batch")) return;
  std::string_view text = options.text("batch");
  if (states_opaque(options)) return shape_arrays(text, kWhat, spec);
  std::array<std::int32_t, 4> numbers{};
  for (std::int32_t& number : numbers) {
    const std::size_t end = std::min(text.find('x'), text.size());
    const std::int64_t stated = parse_integer(text.substr(0, end), kWhat);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (stated < 1 || stated > kMostPixels) {
      throw ConfigError(
          "option 'batch' is '{}'; expected NxHxWxC, such as 64x224x224x3, or NxBYTESB, such as "
          "16x1048576B",
          options.text("batch"));
    }
    number = static_cast<std::int32_t>(stated);
  }
  spec.images = numbers[0];
  spec.image = {numbers[1], numbers[2], numbers[3]};
  shape_pixels(options, spec);
}

/// "1.5"
std::string decimals(double value) {
  const std::string text = std::to_string(value);
  return text.substr(0, text.find('.') + 2);
}

/// Loaders that have yielded a batch, and may be taken over by the run's feeders.
class StartedLoaders final : public StartedSource {
 public:
  /// Starts the loaders of `count` ranks at once. Throws as LoaderProcess.
  StartedLoaders(LoaderCommand command, std::int32_t count, Nanoseconds limit,
                 const std::stop_token& stop) {
    for (std::int32_t i = 0; i < count; ++i, ++command.rank, ++command.local_rank) {
      loaders_.push_back(std::make_unique<LoaderProcess>(command));
    }
    for (const auto& loader : loaders_) loader->await_batch(limit, stop);
  }
  const LoaderBatches& batches() const { return loaders_.front()->batches(); }
  /// Null: none of that rank was started, or it was taken.
  std::unique_ptr<LoaderProcess> take(std::int32_t rank) {
    const auto found = std::ranges::find_if(
        loaders_, [&](const auto& loader) { return loader != nullptr && loader->rank() == rank; });
    return found == loaders_.end() ? nullptr : std::move(*found);
  }

 private:
  std::vector<std::unique_ptr<LoaderProcess>> loaders_;
};

/// Keeps the loader's memory mapped while slots of the ring show it. A slot of the memory belongs
/// to the slot of the ring with its number, so a loan's end is no news.
class LoaderMemory final : public ForeignPixels {
 public:
  explicit LoaderMemory(std::shared_ptr<const net::MappedPool> pool) : pool_(std::move(pool)) {}
  void returned(std::int32_t, const Event*) noexcept override {}

 private:
  const std::shared_ptr<const net::MappedPool> pool_;
};

std::unique_ptr<LoaderProcess> take_or_start(const FeederContext& context) {
  if (context.started != nullptr) {
    auto loader = static_cast<StartedLoaders&>(*context.started).take(context.data.rank);
    if (loader != nullptr) return loader;
  }
  auto loader =
      std::make_unique<LoaderProcess>(command_of(context.options, context.data, context.spec));
  loader->await_batch(context.options.duration("start_timeout"), context.data.stop);
  return loader;
}

class PythonLoader final : public Feeder {
 public:
  explicit PythonLoader(const FeederContext& context)
      : spec_(context.spec),
        unit_(context.options.given("count") ? counted_of(context.options).unit : "samples"),
        probe_(context.probe),
        timeout_(context.timeout),
        images_(probe_.counter("images_received")),
        epochs_(probe_.counter("loader_epochs")),
        partial_(probe_.counter("batches_partial")),
        copied_(probe_.counter("bytes_copied")),
        lent_bytes_(probe_.counter("bytes_lent")),
        beyond_slot_(probe_.counter("bytes_beyond_slot")),
        launch_(context.launch),
        whole_batches_(context.whole_batches),
        loader_(take_or_start(context)),
        loading_(worker_stage("load", StageRole::loads)),
        collating_(worker_stage("collate", StageRole::collates)),
        queueing_(process_.batches().times_queue
                      ? &probe_.stage({"queue", "worker queue", 1, StageRole::queues})
                      : nullptr),
        pinning_(process_.batches().pins ? &probe_.stage({"pin", "pin thread", 1, StageRole::pins})
                                         : nullptr),
        getting_(probe_.stage({"next(loader)", "loader", 1, StageRole::asks})),
        converting_(probe_.stage({"convert", "loader"})) {
    check();
    process_.share(static_cast<std::size_t>(context.slots), spec_.bytes(),
                   context.options.duration("start_timeout"), context.data.stop);
    memory_ = std::make_shared<LoaderMemory>(process_.memory());
    pin_ = context.device.pin(process_.memory()->view(0, process_.memory()->bytes()));
    if (context.data.local_rank == 0) introduce();  // the others of this machine are alike
  }

  void run(BatchRing& out, std::stop_token stop) override {
    const bool lends = out.accepts_foreign() && pin_ != nullptr;
    const std::stop_callback wake(stop, [this] { stopped_.signal(); });
    while (WriteLease lease = out.acquire(stop)) {
      lease.await();  // the loader's slot with this number shows the batch until then
      process_.ask(static_cast<std::uint32_t>(lease.batch().slot));
      const std::optional<LoaderBatch> batch = next(stop);
      if (!batch) break;
      fill(*batch, lease, lends);
      lease.batch().begins_epoch = batch->begins_epoch && images_.value() > 0;
      std::move(lease).publish();
      images_.add(batch->images);
      if (launch_ > Nanoseconds{}) launch(stop);
    }
    note_processors();
    note_code();
    if (beyond_slot_.value() > 0) {
      probe_.note(
          fmt::format("{:.1f} MB of the loader's batches were copied in its process only, since "
                      "its first batch "
                      "was much smaller than later ones",
                      static_cast<double>(beyond_slot_.value()) / 1e6));
    }
  }

 private:
  /// Throws ConfigError if the loader's batches are not those of the run.
  void check() const {
    const LoaderBatches& batches = process_.batches();
    if (spec_.opaque && batches.opaque_bytes > 0) return;  // batches differ in samples and bytes
    if (batches.opaque_bytes == 0 && !spec_.opaque && batches.images == spec_.images &&
        batches.image == spec_.image && batches.pixel == spec_.pixel &&
        batches.planar == spec_.planar) {
      return;
    }
    LoaderBatches expected;
    expected.images = spec_.images;
    expected.image = spec_.image;
    expected.pixel = spec_.pixel;
    expected.planar = spec_.planar;
    if (spec_.opaque) expected.opaque_bytes = static_cast<std::int64_t>(spec_.pixel_bytes());
    throw ConfigError(
        "the loader yields {}; the run expects {}; leave out --batch-size, --image-size and the "
        "options batch, pixels and planar",
        describe(batches), describe(expected));
  }

  std::string describe(const LoaderBatches& batches) const {
    if (batches.opaque_bytes > 0) {
      return fmt::format("{} {} a batch, {}", batches.images, unit_,
                         batches.outline.empty() ? "no images" : batches.outline);
    }
    return text_of(batches) + " " + std::string(pixel_type_name(batches.pixel)) +
           (batches.planar ? " [N,C,H,W]" : " [N,H,W,C]");
  }

  void introduce() const {
    const LoaderBatches& batches = process_.batches();
    const double first_s = to_seconds(batches.first_batch);
    probe_.note("the loader runs in Python " + batches.python + ", and yields " +
                describe(batches) + "; its first batch came after " + decimals(first_s) +
                " s, imports included");
    for (const std::string& note : batches.notes) probe_.note(note);
    probe_.fact("loader_first_batch_s", first_s);
    for (const auto& [name, value] : batches.settings) probe_.fact("loader_" + name, value);
    if (batches.steps_per_epoch > 0) {
      probe_.fact("loader_steps_per_epoch", static_cast<double>(batches.steps_per_epoch));
    }
    if (!batches.has_labels && !spec_.opaque) {
      probe_.note("the loader yields no integer labels, one for each image; all labels are 0");
    }
  }

  /// Waits for the next batch; empty: a stop was requested.
  std::optional<LoaderBatch> next(const std::stop_token& stop) {
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    while (!stop.stop_requested()) {
      if (const std::optional<LoaderBatch> batch = process_.next()) {
        if (batch->begins_epoch) epochs_.add();
        if (batch->images < spec_.images && !spec_.opaque) partial_.add();
        account(*batch);
        for (const auto& [name, value] : process_.take_traits()) {
          probe_.fact("loader_" + name, value);
        }
        if (!process_.profile().code.empty()) count_code();
        return batch;
      }
      const Nanoseconds left = deadline - std::chrono::steady_clock::now();
      if (left <= Nanoseconds{}) fail_silent();
      wait(left, true);
    }
    return std::nullopt;
  }

  /// The loop launches a step before it asks for the next batch.
  void launch(const std::stop_token& stop) {
    const auto done = std::chrono::steady_clock::now() + launch_;
    while (!stop.stop_requested() && std::chrono::steady_clock::now() < done) {
      wait(done - std::chrono::steady_clock::now(), false);
    }
  }

  /// Until `limit` has passed, a stop is requested, or the loader's process has sent something.
  void wait(Nanoseconds limit, bool for_loader) const {
    pollfd items[] = {{stopped_.get(), POLLIN, 0}, {process_.fd(), POLLIN, 0}};
    timespec left{};
    left.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(limit).count();
    left.tv_nsec = (limit - std::chrono::seconds(left.tv_sec)).count();
    ppoll(items, for_loader ? 2 : 1, &left, nullptr);
  }

  [[noreturn]] void fail_silent() const {
    process_.show_stacks();
    poll(nullptr, 0, 200);  // until the stacks are printed
    throw TimeoutError(
        "the loader yielded no batch for {} s (--timeout); its threads' stacks are above",
        std::chrono::duration_cast<std::chrono::seconds>(timeout_).count());
  }

  std::int32_t workers() const { return process_.batches().workers.value_or(0); }

  /// A stage of the DataLoader, run by its workers or by the process that asks for batches.
  StageCounters* worker_stage(std::string_view name, StageRole role) {
    if (!process_.batches().workers) return nullptr;
    return workers() > 0 ? &probe_.stage({name, "loader workers", workers(), role})
                         : &probe_.stage({name, "loader", 1, role});
  }

  void account(const LoaderBatch& batch) {
    const auto count = [&](StageCounters& stage, Nanoseconds wall) {
      if (!stage.on) return;
      stage.items.add();
      stage.images.add(batch.images);
      stage.timed_items.add();
      stage.wall_ns.add(std::max(wall, Nanoseconds{}).count());
    };
    if (queueing_ != nullptr) count(*queueing_, batch.queued);
    if (pinning_ != nullptr) count(*pinning_, batch.pinning);
    Nanoseconds getting = batch.getting;
    if (loading_ != nullptr) {
      count(*loading_, batch.loading);
      count(*collating_, batch.collating);
      loading_time_ += batch.loading;
      loading_cpu_ += batch.loading_cpu;
      loading_core_ += batch.loading_core;
      loading_bytes_ += batch.loading_bytes;
      if (workers() > 0) {  // the rest of `next` is a wait for them
        getting = std::min(batch.getting, batch.getting_cpu);
        if (getting_.on && getting < batch.getting) getting_.wait_in.add(batch.getting - getting);
      } else {
        getting -= batch.loading + batch.collating;
      }
    }
    count(getting_, getting);
    count(converting_, batch.converting);
    if (converting_.on && batch.waiting > Nanoseconds{}) converting_.wait_out.add(batch.waiting);
  }

  /// Counts what the profile says about the time since the last one.
  void count_code() {
    const auto count = [&](std::string_view what, const CodeTimes& times, CodeTimes& last) {
      for (const auto& [name, time] : times) {
        Nanoseconds& before = last[name];
        if (time > before) probe_.counter(std::string(what) + name).add((time - before).count());
        before = std::max(before, time);
      }
    };
    count(kLoadTime, process_.profile().code, counted_.code);
    count(kLoadState, process_.profile().states, counted_.states);
    for (const auto& [index, time] : process_.profile().slowest_samples) {
      probe_.fact("slow_sample_ms: " + index, 1e3 * to_seconds(time));
    }
    probe_.fact("median_sample_ms", 1e3 * to_seconds(process_.profile().median_sample));
    probe_.fact("mean_sample_ms", 1e3 * to_seconds(process_.profile().mean_sample));
  }

  /// States where the time for samples went, and says what is remarkable about it.
  void note_processors() {
    constexpr double kSeveral = 1.25, kMostlyWaiting = 0.5;
    if (loading_time_ <= Nanoseconds{}) return;
    const auto share = [&](Nanoseconds part) {
      return to_seconds(part) / to_seconds(loading_time_);
    };
    // The kernel also counts what a worker waits for between two samples.
    const double used = share(loading_cpu_),
                 core = std::min(share(loading_core_), std::max(0.0, 1 - used));
    probe_.fact("samples_processors", used);
    probe_.fact("samples_core_wait_percent", 100 * core);
    probe_.fact("samples_read_bytes", static_cast<double>(loading_bytes_));
    const std::string where =
        workers() > 0 ? "in each of " + std::to_string(workers()) + " workers" : "";
    if (used > kSeveral) {
      probe_.note("loading samples uses " + decimals(used) + " processors " + where +
                  ": its operators have threads of their own; see whether one is enough, with "
                  "OMP_NUM_THREADS=1 and cv2.setNumThreads(0)");
    } else if (used < kMostlyWaiting) {
      probe_.note("loading samples " + where + " computes for " + decimals(100 * used) +
                  " % of its time, and waits for a free processor for " + decimals(100 * core) +
                  " %; the rest is a wait for storage, a lock, a sleep or the network");
    }
  }

  /// Says which code loading samples spends most of its time in.
  void note_code() {
    constexpr std::size_t kMost = 4;
    constexpr double kLeastPercent = 3;
    Nanoseconds all{};
    std::vector<std::pair<Nanoseconds, std::string_view>> largest;
    for (const auto& [name, time] : counted_.code) {
      all += time;
      largest.emplace_back(time, name);
    }
    std::ranges::sort(largest, std::greater());
    if (largest.size() > kMost) largest.resize(kMost);
    std::string text;
    for (const auto& [time, name] : largest) {
      const double percent = 100 * to_seconds(time) / to_seconds(all);
      if (!(percent >= kLeastPercent)) break;
      text += (text.empty() ? "" : ", ") + decimals(percent) + " % " + std::string(name);
    }
    if (!text.empty()) probe_.note("the time for samples is spent in: " + text);
  }

  /// Throws DataError if a label is out of range.
  void fill_labels(const LoaderBatch& batch, std::span<std::int32_t> labels) {
    std::memcpy(labels.data(), process_.slot(batch.slot).data() + spec_.pixel_bytes(),
                spec_.label_bytes());
    for (const std::int32_t label : labels.first(static_cast<std::size_t>(batch.images))) {
      if (label >= 0 && label < spec_.classes) continue;
      throw DataError(
          "a label of the loader is {}; expected 0 to {}; set --classes to the number of classes",
          label, spec_.classes - 1);
    }
    copied_.add(static_cast<std::int64_t>(spec_.label_bytes()) + batch.other_bytes);
  }

  /// Throws as fill_labels().
  void fill(const LoaderBatch& batch, WriteLease& lease, bool lends) {
    const std::span<const std::byte> pixels = process_.slot(batch.slot).first(spec_.pixel_bytes());
    lease.batch().valid = batch.images;
    if (spec_.opaque) {
      const auto bytes = static_cast<std::size_t>(batch.other_bytes);
      if (whole_batches_ && bytes > pixels.size()) {
        throw DataError(
            "a batch of the loader has {} bytes, and there is room for {}, from its first one; "
            "state "
            "the largest with --feeder 'python:loader=...,batch={}x{}B'",
            bytes, pixels.size(), spec_.images, 2 * bytes);
      }
      lease.batch().bytes = std::min(bytes, pixels.size());
      beyond_slot_.add(static_cast<std::int64_t>(bytes - lease.batch().bytes));
    } else {
      fill_labels(batch, lease.batch().labels);
    }
    const auto size = static_cast<std::int64_t>(lease.batch().bytes);
    if (lends) {
      lease.lend(pixels, memory_);
      lent_bytes_.add(size);
      return;
    }
    std::memcpy(lease.batch().pixels.data(), pixels.data(), lease.batch().bytes);
    copied_.add(size);
  }

  const BatchSpec spec_;
  const std::string unit_;  // of what batches are counted in: "samples"
  Probe& probe_;
  const Nanoseconds timeout_;
  Counter &images_, &epochs_, &partial_, &copied_, &lent_bytes_, &beyond_slot_;
  const Nanoseconds launch_;
  const bool whole_batches_;
  EventFd stopped_;
  const std::unique_ptr<LoaderProcess> loader_;
  LoaderProcess& process_ = *loader_;
  StageCounters *loading_, *collating_, *queueing_, *pinning_;  // null: their times are not known
  StageCounters &getting_, &converting_;
  Nanoseconds loading_time_{}, loading_cpu_{}, loading_core_{};  // in the whole run
  std::int64_t loading_bytes_ = 0;
  LoadProfile counted_;  // of the last profile
  std::shared_ptr<LoaderMemory> memory_;
  std::unique_ptr<MemoryPin> pin_;  // null: the device cannot read the shared memory
};

std::optional<FeederBatches> describe(const Options& options, const DataPlan& data,
                                      std::int32_t feeders) {
  if (is_constant(options) || (options.given("batch") && feeders == 0)) return std::nullopt;
  auto loaders = std::make_shared<StartedLoaders>(command_of(options, data), std::max(feeders, 1),
                                                  options.duration("start_timeout"), data.stop);
  const LoaderBatches& batches = loaders->batches();
  FeederBatches found{.images = batches.images,
                      .image = batches.image,
                      .outline = batches.outline,
                      .options = {{"batch", text_of(batches)}}};
  if (batches.opaque_bytes == 0) {
    found.options.emplace_back("pixels", pixel_type_name(batches.pixel));
    found.options.emplace_back("planar", batches.planar ? "true" : "false");
  }
  found.started = std::move(loaders);
  return found;
}

constexpr FeederEntry entry(std::string_view name, std::string_view summary,
                            std::span<const OptionSpec> options) {
  return {.name = name,
          .summary = summary,
          .options = options,
          .shape_batches = shape_batches,
          .make = make_feeder<PythonLoader>,
          .describe_batches = describe,
          .is_loader = [](const Options& given) { return !is_constant(given); },
          .unit = [](const Options& given) -> std::string_view {
            if (given.given("count")) return counted_of(given).unit;
            return states_opaque(given) ? "samples" : "img";
          },
          .profile_option = "profile"};
}

}  // namespace

extern constinit const FeederEntry python_feeder = entry(
    "python", "batches of your own Python loader; without loader=..., constant ones from a queue",
    kOptions);
extern constinit const FeederEntry python_queue_feeder =
    entry("python-queue", "constant batches that a Python thread puts into a queue", kOptions);
extern constinit const FeederEntry python_dataset_feeder =
    entry("python-dataset", "constant batches of a Python generator", kDatasetOptions);

}  // namespace penstock::python
