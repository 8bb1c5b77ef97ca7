// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/mpi_links.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "dataflow/error.h"

namespace penstock::cluster {
namespace {

constexpr int kTag = 1;
constexpr int kTimedOut = 5;  // exit code of a timeout
/// Limit of one MPI message, whose counts are ints.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

MPI_Comm duplicate() {
  MPI_Comm communicator = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &communicator), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return communicator;
}

World world_of(MPI_Comm communicator) {
  int rank = 0, size = 1;
  check_mpi(MPI_Comm_rank(communicator, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
  return {rank, size};
}

}  // namespace

void check_mpi(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw DeviceError(std::string(what) + ": MPI reports '" +
                    std::string(text, static_cast<std::size_t>(length)) +
                    "'; see the messages of the launcher about the other ranks");
}

// ---- links ------------------------------------------------------------------

struct MpiLinks::Communicator {
  MPI_Comm handle = duplicate();
};

MpiLinks::MpiLinks() : communicator_(std::make_unique<Communicator>()) {}
MpiLinks::~MpiLinks() = default;  // MPI_Finalize frees it; freeing it here might wait

/// Sends and receives messages in pieces that MPI can count, one piece each way at a time. If the
/// transfer is abandoned, it cancels the receive, because the memory may be freed.
class MpiTransfer {
 public:
  explicit MpiTransfer(MPI_Comm communicator) : communicator_(communicator) {}
  MpiTransfer(const MpiTransfer&) = delete;
  ~MpiTransfer() {
    for (std::size_t side = 0; side < requests_.size(); ++side) {
      if (requests_[side] == MPI_REQUEST_NULL) continue;
      if (side == kIn) MPI_Cancel(&requests_[side]);
      MPI_Request_free(&requests_[side]);
    }
  }

  void send(std::int32_t to, std::span<const std::byte> bytes) {
    out_ = bytes;
    to_ = to;
  }
  void receive(std::int32_t from, std::span<std::byte> bytes) {
    in_ = bytes;
    from_ = from;
  }
  /// Whether everything is sent and received. Starts the next pieces.
  bool done() {
    const bool sent = is_idle(kOut);  // start both directions before waiting for either
    const bool received = is_idle(kIn);
    return sent && received;
  }

 private:
  static constexpr std::size_t kOut = 0, kIn = 1;

  /// Whether this direction has no piece in progress and none left.
  bool is_idle(std::size_t side) {
    MPI_Request& request = requests_[side];
    for (;;) {
      if (request != MPI_REQUEST_NULL) {
        int done = 0;
        MPI_Status status;
        check_mpi(MPI_Test(&request, &done, &status), "exchanging with the other ranks");
        if (done == 0) return false;
        if (side == kIn) expect_whole(status);
      }
      if (!begin(side, request)) return true;
    }
  }

  /// Starts the next piece. False: there is none.
  bool begin(std::size_t side, MPI_Request& request) {
    if (side == kOut) {
      const std::span<const std::byte> piece = out_.first(std::min(out_.size(), kMostBytes));
      if (piece.empty()) return false;
      check_mpi(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, to_, kTag,
                          communicator_, &request),
                "sending to another rank");
      out_ = out_.subspan(piece.size());
      return true;
    }
    const std::span<std::byte> piece = in_.first(std::min(in_.size(), kMostBytes));
    if (piece.empty()) return false;
    expected_ = static_cast<int>(piece.size());
    check_mpi(MPI_Irecv(piece.data(), expected_, MPI_BYTE, from_, kTag, communicator_, &request),
              "receiving from another rank");
    in_ = in_.subspan(piece.size());
    return true;
  }

  void expect_whole(const MPI_Status& status) const {
    int bytes = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    if (bytes == expected_) return;
    throw Error("this rank receives " + std::to_string(expected_) + " bytes from rank " +
                std::to_string(from_) + ", which sent " + std::to_string(bytes) +
                "; expected equal sizes; give all ranks the same model and flags");
  }

  const MPI_Comm communicator_;
  std::array<MPI_Request, 2> requests_{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  std::span<const std::byte> out_;  // not yet started
  std::span<std::byte> in_;         // not yet started
  std::int32_t to_ = 0, from_ = 0;
  int expected_ = 0;
};

class MpiLink final : public collectives::Link {
 public:
  MpiLink(MPI_Comm communicator, const ExchangeWait& wait)
      : communicator_(communicator), world_(world_of(communicator)), wait_(wait) {}

  World world() const noexcept override { return world_; }
  void send(std::int32_t to, std::span<const std::byte> bytes) override {
    MpiTransfer transfer(communicator_);
    transfer.send(to, bytes);
    wait_.until([&] { return transfer.done(); });
  }
  void receive(std::int32_t from, std::span<std::byte> bytes) override {
    MpiTransfer transfer(communicator_);
    transfer.receive(from, bytes);
    wait_.until([&] { return transfer.done(); });
  }
  void send_receive(std::int32_t to, std::span<const std::byte> sent, std::int32_t from,
                    std::span<std::byte> received) override {
    MpiTransfer transfer(communicator_);
    transfer.receive(from, received);
    transfer.send(to, sent);
    wait_.until([&] { return transfer.done(); });
  }

 private:
  const MPI_Comm communicator_;
  const World world_;
  const ExchangeWait wait_;
};

std::unique_ptr<collectives::Link> MpiLinks::join(const ExchangeWait& wait) {
  return std::make_unique<MpiLink>(communicator_->handle, wait);
}

// ---- blocking MPI calls ----------------------------------------------------

struct MpiBlockingGroup::State {
  State(const Processes::Exchange& exchange, const Launch& the_launch)
      : device(exchange.device), launch(the_launch), patience(exchange.patience) {
    watcher = std::jthread([this](const std::stop_token& stop) { watch(stop); });
    watched([this] { communicator = duplicate(); });
  }

  /// `wait` waits for other ranks. Ends the process if that takes too long.
  template <typename Wait>
  void watched(const Wait& wait) {
    ++call;
    wait();
    ++call;
  }

  /// Ends the process if one call takes too long.
  void watch(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    std::uint64_t seen = 0;
    for (Nanoseconds waited{}; !stop.stop_requested();) {
      constexpr Nanoseconds kLook = std::chrono::milliseconds(100);
      condition.wait_for(lock, stop, kLook, [] { return false; });
      const std::uint64_t now = call.load();
      waited = now % 2 == 1 && now == seen ? waited + kLook : Nanoseconds::zero();
      seen = now;
      if (waited < patience) continue;
      std::fprintf(
          stderr,
          "penstock: rank %d waited %lld s in MPI_Allreduce for other ranks: one of them hangs, is "
          "stopped, or cannot be reached; see the messages of the launcher, or raise --timeout\n",
          launch.rank, static_cast<long long>(patience / std::chrono::seconds(1)));
      std::_Exit(kTimedOut);
    }
  }

  Device& device;
  const Launch launch;
  const Nanoseconds patience;
  MPI_Comm communicator = MPI_COMM_NULL;
  std::atomic<std::uint64_t> call{0};  // odd: inside a call
  std::mutex mutex;
  std::condition_variable_any condition;
  std::jthread watcher;  // last, because it uses the others
};

class MpiBlockingCollective final : public Collective {
 public:
  explicit MpiBlockingCollective(MpiBlockingGroup::State& state)
      : state_(state), arrived_(state.device.make_event()) {}

  World world() const noexcept override { return {state_.launch.rank, state_.launch.size}; }
  bool recordable() const noexcept override { return true; }
  void all_reduce_sum(Tensor tensor, Stream& stream) override {
    exchange(tensor, stream, [this](float* data, int count) {
      return MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, state_.communicator);
    });
  }
  void reduce_sum(Tensor tensor, std::int32_t root, Stream& stream) override {
    exchange(tensor, stream, [this, root](float* data, int count) {
      const bool home = state_.launch.rank == root;
      return MPI_Reduce(home ? MPI_IN_PLACE : data, home ? data : nullptr, count, MPI_FLOAT,
                        MPI_SUM, root, state_.communicator);
    });
  }
  void broadcast(Tensor tensor, std::int32_t root, Stream& stream) override {
    exchange(tensor, stream, [this, root](float* data, int count) {
      return MPI_Bcast(data, count, MPI_FLOAT, root, state_.communicator);
    });
  }

 private:
  template <typename Call>
  void exchange(const Tensor& tensor, Stream& stream, const Call& call) {
    PENSTOCK_ASSERT(tensor.dtype == DType::f32);
    stream.record(*arrived_);
    arrived_->wait_until(Time::max());  // the CPU touches the elements
    state_.watched([&] {
      if (tensor.count == 0) check_mpi(MPI_Barrier(state_.communicator), "meeting other ranks");
      auto* const data = static_cast<float*>(tensor.data);
      for (std::size_t first = 0; first < tensor.count; first += INT_MAX) {
        const auto count = static_cast<int>(std::min<std::size_t>(INT_MAX, tensor.count - first));
        check_mpi(call(data + first, count), "exchanging with the other ranks");
      }
    });
  }

  MpiBlockingGroup::State& state_;
  const std::unique_ptr<Event> arrived_;
};

MpiBlockingGroup::MpiBlockingGroup(const Processes::Exchange& exchange, const Launch& launch)
    : state_(std::make_unique<State>(exchange, launch)) {}
MpiBlockingGroup::~MpiBlockingGroup() = default;
std::unique_ptr<Collective> MpiBlockingGroup::join(std::int32_t rank) {
  PENSTOCK_ASSERT(rank == state_->launch.rank);
  return std::make_unique<MpiBlockingCollective>(*state_);
}
std::string MpiBlockingGroup::how() const { return "MPI_Allreduce"; }

}  // namespace penstock::cluster
