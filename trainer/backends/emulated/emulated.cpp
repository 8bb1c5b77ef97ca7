// SPDX-License-Identifier: Apache-2.0
// The emulated backend: a device with the speed of an accelerator that computes nothing. It tests a
// feeder for hardware that is not present. Its memory is host memory, its copies are real.
//
// A step of n samples occupies the device for n / img_per_s, or for a time that its batch decides,
// from the moment when its input is present and the previous step is done
// (dataflow/host_device.h). The delay with which host threads wake from waiting for it is counted
// and reported as oversleep. It delays a step only if it exceeds the slack of the queue.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numbers>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "dataflow/pace.h"
#include "dataflow/random.h"
#include "trainer/backend.h"
#include "trainer/backends/compiler/parameter_arena.h"
#include "trainer/backends/emulated/presets.h"
#include "trainer/backends/emulated/recording.h"
#include "trainer/optimizer.h"

namespace penstock {
namespace emulated {
namespace {

// The time of each step is a function of the seed, the rank, the step and the number of images, so
// that runs repeat with any thread timing.

/// Random variation of step times: factors with mean 1 and a given coefficient of variation
/// (standard deviation / mean).
///
///   uniform      in 1 +- sqrt(3) cv
///   normal       1 + cv z for z of the standard normal distribution (Box and Muller 1958), drawn
///                again outside (0, 2). This interval is symmetric about 1, so the mean stays 1;
///                the deviation is at most 0.6 % smaller than cv
///   lognormal    exp(s z - s^2 / 2) with s^2 = ln(1 + cv^2)
///   gamma        of shape 1 / cv^2 (Marsaglia and Tsang 2000)
///   exponential  -ln(u): cv is 1
///
/// Each factor has expected value 1, so the rate of a device does not depend on its distribution.
/// The arithmetic is Penstock's own, because runs must repeat and each C++ library implements
/// std::normal_distribution and similar classes differently. Only the last bits of the mathematical
/// library's log, cos and exp may still differ.
enum class Distribution : std::uint8_t { constant, uniform, normal, lognormal, gamma, exponential };

struct Jitter {
  Distribution distribution = Distribution::constant;
  double cv = 0;

  /// Positive, unless it underflows to 0. Takes as many random draws as needed.
  double factor(Random random) const;
};

struct Pace {
  // The mean time of a step.
  double seconds = 0;  ///< whatever its batch
  double seconds_per_image = 0;
  Jitter jitter{};
  /// Recorded seconds per image, one entry per step. The list repeats after its end and is equal on
  /// every rank. Empty: the mean and its jitter.
  std::vector<double> recorded{};
  Nanoseconds exchange{};  ///< added to every step

