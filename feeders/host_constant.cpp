// SPDX-License-Identifier: Apache-2.0
// The feeder `host`: the same constant batches in pinned host memory, again and again. It measures
// the cost of the copy to the device. With option `img_per_s` it supplies like a loader of that
// rate.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "dataflow/images/normalisation.h"
#include "dataflow/images/planes.h"
#include "dataflow/pace.h"
#include "feeders/feeder.h"
#include "feeders/synthetic_pixels.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {
    {"img_per_s", "0", "highest supply in images per second; 0: no limit"},
    kDistributionOption,
    kEntropyOption,
    kNormaliseOption,
};

double parse_rate(const Options& options) {
  const double rate = options.real("img_per_s");
  return rate == 0 ? 0 : checked_rate(rate, "host: option 'img_per_s'");
}

class HostConstant final : public Feeder {
 public:
  explicit HostConstant(const FeederContext& context)
      : clock_(context.clock),
        img_per_s_(parse_rate(context.options)),
        pixels_(context.options),
        seed_(context.seed) {
    check_normalised(context.options, context.spec);
  }

  void run(BatchRing& out, std::stop_token stop) override {
    Pace pace(clock_, img_per_s_);
    std::vector<bool> filled(out.slots(), false);
    while (WriteLease lease = out.acquire(stop)) {
      const auto slot = static_cast<std::size_t>(lease.batch().slot);
      if (!filled[slot]) {
        fill(lease.batch(), out.spec(), slot, stop);
        if (stop.stop_requested()) return;
        filled[slot] = true;
      }
      pace.await(out.spec().images, stop);
      std::move(lease).publish();
    }
  }

 private:
  void fill(const Batch& batch, const BatchSpec& spec, std::size_t slot,
            const std::stop_token& stop) const {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(spec.images) * spec.image.elements());
    Batch random = batch;
    random.pixels = std::as_writable_bytes(std::span(bytes));
    pixels_.fill(random, spec.classes, seed_, 0, slot, stop);
    std::vector<std::byte> values;
    if (spec.normalised) {
      values.resize(batch.pixels.size());
      normalise(bytes, spec.image.channels, spec.pixel, values.data());
    }
    const std::span<const std::byte> pixels = spec.normalised ? std::span(values) : random.pixels;
    if (spec.planar) {
      split_planes(pixels, spec.image, size_of(spec.pixel), batch.pixels.data());
    } else {
      std::ranges::copy(pixels, batch.pixels.begin());
    }
  }

  Clock& clock_;
  const double img_per_s_;
  const SyntheticPixels pixels_;
  const std::uint64_t seed_;
};

}  // namespace

extern constinit const FeederEntry host_constant_feeder{
    .name = "host",
    .summary = "constant batches in host memory: measures the copy to the device",
    .takes_layout = true,
    .options = kOptions,
    .shape_batches = normalise_batches,
    .make = make_feeder<HostConstant>,
};

}  // namespace penstock
