// SPDX-License-Identifier: Apache-2.0
#include "bench/exchange/exchange_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "dataflow/random.h"
#include "trainer/collectives/meeting.h"

namespace penstock {
namespace {

/// Element i of a rank's tensor in the check: small whole numbers, whose sums are exact in f32.
constexpr std::size_t kPeriod = 97;
float known_element(std::int32_t rank, std::size_t i) {
  return static_cast<float>((rank + 1) * (static_cast<std::int32_t>(i % kPeriod) + 1));
}
float known_sum(std::int32_t ranks, std::size_t i) {
  return static_cast<float>(ranks * (ranks + 1) / 2 * (static_cast<std::int32_t>(i % kPeriod) + 1));
}

/// The order of ways in an iteration: a shuffle that depends on seed and iteration alone.
std::vector<std::size_t> order_of_ways(std::size_t ways, std::uint64_t seed,
                                       std::int64_t iteration) {
  std::vector<std::size_t> order(ways);
  std::iota(order.begin(), order.end(), 0U);
  Random random(seed, static_cast<std::uint64_t>(iteration));
  for (std::size_t left = ways; left > 1; --left) {  // Fisher and Yates
    std::swap(order[left - 1], order[random.below(left)]);
  }
  return order;
}

class ExchangeRun {
 public:
  ExchangeRun(const ExchangePlan& plan, std::span<const ExchangeWay> ways, Clock& clock)
      : plan_(plan),
        ways_(ways),
        clock_(clock),
        device_(clock),
        elements_(std::accumulate(plan.buckets.begin(), plan.buckets.end(), std::size_t{0})),
        memories_(static_cast<std::size_t>(plan.ranks)),
        meeting_(static_cast<std::size_t>(plan.ranks), clock, abandon_.get_token()),
        spans_(static_cast<std::size_t>(plan.ranks)) {
    const std::vector<Device*> devices(spans_.size(), &device_);
    for (const ExchangeWay& way : ways) {
      groups_.push_back(way.make(devices, clock, abandon_.get_token()));
      times_.push_back({.name = way.name});
      times_.back().seconds.reserve(static_cast<std::size_t>(plan.iterations));
    }
  }

  std::vector<ExchangeTimes> run(const std::stop_token& stop) {
    const std::stop_callback pass_on(stop, [this] { abandon_.request_stop(); });
    std::vector<Clock::Participant> participants;  // all, before one of them runs
    for (std::int32_t rank = 0; rank < plan_.ranks; ++rank) participants.emplace_back(clock_);
    {
      std::vector<std::jthread> threads;
      for (std::int32_t rank = 0; rank < plan_.ranks; ++rank) {
        threads.emplace_back(
            [this, rank, participant = std::move(participants[static_cast<std::size_t>(rank)])] {
              run_rank(rank);
            });
      }
      for (std::jthread& thread : threads) thread.join();
    }
    if (failure_ != nullptr && !stop.stop_requested()) std::rethrow_exception(failure_);
    return std::move(times_);
  }

 private:
  /// What a rank's thread works with.
  struct Rank {
    std::int32_t index;
    std::unique_ptr<Stream> stream;
    std::span<float> values;
    std::vector<std::unique_ptr<Collective>> collectives;  // by way
  };
  struct Span {
    Time begin{}, end{};
  };

  void run_rank(std::int32_t index) noexcept {
    try {
      Rank rank = make_rank(index);
      for (std::size_t way = 0; way < ways_.size(); ++way) check(rank, way);
      // Zeros stay what they are, however often they are added.
      std::fill(rank.values.begin(), rank.values.end(), 0.0F);
      for (std::int64_t i = 0; i < plan_.warmup + plan_.iterations; ++i) {
        for (const std::size_t way : order_of_ways(ways_.size(), plan_.seed, i)) {
          const Nanoseconds time = timed_exchange(rank, way);
          if (index == 0 && i >= plan_.warmup) {
            times_[way].seconds.push_back(std::chrono::duration<double>(time).count());
          }
        }
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (failure_ == nullptr) failure_ = std::current_exception();
      abandon_.request_stop();
    }
  }

  Rank make_rank(std::int32_t index) {
    Buffer& memory = memories_[static_cast<std::size_t>(index)];
    memory = device_.allocate(elements_ * sizeof(float), MemoryKind::host);
    Rank rank{.index = index,
              .stream = device_.make_stream(),
              .values = {reinterpret_cast<float*>(memory.bytes().data()), elements_},
              .collectives = {}};
    for (const std::unique_ptr<CollectiveGroup>& group : groups_) {
      rank.collectives.push_back(group->join(index));
    }
    return rank;
  }

  void exchange(Rank& rank, std::size_t way) const {
    float* bucket = rank.values.data();
    for (const std::size_t elements : plan_.buckets) {
      rank.collectives[way]->all_reduce_sum({bucket, elements}, *rank.stream);
      bucket += elements;
    }
  }

  void check(Rank& rank, std::size_t way) {
    for (std::size_t i = 0; i < elements_; ++i) rank.values[i] = known_element(rank.index, i);
    exchange(rank, way);
    for (std::size_t i = 0; i < elements_; ++i) {
      if (rank.values[i] == known_sum(plan_.ranks, i)) continue;
      throw Error(fmt::format(
          "{} added wrongly: element {} of {} on rank {} is {}; expected {}; nothing was measured; "
          "please report this",
          ways_[way].name, i, elements_, rank.index, rank.values[i], known_sum(plan_.ranks, i)));
    }
    meeting_.meet();  // so that all ranks found it right
    if (rank.index == 0) times_[way].checked = true;
  }

  /// The same on all ranks but for their views of it; whole on rank 0.
  Nanoseconds timed_exchange(Rank& rank, std::size_t way) {
    Span& mine = spans_[static_cast<std::size_t>(rank.index)];
    meeting_.meet();
    mine.begin = clock_.now();
    exchange(rank, way);
    mine.end = clock_.now();
    meeting_.meet();
    if (rank.index != 0) return {};
    Span all = mine;
    for (const Span& span : spans_) {
      all = {std::min(all.begin, span.begin), std::max(all.end, span.end)};
    }
    return all.end - all.begin;
  }

  const ExchangePlan& plan_;
  const std::span<const ExchangeWay> ways_;
  Clock& clock_;
  HostDevice device_;
  const std::size_t elements_;
  // By rank. They outlive all ranks: one may still read another's where that has been stopped.
  std::vector<Buffer> memories_;
  std::stop_source abandon_;
  Meeting meeting_;
  std::vector<Span> spans_;  // by rank; each rank writes its own between two meetings
  std::vector<std::unique_ptr<CollectiveGroup>> groups_;  // by way
  std::vector<ExchangeTimes> times_;                      // by way; rank 0's until it ends
  std::mutex mutex_;
  std::exception_ptr failure_;  // under mutex_ while ranks run
};

}  // namespace

std::vector<ExchangeTimes> measure_exchanges(const ExchangePlan& plan,
                                             std::span<const ExchangeWay> ways, Clock& clock,
                                             std::stop_token stop) {
  PENSTOCK_ASSERT(!plan.buckets.empty() && plan.ranks > 0);
  return ExchangeRun(plan, ways, clock).run(stop);
}

}  // namespace penstock