  /// The time of step `step`, from 0, with `images` samples, on the device of rank `rank`.
  Nanoseconds step_time(std::uint64_t seed, std::uint64_t rank, std::uint64_t step,
                        std::int32_t images) const;
  /// The mean of step_time, without the exchange.
  double mean_s(std::int32_t images) const { return seconds + seconds_per_image * images; }
};

struct DistributionText {
  std::string_view name;
  Distribution distribution;
  double largest_cv;
};

/// The largest cv of each distribution. uniform reaches 0 at 1 / sqrt(3); gamma equals exponential
/// at 1; normal beyond 0.3 would be cut so often that its deviation is wrong.
constexpr DistributionText kDistributions[] = {
    {"constant", Distribution::constant, 0}, {"uniform", Distribution::uniform, 0.577},
    {"normal", Distribution::normal, 0.3},   {"lognormal", Distribution::lognormal, 1},
    {"gamma", Distribution::gamma, 1},       {"exponential", Distribution::exponential, 1},
};
constexpr auto kDistributionValues = [] {
  std::array<OptionValue, std::size(kDistributions)> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = {kDistributions[i].name};
  return values;
}();

/// In (0, 1].
double positive_uniform(Random& random) { return 1 - random.uniform(); }

double standard_normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log(positive_uniform(random)));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

double normal_factor(Random& random, double cv) {
  double factor = 0;
  while (!(factor > 0 && factor < 2)) factor = 1 + cv * standard_normal(random);
  return factor;
}

double gamma_factor(Random& random, double cv) {
  const double scale = cv * cv, d = 1 / scale - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double z = standard_normal(random);
    const double root = 1 + c * z, v = root * root * root;
    if (v <= 0) continue;
    const double u = positive_uniform(random);
    if (std::log(u) < 0.5 * z * z + d - d * v + d * std::log(v)) return d * v * scale;
  }
}

double Jitter::factor(Random random) const {
  switch (distribution) {
    case Distribution::constant:
      return 1;
    case Distribution::uniform: {
      const double reach = cv * std::numbers::sqrt3;
      return random.uniform(1 - reach, 1 + reach);
    }
    case Distribution::normal:
      return normal_factor(random, cv);
    case Distribution::lognormal: {
      const double variance = std::log1p(cv * cv);
      return std::exp(std::sqrt(variance) * standard_normal(random) - variance / 2);
    }
    case Distribution::gamma:
      return gamma_factor(random, cv);
    case Distribution::exponential:
      break;
  }
  return -std::log(positive_uniform(random));
}

/// Throws ConfigError if the name is unknown or the distribution cannot have this cv. `cv_given`:
/// the user set it.
Jitter parse_jitter(const std::string& distribution, double cv, bool cv_given) {
  std::vector<std::string> names;
  for (const DistributionText& known : kDistributions) {
    names.emplace_back(known.name);
    if (known.name != canonical_name(distribution)) continue;
    if (known.distribution == Distribution::constant && cv_given) {
      throw ConfigError("emulated:cv is {}, but steps are constant; add a distribution=", cv);
    }
    if (known.distribution == Distribution::constant) return {};
    if (known.distribution == Distribution::exponential && !cv_given) cv = 1;
    const bool possible = known.distribution == Distribution::exponential
                              ? cv == 1
                              : cv > 0 && cv <= known.largest_cv;
    if (possible) return {known.distribution, cv};
    throw ConfigError(
        "emulated:cv is {}, which {} step times cannot have; expected {} {}: standard deviation / "
        "mean",
        cv, known.name,
        known.distribution == Distribution::exponential ? "1, not" : "0 < cv <=", known.largest_cv);
  }
  throw ConfigError("emulated:distribution is '{}'; expected one of {}", distribution, join(names));
}

Nanoseconds busy(double seconds) {
  return std::chrono::round<Nanoseconds>(std::chrono::duration<double>(seconds));
}

Nanoseconds Pace::step_time(std::uint64_t seed, std::uint64_t rank, std::uint64_t step,
                            std::int32_t images) const {
  const double time_s = recorded.empty() ? mean_s(images) * jitter.factor(Random(seed, rank, step))
                                         : recorded[step % recorded.size()] * images;
  return busy(time_s) + exchange;
}

/// Throws ConfigError that lists the names, if `name` is unknown.
const Preset& find_preset(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& known : kPresets) {
    if (known.name == canonical_name(name)) return known;
    names.emplace_back(known.name);
  }
  throw ConfigError("emulated:preset is '{}'; expected one of {}, or state img_per_s=", name,
                    join(names));
}

/// Statistics of the host's threads that waited for an emulated device: how late they woke, and how
/// long they spun.
///
/// Thread-safety: any thread may call anything; nothing locks or allocates.
class Waits {
 public:
  void add(Nanoseconds late, Nanoseconds spun) noexcept {
    const auto us = static_cast<std::size_t>(std::max<std::int64_t>(0, late.count() / 1000));
    buckets_[std::min(us, buckets_.size() - 1)].fetch_add(1, std::memory_order_relaxed);
    late_ns_.fetch_add(late.count(), std::memory_order_relaxed);
    spun_ns_.fetch_add(spun.count(), std::memory_order_relaxed);
    std::int64_t longest = longest_ns_.load(std::memory_order_relaxed);
    while (late.count() > longest && !longest_ns_.compare_exchange_weak(longest, late.count())) {
    }
  }

