// SPDX-License-Identifier: Apache-2.0
// The same constant batches in pinned host memory: what the copy to the device costs, and nothing
// else. Held to a stated rate, what a loader of that rate would cost.
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/pace.h"
#include "feeders/feeder.h"
#include "feeders/synthetic_pixels.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {
    {"img_per_s", "0", "supply so many images per second at most; 0: as many as are taken"},
};

double parse_rate(const Options& options) {
  const double rate = options.real("img_per_s");
  if (rate < 0) {
    throw ConfigError("host: option 'img_per_s' is '" + options.text("img_per_s") +
                      "'; expected a rate above 0, or 0 for no limit");
  }
  return rate;
}

class HostConstant final : public Feeder {
 public:
  explicit HostConstant(const FeederContext& context)
      : clock_(context.clock), img_per_s_(parse_rate(context.options)), seed_(context.seed) {}

  void run(BatchRing& out, std::stop_token stop) override {
    Pace pace(clock_, img_per_s_);
    std::vector<bool> filled(out.slots(), false);
    while (WriteLease lease = out.acquire(stop)) {
      const auto slot = static_cast<std::size_t>(lease.batch().slot);
      if (!filled[slot]) {
        fill_random(lease.batch(), out.spec().classes, seed_, 0, slot);
        filled[slot] = true;
      }
      pace.await(out.spec().images, stop);
      std::move(lease).publish();
    }
  }

 private:
  Clock& clock_;
  const double img_per_s_;
  const std::uint64_t seed_;
};

std::unique_ptr<Feeder> make(const FeederContext& context) {
  return std::make_unique<HostConstant>(context);
}

}  // namespace

extern constinit const FeederEntry host_constant_feeder{
    .name = "host",
    .summary = "constant batches in pinned host memory: the copy alone",
    .options = kOptions,
    .make = make,
};

}  // namespace penstock
