// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <limits>
#include <new>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/machine/file_descriptor.h"

namespace penstock::cluster {
namespace {

/// Total size of the chunks: small enough that the chunks of all ranks stay in caches, large enough
/// that meetings are few.
constexpr std::size_t kRoomBytes = std::size_t{4} << 20;
constexpr std::size_t kLeastChunk = std::size_t{16} << 10, kMostChunk = std::size_t{128} << 10;
constexpr std::size_t kPage = 4096;

/// Layout of the memory: the barrier, then for each of two turns one chunk per rank and one of
/// sums.
struct Layout {
  explicit Layout(std::int32_t the_ranks)
      : ranks(static_cast<std::size_t>(the_ranks)),
        chunk(std::clamp(kRoomBytes / (2 * (ranks + 1)) / kPage * kPage, kLeastChunk, kMostChunk)) {
  }
  std::size_t bytes() const { return kPage + 2 * (ranks + 1) * chunk; }
  std::size_t part(std::uint64_t turn, std::size_t rank) const {
    return kPage + (turn % 2 * (ranks + 1) + rank) * chunk;
  }
  std::size_t sums(std::uint64_t turn) const { return part(turn, ranks); }

  std::size_t ranks, chunk;
};

/// A memory mapping that unmaps itself.
class Mapping {
 public:
  Mapping(const FileDescriptor& file, std::size_t bytes) : bytes_(bytes) {
    void* const begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (begin != MAP_FAILED) begin_ = static_cast<std::byte*>(begin);
  }
  Mapping(const Mapping&) = delete;
  ~Mapping() {
    if (begin_ != nullptr) munmap(begin_, bytes_);
  }
  std::byte* begin() const noexcept { return begin_; }  // null: mapping failed

 private:
  const std::size_t bytes_;
  std::byte* begin_ = nullptr;
};

/// Identifies a memory file: two processes that see equal numbers see the same memory.
struct Identity {
  pid_t process = 0;
  int file = -1;
  dev_t device = 0;
  ino_t inode = 0;
};

std::optional<Identity> identity_of(pid_t process, const FileDescriptor& file) {
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) return std::nullopt;
  return Identity{process, file.get(), status.st_dev, status.st_ino};
}

/// Text for the other ranks: the host and, on rank 0, the memory that it made.
std::string offer_of(const FileDescriptor& file) {
  const std::optional<Identity> made = identity_of(getpid(), file);
  if (!made) return "none";
  return fmt::format("{} {} {} {}", made->process, made->file, made->device, made->inode);
}

/// Opens rank 0's memory; returns no file if that is impossible.
FileDescriptor open_offered(const std::string& offer, std::size_t bytes) {
  Identity expected;
  std::istringstream in(offer);
  if (!(in >> expected.process >> expected.file >> expected.device >> expected.inode))
    return FileDescriptor();
  const std::string path = fmt::format("/proc/{}/fd/{}", expected.process, expected.file);
  FileDescriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  // In another PID namespace the number may belong to another process.
  const std::optional<Identity> found = identity_of(expected.process, file);
  if (!found || found->device != expected.device || found->inode != expected.inode)
    return FileDescriptor();
  struct stat status {};
  if (fstat(file.get(), &status) != 0 || status.st_size != static_cast<off_t>(bytes)) {
    return FileDescriptor();
  }
  return file;
}

FileDescriptor make_memory(std::size_t bytes) {
  FileDescriptor file(memfd_create("penstock-exchange", MFD_CLOEXEC));
  if (!file || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return FileDescriptor();
  return file;
}

struct Chunk {
  std::size_t first, count;  // elements
};
std::vector<Chunk> chunks_of(std::size_t count, std::size_t size) {
  std::vector<Chunk> chunks;
  for (std::size_t first = 0; first < count; first += size) {
    chunks.push_back({first, std::min(size, count - first)});
  }
  return chunks;
}

// ---- the barrier -------------------------------------------------------------

/// Interval between checks of stops and deadlines.
constexpr std::timespec kSleep{.tv_sec = 0, .tv_nsec = 20'000'000};

void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, value, &kSleep, nullptr,
          0);
}