  /// The quantile `share` of the delays, in whole microseconds; delays beyond 2 ms count as 2 ms. 0
  /// without delays.
  double late_us_quantile(double share) const noexcept {
    const auto target = static_cast<std::uint64_t>(std::ceil(share * count()));
    std::uint64_t seen = 0;
    for (std::size_t us = 0; us < buckets_.size(); ++us) {
      seen += buckets_[us];
      if (seen >= target) return static_cast<double>(us);
    }
    return 0;
  }
  double late_us_mean() const noexcept {
    return count() > 0 ? static_cast<double>(late_ns_) / 1e3 / count() : 0;
  }
  double late_us_longest() const noexcept { return static_cast<double>(longest_ns_) / 1e3; }
  double spun_s() const noexcept { return static_cast<double>(spun_ns_) / 1e9; }

 private:
  double count() const noexcept {
    std::uint64_t total = 0;
    for (const auto& bucket : buckets_) total += bucket;
    return static_cast<double>(total);
  }

  std::array<std::atomic<std::uint64_t>, 2000> buckets_{};
  std::atomic<std::int64_t> late_ns_{0}, spun_ns_{0}, longest_ns_{0};
};

/// Host memory, with the number of the rank that uses it.
class EmulatedDevice final : public HostDevice {
 public:
  EmulatedDevice(Clock& clock, HostDeviceOptions options, std::int32_t ordinal)
      : HostDevice(clock, std::move(options)), ordinal_(ordinal) {}
  std::int32_t ordinal() const noexcept { return ordinal_; }

 private:
  const std::int32_t ordinal_;
};

/// Occupies the stream for the time of a step, in every phase. Losses and counts are 0.
class EmulatedExecutable final : public Executable {
 public:
  /// `pace` is null if the model computes nothing; it outlives the executable.
  EmulatedExecutable(const Pace* pace, std::uint64_t seed, std::int32_t rank)
      : pace_(pace), seed_(seed), rank_(static_cast<std::uint64_t>(rank)) {}

  /// Empty before make_arenas().
  const ParameterSet& parameters() const noexcept override { return set_; }
  /// One memory for weights and gradients, which only copies use.
  void make_arenas(const Graph& graph, Device& device) {
    using compiler::ArenaRange;
    compiler::ArenaLayouts<ArenaRange> layouts(graph, [](const ParameterSpec& spec) {
      return ArenaRange{spec, 0, static_cast<std::size_t>(spec.count())};
    });
    layouts.buffers.clear();
    layouts.place(1);
    memory_ = device.allocate(layouts.parameter_elements * sizeof(float), MemoryKind::device);
    set_ = layouts.set_in(memory_, memory_, memory_);
  }

  void run(Phase, const Batch& batch, Stream& stream, const GradientReady&,
           StepResult& result) override {
    if (pace_ != nullptr) {
      static_cast<Timeline*>(stream.native())
          ->occupy(pace_->step_time(seed_, rank_, step_, batch.valid));
    }
    ++step_;
    result = {.images = batch.valid};
  }

  void read(const ParameterSpec&, const Tensor&, std::span<float>) override {}
  void write(const ParameterSpec&, const Tensor&, std::span<const float>) override {}
  void set_step(std::int64_t step) override { step_ = static_cast<std::uint64_t>(step); }

 private:
  Buffer memory_;
  ParameterSet set_;
  const Pace* const pace_;
  const std::uint64_t seed_, rank_;
  std::uint64_t step_ = 0;
};

