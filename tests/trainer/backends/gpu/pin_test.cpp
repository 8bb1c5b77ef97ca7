// SPDX-License-Identifier: Apache-2.0
// Tests memory that other code allocated and from which a GPU copies directly.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "dataflow/batch_ring.h"
#include "dataflow/host_device.h"
#include "dataflow/stager.h"
#include "tests/support/gpu/host_driver.h"
#include "trainer/backends/gpu/device.h"

namespace penstock::gpu {
namespace {

constexpr std::size_t kBytes = 64;

TEST(GpuDevice, MemoryThatIsUnpinnedBeforeItsCopyIsDoneIsARace) {
  auto owned = std::make_unique<HostDriver>();
  HostDriver& driver = *owned;
  GpuDevice device(std::move(owned));
  const std::vector<std::byte> foreign(kBytes);
  std::byte* const block = driver.allocate(kBytes, MemoryKind::device);
  const StreamHandle stream = driver.make_stream();
  {
    const auto pin = device.pin(foreign);
    driver.copy(stream, block, foreign.data(), kBytes);
  }
  EXPECT_FALSE(driver.races().empty());
  driver.free(block, MemoryKind::device);
  driver.destroy(stream);
}

TEST(GpuDevice, HasNoPinIfItsDriverPinsNoMemory) {
  const std::vector<std::byte> foreign(kBytes);
  GpuDevice without(std::make_unique<HostDriver>(HostMachineOptions{.pins_foreign_memory = false}));
  EXPECT_EQ(without.pin(foreign), nullptr);
  GpuDevice with(std::make_unique<HostDriver>());
  EXPECT_NE(with.pin(foreign), nullptr);
}

/// Unpins the memory when it gets the slot back, as a feeder does.
class Unpinning final : public ForeignPixels {
 public:
  explicit Unpinning(std::unique_ptr<MemoryPin> pin) : pin_(std::move(pin)) {}
  void returned(std::int32_t, const Event* read) noexcept override { read_ = read; }
  void unpin() {
    ASSERT_NE(read_, nullptr);
    EXPECT_TRUE(read_->wait_until(Time::max()));
    pin_.reset();
  }

 private:
  std::unique_ptr<MemoryPin> pin_;
  const Event* read_ = nullptr;
};

TEST(GpuDevice, StagerCopiesLentMemoryAndTellsTheLenderWhenItIsRead) {
  constexpr BatchSpec kSpec{.images = 2, .image = {4, 4, 3}};
  for (const Timing timing : {Timing::at_once, Timing::late, Timing::shuffled}) {
    auto owned = std::make_unique<HostDriver>(HostMachineOptions{.timing = timing});
    HostDriver& driver = *owned;
    GpuDevice device(std::move(owned));
    SteadyClock clock;
    Device* const reader = &device;
    BatchRing host(kSpec, 2, device, MemoryKind::pinned, std::span(&reader, 1), Order::relaxed,
                   clock);
    BatchRing on_device(kSpec, 2, device, MemoryKind::device, std::span(&reader, 1), Order::relaxed,
                        clock);
    host.accept_foreign();
    const std::vector<std::byte> foreign(kSpec.pixel_bytes(), std::byte{5});
    const auto owner = std::make_shared<Unpinning>(device.pin(foreign));
    {
      WriteLease lease = host.acquire({});
      lease.await();
      driver.host_writes(std::as_bytes(lease.batch().labels));
      lease.lend(foreign, owner);
      std::move(lease).publish();
      host.close();
    }
    Stager(host, 0, on_device, device).run({});
    owner->unpin();
    const ReadLease lease = on_device.next(0, {});
    ASSERT_TRUE(lease);
    std::vector<std::byte> copy(kSpec.pixel_bytes());
    device.copy_now(copy.data(), lease.batch().pixels.data(), copy.size());
    EXPECT_EQ(copy, foreign);
    EXPECT_TRUE(driver.races().empty());
  }
}

}  // namespace
}  // namespace penstock::gpu
