// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/exchange/exchange_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "dataflow/random.h"
#include "trainer/collectives/meeting.h"

namespace penstock::scaling {
namespace {

/// Element i of a rank's tensor in the check: small whole numbers, whose sums are exact in f32. For
/// fp16 they are scaled down so that no sum overflows.
constexpr std::size_t kPeriod = 97;
float unit_of(WireFormat wire) { return wire == WireFormat::f16 ? 0x1p-10F : 1.0F; }
float known_element(WireFormat wire, std::int32_t rank, std::size_t i) {
  return unit_of(wire) *
         static_cast<float>((rank + 1) * (static_cast<std::int32_t>(i % kPeriod) + 1));
}
float known_sum(WireFormat wire, std::int32_t ranks, std::size_t i) {
  return unit_of(wire) *
         static_cast<float>(ranks * (ranks + 1) / 2 * (static_cast<std::int32_t>(i % kPeriod) + 1));
}
/// The allowed relative error of a sum: every algorithm rounds a number at most once per rank, and
/// the sum once more.
double tolerance(WireFormat wire, std::int32_t ranks) {
  return std::pow(1 + unit_roundoff(wire), ranks + 1) - 1;
}

/// The order of ways in an iteration: a shuffle that depends only on seed and iteration.
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
  ExchangeRun(const ExchangePlan& plan, std::span<const ExchangeWay> ways, Clock& clock,
              cluster::Processes* processes)
      : plan_(plan),
        ways_(ways),
        clock_(clock),
        processes_(processes),
        device_(clock),
        elements_(std::accumulate(plan.buckets.begin(), plan.buckets.end(), std::size_t{0})),
        memories_(static_cast<std::size_t>(plan.ranks)),
        meeting_(static_cast<std::size_t>(plan.ranks), clock, abandon_.get_token()),
        spans_(static_cast<std::size_t>(plan.ranks)) {
    const std::vector<Device*> devices(processes == nullptr ? spans_.size() : 1, &device_);
    for (const ExchangeWay& way : ways) {
      groups_.push_back(way.make(devices, clock, abandon_.get_token()));
      times_.push_back({.name = way.name, .wire = way.wire, .adds = way.adds});
      times_.back().seconds.reserve(static_cast<std::size_t>(plan.iterations));
    }
    if (processes == nullptr) return;
    meeting_group_ =
        processes->make_group({.device = device_,
                               .patience = plan.patience,
                               .stopping = {},
                               .abandon = {},
                               .choice = {.method = collectives::ExchangeMethod::mpi}});
    meeting_rank_ = meeting_group_->join(processes->launch().rank);
    meeting_stream_ = device_.make_stream();
  }

  std::vector<WayTimes> run(const std::stop_token& stop) {
    if (processes_ != nullptr) {
      stop_ = stop;
      run_rank(processes_->launch().rank);
      if (failure_ != nullptr) std::rethrow_exception(failure_);
      gather();
      return std::move(times_);
    }
    const std::stop_callback pass_on(stop, [this] { abandon_.request_stop(); });
    std::vector<Clock::Participant> participants;  // all of them, before any runs
    for (std::int32_t rank = 0; rank < plan_.ranks; ++rank) participants.emplace_back(clock_);
    {
      std::vector<std::jthread> threads;
      try {
        for (std::int32_t rank = 0; rank < plan_.ranks; ++rank) {
          threads.emplace_back(
              [this, rank, participant = std::move(participants[static_cast<std::size_t>(rank)])] {
                run_rank(rank);
              });
        }
      } catch (const std::system_error&) {
        abandon_.request_stop();  // for ranks that did start
        throw;
      }
      for (std::jthread& thread : threads) thread.join();
    }
    if (failure_ != nullptr && !stop.stop_requested()) std::rethrow_exception(failure_);
    return std::move(times_);
  }

 private:
  /// The state of a rank's thread.
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
      for (std::size_t way = 0; way < ways_.size(); ++way) {
        if (ways_[way].adds && !check(rank, way)) return;
      }
      // Zeros remain zeros, however often they are added.
      std::ranges::fill(rank.values, 0.0F);
      for (std::int64_t i = 0; i < plan_.warmup + plan_.iterations; ++i) {
        for (const std::size_t way : order_of_ways(ways_.size(), plan_.seed, i)) {
          const std::optional<Nanoseconds> time = timed_exchange(rank, way);
          if (!time) return;
          if ((index == 0 || processes_ != nullptr) && i >= plan_.warmup) {
            times_[way].seconds.push_back(to_seconds(*time));
          }
        }
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (failure_ == nullptr) failure_ = std::current_exception();
      abandon_.request_stop();
    }
  }

