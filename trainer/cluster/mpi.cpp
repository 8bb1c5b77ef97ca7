// SPDX-License-Identifier: Apache-2.0
// The processes of a run, through MPI. Every call is nonblocking and is polled until a deadline,
// because MPI itself waits forever for a process that is gone. A call that timed out leaves its
// request behind, and the process ends soon after.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "dataflow/error.h"
#include "trainer/cluster/mpi_links.h"
#include "trainer/cluster/processes.h"
#include "trainer/cluster/shared_memory.h"
#include "trainer/collectives/link_collective.h"

namespace penstock::cluster {
namespace {

constexpr int kTimedOut = 5;  // exit code of a timeout
constexpr Nanoseconds kSpin = std::chrono::microseconds(200), kNap = std::chrono::microseconds(50);

/// Ends the process if its scope lasts too long: for calls that cannot be interrupted.
class Deadline {
 public:
  Deadline(Nanoseconds patience, const char* what)
      : thread_([this, patience, what](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          if (condition_.wait_for(lock, stop, patience, [] { return false; })) return;
          if (stop.stop_requested()) return;
          std::fprintf(stderr,
                       "penstock: %s took longer than %lld s; see that every rank was started and "
                       "that hosts reach each other\n",
                       what, static_cast<long long>(patience / std::chrono::seconds(1)));
          std::_Exit(kTimedOut);
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any condition_;
  std::jthread thread_;  // last: it ends first
};

/// Polls requests until they are done.
class Waiter {
 public:
  explicit Waiter(Clock& clock) : clock_(clock) {}

  /// False: the deadline has passed.
  bool wait(MPI_Request& request, Time deadline, std::string_view what) const {
    const Time begin = clock_.now();
    for (int done = 0;;) {
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
      if (done != 0) return true;
      const Time now = clock_.now();
      if (now >= deadline) return false;
      if (now - begin > kSpin) {
        clock_.sleep_until(now + kNap);
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  Clock& clock_;
};

/// One rank's side of the exchange. Tensors lie in host memory.
class MpiCollective final : public Collective {
 public:
  MpiCollective(const Processes::Exchange& exchange, MPI_Comm comm, const Launch& launch,
                Clock& clock)
      : comm_(comm),
        launch_(launch),
        wait_(exchange, launch, clock),
        arrived_(exchange.device.make_event()) {}

  World world() const noexcept override { return {launch_.rank, launch_.size}; }
  bool recordable() const noexcept override { return true; }

  void all_reduce_sum(Tensor tensor, Stream& stream) override {
    exchange(tensor, stream, [this](float* data, int count, MPI_Request* request) {
      return MPI_Iallreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, comm_, request);
    });
  }
  void reduce_sum(Tensor tensor, std::int32_t root, Stream& stream) override {
    exchange(tensor, stream, [this, root](float* data, int count, MPI_Request* request) {
      const bool home = launch_.rank == root;
      return MPI_Ireduce(home ? MPI_IN_PLACE : data, home ? data : nullptr, count, MPI_FLOAT,
                         MPI_SUM, root, comm_, request);
    });
  }
  void broadcast(Tensor tensor, std::int32_t root, Stream& stream) override {
    exchange(tensor, stream, [this, root](float* data, int count, MPI_Request* request) {
      return MPI_Ibcast(data, count, MPI_FLOAT, root, comm_, request);
    });
  }

 private:
  template <typename Call>
  void exchange(const Tensor& tensor, Stream& stream, const Call& call) {
    stream.record(*arrived_);
    arrived_->wait_until(Time::max());  // the CPU touches the elements
    MPI_Request request = MPI_REQUEST_NULL;
    if (tensor.count == 0) {
      check_mpi(MPI_Ibarrier(comm_, &request), "meeting the other ranks");
      wait(request);
      return;
    }
    PENSTOCK_ASSERT(tensor.dtype == DType::f32);
    auto* const data = static_cast<float*>(tensor.data);
    for (std::size_t first = 0; first < tensor.count; first += INT_MAX) {
      const auto count = static_cast<int>(std::min<std::size_t>(INT_MAX, tensor.count - first));
      check_mpi(call(data + first, count, &request), "exchanging with the other ranks");
      wait(request);
    }
  }

  void wait(MPI_Request& request) {
    wait_.until([&] {
      int done = 0;
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "exchanging with the other ranks");
      return done != 0;
    });
  }

  const MPI_Comm comm_;
  const Launch launch_;
  const ExchangeWait wait_;
  const std::unique_ptr<Event> arrived_;
};

class MpiGroup final : public CollectiveGroup {
 public:
  MpiGroup(const Processes::Exchange& exchange, MPI_Comm comm, const Launch& launch, Clock& clock)
      : exchange_(exchange), comm_(comm), launch_(launch), clock_(clock) {}
  std::unique_ptr<Collective> join(std::int32_t rank) override {
    PENSTOCK_ASSERT(rank == launch_.rank);
    return std::make_unique<MpiCollective>(exchange_, comm_, launch_, clock_);
  }
  std::string how() const override { return "MPI_Iallreduce"; }

 private:
  const Processes::Exchange exchange_;
  const MPI_Comm comm_;
  const Launch launch_;
  Clock& clock_;
};

/// Ranks that are connected by links.
class MpiLinkGroup final : public CollectiveGroup {
 public:
  MpiLinkGroup(const Processes::Exchange& exchange, MpiLinks& links, const Launch& launch,
               Clock& clock)
      : exchange_(exchange), links_(links), wait_(exchange, launch, clock) {}
  std::unique_ptr<Collective> join(std::int32_t) override {
    return std::make_unique<collectives::LinkCollective>(links_.join(wait_), exchange_.device,
                                                         exchange_.choice);
  }
  std::string how() const override {
    return collectives::how_links_exchange(exchange_.choice, "between processes");
  }

 private:
  const Processes::Exchange exchange_;
  MpiLinks& links_;
  const ExchangeWait wait_;
};

class MpiProcesses final : public Processes {
 public:
  MpiProcesses(const Launch& launch, Clock& clock, Nanoseconds rendezvous)
      : launch_(launch), clock_(clock), waiter_(clock) {
    int provided = 0;
    {
      const Deadline deadline(rendezvous, "joining the other ranks (MPI_Init)");
      check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided),
                "MPI_Init_thread");
    }
    if (provided < MPI_THREAD_MULTIPLE) {
      throw Unavailable(
          "joining the processes that " + std::string(launch.launcher) +
          " started: this MPI cannot be called from several threads (MPI_THREAD_MULTIPLE); use one "
          "that can, such as Debian's Open MPI");
    }
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &training_), "MPI_Comm_dup");
    for (const MPI_Comm comm : {control_, training_}) {
      check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    }
    links_ = std::make_unique<MpiLinks>();
    int rank = 0, size = 0;
    check_mpi(MPI_Comm_rank(control_, &rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(control_, &size), "MPI_Comm_size");
    if (rank != launch.rank || size != launch.size) {
      throw ConfigError("joining the processes that " + std::string(launch.launcher) +
                        " started: the environment says rank " + std::to_string(launch.rank) +
                        " of " + std::to_string(launch.size) + ", MPI says " +
                        std::to_string(rank) + " of " + std::to_string(size) +
                        "; start with the mpirun or srun of the MPI that Penstock is linked with");
    }
  }
  MpiProcesses(const MpiProcesses&) = delete;
  ~MpiProcesses() override {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(control_, &request);
    bool together = false;
    try {
      together = waiter_.wait(request, clock_.now() + kGoodbye, "leaving");
    } catch (const Error&) {
      together = false;
    }
    if (!together) MPI_Abort(MPI_COMM_WORLD, kTimedOut);
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
    collectives::ExchangeMethod method = exchange.choice.method;
    const bool fastest = method == collectives::ExchangeMethod::fastest;
    if (fastest || method == collectives::ExchangeMethod::shared_memory) {
      SharedMemory memory = share_memory(*this, exchange, clock_);
      if (memory.group) return std::move(memory.group);
      if (!fastest) {
        throw Unavailable("exchanging through shared memory: " + memory.why_not +
                          "; choose another way to exchange");
      }
      method = collectives::ExchangeMethod::links;
    }
    if (method == collectives::ExchangeMethod::links) {
      return std::make_unique<MpiLinkGroup>(exchange, *links_, launch_, clock_);
    }
    PENSTOCK_ASSERT(exchange.choice.wire == WireFormat::f32);  // MPI adds no other format
    if (method == collectives::ExchangeMethod::mpi_blocking) {
      return std::make_unique<MpiBlockingGroup>(exchange, launch_);
    }
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
    if (waiter_.wait(request, deadline, what)) return;
    throw TimeoutError(std::string(what) +
                       ": not every rank came in time; see the messages of the launcher");
  }

  const Launch launch_;
  Clock& clock_;
  const Waiter waiter_;
  MPI_Comm control_ = MPI_COMM_NULL, training_ = MPI_COMM_NULL;
  std::unique_ptr<MpiLinks> links_;  // set once MPI is initialised
};

}  // namespace

std::unique_ptr<Processes> join_processes(const Launch& launch, Clock& clock,
                                          Nanoseconds rendezvous) {
  return std::make_unique<MpiProcesses>(launch, clock, rendezvous);
}

}  // namespace penstock::cluster
