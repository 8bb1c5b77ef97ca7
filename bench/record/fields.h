// SPDX-License-Identifier: Apache-2.0
// The fields of results: one line for each. field_json.h writes, reads and describes JSON by them.
// A new field needs a member in its record and a line here, at its place in the text.
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include "bench/record/environment.h"
#include "bench/record/run_result.h"
#include "bench/record/statistics.h"

namespace penstock {

/// What a number may be.
enum class Range : std::uint8_t {
  any,
  not_negative,
  byte,       ///< 0 to 255
  or_unknown  ///< null in the text if it is not finite
};

/// Which texts have the field.
enum class Presence : std::uint8_t {
  always,
  since_2,  ///< texts of schema 1 may lack it
  later,    ///< texts of any schema may lack it
  if_any    ///< a list that is written only if it has elements, or a value only if there is one
};

template <typename Record, typename Value>
struct Field {
  constexpr Field(std::string_view name, Value Record::*where, std::string_view says,
                  Range allowed = Range::any, Presence stands = Presence::always)
      : key(name), member(where), meaning(says), range(allowed), presence(stands) {}
  constexpr Field(std::string_view name, Value Record::*where, std::string_view says,
                  Presence stands)
      : Field(name, where, says, Range::any, stands) {}

  /// Earlier texts name the field so. Rates of images are also written under that name.
  constexpr Field earlier(std::string_view name) const {
    Field field = *this;
    field.earlier_key = name;
    return field;
  }

