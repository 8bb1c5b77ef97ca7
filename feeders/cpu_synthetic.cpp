// SPDX-License-Identifier: Apache-2.0
// The feeder `cpu`: the CPU draws random pixels and labels for every batch. It is the cheapest
// feeder that touches each byte. One thread draws at several GB/s.
#include <cstdint>
#include <utility>

#include "dataflow/stage_timer.h"
#include "feeders/feeder.h"
#include "feeders/synthetic_pixels.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {kDistributionOption, kEntropyOption};

class CpuSynthetic final : public Feeder {
 public:
  explicit CpuSynthetic(const FeederContext& context)
      : pixels_(context.options),
        marks_(context.marks),
        timer_(context.probe.stage({"draw", "feeder thread", 1, StageRole::draws}), context.clock),
        seed_(context.seed),
        first_(context.data.first_sample / static_cast<std::uint64_t>(context.spec.images)) {}

  void run(BatchRing& out, std::stop_token stop) override {
    for (std::uint64_t count = first_; WriteLease lease = next_slot(out, stop); ++count) {
      const Mark mark(marks_, "draw");
      StageTimer::Item item(timer_);
      pixels_.fill(lease.batch(), out.spec().classes, seed_, 0, count, stop);
      if (stop.stop_requested()) return;
      item.done(out.spec().images, 0);
      std::move(lease).publish();
    }
  }

 private:
  WriteLease next_slot(BatchRing& out, const std::stop_token& stop) {
    const auto wait = timer_.wait_out();
    WriteLease lease = out.acquire(stop);
    if (lease) lease.await();
    return lease;
  }

  const SyntheticPixels pixels_;
  const Marks marks_;
  StageTimer timer_;
  const std::uint64_t seed_;
  const std::uint64_t first_;  // index of the first batch
};

}  // namespace

extern constinit const FeederEntry cpu_synthetic_feeder{
    .name = "cpu",
    .summary = "random pixels, generated on the CPU for every batch",
    .takes_layout = true,
    .options = kOptions,
    .make = make_feeder<CpuSynthetic>,
};

}  // namespace penstock
