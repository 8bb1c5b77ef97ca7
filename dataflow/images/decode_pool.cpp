// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/decode_pool.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/machine/workers.h"
#include "dataflow/random.h"
#include "dataflow/stage_timer.h"

namespace penstock {

/// The state of one run, shared by its workers.
class DecodePool::Crew {
 public:
  Crew(DecodePool& pool, BatchRing& out, std::stop_token stop);

  /// The loop of worker `number`. Throws nothing.
  void work(std::int32_t number, Decoder& decoder) noexcept;
  /// Call it after all workers have ended. Publishes the remaining rows at the end of the data, or
  /// throws the error that ended the run.
  void close();

 private:
  /// A batch that is being filled.
  struct Flight {
    WriteLease lease;
    std::int32_t given = 0;          // rows handed to workers
    std::int32_t open = 0;           // rows not yet filled, given to a worker or not
    std::vector<std::uint8_t> full;  // by row
  };

  /// One row of a flight, which one worker fills.
  struct Row {
    Flight* flight = nullptr;
    std::int32_t number = 0;
  };
  struct Turn {
    WaitTime* waits;  // counts the workers that wait for the turn
    Gate gate{};
    bool taken = false;
    std::int64_t waiting = 0;  // number of these workers
  };
  /// The timers of one worker.
  struct Timers {
    StageTimer read, decode;
    std::optional<StageTimer::Item> reading;  // of the worker's current sample
  };

  bool await_need(std::int32_t number);
  bool fetch(Timers& timers, Sample& sample, Row& row);
  bool take(Turn& turn);
  void count_as(WaitTime& waits);
  bool begin_flight(const Timers& timers);
  void await_source(const Timers& timers);
  bool choose(Timers& timers, Sample& sample);
  bool read(Timers& timers, Sample& sample);
  bool decode(Timers& timers, Decoder& decoder, const Sample& sample, const Row& row);
  void finish(const Row& row);
  void count_needed();
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
  ThreadTuner* const tuner_;  // null: all workers run
  const std::thread::id caller_ = std::this_thread::get_id();
  const std::stop_token stop_;
  std::stop_source halt_;  // requested for any reason: stop, failure, closed ring, end of data
  std::stop_callback<std::function<void()>> forward_;
  Counter& images_decoded_ = probe_.counter("images_decoded");
  Counter& encoded_bytes_ = probe_.counter("encoded_bytes");
  Counter& substituted_ = probe_.histogram_class("images_by_another_engine");
  Counter& decode_ns_ = probe_.counter("decode_ns");
  Counter& bad_samples_ = probe_.counter("bad_samples");
  Counter& decode_threads_ = probe_.counter("decode_threads");

  // The worker that has the sample turn owns data_ended_; the worker that has the row turn owns the
  // other two.
  bool data_ended_ = false;
  std::vector<Flight> flights_;  // one per slot
  Flight* filling_ = nullptr;    // the flight whose rows are being given out

