// SPDX-License-Identifier: Apache-2.0
// The processes of a run, through MPI. Every call is nonblocking and is polled until a deadline,
// because MPI itself waits forever for a process that is gone. A call that timed out leaves its
// request behind, and the process ends soon after.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "dataflow/error.h"
#include "trainer/cluster/exchange_wait.h"
#include "trainer/cluster/processes.h"
#include "trainer/cluster/shared_memory.h"
#include "trainer/collectives/link_collective.h"

namespace penstock::cluster {
namespace {

constexpr int kTimedOut = 5;  // exit code of a timeout
constexpr int kTag = 1;
/// Limit of one MPI message, whose counts are ints.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

/// Throws DeviceError with MPI's message if an MPI function returned an error. Most errors of a
/// running job are a lost rank's: the watch over the ranks gets the time to name it first.
void check_mpi(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return;
  std::this_thread::sleep_for(kBehindWatch);
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw DeviceError("{}: MPI reports '{}'; see the messages of the launcher about the other ranks",
                    what, std::string(text, static_cast<std::size_t>(length)));
}

/// Has Open MPI 5 return an error if another rank is lost. It would end the process in the middle
/// of a call, without a word and before results are saved. Call it before MPI_Init.
void ask_for_errors() {
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5
  setenv("OMPI_MCA_mpi_ft_enable", "1", 0);
#endif
}

/// A communicator of all ranks, which make it together. Errors are returned.
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

/// Ends the process if MPI keeps it too long in a call that cannot be interrupted.
class CallWatch {
 public:
  /// `complaint` is printed then.
  CallWatch(Nanoseconds patience, std::string complaint)
      : patience_(patience), complaint_(std::move(complaint)) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  /// Makes such a call.
  template <typename Call>
  void during(const Call& call) {
    ++edges_;
    call();
    ++edges_;
  }

 private:
  void run(const std::stop_token& stop) {
    constexpr Nanoseconds kLook = std::chrono::milliseconds(100);
    std::unique_lock lock(mutex_);
    std::uint64_t seen = 0;
    for (Nanoseconds waited{}; waited < patience_;) {
      condition_.wait_for(lock, stop, kLook, [] { return false; });
      if (stop.stop_requested()) return;
      const std::uint64_t now = edges_.load();
      waited = now % 2 == 1 && now == seen ? waited + kLook : Nanoseconds::zero();
      seen = now;
    }
    std::fprintf(stderr, "penstock: %s\n", complaint_.c_str());
    std::_Exit(kTimedOut);
  }

  const Nanoseconds patience_;
  const std::string complaint_;
  std::atomic<std::uint64_t> edges_{0};  // odd: inside a call
  std::mutex mutex_;
  std::condition_variable_any condition_;
  std::jthread thread_;  // last: it ends first
};

/// Whether the request has completed.
bool is_done(MPI_Request& request, std::string_view what) {
  int done = 0;
  check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
  return done != 0;
}

/// One rank's side of MPI's own exchange. Tensors lie in host memory. Calls are nonblocking, or
/// blocking under a watch.
class MpiCollective final : public Collective {
 public:
  MpiCollective(const Processes::Exchange& exchange, MPI_Comm comm, const Launch& launch,
                Clock& clock, CallWatch* blocking)
      : comm_(comm),
        launch_(launch),
        wait_(exchange, launch, clock),
        blocking_(blocking),
        arrived_(exchange.device.make_event()) {}

  World world() const noexcept override { return {launch_.rank, launch_.size}; }
  bool recordable() const noexcept override { return true; }

  void all_reduce_sum(Tensor tensor, Stream& stream) override {
    exchange(tensor, stream, [this](float* data, int count, MPI_Request* request) {
      return request == nullptr
                 ? MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, comm_)
                 : MPI_Iallreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, comm_, request);
    });
  }
  void reduce_sum(Tensor tensor, std::int32_t root, Stream& stream) override {
    exchange(tensor, stream, [this, root](float* data, int count, MPI_Request* request) {
      const bool home = launch_.rank == root;
      const void* const from = home ? MPI_IN_PLACE : data;
      float* const to = home ? data : nullptr;
      return request == nullptr
                 ? MPI_Reduce(from, to, count, MPI_FLOAT, MPI_SUM, root, comm_)
                 : MPI_Ireduce(from, to, count, MPI_FLOAT, MPI_SUM, root, comm_, request);
    });
  }
  void broadcast(Tensor tensor, std::int32_t root, Stream& stream) override {
    exchange(tensor, stream, [this, root](float* data, int count, MPI_Request* request) {
      return request == nullptr ? MPI_Bcast(data, count, MPI_FLOAT, root, comm_)
                                : MPI_Ibcast(data, count, MPI_FLOAT, root, comm_, request);
    });
  }

