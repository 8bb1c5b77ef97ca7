// SPDX-License-Identifier: Apache-2.0
#include "dataflow/decode_pool.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/random.h"
#include "dataflow/stage_timer.h"
#include "dataflow/workers.h"

namespace penstock {
namespace {

/// A batch between its first and its last row.
struct Flight {
  WriteLease lease;
  std::uint64_t ticket = 0;        // order in which flights began
  std::int32_t given = 0;          // rows handed to workers
  std::int32_t open = 0;           // rows not yet filled, handed out or not
  std::vector<std::uint8_t> full;  // by row
};

/// One row of a flight, and whose it is to fill.
struct Row {
  Flight* flight = nullptr;
  std::int32_t number = 0;
};

}  // namespace

/// The state of one run, shared by its workers.
class DecodePool::Crew {
 public:
  Crew(const DecodePool& pool, BatchRing& out, std::stop_token stop)
      : plan_(pool.plan_),
        source_(pool.source_),
        out_(out),
        clock_(pool.clock_),
        probe_(pool.probe_),
        read_stage_(pool.read_stage_),
        decode_stage_(pool.decode_stage_),
        stop_(std::move(stop)),
        forward_(stop_, [this] { halt_.request_stop(); }),
        flights_(out.slots()) {
    PENSTOCK_ASSERT(out.spec().pixel == DType::u8);
    for (Flight& flight : flights_) {
      flight.full.resize(static_cast<std::size_t>(out.spec().images));
    }
    underway_.reserve(flights_.size());
  }

  /// The loop of the worker of that number. Throws nothing.
  void work(std::int32_t number, Decoder& decoder) noexcept {
    std::optional<Clock::Participant> participant;
    if (std::this_thread::get_id() != caller_) participant.emplace(clock_);
    const auto first_timed = static_cast<std::uint32_t>(number);
    Timers timers{{read_stage_, clock_, kTimedPeriod, first_timed},
                  {decode_stage_, clock_, kTimedPeriod, first_timed}};
    try {
      Sample sample;
      Row row;
      bool counted = false;
      while (fetch(timers, sample, row)) {
        if (!std::exchange(counted, true)) decode_threads_.add();
        if (decode(timers, decoder, sample, row)) finish(std::exchange(row, {}));
      }
    } catch (...) {
      fail(std::current_exception());
    }
  }

  /// After all workers: publishes what is left at the end of the data, or throws why there was an
  /// end.
  void close() {
    if (failure_) std::rethrow_exception(failure_);
    if (data_ended_ && !stop_.stop_requested()) publish_remainder();
  }

 private:
  struct Turn {
    Gate gate;
    bool taken = false;
    std::int64_t waiting = 0;   // workers
    bool lacks_a_slot = false;  // the worker whose turn it is waits for room itself
  };
  /// Of one worker.
  struct Timers {
    StageTimer read, decode;
  };
  class LackOfSlot;

  bool fetch(Timers& timers, Sample& sample, Row& row);
  bool take(Turn& turn);
  void await(Turn& turn, std::unique_lock<std::mutex>& lock, const std::stop_token& halt);
  WaitTime& waits_for(const Turn& turn) noexcept;
  bool begin_flight(const Timers& timers);
  bool read(Timers& timers, Sample& sample);
  bool decode(Timers& timers, Decoder& decoder, const Sample& sample, const Row& row);
  void finish(const Row& row);
  void publish_finished(Flight& flight);
  void leave_out(const Sample& sample, const DataError& error);
  void publish_remainder();
  void fail(std::exception_ptr reason) noexcept;
  ImageView view(const Row& row) const noexcept;

