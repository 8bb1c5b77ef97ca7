// SPDX-License-Identifier: Apache-2.0
// Tests sums and copies among ranks on one GPU and on several. The numbers must be bit-identical,
// and streams and events must order every access, at any timing of the work.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/random.h"
#include "tests/support/gpu/host_driver.h"
#include "tests/support/rank_threads.h"
#include "trainer/backends/gpu/group.h"
#include "trainer/collectives/staged.h"
#include "trainer/collectives/threads.h"
#include "trainer/wire_format.h"

namespace penstock::gpu {
namespace {

using namespace std::chrono_literals;
using Values = std::vector<std::vector<float>>;  // by rank

/// Ranks that are assigned to the devices of a machine in turn, with a tensor each.
class Ranks {
 public:
  Ranks(const HostMachineOptions& options, std::int32_t ranks, std::size_t count)
      : library_(options) {
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      std::unique_ptr<HostDriver> driver = library_.open_host(rank % options.devices);
      drivers_.push_back(driver.get());
      devices_.push_back(std::make_unique<GpuDevice>(std::move(driver)));
      tensors_.push_back(devices_.back()->allocate(count * sizeof(float), MemoryKind::device));
    }
  }
  std::vector<Device*> devices() const {
    std::vector<Device*> devices;
    for (const auto& device : devices_) devices.push_back(device.get());
    return devices;
  }
  Tensor tensor(std::int32_t rank) const {
    const std::span<std::byte> bytes = tensors_[static_cast<std::size_t>(rank)].bytes();
    return {bytes.data(), bytes.size() / sizeof(float), DType::f32};
  }
  Values get() {
    Values values;
    for (std::size_t rank = 0; rank < tensors_.size(); ++rank) {
      const std::span<std::byte> bytes = tensors_[rank].bytes();
      values.emplace_back(bytes.size() / sizeof(float));
      devices_[rank]->copy_now(reinterpret_cast<std::byte*>(values.back().data()), bytes.data(),
                               bytes.size());
    }
    return values;
  }
  std::vector<std::string> races() const { return drivers_.front()->races(); }

 private:
  HostDriverLibrary library_;
  std::vector<HostDriver*> drivers_;
  std::vector<std::unique_ptr<GpuDevice>> devices_;
  std::vector<Buffer> tensors_;
};

Values random_values(std::int32_t ranks, std::size_t count, std::uint64_t seed) {
  Values values(static_cast<std::size_t>(ranks), std::vector<float>(count));
  Random random(seed);
  for (std::vector<float>& of_rank : values) {
    for (float& value : of_rank) {
      value = static_cast<float>(random.below(2'000'001)) / 7919.F - 126.F;
    }
  }
  return values;
}

/// The expected tensors after exchange_all(), computed in plain loops.
Values expected_of(Values values) {
  const std::size_t last = values.size() - 1;
  const auto sum = [&] {
    std::vector<float> sums = values[0];
    for (std::size_t rank = 1; rank < values.size(); ++rank) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[rank][i];
    }
    return sums;
  };
  values[last] = sum();
  values.assign(values.size(), sum());
  values[0] = sum();
  values.assign(values.size(), values[0]);
  return values;
}

void write(const Tensor& tensor, const std::vector<float>& values, Stream& stream) {
  stream.copy({static_cast<std::byte*>(tensor.data), tensor.count * sizeof(float)},
              std::as_bytes(std::span(values)));
}

/// Makes every call twice in a row without a wait of the host, with different roots. Like
/// gradients, tensors are written on the ranks' own streams, also over data that other ranks may
/// still read.
void exchange_all(Collective& collective, const Values& values, const Tensor& tensor,
                  Stream& stream) {
  const auto [rank, ranks] = collective.world();
  for (int round = 0; round < 2; ++round) {
    write(tensor, values[static_cast<std::size_t>(rank)], stream);
    collective.reduce_sum(tensor, ranks - 1, stream);
    collective.all_reduce_sum(tensor, stream);
    collective.reduce_sum(tensor, 0, stream);
    collective.broadcast(tensor, 0, stream);
  }
  collective.all_reduce_sum({}, stream);
}

/// Runs `body` on one thread and one stream per rank, and waits for the streams.
using Body = std::function<void(Collective&, const Tensor&, Stream&)>;
void run(Ranks& ranks, CollectiveGroup& group, const Body& body) {
  const std::vector<Device*> devices = ranks.devices();
  run_ranks(static_cast<std::int32_t>(devices.size()), [&](std::int32_t rank) {
    Device& device = *devices[static_cast<std::size_t>(rank)];
    const std::unique_ptr<Stream> stream = device.make_stream();
    const std::unique_ptr<Event> done = device.make_event();
    const std::unique_ptr<Collective> collective = group.join(rank);
    body(*collective, ranks.tensor(rank), *stream);
    stream->record(*done);
    done->wait_until(Time::max());
  });
}
void run(Ranks& ranks, const Body& body, WireFormat wire = WireFormat::f32) {
  SteadyClock clock;
  DeviceGroup group(ranks.devices(), wire, clock, {});
  run(ranks, group, body);
}

