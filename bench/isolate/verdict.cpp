// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/config/training_loop.h"
#include "bench/isolate/answer.h"
#include "bench/isolate/delivery.h"
#include "bench/isolate/loader_waits.h"
#include "bench/record/report_text.h"
#include "dataflow/entry.h"
#include "trainer/backend.h"
#include "trainer/model.h"

namespace penstock::isolate {
namespace {

/// A stage that computes for a smaller share of its time mostly waits.
constexpr double kMostlyWaiting = 0.5;
/// In shorter runs, a loader's memory still grows to its level.
constexpr double kMinute_s = 60;

std::string first_reason(const Measurement& found) {
  for (const Row* row : {&found.ceiling(), &found.coupled()}) {
    if (!row->reason.empty()) {
      return fmt::format("{}: {} ({})", row->config.fake_location, row->reason,
                         to_string(row->status));
    }
  }
  return "no block of runs was complete";
}

/// What causes the cost, as a sentence without its end.
std::string cause_text(const Isolation& found) {
  switch (cause_of(found).kind) {
    case CauseKind::edges:
    case CauseKind::in_turn:
    case CauseKind::uneven:
    case CauseKind::growing:
      return fmt::format("{} is the bottleneck", subject_of(found.waits.cause));
    case CauseKind::many_arrays:
      return fmt::format("Taking {:.0f} arrays a batch from the workers is the bottleneck",
                         found.traits.arrays);
    case CauseKind::stage:
    case CauseKind::delivery:
      return analysis::work_of_stage(found.diagnosis.stages[*found.diagnosis.bottleneck]) +
             " is the bottleneck";
    case CauseKind::interference:
      return "Feeding slows the steps themselves down";
    case CauseKind::none:
    case CauseKind::unknown:
    case CauseKind::unsaturated:
      break;
  }
  return "No stage of the feeder is saturated, yet it supplies no more";
}

std::string headline_of(const Isolation& found, const IsolatePlan& plan) {
  if (!found.cost) return fmt::format("There is no answer: {}.", first_reason(found.measurement));
  const analysis::InputCostFinding& cost = *found.cost;
  const std::string feeder = feeder_label(found.measurement.coupled().config);
  switch (cost.verdict) {
    case statistics::Verdict::undecided:
      return fmt::format("Undecided: feeding with {}: {}.", feeder, undecided_text(cost, "block"));
    case statistics::Verdict::faster:
      return fmt::format(
          "The cost is unknown: with {} the trainer was {} % faster than its ceiling, which is "
          "impossible.",
          feeder, format_fixed(-cost.unbounded_percent, 1));
    case statistics::Verdict::equal:
      return fmt::format(
          "The trainer is the bottleneck: feeding it with {} costs {} of its speed, within the "
          "margin of {:g} %.",
          feeder, cost_text(cost, "block"), 100 * plan.targets.margin);
    case statistics::Verdict::slower:
      break;
  }
  const BackendEntry* const device =
      match_entry(backend_table(), parse_component(plan.config.device).name);
  return fmt::format("You train {:.0f} of {:.0f} img/s: input costs {} of the {}speed. {}.",
                     cost.coupled_img_per_s.value, cost.ceiling_img_per_s.value,
                     cost_text(cost, "block"),
                     device != nullptr && device->emulates ? "emulated device's " : "device's ",
                     cause_text(found));
}

/// Which training loop was measured, if the feeder is a loader.
std::string loop_sentence(const IsolatePlan& plan) {
  const std::string loop = describe_loop(plan.config);
  return loop.empty() ? "" : fmt::format("This holds for a training loop {}.", loop);
}

/// What the edges of a loader's epochs add; empty: not known, or said as the cause.
std::string edges_sentence(const Isolation& found) {
  const EpochEdges& epochs = found.epochs;
  if (epochs.misses_edges()) {
    return fmt::format(
        "The budget reached no end of an epoch of {:.0f} steps, so this leaves out what the "
        "beginning "
        "of an epoch costs (the first batch came after {:.1f} s).",
        epochs.steps_per_epoch, epochs.first_batch_s);
  }
  if (!(epochs.steps_per_epoch > 0) || found.waits.cause == WaitCause::edges) return {};
  return fmt::format(
      "A step takes {:.1f} ms, and the first one of each epoch of {:.0f} steps {:.0f} ms longer "
      "(the very first batch came after {:.1f} s).",
      epochs.steady_ms, epochs.steps_per_epoch, epochs.longer_ms, epochs.first_batch_s);
}

/// What a loop that waits for each step pays, if that is another cost.
std::string waiting_sentence(const Isolation& found) {
  constexpr double kOther = 5;  // per cent of the trainer's speed
  if (!found.cost_if_waiting) return {};
  const statistics::Estimate& other = found.cost_if_waiting->percent;
  if (std::abs(other.value - found.cost->percent.value) <= kOther) return {};
  return fmt::format(
      "If your loop waits for each step (--loop sync), for example because it reads the loss, "
      "input "
      "costs {}: {:.0f} of {:.0f} img/s are left.",
      cost_text(*found.cost_if_waiting, "block"), found.cost_if_waiting->coupled_img_per_s.value,
      found.cost_if_waiting->ceiling_img_per_s.value);
}

std::string cause_sentence(const analysis::Diagnosis& found) {
  const analysis::StageFinding& stage = found.stages[*found.bottleneck];
  std::string text;
  if (is_outside(stage.role)) {
    text = fmt::format(
        "Its receiver waited for messages {:.0f} % of the time and had room for "
        "more: {:.0f} img/s came",
        found.stages.size() > 1 ? found.stages[1].waits_in_percent : 0.0, stage.capacity_img_per_s);
  } else {
    text = fmt::format(
        "{} busy {:.0f} % of the time, {:.0f} us of a thread for each image in this stage",
        stage.role == StageRole::asks ? std::string("The process that asks for batches was")
                                      : fmt::format("Its workers ({}) were", stage.workers),
        stage.busy_percent, stage.wall_us_per_image);
    const bool knows_cpu = stage.cpu_us_per_image > 0;  // not of stages in other processes
    if (knows_cpu && stage.cpu_us_per_image < kMostlyWaiting * stage.wall_us_per_image) {
      text += fmt::format(", {:.0f} of them computing", stage.cpu_us_per_image);
      text += stage.storage_us_per_image
                  ? fmt::format(", {:.0f} waiting for storage and the others for a core",
                                *stage.storage_us_per_image)
                  : std::string(" and the others waiting for storage or for a processor");
    }
  }
  const std::string next =
      found.next_bottleneck
          ? fmt::format("the stage '{}'", found.stages[*found.next_bottleneck].name)
          : std::string("the trainer");
  return fmt::format(
      "{}. If that cost nothing, training would be at most {:.2f} times as fast; then {} "
      "would be the bottleneck.",
      text, found.gain_until_next, next);
}

/// "1, 2 and 4 threads supplied up to 1528 img/s here".
std::string supplied_text(const std::vector<statistics::ScalingPoint>& curve) {
  std::vector<std::string> threads;
  double most = 0;
  for (const statistics::ScalingPoint& point : curve) {
    threads.push_back(format_fixed(point.threads, 0));
    most = std::max(most, median(point.img_per_s));
  }
  const std::string last = threads.back();
  threads.pop_back();
  return fmt::format("{}{}{} thread{} supplied up to {:.0f} img/s here", join(threads),
                     threads.empty() ? "" : " and ", last, last == "1" ? "" : "s", most);
}

std::string cores_sentence(const Predictions& predictions, double ceiling_img_per_s,
                           std::int32_t devices) {
  const statistics::ThreadsNeeded& needed = *predictions.cores_per_device;
  const double demand = ceiling_img_per_s / devices;
  if (!needed.reachable && !needed.known) {
    return fmt::format(
        "How many cores would feed one device of {:.0f} img/s is not known: {}, {}.", demand,
        supplied_text(predictions.supply_curve),
        needed.thread_counts < statistics::kThreadCountsForLaw
            ? fmt::format("and an estimate needs {} thread counts", statistics::kThreadCountsForLaw)
            : fmt::format("and the estimated peak of {} img/s may or may not reach it",
                          format_estimate(needed.peak_img_per_s, 0)));
  }
  if (!needed.reachable) {
    return fmt::format(
        "{:.0f} img/s for each device are not reachable with any number of cores like these: peak "
        "= {} img/s; extrapolated: {}.",
        demand, format_estimate(needed.peak_img_per_s, 0), supplied_text(predictions.supply_curve));
  }
  const bool extrapolated = needed.measured_to < needed.whole;
  std::string text =
      fmt::format("Feeding one device of {:.0f} img/s takes {}{} core{} like these", demand,
                  needed.known ? "" : "at least ", needed.whole, needed.whole == 1 ? "" : "s");
  if (needed.known) text += fmt::format(" ({})", format_estimate(needed.threads, 1));
  if (extrapolated) {
    text += fmt::format("; extrapolated: {}", supplied_text(predictions.supply_curve));
  }
  if (devices > 1) {
    text += fmt::format("; {} devices take {}{}", devices, needed.known ? "" : "at least ",
                        needed.whole * devices);
  }
  if (!needed.known) text += "; the upper bound is unknown";
  return text + ".";
}

/// Samples that wait for a processor need no cheaper code.
std::string processor_sentence(const Isolation& found, const IsolatePlan& plan) {
  const LoaderWaits& waits = found.waits;
  if (waits.processor_percent < kMuchProcessorWait) return {};
  const std::string cores = plan.cores == 1 ? "one core" : fmt::format("{} cores", plan.cores);
  return fmt::format(
      "Samples wait for a free processor for {:.0f} % of their time: {}.", waits.processor_percent,
      waits.workers > plan.cores ? fmt::format("{} workers share {}", waits.workers, cores)
                                 : fmt::format("other programs compute on the {} too", cores));
}

/// What a loader's workers do, and which devices it would be fast enough for.
std::string loader_sentence(const Isolation& found) {
  const auto stage = [&](StageRole role) { return analysis::find_stage(found.diagnosis, role); };
  std::string text;
  const auto *const load = stage(StageRole::loads), *const collate = stage(StageRole::collates);
  if (load != nullptr && collate != nullptr) {
    const bool plural = load->workers.ends_with('s');  // as "loader workers", however many
    text =
        fmt::format("The {} {} for {:.0f} % of the time, and {} them for {:.0f} %. ", load->workers,
                    plural ? "load samples" : "loads samples", load->utilisation_percent,
                    plural ? "collate" : "collates", collate->utilisation_percent);
  }
  const Row& coupled = found.measurement.coupled();
  const auto queue_s = mean_fact(coupled, "worker_queue_window_mean_s");
  // A batch waits on its way if the loader is ahead, which costs nothing.
  if (queue_s && found.cost->verdict == statistics::Verdict::slower) {
    const analysis::StageFinding* const pin = stage(StageRole::pins);
    text +=
        fmt::format("A batch took {} ms from its worker to the process that asks for it{}. ",
                    format_fixed(1e3 * *queue_s, 1),
                    pin == nullptr ? ""
                                   : fmt::format(", and pinning took {:.0f} % of its thread's time",
                                                 pin->utilisation_percent));
  }
  text += fmt::format(
      "Alone it supplies {} img/s{}.", format_estimate(*found.supply_img_per_s, 0),
      supply_decides(found) ? ": a device that trains less than that does not wait for it" : "");
  if (const auto bytes = mean_fact(coupled, "child_memory_bytes")) {
    constexpr double kMb = 1e6;
    text += fmt::format(" The loader holds {:.0f} MB", *bytes / kMb);
    if (const auto worker = mean_fact(coupled, "worker_memory_bytes")) {
      text += fmt::format(", {:.0f} MB in each worker process", *worker / kMb);
    }
    const auto growth = mean_fact(coupled, "child_growth_bytes_per_min");
    const auto is_long = [](const RunResult* run) { return run->window_s >= kMinute_s; };
    if (growth && *growth > kMb && std::ranges::any_of(analysis::usable_runs(coupled), is_long)) {
      text += fmt::format(", and grew by {:.0f} MB a minute", *growth / kMb);
    }
    text += ".";
  }
  return text;
}

std::string crowded_sentence(const Measurement& measurement, bool knows_cpu) {
  double most = 0;
  for (const BlockNoise& block : noise_of_blocks(measurement)) {
    most = std::max(most, block.foreign_cpu_percent + block.steal_percent);
  }
  return fmt::format(
      "Other programs took up to {:.0f} % of the processors meanwhile: the figures are rough{}.",
      most, knows_cpu ? ", and stages are compared by their CPU time" : "");
}

/// What trying a recommendation showed, or why none was tried. Empty: the best of the user's
/// settings is the present one.
std::string trial_sentence(const Isolation& found) {
  const Measurement& measurement = found.measurement;
  if (found.verification) return sentence_of(*found.verification);
  if (const auto& trial = measurement.trial) {
    return fmt::format("Trying {} failed: {}.", trial->tried.change,
                       measurement.sweep.rows[trial->after_row].reason);
  }
  if (measurement.interrupted) return "Nothing was tried: the measurement was interrupted.";
  if (found.variation) return {};
  return found.predictions.recommendations.empty()
             ? "Nothing was tried: no remedy is predicted to help."
             : "Nothing was tried: no remedy is possible on this machine.";
}

}  // namespace

std::string blocks_text(const Isolation& found) {
  const std::size_t all = std::max(found.measurement.measured_blocks, found.blocks);
  const std::string of_all = fmt::format("{} block{}", all, all == 1 ? "" : "s");
  return found.blocks == all ? of_all : fmt::format("{} of {}", found.blocks, of_all);
}

std::vector<std::string> unmeasured_rungs(const std::vector<RungFinding>& ladder) {
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const RungFinding& rung : ladder) {
    if (rung.unavailable.empty()) continue;
    auto same = std::find_if(reasons.begin(), reasons.end(),
                             [&](const auto& each) { return each.first == rung.unavailable; });
    if (same == reasons.end()) same = reasons.insert(reasons.end(), {rung.unavailable, {}});
    same->second.push_back(rung.name);
  }
  std::vector<std::string> lines;
  for (const auto& [reason, names] : reasons) {
    lines.push_back(fmt::format("{}: not measured: {}.", join(names), reason));
  }
  return lines;
}