  const DecodePlan& plan_;
  Source& source_;
  BatchRing& out_;
  Clock& clock_;
  Probe& probe_;
  StageCounters &read_stage_, &decode_stage_;
  const std::thread::id caller_ = std::this_thread::get_id();
  const std::stop_token stop_;
  std::stop_source halt_;  // for whatever reason: stopped, failed, closed, end of data
  std::stop_callback<std::function<void()>> forward_;
  Counter& images_decoded_ = probe_.counter("images_decoded");
  Counter& encoded_bytes_ = probe_.counter("encoded_bytes");
  Counter& decode_ns_ = probe_.counter("decode_ns");
  Counter& bad_samples_ = probe_.counter("bad_samples");
  Counter& decode_threads_ = probe_.counter("decode_threads");

  // Whoever has the turn to take a sample owns this; whoever has the turn to take a row, the
  // others.
  bool data_ended_ = false;
  std::vector<Flight> flights_;  // by slot
  Flight* filling_ = nullptr;    // the one whose rows are being given out
  std::uint64_t tickets_ = 0;

  std::mutex mutex_;
  // All below under mutex_.
  Turn row_turn_, sample_turn_;
  std::vector<Flight*> underway_;  // in order of their tickets; published ones are gone
  std::int64_t left_out_ = 0;
  std::map<std::uint64_t, std::uint64_t> bad_by_epoch_;
  std::exception_ptr failure_;
};

/// Takes a sample, and a row unless `row` is one whose earlier sample was bad. False: nothing more
/// to do. Rows and samples have turns of their own: whoever waits for a slot keeps nobody from
/// completing the batches that hold them all. A row's turn lasts until its sample is taken, so that
/// both keep step.
bool DecodePool::Crew::fetch(Timers& timers, Sample& sample, Row& row) {
  const bool wants_row = row.flight == nullptr;
  if (wants_row) {
    if (!take(row_turn_)) return false;
    if (filling_ == nullptr && !begin_flight(timers)) return false;
  }
  if (!take(sample_turn_) || !read(timers, sample)) return false;
  if (wants_row) {
    row = {filling_, filling_->given++};
    if (filling_->given == out_.spec().images) filling_ = nullptr;
  }
  const std::lock_guard lock(mutex_);
  sample_turn_.taken = false;
  clock_.wake(sample_turn_.gate);
  if (wants_row) {
    row_turn_.taken = false;
    clock_.wake(row_turn_.gate);
  }
  return true;
}

/// Waits for a turn. False: there is nothing more to take. Turns that were taken when the end came
/// stay so; nobody waits for them.
bool DecodePool::Crew::take(Turn& turn) {
  std::unique_lock lock(mutex_);
  const std::stop_token halt = halt_.get_token();
  if (turn.taken) await(turn, lock, halt);
  if (halt.stop_requested()) return false;
  return turn.taken = true;
}

/// Blocks until nobody has the turn, or stopped.
void DecodePool::Crew::await(Turn& turn, std::unique_lock<std::mutex>& lock,
                             const std::stop_token& halt) {
  const auto is_free = [&] { return !turn.taken; };
  if (!decode_stage_.on) {
    clock_.wait(lock, turn.gate, halt, is_free);
    return;
  }
  waits_for(turn).begin(clock_.now());
  ++turn.waiting;
  clock_.wait(lock, turn.gate, halt, is_free);
  --turn.waiting;
  waits_for(turn).end(clock_.now());
}

/// What those that wait for the turn wait for. Under mutex_.
WaitTime& DecodePool::Crew::waits_for(const Turn& turn) noexcept {
  return turn.lacks_a_slot ? decode_stage_.wait_out : decode_stage_.wait_in;
}

/// As long as it lives, those that wait for a row wait for room: who gives rows out has no slot.
class DecodePool::Crew::LackOfSlot {
 public:
  explicit LackOfSlot(Crew& crew) : crew_(crew) { set(true); }
  LackOfSlot(const LackOfSlot&) = delete;
  LackOfSlot& operator=(const LackOfSlot&) = delete;
  ~LackOfSlot() { set(false); }