void expect_exact_sums(const HostMachineOptions& options, std::int32_t count_of_ranks,
                       std::size_t count, std::uint64_t seed) {
  Ranks ranks(options, count_of_ranks, count);
  const Values values = random_values(count_of_ranks, count, seed);
  run(ranks, [&](Collective& collective, const Tensor& tensor, Stream& stream) {
    exchange_all(collective, values, tensor, stream);
  });
  EXPECT_EQ(ranks.get(), expected_of(values));
  EXPECT_EQ(ranks.races(), std::vector<std::string>{});
}

TEST(DeviceGroup, SumsInRankOrderBitForBitOnOneGpuAndOnSeveral) {
  for (const std::int32_t count_of_ranks : {1, 2, 3, 4}) {
    for (const std::int32_t devices : {1, 2, 4}) {
      for (const std::size_t count : {1U, 3U, 4U, 7U, 1000U, 4099U}) {
        SCOPED_TRACE(std::to_string(count_of_ranks) + " ranks on " + std::to_string(devices) +
                     " devices, " + std::to_string(count) + " elements");
        expect_exact_sums({.devices = devices}, count_of_ranks, count, count);
      }
    }
  }
}

TEST(DeviceGroup, NothingRacesInAnyOrderOfTheWork) {
  for (const std::int32_t devices : {1, 3}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      const Timing timing = seed == 0 ? Timing::at_once : Timing::shuffled;
      expect_exact_sums({.timing = timing, .seed = seed, .devices = devices}, 3, 37, seed);
    }
  }
}

TEST(DeviceGroup, GradientsOf16BitsAreRoundedAsHostThreadsRoundThemInAnyOrderOfTheWork) {
  constexpr std::int32_t kRanks = 3;
  constexpr std::size_t kCount = 1003;
  for (const WireFormat wire : {WireFormat::f16, WireFormat::bf16}) {
    for (const std::int32_t devices : {1, 3}) {
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        SCOPED_TRACE(std::string(to_string(wire)) + ", " + std::to_string(devices) +
                     " devices, seed " + std::to_string(seed));
        const Timing timing = seed == 0 ? Timing::late : Timing::shuffled;
        Ranks ranks({.timing = timing, .seed = seed, .devices = devices}, kRanks, kCount);
        const Values values = random_values(kRanks, kCount, seed);
        Values expected = values;
        std::vector<float*> tensors;
        for (std::vector<float>& of_rank : expected) tensors.push_back(of_rank.data());
        for (int round = 0; round < 2; ++round) add_into_all(wire, tensors, 0, kCount);
        run(
            ranks,
            [&](Collective& collective, const Tensor& tensor, Stream& stream) {
              const auto rank = static_cast<std::size_t>(collective.world().rank);
              write(tensor, values[1], stream);
              collective.broadcast(tensor, 1, stream);
              write(tensor, values[rank], stream);
              for (int round = 0; round < 2; ++round) collective.all_reduce_sum(tensor, stream);
              collective.all_reduce_sum({}, stream);
            },
            wire);
        EXPECT_EQ(ranks.get(), expected);
        EXPECT_EQ(ranks.races(), std::vector<std::string>{});
      }
    }
  }
}

TEST(StagedGroup, SumsThroughTheHostsMemoryInAnyOrderOfTheWork) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Timing timing = seed == 0 ? Timing::late : Timing::shuffled;
    Ranks ranks({.timing = timing, .seed = seed, .devices = 2}, 3, 37);
    const Values values = random_values(3, 37, seed);
    SteadyClock clock;
    const std::vector<Device*> devices = ranks.devices();
    collectives::StagedGroup group(
        devices, 0, std::make_unique<collectives::ThreadsGroup>(devices, clock, std::stop_token()));
    run(ranks, group, [&](Collective& collective, const Tensor& tensor, Stream& stream) {
      EXPECT_FALSE(collective.recordable());
      const Tensor front{tensor.data, 5, tensor.dtype};
      collective.broadcast(front, 1, stream);  // small first, so that the scratch memory must grow
      exchange_all(collective, values, tensor, stream);
    });
    EXPECT_EQ(ranks.get(), expected_of(values)) << "seed " << seed;
    EXPECT_EQ(ranks.races(), std::vector<std::string>{}) << "seed " << seed;
  }
}

TEST(DeviceGroup, OnlyARankAloneCanBeRecorded) {
  SteadyClock clock;
  for (const std::int32_t count : {1, 2}) {
    const Ranks ranks({}, count, 1);
    const std::vector<Device*> devices = ranks.devices();
    DeviceGroup group(devices, WireFormat::f32, clock, {});
    EXPECT_EQ(group.join(0)->recordable(), count == 1);
  }
}

TEST(DeviceGroup, AStopFreesTheRanksThatWait) {
  SteadyClock clock;
  Ranks ranks({.devices = 3}, 3, 8);
  const std::vector<Device*> devices = ranks.devices();
  std::stop_source stop;
  DeviceGroup group(devices, WireFormat::f32, clock, stop.get_token());
  std::vector<std::future<void>> waiting;
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    waiting.push_back(std::async(std::launch::async, [&, rank] {
      const std::unique_ptr<Stream> stream = devices[static_cast<std::size_t>(rank)]->make_stream();
      group.join(rank)->all_reduce_sum(ranks.tensor(rank), *stream);
    }));
  }
  stop.request_stop();
  for (std::future<void>& rank : waiting) {
    ASSERT_EQ(rank.wait_for(5s), std::future_status::ready);
    EXPECT_THROW(rank.get(), Error);
  }
}

}  // namespace
}  // namespace penstock::gpu