constexpr OptionValue kCopies[] = {{"memcpy", "bytes are moved"}, {"none", "free"}};
constexpr OptionSpec kOptions[] = {
    {"preset", "h100-mlperf-storage",
     "published rate of one device for ResNet-50; other models by TensorFlow's rates of one P100, "
     "else by their operations",
     kPresetValues},
    {"img_per_s", "", "images per second of one device, instead of the preset"},
    {"samples_per_s", "", "the same, for samples of any kind"},
    {"step_ms", "", "time in ms of a step of a whole batch, instead of a rate"},
    {"step_time", "", "time of a step whatever its batch, such as 20ms, instead of a rate"},
    {"sample_time", "", "more time for each sample of the batch, such as 1ms"},
    {"trace", "", "file whose step times are replayed: results.json, or the output of run --json"},
    {"row", "", "row of a trace with several rows: number, feeder or label; default: gpu"},
    {"distribution", "constant", "distribution of step times", kDistributionValues},
    {"cv", "0.05", "coefficient of variation of step times (standard deviation / mean)"},
    {"exchange", "none",
     "time of the exchange: none (the rate includes it) or ms=T (T ms more per step)"},
    {"copy", "memcpy", "copies to the device", kCopies},
    {"copy_gb_per_s", "", "rate of the copy engine in GB/s; default: as fast as memcpy"},
    {"pageable_gb_per_s", "",
     "rate of copies from memory that is not pinned (--pinned-memory false) in GB/s; default: that "
     "of pinned memory"},
    {"spin_us", "50",
     "time in microseconds before the end of a step in which waiting threads spin"},
};

/// Upper limit: longer spinning would occupy a core for a large share of the time.
constexpr std::int64_t kLongestSpinUs = 10'000;
/// With fewer warm-up steps, a recording may contain the warm-up of the machine.
constexpr std::uint64_t kEnoughWarmUp = 10;

Nanoseconds parse_exchange(const std::string& text) {
  if (text == "none") return {};
  if (text.starts_with("ms=")) {
    const double ms = parse_real(std::string_view(text).substr(3), "emulated:exchange=ms");
    constexpr double kLongestMs = 3'600'000;
    if (ms >= 0 && ms <= kLongestMs)
      return std::chrono::round<Nanoseconds>(std::chrono::duration<double, std::milli>(ms));
  }
  throw ConfigError("emulated:exchange is '{}'; expected none or ms=T with T from 0 to 3600000",
                    text);
}

double positive(const Options& options, std::string_view name, std::string_view what) {
  const double value = options.real(name);
  constexpr double kLowest = 1e-6, kHighest = 1e6;
  if (value >= kLowest && value <= kHighest) return value;
  throw ConfigError("emulated:{} is {}; expected {} from 0.000001 to 1000000", name,
                    options.text(name), what);
}

Nanoseconds parse_spin(const Options& options) {
  const std::int64_t us = options.integer("spin_us");
  if (us >= 0 && us <= kLongestSpinUs) return std::chrono::microseconds(us);
  throw ConfigError(
      "emulated:spin_us is {}; expected microseconds from 0 to {}; 50 hides the wake-up time of "
      "threads",
      us, kLongestSpinUs);
}

void refuse_beside_a_trace(const Options& options) {
  for (const char* name : {"preset", "img_per_s", "samples_per_s", "step_ms", "step_time",
                           "sample_time", "distribution", "cv"}) {
    if (!options.given(name)) continue;
    throw ConfigError(
        "emulated:trace='{}' replays recorded times, which {}={} contradicts; keep one of them",
        options.text("trace"), name, options.text(name));
  }
}

/// The origin of a device's times, in words, and the batch size that they were published for.
struct Origin {
  std::string text;
  std::int32_t batch = 0;    ///< 0: any
  bool of_resnet50 = false;  ///< whatever model is trained
  std::uint64_t warm_up = kEnoughWarmUp;
};

class EmulatedBackend final : public Backend {
 public:
  EmulatedBackend(const Options& options, Clock& clock)
      : clock_(clock),
        device_options_{
            .copies = parse_choice(options.text("copy"), kCopies, "emulated:copy") == 0,
            .copy_bytes_per_s = parse_rate(options, "copy_gb_per_s"),
            .pageable_bytes_per_s = parse_rate(options, "pageable_gb_per_s"),
            .pinned = options.given("pageable_gb_per_s") ? &pinned_ : nullptr,
            .spin = parse_spin(options),
            .waited = [this](Nanoseconds late, Nanoseconds spun) { waits_.add(late, spun); }} {
    if (options.given("trace")) {
      refuse_beside_a_trace(options);
      replay(read_recording(options.text("trace"), options.text("row")));
    } else if (options.given("row")) {
      throw ConfigError(
          "emulated:row is '{}', but it selects a row of a trace; add trace=FILE, or leave row out",
          options.text("row"));
    } else {
      keep_rate(options);
    }
    pace_.exchange = parse_exchange(options.text("exchange"));
  }