 private:
  template <typename Call>
  void exchange(const Tensor& tensor, Stream& stream, const Call& call) {
    PENSTOCK_ASSERT(tensor.dtype == DType::f32);
    stream.record(*arrived_);
    arrived_->wait_until(Time::max());  // the CPU touches the elements
    if (tensor.count == 0) {
      complete("meeting the other ranks", [this](MPI_Request* request) {
        return request == nullptr ? MPI_Barrier(comm_) : MPI_Ibarrier(comm_, request);
      });
    }
    auto* const data = static_cast<float*>(tensor.data);
    for (std::size_t first = 0; first < tensor.count; first += INT_MAX) {
      const auto count = static_cast<int>(std::min<std::size_t>(INT_MAX, tensor.count - first));
      complete("exchanging with the other ranks",
               [&](MPI_Request* request) { return call(data + first, count, request); });
    }
  }

  /// Makes a call of MPI, without a request if it blocks, and waits for its end.
  template <typename Call>
  void complete(std::string_view what, const Call& call) {
    if (blocking_ != nullptr) return blocking_->during([&] { check_mpi(call(nullptr), what); });
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(call(&request), what);
    wait_.until([&] { return is_done(request, what); });
  }

  const MPI_Comm comm_;
  const Launch launch_;
  const ExchangeWait wait_;
  CallWatch* const blocking_;  // null: calls do not block
  const std::unique_ptr<Event> arrived_;
};

class MpiGroup final : public CollectiveGroup {
 public:
  MpiGroup(const Processes::Exchange& exchange, MPI_Comm comm, const Launch& launch, Clock& clock)
      : exchange_(exchange), comm_(comm), launch_(launch), clock_(clock) {
    if (exchange.choice.method != collectives::ExchangeMethod::mpi_blocking) return;
    blocking_.emplace(
        exchange.patience,
        fmt::format(
            "rank {} waited {} s in MPI_Allreduce for other ranks: one of them hangs, is stopped, "
            "or cannot be reached; see the messages of the launcher, or raise --timeout",
            launch.rank, exchange.patience / std::chrono::seconds(1)));
  }
  std::unique_ptr<Collective> join(std::int32_t rank) override {
    PENSTOCK_ASSERT(rank == launch_.rank);
    return std::make_unique<MpiCollective>(exchange_, comm_, launch_, clock_,
                                           blocking_ ? &*blocking_ : nullptr);
  }
  std::string how() const override { return blocking_ ? "MPI_Allreduce" : "MPI_Iallreduce"; }

 private:
  const Processes::Exchange exchange_;
  const MPI_Comm comm_;
  const Launch launch_;
  Clock& clock_;
  std::optional<CallWatch> blocking_;
};

// ---- links -------------------------------------------------------------------

/// Sends and receives messages in pieces that MPI can count, one piece each way at a time. If the
/// transfer is abandoned, it cancels the receive, because the memory may be freed.
class MpiTransfer {
 public:
  MpiTransfer(MPI_Comm communicator, std::int32_t to, std::span<const std::byte> sent,
              std::int32_t from, std::span<std::byte> received)
      : communicator_(communicator), out_(sent), in_(received), to_(to), from_(from) {}
  MpiTransfer(const MpiTransfer&) = delete;
  ~MpiTransfer() {
    for (std::size_t side = 0; side < requests_.size(); ++side) {
      if (requests_[side] == MPI_REQUEST_NULL) continue;
      if (side == kIn) MPI_Cancel(&requests_[side]);
      MPI_Request_free(&requests_[side]);
    }
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
    throw Error(
        "this rank receives {} bytes from rank {}, which sent {}; expected equal sizes; give all "
        "ranks the same model and flags",
        expected_, from_, bytes);
  }

  const MPI_Comm communicator_;
  std::array<MPI_Request, 2> requests_{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  std::span<const std::byte> out_;  // not yet started
  std::span<std::byte> in_;         // not yet started
  const std::int32_t to_, from_;
  int expected_ = 0;
};

class MpiLink final : public collectives::Link {
 public:
  MpiLink(MPI_Comm communicator, const ExchangeWait& wait)
      : communicator_(communicator), world_(world_of(communicator)), wait_(wait) {}

  World world() const noexcept override { return world_; }
  void send_receive(std::int32_t to, std::span<const std::byte> sent, std::int32_t from,
                    std::span<std::byte> received) override {
    MpiTransfer transfer(communicator_, to, sent, from, received);
    wait_.until([&] { return transfer.done(); });
  }