std::vector<std::string> verdict_of(const Isolation& found, const IsolatePlan& plan) {
  std::vector<std::string> sentences{headline_of(found, plan)};
  if (!found.cost) return sentences;
  const auto add = [&](std::string sentence) {
    if (!sentence.empty()) sentences.push_back(std::move(sentence));
  };
  const statistics::Verdict verdict = found.cost->verdict;
  if (const std::string spread = sentence_of(found.waits); !spread.empty()) {
    add(spread);
  } else if (found.diagnosis.bottleneck) {
    add(cause_sentence(found.diagnosis));
  }
  add(processor_sentence(found, plan));
  for (std::string& sentence : trait_sentences(found)) add(std::move(sentence));
  if (found.code) add(sentence_of(*found.code));
  // Workers that start anew are slow at their first samples.
  if (found.code && found.waits.cause != WaitCause::edges) {
    add(slow_samples_sentence(*found.code));
  }
  if (plan.has_loader) add(edges_sentence(found));
  add(loop_sentence(plan));
  add(waiting_sentence(found));
  if (plan.has_loader && found.supply_img_per_s) add(loader_sentence(found));
  if (found.delivery &&
      (verdict == statistics::Verdict::slower || verdict == statistics::Verdict::equal)) {
    for (std::string& sentence : delivery_sentences(*found.delivery)) add(std::move(sentence));
  }
  if (found.predictions.cores_per_device) {
    add(cores_sentence(found.predictions, found.cost->ceiling_img_per_s.value,
                       plan.config.num_gpus));
  }
  if (is_crowded(found.measurement)) add(crowded_sentence(found.measurement, !plan.has_loader));
  if (found.variation) add(sentence_of(*found.variation, plan.targets.margin));
  if (plan.verify || !plan.settings.empty()) add(trial_sentence(found));
  return sentences;
}

std::string name_of_run(const RunConfig& config, bool is_ceiling) {
  const ModelEntry* const model = match_entry(model_table(), config.model);
  if (model != nullptr && !model->computes) {
    return fmt::format("{} alone, {} thread{}", feeder_label(config), config.feeder_threads,
                       config.feeder_threads == 1 ? "" : "s");
  }
  return is_ceiling ? fmt::format("the ceiling ({})", config.fake_location)
                    : feeder_label(config) + " with the trainer";
}

}  // namespace penstock::isolate
