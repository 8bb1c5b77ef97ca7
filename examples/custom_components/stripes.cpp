// SPDX-License-Identifier: Apache-2.0
// A feeder in one file: vertical stripes. An option sets their width, and the label counts the
// batches.
//   penstock_custom run --fake-location stripes:width=8
#include <cstring>
#include <utility>

#include "dataflow/error.h"
#include "feeders/feeder.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {
    {"width", "16", "pixels from one edge of a stripe to the other"}};

class Stripes final : public Feeder {
 public:
  explicit Stripes(const FeederContext& context) : width_(context.options.integer("width")) {
    if (width_ < 1) throw ConfigError("stripes:width is below 1; expected a number of pixels");
  }

  void run(BatchRing& out, std::stop_token stop) override {
    const ImageShape& image = out.spec().image;
    const auto pixel_bytes = static_cast<std::size_t>(image.channels);
    // acquire() blocks while the ring is full. An empty lease means that the run ends.
    for (std::int32_t count = 0; WriteLease lease = out.acquire(stop); ++count) {
      lease.await();  // a device may still read the slot
      std::byte* pixel = lease.batch().pixels.data();
      for (std::int64_t i = 0; i < std::int64_t{lease.batch().valid} * image.height * image.width;
           ++i) {
        const bool bright = (i % image.width / width_ + count) % 2 == 0;
        std::memset(pixel, bright ? 200 : 50, pixel_bytes);
        pixel += pixel_bytes;
      }
      for (std::int32_t& label : lease.batch().labels) label = count % out.spec().classes;
      std::move(lease).publish();
    }
  }

 private:
  const std::int64_t width_;
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