  std::mutex mutex_;
  // mutex_ protects everything below.
  Turn row_turn_{&decode_stage_.wait_in}, sample_turn_{&decode_stage_.wait_in};
  Gate need_gate_;
  std::int32_t needed_;            // number of workers that may run
  std::vector<Flight*> underway_;  // in the order in which they began, without published ones
  std::int64_t left_out_ = 0;
  std::map<std::uint64_t, std::uint64_t> bad_by_epoch_;
  std::exception_ptr failure_;
};

DecodePool::Crew::Crew(DecodePool& pool, BatchRing& out, std::stop_token stop)
    : plan_(pool.plan_),
      source_(pool.source_),
      out_(out),
      clock_(pool.clock_),
      probe_(pool.probe_),
      read_stage_(pool.read_stage_),
      decode_stage_(pool.decode_stage_),
      tuner_(pool.tuner_ ? &*pool.tuner_ : nullptr),
      stop_(std::move(stop)),
      forward_(stop_, [this] { halt_.request_stop(); }),
      flights_(out.slots()),
      needed_(tuner_ == nullptr ? plan_.threads : 1) {
  PENSTOCK_ASSERT(out.spec().pixel == DType::u8 || out.spec().normalised);
  for (Flight& flight : flights_) {
    flight.full.resize(static_cast<std::size_t>(out.spec().images));
  }
  underway_.reserve(flights_.size());
}

void DecodePool::Crew::work(std::int32_t number, Decoder& decoder) noexcept {
  std::optional<Clock::Participant> participant;
  if (std::this_thread::get_id() != caller_) participant.emplace(clock_);
  const auto first_timed = static_cast<std::uint32_t>(number);
  Timers timers{{read_stage_, clock_, kTimedPeriod, first_timed},
                {decode_stage_, clock_, kTimedPeriod, first_timed},
                {}};
  std::optional<PinnedThread> pinned;
  try {
    if (!plan_.places.empty()) pinned.emplace(plan_.places[static_cast<std::size_t>(number)]);
    Sample sample;
    Row row;
    bool counted = false;
    while ((row.flight != nullptr || await_need(number)) && fetch(timers, sample, row)) {
      if (!std::exchange(counted, true)) decode_threads_.add();
      const bool good = read(timers, sample) && decode(timers, decoder, sample, row);
      sample.owner.reset();
      if (good) finish(std::exchange(row, {}));
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

void DecodePool::Crew::close() {
  if (failure_) std::rethrow_exception(failure_);
  if (data_ended_ && !stop_.stop_requested()) publish_remainder();
}

/// Blocks until worker `number` is needed. False: no work is left.
bool DecodePool::Crew::await_need(std::int32_t number) {
  if (tuner_ == nullptr) return true;
  std::unique_lock lock(mutex_);
  return clock_.wait(lock, need_gate_, halt_.get_token(), [&] { return number < needed_; });
}

/// A published batch may change the number of workers that are needed. Under mutex_.
void DecodePool::Crew::count_needed() {
  if (tuner_ == nullptr) return;
  const std::int32_t needed = tuner_->observe(clock_.now());
  if (needed == needed_) return;
  needed_ = needed;
  clock_.wake(need_gate_);
}

/// Takes a sample, and a row unless `row` already has one whose earlier sample was bad. False: no
/// work is left. Rows and samples have separate turns, so that a worker that waits for a slot does
/// not stop other workers from completing the batches that hold all slots. A row's turn lasts until
/// its sample is taken, so that rows and samples keep the same order.
bool DecodePool::Crew::fetch(Timers& timers, Sample& sample, Row& row) {
  const bool wants_row = row.flight == nullptr;
  if (wants_row) {
    if (!take(row_turn_)) return false;
    if (filling_ == nullptr && !begin_flight(timers)) return false;
  }
  if (!take(sample_turn_) || !choose(timers, sample)) return false;
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

/// Waits until no worker has the turn. False: nothing is left to take. Turns that are taken at the
/// end stay taken; no worker waits for them.
bool DecodePool::Crew::take(Turn& turn) {
  std::unique_lock lock(mutex_);
  const std::stop_token halt = halt_.get_token();
  if (turn.taken) {
    const bool timed = decode_stage_.on;
    if (timed) turn.waits->begin(clock_.now());
    ++turn.waiting;
    clock_.wait(lock, turn.gate, halt, [&] { return !turn.taken; });
    --turn.waiting;
    if (timed) turn.waits->end(clock_.now());
  }
  if (halt.stop_requested()) return false;
  return turn.taken = true;
}

/// From now on, waits for a row count as `waits`.
void DecodePool::Crew::count_as(WaitTime& waits) {
  if (!decode_stage_.on) return;
  const std::lock_guard lock(mutex_);
  const Time now = clock_.now();
  row_turn_.waits->end(now, row_turn_.waiting);
  row_turn_.waits = &waits;
  waits.begin(now, row_turn_.waiting);
}

/// False: the ring is closed, or no work is left.
bool DecodePool::Crew::begin_flight(const Timers& timers) {
  const Mark mark(plan_.marks, "wait for a slot");
  // The worker that gives out rows has no slot, so all others wait for room too.
  count_as(decode_stage_.wait_out);
  const auto wait = timers.decode.wait_out();
  WriteLease lease = out_.acquire(halt_.get_token());
  if (!lease) {
    halt_.request_stop();
    return false;
  }
  lease.await();
  count_as(decode_stage_.wait_in);
  Flight& flight = flights_[static_cast<std::size_t>(lease.batch().slot)];
  flight.lease = std::move(lease);
  flight.given = 0;
  flight.open = out_.spec().images;
  std::fill(flight.full.begin(), flight.full.end(), std::uint8_t{0});
  filling_ = &flight;
  const std::lock_guard lock(mutex_);
  underway_.push_back(&flight);
  return true;
}

/// Blocks until the source can give its next sample, or until stopped.
void DecodePool::Crew::await_source(const Timers& timers) {
  if (source_.is_ready()) return;
  const auto wait = timers.decode.wait_in();
  source_.await(halt_.get_token());
}

/// Chooses the next sample and starts to time its reading. False: no work is left.
bool DecodePool::Crew::choose(Timers& timers, Sample& sample) {
  await_source(timers);
  timers.reading.emplace(timers.read);
  while (!halt_.stop_requested()) {
    try {
      if (source_.next(sample)) return true;
      data_ended_ = true;
      halt_.request_stop();
    } catch (const DataError& error) {
      leave_out(sample, error);
    }
    await_source(timers);
  }
  return false;
}

/// False: the sample is bad, and is left out.
bool DecodePool::Crew::read(Timers& timers, Sample& sample) {
  const Mark mark(plan_.marks, "read");
  try {
    source_.load(sample);
  } catch (const DataError& error) {
    leave_out(sample, error);
    return false;
  }
  timers.reading->done(1, static_cast<std::int64_t>(sample.content().size()));
  return true;
}

/// False: the sample is bad, and is left out.
bool DecodePool::Crew::decode(Timers& timers, Decoder& decoder, const Sample& sample,
                              const Row& row) {
  const Mark mark(plan_.marks, "decode");
  StageTimer::Item item(timers.decode);
  try {
    if (sample.label < 0 || sample.label >= out_.spec().classes) {
      throw DataError("sample {} of '{}' has label {}; expected 0 to {}; check the data's classes",
                      sample.index, sample.file, sample.label, out_.spec().classes - 1);
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
  substituted_.add(decoder.take_substituted());
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

/// Under mutex_, so that the ring's order of publication equals the pool's.
void DecodePool::Crew::publish_finished(Flight& flight) {
  if (plan_.order == Order::relaxed) {
    std::erase(underway_, &flight);
    std::move(flight.lease).publish();
    return count_needed();
  }
  while (!underway_.empty() && underway_.front()->open == 0) {
    Flight& first = *underway_.front();
    underway_.erase(underway_.begin());
    std::move(first.lease).publish();
    count_needed();
  }
}

/// Counts and reports a bad sample. Throws if there are too many.
void DecodePool::Crew::leave_out(const Sample& sample, const DataError& error) {
  bad_samples_.add();
  if (plan_.bad_samples_allowed == 0) {
    throw DataError(std::string(error.what()) + ", or leave it out with --on-bad-sample skip");
  }
  const std::lock_guard lock(mutex_);
  ++left_out_;
  if (plan_.bad_samples_allowed > 0 && left_out_ > plan_.bad_samples_allowed) {
    throw DataError(
        "{} samples could not be used; --on-bad-sample skip:limit={} allows no more; the last one: "
        "{}",
        left_out_, plan_.bad_samples_allowed, error.what());
  }
  if (++bad_by_epoch_[sample.epoch] >= source_.facts().size) {
    throw DataError(
        "none of the {} samples of an epoch could be used; check the data; the last one: {}",
        source_.facts().size, error.what());
  }
  // Each worker holds one sample, so no sample of an older epoch is left.
  const auto lag = static_cast<std::uint64_t>(plan_.threads);
  bad_by_epoch_.erase(bad_by_epoch_.begin(),
                      bad_by_epoch_.lower_bound(sample.epoch - std::min(sample.epoch, lag)));
  probe_.note(std::string("left out: ") + error.what());
}

/// Runs after the data have ended and all workers have stopped. Moves rows from the last batches
/// into the empty rows, so that only the last published batch is partly filled.
void DecodePool::Crew::publish_remainder() {
  const BatchSpec& spec = out_.spec();
  std::vector<Row> filled;
  for (Flight* flight : underway_) {
    for (std::int32_t number = 0; number < spec.images; ++number) {
      if (flight->full[static_cast<std::size_t>(number)] != 0) filled.push_back({flight, number});
    }
  }
  std::size_t taken = 0;  // rows of `filled` already used
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
      read_stage_(probe.stage({"read", "decode threads", plan.threads, StageRole::reads_storage})),
      decode_stage_(probe.stage(
          {"decode", "decode threads", plan.threads,
           source.facts().kind == SampleKind::encoded ? StageRole::decodes : StageRole::crops})) {
  PENSTOCK_ASSERT(plan.threads > 0);
  PENSTOCK_ASSERT(plan.places.empty() ||
                  plan.places.size() == static_cast<std::size_t>(plan.threads));
  for (std::int32_t i = 0; i < plan.threads; ++i) decoders_.push_back(make_decoder());
  if (plan.choose_threads) tuner_.emplace(plan.threads, probe);
}

DecodePool::~DecodePool() = default;

void DecodePool::run(BatchRing& out, std::stop_token stop) {
  if (tuner_) tuner_->begin(out);
  Crew crew(*this, out, std::move(stop));
  run_workers(plan_.threads,
              [&](std::int32_t i) { crew.work(i, *decoders_[static_cast<std::size_t>(i)]); });
  crew.close();
}

void DecodePool::settle() {
  if (!tuner_) return;
  const std::int32_t unused = plan_.threads - tuner_->settle();
  for (StageCounters* stage : {&read_stage_, &decode_stage_}) stage->stage.threads -= unused;
}

}  // namespace penstock
