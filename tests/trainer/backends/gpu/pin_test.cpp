// SPDX-License-Identifier: Apache-2.0
// Tests memory that other code allocated and from which a GPU copies directly.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "dataflow/batch_ring.h"
#include "dataflow/host_device.h"
#include "dataflow/stager.h"
#include "tests/support/gpu/host_driver.h"
#include "tests/trainer/backends/gpu/host_bench.h"
#include "trainer/backends/gpu/device.h"

namespace penstock::gpu {
namespace {

TEST(HostDriver, Pin_MakesForeignMemoryFitForRecordings) {
  Bench bench;
  const std::vector<std::byte> foreign(kBytes, std::byte{3});
  ASSERT_TRUE(bench.driver.pin(foreign));
  bench.driver.begin_capture(bench.streams[0]);
  bench.driver.copy(bench.streams[0], bench.device[0], foreign.data(), kBytes);
  const GraphHandle graph = bench.driver.end_capture(bench.streams[0]);
  bench.driver.launch(bench.streams[0], graph);
  bench.download();
  bench.record();
  EXPECT_TRUE(bench.reach());
  bench.driver.host_reads({bench.pinned[1], kBytes});
  EXPECT_EQ(bench.pinned[1][0], std::byte{3});
  bench.driver.destroy(graph);
  bench.driver.unpin(foreign);
  EXPECT_TRUE(bench.driver.races().empty());
  bench.driver.begin_capture(bench.streams[0]);
  EXPECT_THROW(bench.driver.copy(bench.streams[0], bench.device[0], foreign.data(), kBytes),
               std::logic_error);
  bench.driver.abandon_capture(bench.streams[0]);
}

TEST(HostDriver, Unpin_BeforeACopyIsDone_IsARace) {
  Bench bench;
  const std::vector<std::byte> foreign(kBytes);
  ASSERT_TRUE(bench.driver.pin(foreign));
  bench.driver.copy(bench.streams[0], bench.device[0], foreign.data(), kBytes);
  bench.driver.unpin(foreign);
  EXPECT_FALSE(bench.driver.races().empty());
}

TEST(GpuDevice, Pin_IsNoneWhereTheDriverHasNone) {
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

TEST(GpuDevice, Stager_CopiesWhatWasLentAndTheLenderKnowsWhen) {
  constexpr BatchSpec kSpec{.images = 2, .image = {4, 4, 3}};
  for (const Timing timing : kTimings) {
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
