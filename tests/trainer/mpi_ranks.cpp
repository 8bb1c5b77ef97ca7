// SPDX-License-Identifier: Apache-2.0
// One rank of several that mpirun starts: exchanges through MPI whose results are known, and exits
// with 0 where all of them are right.
#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "trainer/processes.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// Element `i` of a rank's tensor; sums over any few ranks are exact in f32.
float element(std::int32_t rank, std::size_t i) {
  return static_cast<float>((rank + 1) * 10 + static_cast<int>(i % 100));
}

class Checks {
 public:
  Checks(Processes& processes, Clock& clock)
      : processes_(processes),
        device_(clock),
        stream_(device_.make_stream()),
        group_(processes.make_group(
            {.device = device_, .patience = 20s, .stopping = {}, .abandon = {}})),
        collective_(group_->join(processes.launch().rank)) {}

  int run() {
    const World world = collective_->world();
    expect(world.rank == processes_.launch().rank && world.size == processes_.launch().size,
           "world");
    collective_->all_reduce_sum({}, *stream_);
    for (const std::size_t count : {1U, 2U, 7U, 1000U, 65537U, 3000001U}) {
      all_reduce(count);
      for (std::int32_t root = 0; root < world.size; ++root) {
        reduce(count, root);
        broadcast(count, root);
      }
    }
    gather();
    return failures_ == 0 ? 0 : 1;
  }

 private:
  void expect(bool right, const std::string& what) {
    if (right) return;
    ++failures_;
    fmt::print(stderr, "rank {} of {}: {} is wrong\n", processes_.launch().rank,
               processes_.launch().size, what);
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

  Processes& processes_;
  HostDevice device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<CollectiveGroup> group_;
  std::unique_ptr<Collective> collective_;
  int failures_ = 0;
};

int run() {
  const std::optional<Launch> launch =
      read_launch([](const char* name) { return std::getenv(name); });
  if (!launch) {
    fmt::print(stderr, "start it with mpirun\n");
    return 2;
  }
  SteadyClock clock;
  const std::unique_ptr<Processes> processes = join_processes(*launch, clock);
  return Checks(*processes, clock).run();
}

}  // namespace
}  // namespace penstock

int main() {
  try {
    return penstock::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
