// SPDX-License-Identifier: Apache-2.0
// The feeder `gpu`: batches already lie on the device, so the trainer shows its speed without any
// input cost. The feeder fills each slot of the device ring once with different random pixels, then
// publishes the slots again and again.
#include <span>
#include <utility>
#include <vector>

#include "feeders/feeder.h"
#include "feeders/synthetic_pixels.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {
    kDistributionOption,
    kEntropyOption,
};

class GpuConstant final : public Feeder {
 public:
  explicit GpuConstant(const FeederContext& context)
      : device_(context.device),
        pixels_(context.options),
        seed_(context.seed),
        rank_(static_cast<std::uint64_t>(context.data.rank)) {}

  void run(BatchRing& out, std::stop_token stop) override {
    const std::unique_ptr<Stream> stream = device_.make_stream();
    fill_all_slots(out, *stream, stop);
    while (WriteLease lease = out.acquire(stop)) std::move(lease).publish();
  }

 private:
  void copy_now(Stream& stream, std::span<std::byte> to, std::span<const std::byte> from) {
    const std::unique_ptr<Event> copied = device_.make_event();
    stream.copy(to, from);
    stream.record(*copied);
    copied->wait_until(Time::max());
  }

  void fill_all_slots(BatchRing& out, Stream& stream, const std::stop_token& stop) {
    const BatchSpec& spec = out.spec();
    const Buffer staging = device_.allocate(spec.bytes(), MemoryKind::pinned);
    const std::span<std::byte> bytes = staging.bytes();
    Batch drawn;
    drawn.pixels = bytes.first(spec.pixel_bytes());
    drawn.labels = {reinterpret_cast<std::int32_t*>(bytes.data() + spec.pixel_bytes()),
                    static_cast<std::size_t>(spec.images)};
    std::vector<WriteLease> leases;
    for (std::size_t slot = 0; slot < out.slots(); ++slot) {
      WriteLease lease = out.acquire(stop);
      if (!lease) return;
      pixels_.fill(drawn, spec.classes, seed_, rank_, slot, stop);
      if (stop.stop_requested()) return;
      copy_now(stream, lease.batch().pixels, drawn.pixels);
      copy_now(stream, std::as_writable_bytes(lease.batch().labels), std::as_bytes(drawn.labels));
      leases.push_back(std::move(lease));
    }
    for (WriteLease& lease : leases) std::move(lease).publish();
  }

  Device& device_;
  const SyntheticPixels pixels_;
  const std::uint64_t seed_, rank_;
};

std::unique_ptr<Feeder> make(const FeederContext& context) {
  return std::make_unique<GpuConstant>(context);
}

}  // namespace

extern constinit const FeederEntry gpu_constant_feeder{
    .name = "gpu",
    .summary = "constant batches on the device: the ceiling, without any input cost",
    .slots = MemoryKind::device,
    .is_ceiling = true,
    .options = kOptions,
    .make = make,
};

}  // namespace penstock
