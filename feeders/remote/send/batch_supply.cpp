// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/send/batch_supply.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <deque>
#include <exception>
#include <limits>
#include <thread>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/machine/file_descriptor.h"
#include "dataflow/pace.h"

namespace penstock::remote {

// ---- what is held -----------------------------------------------------------

BatchSupply::BatchSupply(std::size_t slots, std::size_t most_held, std::int32_t classes)
    : most_held_(most_held), classes_(classes), slots_(slots) {
  // Filled before libzmq's threads start: only messages tell those threads about slots.
  for (Slot& slot : slots_) slot.owner = this;
}

void* BatchSupply::hold(std::size_t slot, std::span<const OutgoingFrame> frames,
                        std::optional<std::uint64_t> lease) {
  const std::lock_guard lock(mutex_);
  Slot& held = slots_[slot];
  for (const OutgoingFrame& frame : frames) held.frames += frame.in_slot ? 1 : 0;
  ++held_;
  last_lease_.reset();
  if (lease) last_lease_ = {*lease, &held};
  return &held;
}

void BatchSupply::give_back(void*, void* slot) noexcept {
  Slot& held = *static_cast<Slot*>(slot);
  BatchSupply& owner = *held.owner;
  const std::lock_guard lock(owner.mutex_);
  if (--held.frames == 0) owner.free_now(held);
}

/// Call it under mutex_.
void BatchSupply::free_now(Slot& slot) noexcept {
  free(static_cast<std::size_t>(&slot - slots_.data()));
  --held_;
  returned_.notify_all();
}

void BatchSupply::sent() {
  if (last_lease_) leases_.insert(*std::exchange(last_lease_, std::nullopt));
}

void BatchSupply::returned(std::uint64_t lease) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return;
  const std::lock_guard lock(mutex_);
  free_now(*found->second);
  leases_.erase(found);
}

std::int64_t BatchSupply::lose_leases() {
  const std::lock_guard lock(mutex_);
  for (const auto& [lease, slot] : leases_) free_now(*slot);
  return static_cast<std::int64_t>(std::exchange(leases_, {}).size());
}

std::size_t BatchSupply::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

bool BatchSupply::await_held(std::size_t most, Nanoseconds timeout, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (held_ > most) {
    const std::size_t held = held_;
    const bool progress =
        returned_.wait_for(lock, stop, std::min<Nanoseconds>(timeout, std::chrono::hours(24)),
                           [&] { return held_ != held; });
    if (!progress) return false;
  }
  return !stop.stop_requested();
}

namespace {

// ---- batches of a ring ------------------------------------------------------

/// Takes the ready batches of a ring, at the pace of the plan. With credit it takes them on a
/// separate thread, so that the sender can wait for them and for its socket at once.
class RingSupply final : public BatchSupply {
 public:
  RingSupply(BatchRing& ring, std::unique_ptr<OutgoingMessages> messages, Clock& clock,
             Probe& probe, bool by_credit)
      : BatchSupply(ring.slots(), ring.slots(), ring.spec().classes),
        ring_(ring),
        messages_(std::move(messages)),
        clock_(clock),
        by_credit_(by_credit),
        feed_wait_ns_(probe.counter("feed_wait_ns")),
        send_wait_ns_(probe.counter("send_wait_ns")),
        out_(ring.slots()) {
    PENSTOCK_ASSERT(ring.readers() == 1);
    for (Out& out : out_) out.free_since = clock.now();
  }

  void begin(const PushPlan& plan) override {
    plan_ = plan;
    pace_.emplace(clock_, plan.img_per_s);
    if (by_credit_) taking_ = std::jthread([this](const std::stop_token& stop) { take_all(stop); });
  }
  std::span<const OutgoingFrame> hello() override { return messages_->hello(); }
  std::span<const OutgoingFrame> end() override { return messages_->end(); }
  void stamp() override { messages_->stamp(); }

  std::optional<Message> next(const Serve& serve, const std::stop_token& stop) override {
    std::optional<Ready> ready = by_credit_ ? await_ready(serve, stop) : take_counted(stop);
    if (!ready) return std::nullopt;
    const Batch batch = ready->lease.batch();
    const auto slot = static_cast<std::size_t>(batch.slot);
    Time begun;
    {
      const std::lock_guard lock(mutex_);
      begun = out_[slot].free_since;
      out_[slot].lease = std::move(ready->lease);
    }
    // A loader begins a batch when it has finished the previous one and has room.
    begun = std::min(ready->since, std::max(begun, last_ready_));
    last_ready_ = ready->since;
    Message message{.frames = messages_->batch(batch, begun, ready->since), .images = batch.valid};
    message.slot = hold(slot, message.frames, messages_->lease());
    for (const OutgoingFrame& frame : message.frames) {
      message.bytes += static_cast<std::int64_t>(frame.bytes.size());
    }
    // Bytes in shared memory count as if they were sent.
    const std::size_t row = ring_.spec().row_bytes() + sizeof(std::int32_t);
    if (by_credit_) message.bytes = batch.valid * static_cast<std::int64_t>(row);
    return message;
  }

