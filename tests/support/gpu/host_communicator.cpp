// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/host_driver.h"

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "trainer/backends/gpu/device.h"

namespace penstock::gpu {

class HostConnection {
 public:
  enum class What : std::uint8_t { all_reduce, reduce, broadcast };
  struct Call {
    What what = What::all_reduce;
    void* data = nullptr;
    DType type = DType::f32;
    std::size_t count = 0;
    std::int32_t root = -1;
    StreamHandle stream = nullptr;
    bool operator==(const Call& other) const {
      return what == other.what && type == other.type && count == other.count && root == other.root;
    }
  };

  explicit HostConnection(std::int32_t size) : ranks_(static_cast<std::size_t>(size)) {}

  void connect(std::int32_t rank, Driver& driver) {
    const std::lock_guard lock(mutex_);
    Rank& mine = ranks_[static_cast<std::size_t>(rank)];
    mine.driver = &driver;
    mine.arrived = std::make_unique<GpuEvent>(driver);
    mine.done = std::make_unique<GpuEvent>(driver);
  }
  /// Returns the number of the call. The last rank to arrive enqueues the call for all ranks.
  std::int64_t begin(std::int32_t rank, const Call& call) {
    const std::lock_guard lock(mutex_);
    ranks_[static_cast<std::size_t>(rank)].call = call;
    const std::int64_t number = enqueued_;
    if (++come_ == ranks_.size()) {
      come_ = 0;
      enqueue();
      ++enqueued_;
    }
    return number;
  }
  bool is_enqueued(std::int64_t number) const {
    const std::lock_guard lock(mutex_);
    return number < enqueued_;
  }

 private:
  struct Rank {
    Driver* driver = nullptr;
    std::unique_ptr<GpuEvent> arrived, done;
    Call call{};
  };

  void enqueue() {
    const Call& first = ranks_.front().call;
    for (const Rank& rank : ranks_) {
      PENSTOCK_ASSERT(rank.call == first);
      rank.driver->record(rank.call.stream, rank.arrived->handle());
    }
    const Rank& worker = ranks_[static_cast<std::size_t>(first.root < 0 ? 0 : first.root)];
    for (const Rank& rank : ranks_) worker.driver->wait(worker.call.stream, rank.arrived->handle());
    if (first.what == What::broadcast) {
      for (const Rank& rank : ranks_) {
        if (&rank == &worker) continue;
        worker.driver->copy(worker.call.stream, static_cast<std::byte*>(rank.call.data),
                            static_cast<const std::byte*>(worker.call.data),
                            first.count * sizeof(float));
      }
    } else {
      SumSlices sum{.ranks = static_cast<std::int32_t>(ranks_.size()),
                    .root = first.what == What::reduce ? first.root : -1,
                    .count = first.count,
                    .type = first.type};
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        sum.tensors[rank] = ranks_[rank].call.data;
      }
      worker.driver->launch(worker.call.stream, sum);
    }
    worker.driver->record(worker.call.stream, worker.done->handle());
    for (const Rank& rank : ranks_) rank.driver->wait(rank.call.stream, worker.done->handle());
  }

  mutable std::mutex mutex_;
  std::vector<Rank> ranks_;
  std::size_t come_ = 0;
  std::int64_t enqueued_ = 0;
};

namespace {

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(std::shared_ptr<HostConnection> connection, std::int32_t rank, Driver& driver)
      : connection_(std::move(connection)), rank_(rank) {
    connection_->connect(rank, driver);
  }
  void all_reduce(void* data, DType type, std::size_t count, StreamHandle stream) override {
    begin({.data = data, .type = type, .count = count, .stream = stream});
  }
  void reduce(float* data, std::size_t count, std::int32_t root, StreamHandle stream) override {
    begin({HostConnection::What::reduce, data, DType::f32, count, root, stream});
  }
  void broadcast(float* data, std::size_t count, std::int32_t root, StreamHandle stream) override {
    begin({HostConnection::What::broadcast, data, DType::f32, count, root, stream});
  }
  bool ready() override { return connection_->is_enqueued(last_); }
  void abort() noexcept override {}

 private:
  void begin(const HostConnection::Call& call) { last_ = connection_->begin(rank_, call); }

  const std::shared_ptr<HostConnection> connection_;
  const std::int32_t rank_;
  std::int64_t last_ = -1;  ///< call
};

}  // namespace

std::shared_ptr<HostConnection> make_host_connection(std::int32_t size) {
  return std::make_shared<HostConnection>(size);
}

std::unique_ptr<Communicator> make_host_communicator(std::shared_ptr<HostConnection> connection,
                                                     std::int32_t rank, Driver& driver) {
  return std::make_unique<HostCommunicator>(std::move(connection), rank, driver);
}

}  // namespace penstock::gpu
