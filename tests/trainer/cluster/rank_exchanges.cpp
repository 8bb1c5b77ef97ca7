// SPDX-License-Identifier: Apache-2.0
// One rank of several that mpirun or start_ranks.py starts. It runs exchanges with known results,
// and exits with 0 if all results are right.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dataflow/host_device.h"
#include "tests/support/mpi_rank.h"
#include "trainer/cluster/processes.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// Element `i` of a rank's tensor. Sums over a few ranks are exact in f32 and in 16 bits.
float element(std::int32_t rank, std::size_t i) {
  return static_cast<float>((rank + 1) * 8 + static_cast<int>(i % 8));
}

/// Every way to exchange among processes.
std::vector<collectives::ExchangeChoice> all_choices(bool mpi) {
  std::vector<collectives::ExchangeChoice> choices{{.method = collectives::ExchangeMethod::fastest},
                                                   {.method = collectives::ExchangeMethod::mpi}};
  if (mpi) choices.push_back({.method = collectives::ExchangeMethod::mpi_blocking});
  for (const WireFormat wire : {WireFormat::f32, WireFormat::f16, WireFormat::bf16}) {
    choices.push_back({.method = collectives::ExchangeMethod::shared_memory, .wire = wire});
    for (const collectives::AllReduceEntry* entry : collectives::all_reduce_table().entries) {
      choices.push_back({.method = collectives::ExchangeMethod::links,
                         .plan = {{.algorithm = entry}},
                         .local_ranks = 2,
                         .wire = wire});
    }
  }
  return choices;
}

class Checks {
 public:
  Checks(cluster::Processes& processes, Clock& clock)
      : processes_(processes), device_(clock), stream_(device_.make_stream()) {}

  int run() {
    for (const collectives::ExchangeChoice& choice : all_choices(processes_.launch().mpi)) {
      wire_ = choice.wire;
      group_ = processes_.make_group(
          {.device = device_, .patience = 20s, .stopping = {}, .abandon = {}, .choice = choice});
      collective_ = group_->join(processes_.launch().rank);
      exchange();
      collective_ = nullptr;
    }
    gather();
    return failures_ == 0 ? 0 : 1;
  }

 private:
  void exchange() {
    const World world = collective_->world();
    expect(world.rank == processes_.launch().rank && world.size == processes_.launch().size,
           "world");
    collective_->all_reduce_sum({}, *stream_);
    // Fewer elements than ranks, unequal shares, and more than a chunk of shared memory.
    for (const std::size_t count : {1U, 2U, 7U, 1000U, 65537U, 300001U}) {
      all_reduce(count);
      agree(count);
      const auto root = static_cast<std::int32_t>(count % static_cast<std::size_t>(world.size));
      reduce(count, root);
      broadcast(count, root);
    }
  }
  void expect(bool right, const std::string& what) {
    if (right) return;
    ++failures_;
    fmt::print(stderr, "rank {} of {}: {} is wrong, through {}\n", processes_.launch().rank,
               processes_.launch().size, what, group_->how());
  }
  /// Checks sums of fractions on a 16-bit wire. Each sum is rounded once per rank and once more. It
  /// must be near the sum in double, and bit-identical on all ranks.
  void agree(std::size_t count) {
    const auto number = [](std::int32_t rank, std::size_t i) {
      return static_cast<float>(rank + 1) / static_cast<float>(i % 977 + 3);
    };
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = number(processes_.launch().rank, i);
    collective_->all_reduce_sum({values.data(), count}, *stream_);
    const std::int32_t ranks = processes_.launch().size;
    const double bound =
        std::pow(1 + unit_roundoff(wire_), ranks + 1) * std::pow(1 + 0x1p-24, ranks) - 1;
    double furthest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      double exact = 0;
      for (std::int32_t rank = 0; rank < ranks; ++rank) exact += number(rank, i);
      furthest = std::max(furthest, std::abs(values[i] - exact) / exact);
    }
    expect(furthest <= bound, fmt::format("a sum of {} fractions, by {},", count, furthest));
    const std::string mine(reinterpret_cast<const char*>(values.data()), count * sizeof(float));
    const std::string hash = std::to_string(std::hash<std::string>{}(mine));
    for (const std::string& other : processes_.all_gather(hash, 20s, "comparing sums")) {
      expect(other == hash, fmt::format("{} sums, unlike another rank's,", count));
    }
  }
  std::vector<float> mine(std::size_t count) const {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = element(processes_.launch().rank, i);
    return values;
  }
  std::vector<float> sums(std::size_t count) const {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::int32_t rank = 0; rank < processes_.launch().size; ++rank)
        values[i] += element(rank, i);
    }
    return values;
  }
  void all_reduce(std::size_t count) {
    std::vector<float> values = mine(count);
    collective_->all_reduce_sum({values.data(), count}, *stream_);
    expect(values == sums(count), fmt::format("the sum of {} elements", count));
  }
  void reduce(std::size_t count, std::int32_t root) {
    std::vector<float> values = mine(count);
    collective_->reduce_sum({values.data(), count}, root, *stream_);
    const bool home = processes_.launch().rank == root;
    expect(values == (home ? sums(count) : mine(count)),
           fmt::format("the sum of {} elements at rank {}", count, root));
  }
  void broadcast(std::size_t count, std::int32_t root) {
    std::vector<float> values = mine(count);
    collective_->broadcast({values.data(), count}, root, *stream_);
    for (std::size_t i = 0; i < count; ++i) values[i] -= element(root, i);
    expect(values == std::vector<float>(count), fmt::format("{} elements of rank {}", count, root));
  }
  void gather() {
    const std::int32_t rank = processes_.launch().rank;
    const auto text_of = [](std::int32_t of) {
      return std::string(static_cast<std::size_t>(of) * 1000, static_cast<char>('a' + of));
    };
    const std::vector<std::string> texts = processes_.all_gather(text_of(rank), 20s, "gathering");
    for (std::int32_t of = 0; of < processes_.launch().size; ++of) {
      expect(texts.at(static_cast<std::size_t>(of)) == text_of(of),
             fmt::format("the text of rank {}", of));
    }
  }

  cluster::Processes& processes_;
  HostDevice device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<CollectiveGroup> group_;
  std::unique_ptr<Collective> collective_;
  WireFormat wire_ = WireFormat::f32;
  int failures_ = 0;
};

}  // namespace
}  // namespace penstock

int main() {
  return penstock::run_as_rank([](penstock::cluster::Processes& processes, penstock::Clock& clock) {
    return penstock::Checks(processes, clock).run();
  });
}