 private:
  void set(bool lacks) noexcept {
    if (!crew_.decode_stage_.on) return;
    const std::lock_guard lock(crew_.mutex_);
    Turn& turn = crew_.row_turn_;
    const Time now = crew_.clock_.now();
    crew_.waits_for(turn).end(now, turn.waiting);
    turn.lacks_a_slot = lacks;
    crew_.waits_for(turn).begin(now, turn.waiting);
  }

  Crew& crew_;
};

/// False: the ring is closed, or there is nothing more to do.
bool DecodePool::Crew::begin_flight(const Timers& timers) {
  const Mark mark(plan_.marks, "wait for a slot");
  const LackOfSlot others_wait(*this);
  const auto wait = timers.decode.wait_out();
  WriteLease lease = out_.acquire(halt_.get_token());
  if (!lease) {
    halt_.request_stop();
    return false;
  }
  lease.await();
  Flight& flight = flights_[static_cast<std::size_t>(lease.batch().slot)];
  flight.lease = std::move(lease);
  flight.ticket = tickets_++;
  flight.given = 0;
  flight.open = out_.spec().images;
  std::fill(flight.full.begin(), flight.full.end(), std::uint8_t{0});
  filling_ = &flight;
  const std::lock_guard lock(mutex_);
  underway_.push_back(&flight);
  return true;
}

/// The next sample that can be read. False: there is nothing more to do.
bool DecodePool::Crew::read(Timers& timers, Sample& sample) {
  const Mark mark(plan_.marks, "read");
  StageTimer::Item item(timers.read);
  while (!halt_.stop_requested()) {
    try {
      if (source_.next(sample)) {
        item.done(1, static_cast<std::int64_t>(sample.content().size()));
        return true;
      }
      data_ended_ = true;
      halt_.request_stop();
    } catch (const DataError& error) {
      leave_out(sample, error);
    }
  }
  return false;
}

/// False: the sample is bad, and was left out.
bool DecodePool::Crew::decode(Timers& timers, Decoder& decoder, const Sample& sample,
                              const Row& row) {
  const Mark mark(plan_.marks, "decode");
  StageTimer::Item item(timers.decode);
  try {
    if (sample.label < 0 || sample.label >= out_.spec().classes) {
      throw DataError("sample " + std::to_string(sample.index) + " of '" +
                      std::string(sample.file) + "' has label " + std::to_string(sample.label) +
                      "; expected 0 to " + std::to_string(out_.spec().classes - 1) +
                      "; check the data's classes");
    }
    Random random(plan_.seed, sample.epoch, sample.index);
    decoder.decode(sample, view(row), random);
  } catch (const DataError& error) {
    leave_out(sample, error);
    return false;
  }
  row.flight->lease.batch().labels[static_cast<std::size_t>(row.number)] = sample.label;
  const auto bytes = static_cast<std::int64_t>(sample.content().size());
  decode_ns_.add(kTimedPeriod * item.done(1, bytes).count());
  images_decoded_.add();
  encoded_bytes_.add(bytes);
  return true;
}

ImageView DecodePool::Crew::view(const Row& row) const noexcept {
  const BatchSpec& spec = out_.spec();
  const std::size_t begin = static_cast<std::size_t>(row.number) * spec.row_bytes();
  return {row.flight->lease.batch().pixels.data() + begin, spec.image, spec.pixel,
          static_cast<std::ptrdiff_t>(spec.row_bytes()) / spec.image.height};
}

void DecodePool::Crew::finish(const Row& row) {
  const std::lock_guard lock(mutex_);
  row.flight->full[static_cast<std::size_t>(row.number)] = 1;
  if (--row.flight->open == 0) publish_finished(*row.flight);
}

/// Under mutex_: the ring's order of publication is the pool's.
void DecodePool::Crew::publish_finished(Flight& flight) {
  if (plan_.order == Order::relaxed) {
    underway_.erase(std::find(underway_.begin(), underway_.end(), &flight));
    std::move(flight.lease).publish();
    return;
  }
  while (!underway_.empty() && underway_.front()->open == 0) {
    Flight& first = *underway_.front();
    underway_.erase(underway_.begin());
    std::move(first.lease).publish();
  }
}

/// Counts and names a bad sample; throws when there are too many.
void DecodePool::Crew::leave_out(const Sample& sample, const DataError& error) {
  bad_samples_.add();
  if (plan_.bad_samples_allowed == 0) throw error;
  const std::lock_guard lock(mutex_);
  ++left_out_;
  if (plan_.bad_samples_allowed > 0 && left_out_ > plan_.bad_samples_allowed) {
    throw DataError(std::to_string(left_out_) +
                    " samples could not be used; --on-bad-sample skip:limit=" +
                    std::to_string(plan_.bad_samples_allowed) +
                    " allows no more; the last one: " + error.what());
  }
  if (++bad_by_epoch_[sample.epoch] >= source_.size()) {
    throw DataError(
        "none of the " + std::to_string(source_.size()) +
        " samples of an epoch could be used; check the data; the last one: " + error.what());
  }
  // Workers hold one sample each, so that no older epoch has any left.
  const auto lag = static_cast<std::uint64_t>(plan_.threads);
  bad_by_epoch_.erase(bad_by_epoch_.begin(),
                      bad_by_epoch_.lower_bound(sample.epoch - std::min(sample.epoch, lag)));
  probe_.note(std::string("left out: ") + error.what());
}

/// The data have ended, and no worker runs: rows that stayed empty are filled from the last
/// batches, so that only the last one published is partly filled.
void DecodePool::Crew::publish_remainder() {
  const BatchSpec& spec = out_.spec();
  std::vector<Row> filled;
  for (Flight* flight : underway_) {
    for (std::int32_t number = 0; number < spec.images; ++number) {
      if (flight->full[static_cast<std::size_t>(number)] != 0) filled.push_back({flight, number});
    }
  }
  std::size_t taken = 0;  // rows of `filled` that have their place
  for (Flight* flight : underway_) {
    const Batch& batch = flight->lease.batch();
    std::int32_t valid = 0;
    for (; valid < spec.images && taken < filled.size(); ++valid) {
      const auto place = static_cast<std::size_t>(valid);
      if (flight->full[place] != 0) {
        ++taken;
        continue;
      }
      const Row from = filled.back();
      filled.pop_back();
      std::memcpy(view({flight, valid}).data, view(from).data, spec.row_bytes());
      batch.labels[place] =
          from.flight->lease.batch().labels[static_cast<std::size_t>(from.number)];
    }
    if (valid == 0) break;
    flight->lease.batch().valid = valid;
    const auto rest = static_cast<std::size_t>(valid);
    std::ranges::fill(batch.pixels.subspan(rest * spec.row_bytes()), std::byte{0});
    std::ranges::fill(batch.labels.subspan(rest), 0);
    std::move(flight->lease).publish();
  }
}

void DecodePool::Crew::fail(std::exception_ptr reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(reason);
  }
  halt_.request_stop();
}

DecodePool::DecodePool(const DecodePlan& plan, Source& source,
                       const std::function<std::unique_ptr<Decoder>()>& make_decoder, Clock& clock,
                       Probe& probe)
    : plan_(plan),
      source_(source),
      clock_(clock),
      probe_(probe),
      read_stage_(probe.stage({"read", "decode threads"})),
      decode_stage_(probe.stage({"decode", "decode threads", plan.threads})) {
  PENSTOCK_ASSERT(plan.threads > 0);
  for (std::int32_t i = 0; i < plan.threads; ++i) decoders_.push_back(make_decoder());
}

DecodePool::~DecodePool() = default;

void DecodePool::run(BatchRing& out, std::stop_token stop) {
  Crew crew(*this, out, std::move(stop));
  run_workers(plan_.threads,
              [&](std::int32_t i) { crew.work(i, *decoders_[static_cast<std::size_t>(i)]); });
  crew.close();
}

}  // namespace penstock
