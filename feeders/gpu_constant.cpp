// SPDX-License-Identifier: Apache-2.0
// The feeder `gpu`: batches already lie on the device, so the trainer shows its speed without any
// input cost. The feeder fills each slot of the device ring once with different random pixels, then
// publishes the slots again and again. With labels=redrawn a copy on the device gives each batch
// other labels.
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "dataflow/random.h"
#include "feeders/feeder.h"
#include "feeders/synthetic_pixels.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {
    kDistributionOption,
    kEntropyOption,
    {"labels", "constant",
     "labels of a slot: constant, or redrawn for every step, from a table on the device"},
};

class GpuConstant final : public Feeder {
 public:
  explicit GpuConstant(const FeederContext& context)
      : device_(context.device),
        pixels_(context.options),
        redraws_(context.options.choice("labels", {{"constant"}, {"redrawn"}}) == 1),
        seed_(context.seed),
        rank_(static_cast<std::uint64_t>(context.data.rank)) {}

  void run(BatchRing& out, std::stop_token stop) override {
    const std::unique_ptr<Stream> stream = device_.make_stream();
    fill_all_slots(out, *stream, stop);
    if (redraws_) return publish_redrawn(out, *stream, stop);
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

  /// The labels of a batch begin at a random place of a table, so that the host sends none.
  void publish_redrawn(BatchRing& out, Stream& stream, const std::stop_token& stop) {
    constexpr std::size_t kOtherPlaces = 65536;
    const auto images = static_cast<std::size_t>(out.spec().images);
    const std::size_t bytes = (kOtherPlaces + images) * sizeof(std::int32_t);
    const Buffer staging = device_.allocate(bytes, MemoryKind::pinned);
    const Buffer table = device_.allocate(bytes, MemoryKind::device);
    Random random(seed_, rank_, out.slots());
    for (std::size_t at = 0; at < bytes; at += sizeof(std::int32_t)) {
      const auto label =
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(out.spec().classes)));
      std::memcpy(staging.bytes().data() + at, &label, sizeof label);
    }
    copy_now(stream, table.bytes(), staging.bytes());
    const std::unique_ptr<Event> done = device_.make_event();
    while (WriteLease lease = out.acquire(stop)) {
      const std::span<std::byte> labels = std::as_writable_bytes(lease.batch().labels);
      const std::size_t first = random.below(kOtherPlaces + 1) * sizeof(std::int32_t);
      lease.await(stream);
      stream.copy(labels, table.bytes().subspan(first, labels.size()));
      std::move(lease).publish(stream);
    }
    penstock::settle(stream, *done);  // the table is in use until then
  }

  Device& device_;
  const SyntheticPixels pixels_;
  const bool redraws_;
  const std::uint64_t seed_, rank_;
};

}  // namespace

extern constinit const FeederEntry gpu_constant_feeder{
    .name = "gpu",
    .summary = "constant batches on the device: the ceiling, without any input cost",
    .slots = MemoryKind::device,
    .takes_layout = true,
    .is_ceiling = true,
    .options = kOptions,
    .make = make_feeder<GpuConstant>,
};

}  // namespace penstock