 private:
  const MPI_Comm communicator_;
  const World world_;
  const ExchangeWait wait_;
};

class MpiProcesses final : public Processes {
 public:
  MpiProcesses(const Launch& launch, Clock& clock, Nanoseconds rendezvous)
      : launch_(launch), clock_(clock) {
    int provided = 0;
    ask_for_errors();
    CallWatch(rendezvous,
              fmt::format("joining the other ranks (MPI_Init) took longer than {} s; see that "
                          "every rank was started and that hosts reach each other",
                          rendezvous / std::chrono::seconds(1)))
        .during([&] {
          check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided),
                    "MPI_Init_thread");
        });
    if (provided < MPI_THREAD_MULTIPLE) {
      throw Unavailable(
          "joining the processes that {} started: this MPI cannot be called from several threads "
          "(MPI_THREAD_MULTIPLE); use one that can, such as Debian's Open MPI",
          launch.launcher);
    }
    control_ = duplicate();
    training_ = duplicate();
    links_ = duplicate();
    const auto [rank, size] = world_of(control_);
    if (rank != launch.rank || size != launch.size) {
      throw ConfigError(
          "joining the processes that {} started: the environment says rank {} of {}, MPI says {} "
          "of {}; start with the mpirun or srun of the MPI that Penstock is linked with, or give "
          "--rendezvous HOST:PORT, where ranks meet without MPI",
          launch.launcher, launch.rank, launch.size, rank, size);
    }
  }
  MpiProcesses(const MpiProcesses&) = delete;
  ~MpiProcesses() override {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(control_, &request);
    try {
      wait(request, clock_.now() + kGoodbye, "leaving");
    } catch (const Error&) {
      MPI_Abort(MPI_COMM_WORLD, kTimedOut);
    }
    MPI_Finalize();
  }

  const Launch& launch() const noexcept override { return launch_; }

  std::vector<std::string> all_gather(std::string_view text, Nanoseconds patience,
                                      std::string_view what) override {
    const Time deadline = clock_.now() + patience;
    const auto size = static_cast<std::size_t>(launch_.size);
    const int mine = static_cast<int>(text.size());
    std::vector<int> lengths(size), offsets(size);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallgather(&mine, 1, MPI_INT, lengths.data(), 1, MPI_INT, control_, &request),
              what);
    wait(request, deadline, what);
    std::int64_t total = 0;
    for (std::size_t rank = 0; rank < size; ++rank) {
      offsets[rank] = static_cast<int>(total);
      total += lengths[rank];
      PENSTOCK_ASSERT(total < INT_MAX);
    }
    std::string all(static_cast<std::size_t>(total), '\0');
    check_mpi(MPI_Iallgatherv(text.data(), mine, MPI_CHAR, all.data(), lengths.data(),
                              offsets.data(), MPI_CHAR, control_, &request),
              what);
    wait(request, deadline, what);
    std::vector<std::string> texts;
    for (std::size_t rank = 0; rank < size; ++rank) {
      texts.push_back(all.substr(static_cast<std::size_t>(offsets[rank]),
                                 static_cast<std::size_t>(lengths[rank])));
    }
    return texts;
  }

  std::unique_ptr<CollectiveGroup> make_group(const Exchange& exchange) override {
    using collectives::ExchangeMethod;
    const ExchangeMethod method = exchange.choice.method;
    if (auto group = share_memory(*this, exchange, clock_)) return group;
    if (method == ExchangeMethod::fastest || method == ExchangeMethod::links) {
      return std::make_unique<collectives::ProcessLinkGroup>(
          exchange.device, exchange.choice, "between processes",
          [comm = links_, wait = ExchangeWait(exchange, launch_, clock_)] {
            return std::make_unique<MpiLink>(comm, wait);
          });
    }
    PENSTOCK_ASSERT(exchange.choice.wire == WireFormat::f32);  // MPI adds no other format
    return std::make_unique<MpiGroup>(exchange, training_, launch_, clock_);
  }

  void abort(int exit_code) override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }
  void exit_stopped(int exit_code) override {
    // The launcher kills the others as soon as one has ended: let rank 0 save its results first.
    if (launch_.rank > 0) clock_.sleep_until(clock_.now() + 2 * kGrace);
    std::_Exit(exit_code);
  }

 private:
  void wait(MPI_Request& request, Time deadline, std::string_view what) {
    poll_until(
        clock_, [&] { return is_done(request, what); },
        [&](Time now) {
          if (now < deadline) return;
          throw TimeoutError(std::string(what) +
                             ": not every rank came in time; see the messages of the launcher");
        });
  }

  const Launch launch_;
  Clock& clock_;
  // Set once MPI is initialised; MPI_Finalize frees them. Messages of links have no tags.
  MPI_Comm control_ = MPI_COMM_NULL, training_ = MPI_COMM_NULL, links_ = MPI_COMM_NULL;
};

}  // namespace

const bool kHasMpi = true;

std::unique_ptr<Processes> join_mpi_job(const Launch& launch, Clock& clock,
                                        Nanoseconds rendezvous) {
  return std::make_unique<MpiProcesses>(launch, clock, rendezvous);
}

}  // namespace penstock::cluster