void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE,
          std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

/// A barrier with a deadline. Lies in the shared memory. One process constructs it before another
/// uses it.
struct SharedBarrier {
  alignas(64) std::atomic<std::uint32_t> waiting{0};
  alignas(64) std::atomic<std::uint32_t> generation{0};  // number of completed meetings; a futex
  alignas(64) std::atomic<std::uint32_t> sleeping{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// One process's access to the barrier.
class SharedBarrierRank {
 public:
  /// `barrier` outlives it.
  SharedBarrierRank(SharedBarrier& barrier, std::uint32_t ranks)
      : barrier_(barrier), ranks_(ranks) {}
  /// Blocks until all ranks have called it: spins first, then sleeps. Throws the exceptions of
  /// `wait`; the barrier is then unusable for all ranks.
  void meet(const ExchangeWait& wait) {
    const std::uint32_t generation = barrier_.generation.load();
    if (barrier_.waiting.fetch_add(1) + 1 == ranks_) {
      barrier_.waiting.store(0);
      barrier_.generation.store(generation + 1);
      if (barrier_.sleeping.load() > 0) wake_all(barrier_.generation);
      return;
    }
    const auto met = [&] { return barrier_.generation.load() != generation; };
    for (ExchangeWait::Attempt attempt(wait); !met();) {
      if (!attempt.lasts()) {
        std::this_thread::yield();
        continue;
      }
      // The last rank either sees a sleeping rank, or has already advanced the generation.
      barrier_.sleeping.fetch_add(1);
      if (!met()) sleep_while(barrier_.generation, generation);
      barrier_.sleeping.fetch_sub(1);
    }
  }

 private:
  SharedBarrier& barrier_;
  const std::uint32_t ranks_;
};

// ---- the exchange ------------------------------------------------------------

class SharedMemoryCollective final : public Collective {
 public:
  SharedMemoryCollective(const Layout& layout, std::byte* memory, const Launch& launch,
                         const Processes::Exchange& exchange, const ExchangeWait& wait)
      : layout_(layout),
        memory_(memory),
        world_{launch.rank, launch.size},
        choice_(exchange.choice),
        wait_(wait),
        barrier_(*std::launder(reinterpret_cast<SharedBarrier*>(memory)),
                 static_cast<std::uint32_t>(launch.size)),
        arrived_(exchange.device.make_event()) {}

  World world() const noexcept override { return world_; }
  bool recordable() const noexcept override { return true; }

  void all_reduce_sum(Tensor tensor, Stream& stream) override {
    const std::size_t nonfinite = sum(arrive(tensor, stream), choice_.wire, true);
    const bool counts = choice_.nonfinite != nullptr && world_.rank == 0;  // all ranks see the same
    if (counts && nonfinite > 0) choice_.nonfinite->add(static_cast<std::int64_t>(nonfinite));
  }
  void reduce_sum(Tensor tensor, std::int32_t root, Stream& stream) override {
    sum(arrive(tensor, stream), WireFormat::f32, world_.rank == root);
  }
  void broadcast(Tensor tensor, std::int32_t root, Stream& stream) override {
    const std::span<float> values = arrive(tensor, stream);
    const auto from = static_cast<std::size_t>(root);
    for (const auto& [first, count] : chunks_of(values.size(), layout_.chunk / sizeof(float))) {
      const std::span<float> chunk = values.subspan(first, count);
      std::byte* const shared = memory_ + layout_.part(turn_, from);
      if (world_.rank == root) std::memcpy(shared, chunk.data(), chunk.size_bytes());
      meet();
      if (world_.rank != root) std::memcpy(chunk.data(), shared, chunk.size_bytes());
      ++turn_;
    }
  }

 private:
  /// Waits for the stream. With an empty tensor the ranks only meet.
  std::span<float> arrive(const Tensor& tensor, Stream& stream) {
    PENSTOCK_ASSERT(tensor.dtype == DType::f32);
    stream.record(*arrived_);
    arrived_->wait_until(Time::max());  // the CPU touches the elements
    if (tensor.count == 0) meet();
    return {static_cast<float*>(tensor.data), tensor.count};
  }

  void meet() { barrier_.meet(wait_); }

  /// Elements [first, last) of a chunk.
  struct Range {
    std::size_t first, last;
  };
  /// This rank's share of a chunk of `count` elements: whole cache lines, except at the end.
  Range share_of(std::size_t count, WireFormat wire) const {
    constexpr std::size_t kLine = 64;
    const std::size_t line = kLine / element_bytes(wire);
    const std::size_t lines = (count + line - 1) / line;
    const auto edge = [&](std::size_t rank) {
      return std::min(count, lines * rank / layout_.ranks * line);
    };
    const auto rank = static_cast<std::size_t>(world_.rank);
    return {edge(rank), edge(rank + 1)};
  }

  /// Adds over all ranks. If `takes`, the sums become this rank's values. Returns how many sums are
  /// not finite on a 16-bit wire.
  std::size_t sum(std::span<float> values, WireFormat wire, bool takes) {
    const std::vector<Chunk> chunks = chunks_of(values.size(), layout_.chunk / element_bytes(wire));
    if (chunks.empty()) return 0;
    const auto part = [&](std::size_t index) {
      return values.subspan(chunks[index].first, chunks[index].count);
    };
    std::size_t nonfinite = 0;
    put(part(0), wire, turn_);
    meet();
    for (std::size_t index = 0; index < chunks.size(); ++index, ++turn_) {
      nonfinite += add_share(part(index), wire, takes);
      if (index + 1 < chunks.size()) put(part(index + 1), wire, turn_ + 1);
      meet();
      if (takes) nonfinite += take(part(index), wire);
    }
    return nonfinite;
  }

  /// Copies the elements of this rank's chunk that the other ranks add.
  void put(std::span<const float> values, WireFormat wire, std::uint64_t turn) {
    std::byte* const to = memory_ + layout_.part(turn, static_cast<std::size_t>(world_.rank));
    const auto [first, last] = share_of(values.size(), wire);
    for (const auto& [from, end] : {Range{0, first}, Range{last, values.size()}}) {
      const std::span<const float> part = values.subspan(from, end - from);
      std::byte* const place = to + from * element_bytes(wire);
      if (part.empty()) continue;
      if (wire == WireFormat::f32) {
        std::memcpy(place, part.data(), part.size_bytes());
      } else {
        narrow(wire, part, {place, part.size() * element_bytes(wire)});
      }
    }
  }

  /// Adds this rank's share over all ranks, for itself and for the others.
  std::size_t add_share(std::span<float> values, WireFormat wire, bool takes) {
    const auto [first, last] = share_of(values.size(), wire);
    if (first == last) return 0;
    float* own = values.data() + first;
    if (!takes) {
      kept_.assign(own, values.data() + last);
      own = kept_.data();
    }
    const std::size_t offset = first * element_bytes(wire);
    parts_.clear();
    for (std::size_t other = 0; other < layout_.ranks; ++other) {
      parts_.push_back(memory_ + layout_.part(turn_, other) + offset);
    }
    return add_parts(wire, parts_, static_cast<std::size_t>(world_.rank), own,
                     memory_ + layout_.sums(turn_) + offset, last - first);
  }

  /// Copies the sums that the other ranks computed.
  std::size_t take(std::span<float> values, WireFormat wire) const {
    const std::byte* const sums = memory_ + layout_.sums(turn_);
    const auto [first, last] = share_of(values.size(), wire);
    std::size_t nonfinite = 0;
    for (const auto& [from, end] : {Range{0, first}, Range{last, values.size()}}) {
      const std::span<float> part = values.subspan(from, end - from);
      const std::byte* const place = sums + from * element_bytes(wire);
      if (part.empty()) continue;
      if (wire == WireFormat::f32) {
        std::memcpy(part.data(), place, part.size_bytes());
      } else {
        nonfinite += widen(wire, {place, part.size() * element_bytes(wire)}, part);
      }
    }
    return nonfinite;
  }

  const Layout layout_;
  std::byte* const memory_;
  const World world_;
  const collectives::ExchangeChoice choice_;
  const ExchangeWait wait_;
  SharedBarrierRank barrier_;
  const std::unique_ptr<Event> arrived_;
  std::uint64_t turn_ = 0;               // counts chunks over all calls; equal on all ranks
  std::vector<const std::byte*> parts_;  // used by add_share
  std::vector<float> kept_;              // used by add_share, if the rank keeps its values
};

class SharedMemoryGroup final : public CollectiveGroup {
 public:
  SharedMemoryGroup(const Layout& layout, const FileDescriptor& file,
                    const Processes::Exchange& exchange, const Launch& launch, Clock& clock)
      : layout_(layout),
        memory_(file, layout.bytes()),
        exchange_(exchange),
        launch_(launch),
        wait_(exchange, launch, clock) {}
  bool is_mapped() const noexcept { return memory_.begin() != nullptr; }
  /// Called by rank 0, before the others map the memory.
  void prepare() { new (memory_.begin()) SharedBarrier; }

  std::unique_ptr<Collective> join(std::int32_t rank) override {
    PENSTOCK_ASSERT(rank == launch_.rank);
    return std::make_unique<SharedMemoryCollective>(layout_, memory_.begin(), launch_, exchange_,
                                                    wait_);
  }
  std::string how() const override {
    return fmt::format("shared memory of {} processes, through {}", launch_.size,
                       to_string(exchange_.choice.wire));
  }

 private:
  const Layout layout_;
  const Mapping memory_;
  const Processes::Exchange exchange_;
  const Launch launch_;
  const ExchangeWait wait_;
};

}  // namespace

std::unique_ptr<CollectiveGroup> share_memory(Processes& processes,
                                              const Processes::Exchange& exchange, Clock& clock) {
  const bool fastest = exchange.choice.method == collectives::ExchangeMethod::fastest;
  if (!fastest && exchange.choice.method != collectives::ExchangeMethod::shared_memory) return {};
  const auto leave = [&](const std::string& why) -> std::unique_ptr<CollectiveGroup> {
    if (fastest) return nullptr;
    throw Unavailable("exchanging through shared memory: {}; choose another way to exchange", why);
  };
  constexpr std::string_view kWhat = "finding out whether the ranks can share memory";
  // In watched runs the exchange's own timeout is infinite.
  const Nanoseconds patience = std::min(exchange.patience, Processes::kRendezvous);
  const Launch& launch = processes.launch();
  if (launch.local_size != launch.size) return leave("the ranks are of several hosts");
  const Layout layout(launch.size);
  FileDescriptor file;
  if (launch.rank == 0) file = make_memory(layout.bytes());
  std::unique_ptr<SharedMemoryGroup> group;
  const auto map = [&] {
    group = std::make_unique<SharedMemoryGroup>(layout, file, exchange, launch, clock);
    if (!group->is_mapped()) group = nullptr;
  };
  if (file.get() >= 0) map();
  if (group) group->prepare();
  const std::string offer =
      processes.all_gather(group ? offer_of(file) : "none", patience, kWhat).front();
  if (launch.rank > 0) {
    file = open_offered(offer, layout.bytes());
    if (file.get() >= 0) map();
  }
  const std::vector<std::string> mapped =
      processes.all_gather(group ? "yes" : "no", patience, kWhat);
  const auto without = std::find(mapped.begin(), mapped.end(), "no");
  if (without == mapped.end()) return group;
  return leave(fmt::format("rank {} cannot map the memory of rank 0", without - mapped.begin()));
}

}  // namespace penstock::cluster
