// SPDX-License-Identifier: Apache-2.0
// The feeder `messages`: reads constant batches from messages in memory, which it makes before the
// run. It checks and copies them as zmq-consume does, without the network.
#include <atomic>
#include <memory>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/stage_timer.h"
#include "feeders/feeder.h"
#include "feeders/remote/receive/receiver_threads.h"
#include "feeders/remote/receive/zmq_socket.h"
#include "feeders/remote/send/frame_memory.h"
#include "feeders/remote/send/outgoing_messages.h"
#include "feeders/remote/wire/batch_message.h"
#include "feeders/synthetic_pixels.h"

namespace penstock::remote {
namespace {

constexpr std::int64_t kMostReceivers = 256, kMostMessages = 1 << 10;

constexpr OptionSpec kOptions[] = {
    {"format", "framed", "message format: zmq_op, pickle, msgpack, numpy-frames or framed"},
    {"checksum", "false", "framed messages carry a checksum, which is verified"},
    {"receivers", "1", "threads that check and copy messages"},
    {"messages", "8", "messages in memory, each with a different batch"},
};

struct HeldMessage {
  std::vector<std::vector<std::byte>> frames;
  std::vector<std::span<const std::byte>> views;
};

class HeldMessages final : public Feeder {
 public:
  explicit HeldMessages(const FeederContext& context)
      : spec_(context.spec),
        clock_(context.clock),
        format_(parse_message_format(context.options.text("format"), "messages:format")),
        receivers_(checked_count("messages:receivers", context.options.integer("receivers"),
                                 kMostReceivers)),
        receiving_(context.probe.stage({"receive", "receiver", receivers_, StageRole::receives})),
        unpacking_(context.probe.stage({"unpack", "receiver", receivers_, StageRole::unpacks})) {
    if (spec_.pixel != DType::u8 || spec_.normalised) {
      throw ConfigError("messages holds uint8 pixels; this run wants another type");
    }
    const auto messages = make_outgoing(format_, spec_, clock_, context.options.flag("checksum"));
    const auto count =
        checked_count("messages:messages", context.options.integer("messages"), kMostMessages);
    FrameMemory memory(context.device);
    const Buffer slot = memory.allocate(spec_.bytes(), MemoryKind::pinned);
    const Batch batch{
        .pixels = slot.bytes().first(spec_.pixel_bytes()),
        .labels = {reinterpret_cast<std::int32_t*>(slot.bytes().data() + spec_.pixel_bytes()),
                   static_cast<std::size_t>(spec_.images)},
        .valid = spec_.images};
    for (std::int32_t index = 0; index < count; ++index) {
      SyntheticPixels().fill(batch, spec_.classes, context.seed, 0,
                             static_cast<std::uint64_t>(index));
      const Time now = clock_.now();
      keep(messages->batch(batch, now, now));
      messages->give_back(batch);
    }
  }

  void run(BatchRing& out, std::stop_token stop) override {
    run_together(receivers_, stop, [&](const std::stop_token& end) { take_messages(out, end); });
  }

 private:
  void keep(std::span<const OutgoingFrame> frames) {
    HeldMessage& message = messages_.emplace_back();
    for (const OutgoingFrame& frame : frames) {
      message.frames.emplace_back(frame.bytes.begin(), frame.bytes.end());
    }
    for (const auto& frame : message.frames) message.views.emplace_back(frame);
  }

  void take_messages(BatchRing& out, const std::stop_token& stop) {
    StageTimer receiving(receiving_, clock_), unpacking(unpacking_, clock_);
    BatchMessageReader reader(spec_);
    const auto slot = [&] {
      const auto wait = unpacking.wait_out();
      return out.acquire(stop);
    };
    while (WriteLease lease = slot()) {
      const HeldMessage& message = messages_[next_.fetch_add(1) % messages_.size()];
      StageTimer::Item item(receiving);
      const WireBatch batch = reader.read(format_, message.views);
      item.done(spec_.images, static_cast<std::int64_t>(spec_.bytes()));
      {
        const auto wait = unpacking.wait_out();
        lease.await();
      }
      StageTimer::Item copying(unpacking);
      copy_batch(batch, lease.batch());
      copying.done(spec_.images, static_cast<std::int64_t>(spec_.bytes()));
      std::move(lease).publish();
    }
  }

  const BatchSpec spec_;
  Clock& clock_;
  const MessageFormat format_;
  const std::int32_t receivers_;
  StageCounters &receiving_, &unpacking_;
  std::vector<HeldMessage> messages_;
  std::atomic<std::size_t> next_{0};
};

std::unique_ptr<Feeder> make(const FeederContext& context) {
  return std::make_unique<HeldMessages>(context);
}

}  // namespace

extern constinit const FeederEntry held_messages_feeder{
    .name = "messages",
    .summary = "constant batches from messages in memory: zmq-consume without the network",
    .options = kOptions,
    .make = make,
};

}  // namespace penstock::remote