  std::int32_t device_count() const override { return kDevices; }

  std::unique_ptr<Device> open(std::int32_t ordinal) override {
    return std::make_unique<EmulatedDevice>(clock_, device_options_, ordinal);
  }

  std::unique_ptr<Executable> compile(const Graph& graph, const ExecutableSpec& spec,
                                      Device& device) override {
    const bool computes = !graph.nodes().empty();
    if (computes && batch_ == 0) {
      batch_ = spec.batch.images;  // the first model's batch
      if (step_s_ > 0) pace_.seconds_per_image = step_s_ / batch_;
      if (origin_.of_resnet50 && spec.batch.opaque) {
        throw ConfigError(
            "the preset of the emulated device is a rate of ResNet-50, and these batches are no "
            "images; state the time of a step, such as --device emulated:step_time=20ms, or a "
            "rate, such as samples_per_s=500; `penstock watch` measures both");
      }
      if (origin_.of_resnet50) scale_to(model_time(spec.p100_img_per_s, graph));
    }
    auto executable = std::make_unique<EmulatedExecutable>(
        computes ? &pace_ : nullptr, spec.seed, static_cast<EmulatedDevice&>(device).ordinal());
    if (computes && spec.weights_on_host) executable->make_arenas(graph, device);
    return executable;
  }

  std::unique_ptr<Optimizer> make_optimizer(const OptimizerChoice& choice, const ExecutableSpec&,
                                            Device&) override {
    return make_host_optimizer(choice, serial_for);
  }

  std::map<std::string, double> facts() const override {
    std::map<std::string, double> facts{
        {"emulated_img_per_s", std::max(batch_, 1) / mean_s()},
        {"oversleep_us_p50", waits_.late_us_quantile(0.5)},
        {"oversleep_us_p99", waits_.late_us_quantile(0.99)},
        {"oversleep_us_mean", waits_.late_us_mean()},
        {"oversleep_us_max", waits_.late_us_longest()},
        {"spin_us", std::chrono::duration<double, std::micro>(device_options_.spin).count()},
        {"spin_cpu_s", waits_.spun_s()}};
    if (batch_ > 0) facts["emulated_step_ms"] = step_ms();
    if (pace_.jitter.cv > 0) facts["emulated_cv"] = pace_.jitter.cv;
    if (!pace_.recorded.empty()) {
      facts["emulated_trace_steps"] = static_cast<double>(pace_.recorded.size());
    }
    if (device_options_.copy_bytes_per_s > 0) {
      facts["emulated_copy_gb_per_s"] = device_options_.copy_bytes_per_s / 1e9;
    }
    if (device_options_.pageable_bytes_per_s > 0) {
      facts["emulated_pageable_gb_per_s"] = device_options_.pageable_bytes_per_s / 1e9;
    }
    return facts;
  }

  std::vector<std::string> notes() const override {
    if (origin_.text.empty() || batch_ == 0) return {};
    std::vector<std::string> notes{"the emulated device " + origin_.text};
    if (origin_.batch != 0 && origin_.batch != batch_) {
      notes.front() +=
          fmt::format("; batches of {} take the same time per image, {:.3f} ms", batch_, step_ms());
    }
    if (origin_.warm_up < kEnoughWarmUp) {
      notes.push_back(
          fmt::format("the trace was recorded after {} warm-up steps, so its first step times may "
                      "be those of a cold machine; record it with --num-warmup-batches {} or more",
                      origin_.warm_up, kEnoughWarmUp));
    }
    return notes;
  }

 private:
  static constexpr std::int32_t kDevices = 1024;

  /// In bytes per second; 0: not given.
  static double parse_rate(const Options& options, std::string_view name) {
    return options.given(name) ? 1e9 * positive(options, name, "a rate") : 0;
  }

