// SPDX-License-Identifier: Apache-2.0
// A device that keeps time like an accelerator of a stated rate and computes nothing: it tests a
// feeder for a machine that is not there. Its memory is the host's, its copies are real ones.
//
// A step of n images occupies the device for n / img_per_s, from the moment its input is there and
// the step before is done (dataflow/host_device.h). How late the host's threads woke from waiting
// for it is counted and reported as oversleep; it delays a step only when it exceeds the slack of
// the queue.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <string>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "trainer/backend.h"
#include "trainer/optimizer.h"

namespace penstock {
namespace {

struct Preset {
  std::string_view name;
  double img_per_s;
};

/// MLPerf Storage's ResNet-50 workloads: batch 400 over the computation_time of their
/// configurations. They lie well below what these GPUs reach in training benchmarks.
constexpr Preset kPresets[] = {
    {"h100-mlperf-storage", 400 / 0.224},
    {"a100-mlperf-storage", 400 / 0.435},
};

constexpr OptionSpec kOptions[] = {
    {"preset", "h100-mlperf-storage",
     "h100-mlperf-storage (1785.7 img/s) or a100-mlperf-storage (919.5)"},
    {"img_per_s", "", "images per second of one device; overrides the preset"},
    {"exchange", "none", "none: the rate includes the exchange; ms=T: T ms more for each step"},
    {"copy", "memcpy", "memcpy: copies into the device move bytes; none: they are free"},
};

/// Counts delays in microseconds without allocating; the last bucket holds all longer ones.
class DelayHistogram {
 public:
  void add(Nanoseconds delay) noexcept {
    const auto us = static_cast<std::size_t>(std::max<std::int64_t>(0, delay.count() / 1000));
    buckets_[std::min(us, buckets_.size() - 1)].fetch_add(1, std::memory_order_relaxed);
    std::int64_t longest = longest_ns_.load(std::memory_order_relaxed);
    while (delay.count() > longest && !longest_ns_.compare_exchange_weak(longest, delay.count())) {
    }
  }
  /// The bucket below which `share` of the delays lie; 0 without any.
  double quantile_us(double share) const noexcept {
    std::uint64_t total = 0;
    for (const auto& bucket : buckets_) total += bucket;
    const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(total)));
    std::uint64_t seen = 0;
    for (std::size_t us = 0; us < buckets_.size(); ++us) {
      seen += buckets_[us];
      if (seen >= wanted) return static_cast<double>(us);
    }
    return 0;
  }
  double longest_us() const noexcept { return static_cast<double>(longest_ns_) / 1e3; }

 private:
  std::array<std::atomic<std::uint64_t>, 2000> buckets_{};
  std::atomic<std::int64_t> longest_ns_{0};
};

class EmulatedExecutable final : public Executable {
 public:
  EmulatedExecutable(double seconds_per_image, Nanoseconds exchange)
      : seconds_per_image_(seconds_per_image), exchange_(exchange) {}

  const ParameterSet& parameters() const noexcept override { return no_weights_; }

  void run(Phase, const Batch& batch, Stream& stream, const GradientReady&,
           StepResult& result) override {
    const std::chrono::duration<double> busy(seconds_per_image_ * batch.valid);
    static_cast<Timeline*>(stream.native())
        ->occupy(std::chrono::round<Nanoseconds>(busy) + exchange_);
    result = {.images = batch.valid};
  }

  void read(const ParameterSpec&, const Tensor&, std::span<float>) override {}
  void write(const ParameterSpec&, const Tensor&, std::span<const float>) override {}
  void set_step(std::int64_t) override {}

 private:
  const ParameterSet no_weights_;
  const double seconds_per_image_;
  const Nanoseconds exchange_;
};

Nanoseconds parse_exchange(const std::string& text) {
  if (text == "none") return {};
  if (text.starts_with("ms=")) {
    const double ms = parse_real(std::string_view(text).substr(3), "emulated:exchange=ms");
    if (ms >= 0)
      return std::chrono::round<Nanoseconds>(std::chrono::duration<double, std::milli>(ms));
  }
  if (text == "real") {
    throw Unavailable(
        "emulated:exchange=real is known, but not built yet; use exchange=none or ms=T");
  }
  throw ConfigError("emulated:exchange is '" + text + "'; expected none or ms=T with T >= 0");
}

class EmulatedBackend final : public Backend {
 public:
  EmulatedBackend(const Options& options, Clock& clock)
      : clock_(clock), exchange_(parse_exchange(options.text("exchange"))) {
    if (options.given("img_per_s")) {
      img_per_s_ = options.real("img_per_s");
      if (!(img_per_s_ > 0)) {
        throw ConfigError("emulated:img_per_s is " + options.text("img_per_s") +
                          "; expected a rate above 0");
      }
    } else {
      img_per_s_ = preset(options.text("preset"));
    }
    const std::string& copy = options.text("copy");
    if (copy != "memcpy" && copy != "none") {
      throw ConfigError("emulated:copy is '" + copy + "'; expected memcpy or none");
    }
    copies_ = copy == "memcpy";
  }

  std::int32_t device_count() const override { return kDevices; }

  std::unique_ptr<Device> open(std::int32_t) override {
    return std::make_unique<HostDevice>(
        clock_,
        HostDeviceOptions{.copies = copies_, .waited = [this](Nanoseconds late, Nanoseconds) {
                            oversleep_.add(late);
                          }});
  }

  std::unique_ptr<Executable> compile(const Graph& graph, const ExecutableSpec&, Device&) override {
    const bool computes = !graph.nodes().empty();
    return std::make_unique<EmulatedExecutable>(computes ? 1 / img_per_s_ : 0,
                                                computes ? exchange_ : Nanoseconds{});
  }

  std::unique_ptr<Optimizer> make_optimizer(const OptimizerChoice& choice, const ExecutableSpec&,
                                            Device&) override {
    return make_host_optimizer(choice, serial_for);
  }

  std::map<std::string, double> facts() const override {
    return {{"emulated_img_per_s", img_per_s_},
            {"oversleep_us_p50", oversleep_.quantile_us(0.5)},
            {"oversleep_us_p99", oversleep_.quantile_us(0.99)},
            {"oversleep_us_max", oversleep_.longest_us()}};
  }

 private:
  static constexpr std::int32_t kDevices = 1024;

  static double preset(const std::string& name) {
    std::vector<std::string> names;
    for (const Preset& known : kPresets) {
      if (known.name == canonical_name(name)) return known.img_per_s;
      names.emplace_back(known.name);
    }
    throw ConfigError("emulated:preset is '" + name + "'; expected one of " + join(names) +
                      ", or state img_per_s=");
  }

  Clock& clock_;
  const Nanoseconds exchange_;
  double img_per_s_ = 0;
  bool copies_ = true;
  DelayHistogram oversleep_;
};

}  // namespace

extern constinit const BackendEntry emulated_backend{
    .name = "emulated",
    .summary = "keeps time like an accelerator of a stated rate; copies are real, computing is not",
    .options = kOptions,
    .make = [](const Options& options, Clock& clock) -> std::unique_ptr<Backend> {
      return std::make_unique<EmulatedBackend>(options, clock);
    },
};

}  // namespace penstock
