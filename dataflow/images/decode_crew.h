// SPDX-License-Identifier: Apache-2.0
// The workers of one run of a decode pool. It decides which worker takes the next sample, which row
// the worker fills, and when a batch is published. Only decode_pool.cpp uses it.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "dataflow/images/decode_pool.h"
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
    std::uint64_t ticket = 0;        // order in which flights began
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
    Gate gate;
    bool taken = false;
    std::int64_t waiting = 0;   // number of waiting workers
    bool lacks_a_slot = false;  // the worker that has the turn waits for a free slot
  };
  /// The timers of one worker.
  struct Timers {
    StageTimer read, decode;
    std::optional<StageTimer::Item> reading;  // of the worker's current sample
  };
  class LackOfSlot;

  bool await_need(std::int32_t number);
  bool fetch(Timers& timers, Sample& sample, Row& row);
  bool take(Turn& turn);
  void await(Turn& turn, std::unique_lock<std::mutex>& lock, const std::stop_token& halt);
  WaitTime& waits_for(const Turn& turn) noexcept;
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
  Counter& decode_ns_ = probe_.counter("decode_ns");
  Counter& bad_samples_ = probe_.counter("bad_samples");
  Counter& decode_threads_ = probe_.counter("decode_threads");

  // The worker that has the sample turn owns data_ended_; the worker that has the row turn owns the
  // other three.
  bool data_ended_ = false;
  std::vector<Flight> flights_;  // one per slot
  Flight* filling_ = nullptr;    // the flight whose rows are being given out
  std::uint64_t tickets_ = 0;

  std::mutex mutex_;
  // mutex_ protects everything below.
  Turn row_turn_, sample_turn_;
  Gate need_gate_;
  std::int32_t needed_;            // number of workers that may run
  std::vector<Flight*> underway_;  // in order of their tickets, without published ones
  std::int64_t left_out_ = 0;
  std::map<std::uint64_t, std::uint64_t> bad_by_epoch_;
  std::exception_ptr failure_;
};

}  // namespace penstock