  std::string_view key;
  std::string_view earlier_key{};
  Value Record::*member;
  std::string_view meaning;  ///< for the schema
  Range range;
  Presence presence;
};

/// `list` is a tuple of the Fields of a record, in the order of the text.
template <typename Record>
struct FieldsOf;

template <>
struct FieldsOf<StageUse> {
  static constexpr std::tuple list{
      Field("name", &StageUse::name, "such as read, decode, receive, unpack, draw or copy"),
      Field("workers", &StageUse::workers, "the threads that run it"),
      Field("role", &StageUse::role, "what it does with a batch", Presence::later),
      Field("threads", &StageUse::threads, "threads that may run it at once"),
      Field("images", &StageUse::images, "images that passed it", Range::not_negative),
      Field("items", &StageUse::items, "images or batches, as it processes them",
            Range::not_negative),
      Field("timed_items", &StageUse::timed_items, "items that were timed", Range::not_negative),
      Field("cpu_s", &StageUse::cpu_s, "CPU time of its work"),
      Field("wall_s", &StageUse::wall_s, "time of its work"),
      Field("wait_in_s", &StageUse::wait_in_s, "time that it waited for input"),
      Field("wait_out_s", &StageUse::wait_out_s, "time that it waited for free slots"),
      Field("bytes", &StageUse::bytes, "bytes of its input", Range::not_negative)};
};

template <>
struct FieldsOf<QueueUse> {
  static constexpr std::tuple list{
      Field("name", &QueueUse::name, "the ring"),
      Field("slots", &QueueUse::slots, "batches that it can hold"),
      Field("mean_filled", &QueueUse::mean_filled, "ready batches, averaged over time"),
      Field("empty_percent", &QueueUse::empty_percent, "share of the window without ready batches"),
      Field("full_percent", &QueueUse::full_percent, "share of the window without free slots"),
      Field("producer_wait_s", &QueueUse::producer_wait_s, "time that its writers waited"),
      Field("consumer_wait_s", &QueueUse::consumer_wait_s, "time that its readers waited"),
      Field("filled", &QueueUse::filled,
            "mean number of ready batches in equal parts of the window")};
};

template <>
struct FieldsOf<OperationUse> {
  static constexpr std::tuple list{
      Field("name", &OperationUse::name, "the type of operation, or the kernel"),
      Field("calls_per_step", &OperationUse::calls_per_step, "how often a step does it",
            Range::not_negative),
      Field("ms_per_step", &OperationUse::ms_per_step, "its time in a step, mean over the ranks",
            Range::not_negative),
      Field("percent", &OperationUse::percent, "share of the step's time on its device",
            Range::not_negative)};
};

template <>
struct FieldsOf<MemoryUse> {
  static constexpr std::tuple list{
      Field("name", &MemoryUse::name,
            "process (resident), machine (not available), page cache, or a device"),
      Field("peak_mib", &MemoryUse::peak_mib, "most of it that a sample found",
            Range::not_negative),
      Field("mib", &MemoryUse::mib, "mean in use in equal parts of the window",
            Range::not_negative)};
};

template <>
struct FieldsOf<EvaluationReport> {
  static constexpr std::tuple list{
      Field("step", &EvaluationReport::step, "training steps before it", Range::not_negative),
      Field("images", &EvaluationReport::images, "evaluated images", Range::not_negative),
      Field("top_1_accuracy", &EvaluationReport::top1, "share from 0 to 1", Range::or_unknown),
      Field("top_5_accuracy", &EvaluationReport::top5, "share from 0 to 1", Range::or_unknown),
      Field("seconds", &EvaluationReport::seconds, "how long it took", Range::not_negative)};
};

template <>
struct FieldsOf<BucketUse> {
  static constexpr std::tuple list{
      Field("mib", &BucketUse::mib, "size", Range::not_negative),
      Field("lead_ms", &BucketUse::lead_ms, "from its completion to the end of backward",
            Range::not_negative),
      Field("exchange_ms", &BucketUse::exchange_ms, "its exchange, without waiting for others",
            Range::not_negative)};
};

template <>
struct FieldsOf<PartTimes> {
  static constexpr std::tuple list{
      Field("name", &PartTimes::name, "the part of a step"),
      Field("p50_ms", &PartTimes::p50, "median over the steps"),
      Field("p90_ms", &PartTimes::p90, "90 % of the steps take at most this"),
      Field("p95_ms", &PartTimes::p95, "95 % of the steps take at most this"),
      Field("p99_ms", &PartTimes::p99, "99 % of the steps take at most this"),
      Field("max_ms", &PartTimes::max, "the longest")};
};

template <>
struct FieldsOf<RankResult> {
  static constexpr std::tuple list{
      Field("rank", &RankResult::rank, "its number", Presence::later),
      Field("host", &RankResult::host, "where the rank ran"),
      Field("rate", &RankResult::img_per_s,
            "its images or other samples in its window / the window's length", Range::not_negative)
          .earlier("img_per_s"),
      Field("window_s", &RankResult::window_s, "length of its window", Range::not_negative),
      Field("batch_ready", &RankResult::batch_ready,
            "time from the request for a batch until it was there, over its steps",
            Presence::later),
      Field("exposed_wait", &RankResult::exposed_wait,
            "time that its device had nothing to do because the batch was not there, over its "
            "steps",
            Presence::later),
      Field("last_percent", &RankResult::last_percent,
            "share of the steps in which its batch came last and others waited for it",
            Range::not_negative, Presence::later),
      Field("batch_ms", &RankResult::batch_ms,
            "work of the busiest stage of its feeder for a batch; 0: not known",
            Range::not_negative, Presence::later)};
};

template <>
struct FieldsOf<RankSkew> {
  static constexpr std::tuple list{
      Field("culprit", &RankSkew::culprit,
            "whose input makes the others wait: a rank, all ranks of a host, or changing ones"),
      Field("rank", &RankSkew::rank, "the culprit; -1: no single rank"),
      Field("host", &RankSkew::host, "the culprit's"),
      Field("decided_percent", &RankSkew::decided_percent,
            "share of the steps in which ranks waited for another's batch", Range::not_negative),
      Field("culprit_percent", &RankSkew::culprit_percent,
            "share of those steps in which the culprit's batch came last", Range::not_negative),
      Field("delay_ms", &RankSkew::delay_ms, "time that the culprit adds to a step"),
      Field("delay_low_ms", &RankSkew::delay_low_ms, "low end of its 99 % interval"),
      Field("delay_high_ms", &RankSkew::delay_high_ms, "high end of its 99 % interval"),
      Field("delay_percent", &RankSkew::delay_percent, "delay_ms, of the mean step"),
      Field("more_work_ms", &RankSkew::more_work_ms,
            "what the culprit works longer for a batch than any other rank; 0: not known",
            Range::not_negative),
      Field("spread", &RankSkew::spread,
            "longest wait for a batch less the shortest one, over the steps")};
};

/// Without the configuration, which a sweep writes once for each row.
template <>
struct FieldsOf<RunResult> {
  static constexpr auto kNotNegative = Range::not_negative;
  static constexpr auto kSince2 = Presence::since_2;
  static constexpr std::tuple list{
      Field("status", &RunResult::status, "how the run ended"),
      Field("reason", &RunResult::reason, "a sentence, if the status is not ok"),
      Field("exit_code", &RunResult::exit_code, "the exit code of the run", Range::byte),
      Field("started", &RunResult::started, "start, UTC, ISO 8601"),
      Field("unit", &RunResult::unit,
            "of the rates, in a second: img, samples, or what --count counts", Presence::later),
      Field("rate", &RunResult::img_per_s,
            "images or other samples of all ranks in the window / the window's length",
            kNotNegative)
          .earlier("img_per_s"),
      Field("sustained_rate", &RunResult::sustained_img_per_s,
            "what the feeder published in the window / the window's length", kNotNegative)
          .earlier("sustained_img_per_s"),
      Field("device_idle_percent", &RunResult::device_idle_percent, "idle share of the window",
            kSince2),
      Field("window_s", &RunResult::window_s, "length of the window", kNotNegative),
      Field("images_per_step", &RunResult::images_per_step, "images of all ranks", kNotNegative),
      Field("examples_per_epoch", &RunResult::examples_per_epoch,
            "training examples in an epoch; 0: not known", kNotNegative, kSince2),
      Field("reserve_start", &RunResult::reserve_start, "batches ready when the window began"),
      Field("reserve_end", &RunResult::reserve_end, "batches ready when the window ended"),
      Field("discarded_steps", &RunResult::discarded_steps,
            "steps of warm-up, and of windows that were measured again", kNotNegative),
      Field("process_cpu_s", &RunResult::process_cpu_s, "CPU time of the process in the window"),
      Field("staging_cpu_s", &RunResult::staging_cpu_s, "CPU time of copies to devices"),
      Field("facts", &RunResult::facts,
            "numbers about device, data and exchange; the unit is in the name"),
      Field("counters", &RunResult::counters, "counts, such as images_decoded"),
      Field("notes", &RunResult::notes, "what a reader should know, one sentence each"),
      Field("step_ms", &RunResult::step_ms, "one time per step of the window", kNotNegative),
      Field("input_wait_ms", &RunResult::input_wait_ms, "time that each step waited for a batch"),
      Field("device_idle_ms", &RunResult::device_idle_ms, "idle time before each step", kSince2),
      Field("starved_ms", &RunResult::starved_ms, "of it: no batch was ready on the host", kSince2),
      Field("copy_exposed_ms", &RunResult::copy_exposed_ms, "of it: a ready batch was being copied",
            kSince2),
      Field("late_ms", &RunResult::late_ms, "of it: the host enqueued the step late", kSince2),
      Field("exchange_exposed_ms", &RunResult::exchange_exposed_ms,
            "time that each step waited for the exchange of gradients after backward; empty: not "
            "known",
            Presence::later),
      Field("epoch_begins", &RunResult::epoch_begins,
            "steps of the window, from 0, whose batch is the first of a loader's next epoch",
            kNotNegative, Presence::later),
      Field("parts", &RunResult::parts, "percentiles of each part of a step, over the steps",
            Presence::later),
      Field("stages", &RunResult::stages, "the stages from source to device", kSince2),
      Field("queues", &RunResult::queues, "the rings from source to device", kSince2),
      Field("memory", &RunResult::memory, "memory in use, sampled ten times a second",
            Presence::later),
      Field("instrumentation_s", &RunResult::instrumentation_s,
            "CPU time of counting and timing the stages", kNotNegative, kSince2),
      Field("losses", &RunResult::losses, "one per step of the window", Range::or_unknown, kSince2),
      Field("evaluations", &RunResult::evaluations, "complete passes over the evaluation set",
            kSince2),
      Field("ranks", &RunResult::ranks, "by rank, if ranks are processes", Presence::if_any),
      Field("rank_skew", &RunResult::rank_skew, "how unevenly processes get their batches",
            Presence::if_any),
      Field("buckets", &RunResult::buckets,
            "gradients that were exchanged during backward, in order", Presence::if_any),
      Field("operations", &RunResult::operations,
            "time by type of operation in the traced steps, the longest first", Presence::if_any)};
};

template <>
struct FieldsOf<Environment> {
  static constexpr std::tuple list{
      Field("cpu_model", &Environment::cpu_model, "the processor"),
      Field("usable_cores", &Environment::usable_cores, "limited by affinity and cgroup quota"),
      Field("online_cores", &Environment::online_cores, "cores of the machine"),
      Field("memory_bytes", &Environment::memory_bytes, "memory of the machine"),
      Field("virtual_machine", &Environment::virtual_machine, "whether it is a virtual machine"),
      Field("steal_percent", &Environment::steal_percent,
            "processor time that the hypervisor took during the sweep"),
      Field("cpu_governor", &Environment::cpu_governor, "governor of the CPU frequency"),
      Field("load_average", &Environment::load_average, "over the minute before the sweep",
            Range::not_negative),
      Field("busy_percent", &Environment::busy_percent,
            "processor time in use just before the first round", Range::not_negative,
            Presence::later),
      Field("kernel", &Environment::kernel, "release of the kernel"),
      Field("gpus", &Environment::gpus, "names"),
      Field("gpu_driver", &Environment::gpu_driver, "version of the GPUs' driver"),
      Field("version", &Environment::version, "of Penstock"),
      Field("revision", &Environment::revision, "of Penstock's sources, or unknown"),
      Field("compiler", &Environment::compiler, "that built Penstock"),
      Field("compiler_flags", &Environment::compiler_flags, "that built Penstock"),
      Field("build_type", &Environment::build_type, "of CMake"),
      Field("libraries", &Environment::libraries, "name and version"),
      Field("date", &Environment::date, "start of the sweep, UTC, ISO 8601")};
};

template <>
struct FieldsOf<Spread> {
  static constexpr std::tuple list{Field("median", &Spread::median, "middle value"),
                                   Field("low", &Spread::low, "lowest value"),
                                   Field("high", &Spread::high, "highest value")};
};

}  // namespace penstock
