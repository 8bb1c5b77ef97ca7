// SPDX-License-Identifier: Apache-2.0
// A feeder in one file: vertical stripes. An option sets their width, and the label counts the
// batches. The stage has a role, so that every report knows what the feeder's thread does.
//   penstock_custom run --fake-location stripes:width=8
#include <cstring>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/stage_timer.h"
#include "feeders/feeder.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {
    {"width", "16", "pixels from one edge of a stripe to the other"}};

class Stripes final : public Feeder {
 public:
  explicit Stripes(const FeederContext& context)
      : width_(context.options.integer("width")),
        timer_(context.probe.stage({"stripe", "feeder thread", 1, StageRole::draws}),
               context.clock) {
    if (width_ < 1) throw ConfigError("stripes:width is below 1; expected a number of pixels");
  }

  void run(BatchRing& out, std::stop_token stop) override {
    const ImageShape& image = out.spec().image;
    const auto pixel_bytes = static_cast<std::size_t>(image.channels);
    for (std::int32_t count = 0; WriteLease lease = next_slot(out, stop); ++count) {
      StageTimer::Item item(timer_);
      std::byte* pixel = lease.batch().pixels.data();
      for (std::int64_t i = 0; i < std::int64_t{lease.batch().valid} * image.height * image.width;
           ++i) {
        const bool bright = (i % image.width / width_ + count) % 2 == 0;
        std::memset(pixel, bright ? 200 : 50, pixel_bytes);
        pixel += pixel_bytes;
      }
      for (std::int32_t& label : lease.batch().labels) label = count % out.spec().classes;
      item.done(out.spec().images, 0);
      std::move(lease).publish();
    }
  }

 private:
  WriteLease next_slot(BatchRing& out, const std::stop_token& stop) {
    const auto wait = timer_.wait_out();
    WriteLease lease = out.acquire(stop);  // blocks while the ring is full; empty: the run ends
    if (lease) lease.await();              // a device may still read the slot
    return lease;
  }

  const std::int64_t width_;
  StageTimer timer_;
};

}  // namespace

extern constinit const FeederEntry stripes_feeder{
    .name = "stripes",
    .summary = "vertical stripes, moving by one with each batch",
    .options = kOptions,
    .make = [](const FeederContext& context) -> std::unique_ptr<Feeder> {
      return std::make_unique<Stripes>(context);
    },
};

}  // namespace penstock
