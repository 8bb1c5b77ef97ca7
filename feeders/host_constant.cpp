// SPDX-License-Identifier: Apache-2.0
// The same constant batches in pinned host memory: what the copy to the device costs, and nothing
// else.
#include <utility>
#include <vector>

#include "feeders/feeder.h"
#include "feeders/synthetic_pixels.h"

namespace penstock {
namespace {

class HostConstant final : public Feeder {
 public:
  explicit HostConstant(const FeederContext& context) : seed_(context.seed) {}

  void run(BatchRing& out, std::stop_token stop) override {
    std::vector<bool> filled(out.slots(), false);
    while (WriteLease lease = out.acquire(stop)) {
      const auto slot = static_cast<std::size_t>(lease.batch().slot);
      if (!filled[slot]) {
        fill_random(lease.batch(), out.spec().classes, seed_, 0, slot);
        filled[slot] = true;
      }
      std::move(lease).publish();
    }
  }

 private:
  const std::uint64_t seed_;
};

std::unique_ptr<Feeder> make(const FeederContext& context) {
  return std::make_unique<HostConstant>(context);
}

}  // namespace

extern constinit const FeederEntry host_constant_feeder{
    .name = "host",
    .summary = "constant batches in pinned host memory: the copy alone",
    .make = make,
};

}  // namespace penstock