  void keep_rate(const Options& options) {
    constexpr std::array kSpeeds = {"step_time", "step_ms", "samples_per_s", "img_per_s"};
    const auto given = [&](const char* name) { return options.given(name); };
    const bool varies = given("sample_time");
    if (std::ranges::count_if(kSpeeds, given) > 1 ||
        (varies && !given("step_time") && std::ranges::any_of(kSpeeds, given))) {
      throw ConfigError(
          "emulated: more than one of img_per_s, samples_per_s, step_ms and step_time states the "
          "speed; keep one; sample_time adds to step_time");
    }
    if (given("step_ms")) {
      step_s_ = positive(options, "step_ms", "milliseconds") / 1e3;
      pace_.seconds_per_image = step_s_;  // until the batch size is known
    } else if (given("step_time") || varies) {
      pace_.seconds = given("step_time") ? seconds_in(options, "step_time") : 0;
      pace_.seconds_per_image = given("sample_time") ? seconds_in(options, "sample_time") : 0;
      if (!(pace_.mean_s(1) > 0))
        throw ConfigError("emulated: a step takes no time; expected step_time=T above 0");
    } else if (const char* const rate = given("samples_per_s") ? "samples_per_s" : "img_per_s";
               given(rate)) {
      pace_.seconds_per_image =
          1 / checked_rate(options.real(rate), fmt::format("emulated:{}", rate));
    } else {
      const Preset& preset = find_preset(options.text("preset"));
      pace_.seconds_per_image = 1 / preset.img_per_s;
      origin_ = {.text = fmt::format("is {}, {}", preset.name, preset.source),
                 .batch = preset.batch,
                 .of_resnet50 = true};
    }
    pace_.jitter =
        parse_jitter(options.text("distribution"), options.real("cv"), options.given("cv"));
  }

  /// Before the first step.
  void scale_to(const ModelTime& model) {
    pace_.seconds_per_image *= model.in_resnet50;
    if (model.reason.empty()) return;
    const std::string times = model.in_resnet50 == 1
                                  ? "the same time"
                                  : fmt::format("{:.3g} times as long", model.in_resnet50);
    origin_.text += fmt::format(
        "; this is a rate of ResNet-50, and the model of this run takes {} {}: {:.1f} img/s; "
        "img_per_s=R states another rate",
        times, model.reason, 1 / pace_.seconds_per_image);
  }

  void replay(const Recording& recording) {
    pace_.seconds_per_image = recording.mean_step_ms() / 1e3 / recording.batch;
    for (const double ms : recording.step_ms) pace_.recorded.push_back(ms / 1e3 / recording.batch);
    origin_ = {.text = fmt::format("replays {} step times of {}, batch {}: {:.3f} ms in the mean",
                                   recording.step_ms.size(), recording.origin, recording.batch,
                                   recording.mean_step_ms()),
               .batch = recording.batch,
               .warm_up = recording.warm_up};
  }

  static double seconds_in(const Options& options, std::string_view name) {
    return std::chrono::duration<double>(options.duration(name)).count();
  }
  double mean_s() const { return pace_.mean_s(std::max(batch_, 1)); }
  double step_ms() const {
    return std::chrono::duration<double, std::milli>(busy(mean_s()) + pace_.exchange).count();
  }

  Clock& clock_;
  PinnedMemory pinned_;
  const HostDeviceOptions device_options_;
  Pace pace_;
  Origin origin_;
  double step_s_ = 0;       // of a step as the user states it; 0: not stated
  std::int32_t batch_ = 0;  // samples of a step; 0: no model that computes was compiled
  Waits waits_;
};

}  // namespace
}  // namespace emulated

extern constinit const BackendEntry emulated_backend{
    .name = "emulated",
    .summary =
        "takes the step time of an accelerator of a stated rate; copies are real, computing is not",
    .options = emulated::kOptions,
    .emulates = true,
    .make = [](const Options& options, Clock& clock) -> std::unique_ptr<Backend> {
      return std::make_unique<emulated::EmulatedBackend>(options, clock);
    },
};

}  // namespace penstock