 private:
  struct Ready {
    ReadLease lease;
    Time since;  // when it was ready; with a given pace, when a loader of that pace would have it
  };
  struct Out {
    ReadLease lease;
    Time free_since{};
  };

  void free(std::size_t slot) noexcept override {
    Out& out = out_[slot];
    messages_->give_back(out.lease.batch());
    out.free_since = clock_.now();
    out.lease = ReadLease();
  }

  /// The next batch of the plan at its pace; empty: there is none, or stopped.
  std::optional<Ready> take(const std::stop_token& stop) {
    if (plan_.batches != 0 && taken_ == plan_.batches) return std::nullopt;
    ReadLease lease = ring_.next(0, stop);
    if (!lease) return std::nullopt;
    lease.await();
    ++taken_;
    return Ready{std::move(lease), {}};
  }
  void keep_pace(Ready& ready, const std::stop_token& stop) {
    pace_->await(ready.lease.batch().valid, stop);
    ready.since = plan_.img_per_s > 0 ? clock_.now() : ready.lease.batch().offered;
  }

  /// Counts the wait as time of the feeder, unless the feeder has no slot because no consumer takes
  /// batches.
  std::optional<Ready> take_counted(const std::stop_token& stop) {
    std::optional<Ready> ready;
    {
      const CountedWait wait(held() < slots() ? feed_wait_ns_ : send_wait_ns_, clock_);
      ready = take(stop);
    }
    if (ready) keep_pace(*ready, stop);
    return ready;
  }