  /// Blocks until all ranks are here. Processes return false after a stop request, and all leave.
  /// Threads leave with an Error.
  bool meet() {
    if (processes_ == nullptr) {
      meeting_.meet();
      return true;
    }
    float told = stop_.stop_requested() ? 1 : 0;
    meeting_rank_->all_reduce_sum({&told, 1}, *meeting_stream_);
    return told == 0;
  }

  /// Replaces each time by the longest time of any process.
  void gather() {
    for (WayTimes& way : times_) {
      const std::string mine(reinterpret_cast<const char*>(way.seconds.data()),
                             way.seconds.size() * sizeof(double));
      for (const std::string& text :
           processes_->all_gather(mine, plan_.patience, "gathering the ranks' times")) {
        PENSTOCK_ASSERT(text.size() == mine.size());  // processes left together
        std::vector<double> other(way.seconds.size());
        std::memcpy(other.data(), text.data(), text.size());
        for (std::size_t i = 0; i < other.size(); ++i) {
          way.seconds[i] = std::max(way.seconds[i], other[i]);
        }
      }
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

  /// Returns false if stopped. Throws Error if a sum is wrong.
  bool check(Rank& rank, std::size_t way) {
    const WireFormat wire = ways_[way].wire;
    for (std::size_t i = 0; i < elements_; ++i) {
      rank.values[i] = known_element(wire, rank.index, i);
    }
    if (!meet()) return false;
    exchange(rank, way);
    for (std::size_t i = 0; i < elements_; ++i) {
      const double sum = known_sum(wire, plan_.ranks, i);
      if (std::abs(rank.values[i] - sum) <= tolerance(wire, plan_.ranks) * sum) continue;
      throw Error(
          "{} added wrongly: element {} of {} on rank {} is {}; expected {}; nothing was measured; "
          "please report this",
          ways_[way].name, i, elements_, rank.index, rank.values[i], sum);
    }
    if (!meet()) return false;  // all ranks found the sum correct
    if (rank.index == 0) times_[way].checked = true;
    return true;
  }

  /// Returns none if stopped. With threads, only rank 0 returns the whole time.
  std::optional<Nanoseconds> timed_exchange(Rank& rank, std::size_t way) {
    Span& mine = spans_[static_cast<std::size_t>(rank.index)];
    if (!meet()) return std::nullopt;
    mine.begin = clock_.now();
    exchange(rank, way);
    mine.end = clock_.now();
    if (processes_ != nullptr) return mine.end - mine.begin;
    meet();
    if (rank.index != 0) return Nanoseconds::zero();
    Span all = mine;
    for (const Span& span : spans_) {
      all = {std::min(all.begin, span.begin), std::max(all.end, span.end)};
    }
    return all.end - all.begin;
  }

  const ExchangePlan& plan_;
  const std::span<const ExchangeWay> ways_;
  Clock& clock_;
  cluster::Processes* const processes_;
  HostDevice device_;
  const std::size_t elements_;
  // By rank. They outlive all ranks: after a stop, one rank may still read another's memory.
  std::vector<Buffer> memories_;
  std::stop_source abandon_;
  collectives::Meeting meeting_;
  std::vector<Span> spans_;  // by rank; each rank writes its own between two meetings
  std::vector<std::unique_ptr<CollectiveGroup>> groups_;  // by way
  std::vector<WayTimes> times_;                           // by way; rank 0's until it ends
  // For a rank that is a process.
  std::stop_token stop_;
  std::unique_ptr<CollectiveGroup> meeting_group_;
  std::unique_ptr<Collective> meeting_rank_;
  std::unique_ptr<Stream> meeting_stream_;
  std::mutex mutex_;
  std::exception_ptr failure_;  // under mutex_ while ranks run
};

}  // namespace

std::vector<WayTimes> measure_exchanges(const ExchangePlan& plan, std::span<const ExchangeWay> ways,
                                        Clock& clock, std::stop_token stop,
                                        cluster::Processes* processes) {
  PENSTOCK_ASSERT(!plan.buckets.empty() && plan.ranks > 0);
  PENSTOCK_ASSERT(processes == nullptr || processes->launch().size == plan.ranks);
  return ExchangeRun(plan, ways, clock, processes).run(stop);
}

std::vector<std::size_t> gradient_sizes(const Graph& graph) {
  std::vector<std::size_t> sizes;
  for (const ParameterSpec& parameter : graph.parameters()) {
    sizes.push_back(static_cast<std::size_t>(parameter.count()));
  }
  std::ranges::reverse(sizes);
  return sizes;
}

std::vector<std::size_t> bucket_sizes(std::span<const std::size_t> sizes,
                                      const BucketLimits& limits) {
  std::vector<std::size_t> edges{0};
  for (const std::size_t size : sizes) edges.push_back(edges.back() + size);
  std::vector<std::size_t> buckets;
  for (const BucketRange& range : plan_buckets(edges, limits)) buckets.push_back(range.count);
  return buckets;
}

}  // namespace penstock::scaling