  /// Body of the thread that takes batches.
  void take_all(const std::stop_token& stop) noexcept {
    try {
      while (std::optional<Ready> ready = take(stop)) {
        keep_pace(*ready, stop);
        {
          const std::lock_guard lock(ready_mutex_);
          ready_.push_back(std::move(*ready));
        }
        news_.signal();
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
    ended_.store(true, std::memory_order_release);
    news_.signal();
  }

  std::optional<Ready> await_ready(const Serve& serve, const std::stop_token& stop) {
    const CountedWait wait(feed_wait_ns_, clock_);
    while (!stop.stop_requested()) {
      const bool ended = ended_.load(std::memory_order_acquire);
      {
        const std::lock_guard lock(ready_mutex_);
        if (!ready_.empty()) {
          Ready first = std::move(ready_.front());
          ready_.pop_front();
          return first;
        }
      }
      if (ended && failure_) std::rethrow_exception(failure_);
      if (ended) break;
      serve(news_.get());
      news_.drain();
    }
    return std::nullopt;
  }

  BatchRing& ring_;
  const std::unique_ptr<OutgoingMessages> messages_;
  Clock& clock_;
  const bool by_credit_;
  Counter &feed_wait_ns_, &send_wait_ns_;
  PushPlan plan_;
  std::optional<Pace> pace_;
  std::int64_t taken_ = 0;
  Time last_ready_{};     // when the last sent batch was complete
  std::vector<Out> out_;  // under mutex_

  EventFd news_;  // readable when there may be another batch, or an end
  std::mutex ready_mutex_;
  std::deque<Ready> ready_;     // under ready_mutex_
  std::exception_ptr failure_;  // written before ended_
  std::atomic<bool> ended_{false};
  std::jthread taking_;  // last: it ends first
};

// ---- image files ------------------------------------------------------------

/// The frames behind the header of a batch of image files, in memory that is reused.
struct FileBatch {
  std::vector<std::uint32_t> lengths;
  std::vector<std::byte> files;
  std::vector<std::int32_t> labels;

  /// Keeps the memory.
  void clear(std::size_t images) {
    lengths.clear();
    files.clear();
    labels.clear();
    lengths.reserve(images);
    labels.reserve(images);
  }
  void add(const Sample& sample) {
    const std::span<const std::byte> content = sample.content();
    if (content.size() > std::numeric_limits<std::uint32_t>::max()) {
      throw DataError(
          "an image of '{}' has {} bytes; a message takes less than 2^32; take it out of the data",
          sample.file, content.size());
    }
    files.insert(files.end(), content.begin(), content.end());
    lengths.push_back(static_cast<std::uint32_t>(content.size()));
    labels.push_back(sample.label);
  }
};
static_assert(std::endian::native == std::endian::little,
              "numbers are sent in native byte order, which must be little-endian");

class FileSupply final : public BatchSupply {
 public:
  FileSupply(Source& source, const FilePlan& plan, Clock& clock, Probe& probe)
      : BatchSupply(plan.batches, plan.batches - 1, source.facts().classes),
        source_(source),
        file_plan_(plan),
        clock_(clock),
        probe_(probe),
        fill_ns_(probe.counter("feed_wait_ns")),
        bad_samples_(probe.counter("bad_samples")),
        stream_(plan.checksum),
        batches_(plan.batches) {
    PENSTOCK_ASSERT(plan.images > 0 && plan.batches > 0);
    PENSTOCK_ASSERT(source.facts().kind == SampleKind::encoded);
    for (std::size_t slot = 0; slot < plan.batches; ++slot) free_.push_back(slot);
  }

  void begin(const PushPlan& plan) override {
    batches_left_ = plan.batches == 0 ? std::numeric_limits<std::int64_t>::max() : plan.batches;
    pace_.emplace(clock_, plan.img_per_s);
  }
  std::span<const OutgoingFrame> hello() override {
    return stream_.hello(
        {.encoding = FramedEncoding::jpeg, .images = static_cast<std::uint32_t>(file_plan_.images)},
        file_plan_.name);
  }
  std::span<const OutgoingFrame> end() override { return stream_.end(); }
  void stamp() override { stream_.stamp(); }

  std::optional<Message> next(const Serve&, const std::stop_token& stop) override {
    if (data_ended_ || batches_left_-- == 0) return std::nullopt;
    const std::size_t slot = take_free();  // the sender has waited for one
    FileBatch& batch = batches_[slot];
    FramedHeader header{.encoding = FramedEncoding::jpeg, .begun_ns = wall_clock_ns()};
    if (!fill(batch, stop) || batch.labels.empty()) return std::nullopt;
    const auto images = static_cast<std::int64_t>(batch.labels.size());
    header.images = static_cast<std::uint32_t>(images);
    const OutgoingFrame payload[] = {
        {std::as_writable_bytes(std::span(batch.lengths)), true},
        {std::span(batch.files), true},
        {std::as_writable_bytes(std::span(batch.labels)), true},
    };
    Message message{.frames = stream_.batch(header, payload), .images = images};
    pace_->await(images, stop);
    stream_.is_ready(wall_clock_ns());
    message.slot = hold(slot, message.frames);
    for (const OutgoingFrame& frame : message.frames) {
      message.bytes += static_cast<std::int64_t>(frame.bytes.size());
    }
    return message;
  }

 private:
  void free(std::size_t slot) noexcept override { free_.push_back(slot); }
  std::size_t take_free() {
    const std::lock_guard lock(mutex_);
    const std::size_t slot = free_.back();
    free_.pop_back();
    return slot;
  }

  /// False: stopped. At the end of the data the batch has fewer images, or none.
  bool fill(FileBatch& batch, const std::stop_token& stop) {
    const CountedWait filling(fill_ns_, clock_);
    batch.clear(file_plan_.images);
    while (batch.labels.size() < file_plan_.images && !stop.stop_requested()) {
      try {
        data_ended_ = !source_.next(sample_);
        if (data_ended_) break;
        source_.load(sample_);
        batch.add(sample_);
        bad_in_a_row_ = 0;
      } catch (const DataError& error) {
        leave_out(error.what());
      }
    }
    return !stop.stop_requested();
  }

  /// Counts and notes a bad sample; throws if there are too many.
  void leave_out(const std::string& why) {
    bad_samples_.add();
    const BadSamplePolicy& policy = file_plan_.on_bad_sample;
    if (policy.action != BadSamplePolicy::Action::skip) {
      throw DataError(why + ", or leave it out with --on-bad-sample skip");
    }
    if (policy.limit >= 0 && bad_samples_.value() > policy.limit) {
      throw DataError(
          "{} samples could not be read; --on-bad-sample skip:limit={} allows no more; the last "
          "one: {}",
          bad_samples_.value(), policy.limit, why);
    }
    if (++bad_in_a_row_ >= source_.facts().size) {
      throw DataError(
          "none of the {} samples of an epoch could be read; check the data; the last one: {}",
          source_.facts().size, why);
    }
    probe_.note("left out: " + why);
  }

  Source& source_;
  const FilePlan file_plan_;
  Clock& clock_;
  Probe& probe_;
  Counter &fill_ns_, &bad_samples_;
  FramedStream stream_;
  std::optional<Pace> pace_;
  std::int64_t batches_left_ = 0;
  Sample sample_;
  bool data_ended_ = false;
  std::uint64_t bad_in_a_row_ = 0;
  std::vector<FileBatch> batches_;
  std::vector<std::size_t> free_;  // under mutex_
};

}  // namespace

std::unique_ptr<BatchSupply> make_ring_supply(BatchRing& ring,
                                              std::unique_ptr<OutgoingMessages> messages,
                                              Clock& clock, Probe& probe, bool by_credit) {
  return std::make_unique<RingSupply>(ring, std::move(messages), clock, probe, by_credit);
}

void drop_batches(BatchSupply& supply, const PushPlan& plan, Probe& probe,
                  const std::stop_token& stop) {
  Counter &batches = probe.counter("batches_sent"), &images = probe.counter("images_sent"),
          &bytes = probe.counter("bytes_sent");
  supply.begin(plan);
  while (const std::optional<BatchSupply::Message> message = supply.next({}, stop)) {
    for (const OutgoingFrame& frame : message->frames) {
      if (frame.in_slot) BatchSupply::give_back(frame.bytes.data(), message->slot);
    }
    batches.add();
    images.add(message->images);
    bytes.add(message->bytes);
  }
}

std::unique_ptr<BatchSupply> make_file_supply(Source& source, const FilePlan& plan, Clock& clock,
                                              Probe& probe) {
  return std::make_unique<FileSupply>(source, plan, clock, probe);
}

}  // namespace penstock::remote
