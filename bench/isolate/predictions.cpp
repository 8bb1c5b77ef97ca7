// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "bench/analysis/cost.h"
#include "bench/config/training_loop.h"
#include "bench/isolate/delivery_recommendations.h"
#include "bench/isolate/isolation.h"
#include "bench/isolate/variation.h"
#include "bench/record/report_text.h"
#include "bench/statistics/paired.h"
#include "bench/statistics/queue_replay.h"

namespace penstock::isolate {
namespace {

std::vector<double> steps_of(const Row& row) {
  std::vector<double> all;
  for (const RunResult* run : analysis::usable_runs(row)) {
    const std::span<const double> kept = analysis::kept_steps(*run);
    all.insert(all.end(), kept.begin(), kept.end());
  }
  return all;
}

/// Batches that fit between feeder and devices, in steps, without those being filled or computed.
std::size_t slots_of(const RunConfig& config) {
  const std::int32_t between = config.prefetch - 1 + (config.device_slots - 1) * config.num_gpus;
  return static_cast<std::size_t>(std::max(1, between / config.num_gpus));
}

/// By number of threads.
using Supplies = std::map<std::int32_t, const Row*>;

/// Returns the rows of the coupled row's feeder without a trainer; one row for each number of
/// threads, the first in the sweep.
Supplies supplies_of(const Measurement& measurement) {
  const RunConfig& coupled = measurement.coupled().config;
  Supplies supplies;
  for (const Row& row : measurement.sweep.rows) {
    RunConfig like = supply_config(coupled);
    like.feeder_threads = row.config.feeder_threads;
    like.num_batches = row.config.num_batches;
    like.num_warmup_batches = row.config.num_warmup_batches;
    if (row.config == like && analysis::supply_of(row)) supplies.emplace(like.feeder_threads, &row);
  }
  return supplies;
}

class Predictor {
 public:
  Predictor(const Isolation& found, const IsolatePlan& plan)
      : coupled_(found.measurement.coupled()),
        images_(images_per_step(coupled_)),
        now_(found.cost->coupled_img_per_s.value),
        demand_(found.cost->ceiling_img_per_s.value),
        seed_(plan.config.seed),
        supplies_(supplies_of(found.measurement)),
        consumer_ms_(steps_of(found.measurement.ceiling())) {
    if (const auto present = supplies_.find(config().feeder_threads); present != supplies_.end()) {
      producer_ms_ = steps_of(*present->second);
      supply_ = analysis::supply_of(*present->second);
    }
    if (producer_ms_.empty() || consumer_ms_.empty() || !(now_ > 0)) return;
    explained_ = now_ / replay(producer_ms_, slots_of(config()));
  }

  bool can_predict() const { return explained_ > 0; }
  double unexplained_share() const { return can_predict() ? 1 - explained_ : 0; }
  const RunConfig& config() const { return coupled_.config; }
  const Supplies& supplies() const { return supplies_; }
  double now() const { return now_; }
  double demand() const { return demand_; }
  const std::optional<statistics::Estimate>& supply() const { return supply_; }

  double with_depth(std::int32_t prefetch) const {
    RunConfig changed = config();
    changed.prefetch = prefetch;
    return scaled(replay(producer_ms_, slots_of(changed)));
  }
  double with_supply(const Row& row) const {
    const std::vector<double> producer_ms = steps_of(row);
    return producer_ms.empty() ? 0 : scaled(replay(producer_ms, slots_of(config())));
  }

 private:
  double scaled(double rate) const { return std::min(demand_, rate * std::min(explained_, 1.0)); }
  double replay(const std::vector<double>& producer_ms, std::size_t slots) const {
    const double ms =
        statistics::replay_queue(producer_ms, consumer_ms_, {.slots = slots, .seed = seed_});
    return ms > 0 ? 1e3 * images_ / ms : demand_;
  }

  const Row& coupled_;
  const double images_, now_, demand_;
  const std::uint64_t seed_;
  const Supplies supplies_;  // unconsumed rows
  const std::vector<double> consumer_ms_;
  std::vector<double> producer_ms_;
  std::optional<statistics::Estimate> supply_;
  double explained_ = 0;  // the share of the replayed rate that was measured
};

/// Work that more workers of a user's loader share.
bool is_shared(const analysis::StageFinding& stage) {
  return stage.role == StageRole::loads || stage.role == StageRole::collates;
}

class RecommendationList {
 public:
  RecommendationList(const Isolation& found, const IsolatePlan& plan, const Predictor& predictor,
                     const Predictions& predictions)
      : found_(found), plan_(plan), predictor_(predictor), predictions_(predictions) {}

  std::vector<Recommendation> make() {
    const analysis::Diagnosis& diagnosis = found_.diagnosis;
    if (found_.cost->verdict != statistics::Verdict::slower) return {};
    if (!subject_of(found_.waits.cause).empty()) {
      add_timely_batches();
    } else if (!diagnosis.bottleneck) {
      add_calmer_feeding();
    } else if (is_outside(diagnosis.stages[*diagnosis.bottleneck].role)) {
      add_delivery();
    } else {
      add_delivery();
      add_workers();
      add_even_workers();
      add_threads();
      add_cores();
      add_processors();
      add_cheaper_stage();
      add_machines();
    }
    add_depth();
    std::stable_sort(recommendations_.begin(), recommendations_.end(),
                     [](const Recommendation& a, const Recommendation& b) {
                       return a.is_bound != b.is_bound ? b.is_bound : a.img_per_s > b.img_per_s;
                     });
    return std::move(recommendations_);
  }

 private:
  bool worthwhile(double img_per_s) const { return img_per_s > kWorthwhile * predictor_.now(); }
  bool decodes_here() const { return plan_.threads_matter && !predictor_.supplies().empty(); }

  void add(double img_per_s, const std::string& what) {
    if (!worthwhile(img_per_s)) return;
    add_text(img_per_s,
             fmt::format("{}: about {:.0f} img/s, now {:.0f}", what, img_per_s, predictor_.now()));
  }
  void add_text(double img_per_s, std::string text) {
    recommendations_.push_back({.text = std::move(text),
                                .change = {},
                                .config = predictor_.config(),
                                .img_per_s = img_per_s});
  }
  void add(double img_per_s, std::string_view key, std::int32_t value) {
    if (!worthwhile(img_per_s)) return;
    const std::string change = fmt::format("--{} {}", kebab(key), value);
    add(img_per_s, change);
    recommendations_.back().change = change;
    recommendations_.back().settings = {change_of(predictor_.config(), key, std::to_string(value))};
    find_config_key(key).set(recommendations_.back().config, std::to_string(value));
  }

  bool waits_for_lock() const {
    return found_.code && are_held_up_by_lock(state_percent(*found_.code, "waiting for a lock"),
                                              found_.waits.workers);
  }

  /// The time of one worker of a DataLoader for an image; 0: not known.
  double shared_s(StageRole role) const {
    const analysis::StageFinding* const narrow = analysis::find_stage(found_.diagnosis, role);
    double seconds = 0;
    for (const analysis::StageFinding& stage : found_.diagnosis.stages) {
      if (narrow != nullptr && is_shared(stage) && stage.workers == narrow->workers) {
        seconds += stage.wall_us_per_image / 1e6;
      }
    }
    return seconds;
  }

  void add_setting(double rate, const std::string& change, std::int32_t now) {
    if (!worthwhile(rate)) return;
    const bool is_flag = change.ends_with("=True") || change.ends_with("=False");
    const std::string value = !is_flag ? std::to_string(now) : now > 0 ? "True" : "False";
    const bool reorders = change.starts_with("in_order=");
    add(rate, fmt::format("{} (now {}{})", change, value,
                          reorders ? "; batches then come in another order" : ""));
    const Setting setting = settings_of(change, predictor_.config()).back();
    recommendations_.back().change = change;
    recommendations_.back().config = setting.config;
    recommendations_.back().settings = setting.changes;
    for (SettingChange& each : recommendations_.back().settings) each.now = value;
  }

  void add_changes(const std::vector<LoaderChange>& changes, double rate) {
    for (const auto& [change, now] : changes) add_setting(rate, change, now);
  }

  /// For a loader that makes enough batches, but not when they are needed.
  void add_timely_batches() {
    const LoaderWaits& waits = found_.waits;
    const double images = images_per_step(found_.measurement.coupled());
    const double demand = predictor_.demand();
    // Workers that wait for each other, or for room, could make more than the loader supplies.
    const double seconds = shared_s(StageRole::loads);
    const double supply = std::max(found_.supply_img_per_s ? found_.supply_img_per_s->value : 0,
                                   seconds > 0 && waits.workers > 0 ? waits.workers / seconds : 0);
    const std::vector<LoaderChange> changes = changes_against(waits, 1e3 * images / demand);
    switch (waits.cause) {
      case WaitCause::edges: {
        const double rate = std::min(demand, 1e3 * images / found_.epochs.steady_ms);
        if (!changes.empty()) return add_setting(rate, changes.front().change, 0);
        return add(rate, std::string(usual_remedy(waits.cause)));
      }
      case WaitCause::in_turn:
        if (waits.workers == 0) return add_workers_for(StageRole::loads, 0);
        return add(std::min(demand, supply), std::string(usual_remedy(waits.cause)));
      case WaitCause::uneven:
        return add_changes(changes, std::min(demand, supply));
      case WaitCause::growing:
        return add(1e3 * images / (1e3 * images / demand + waits.growth->first_ms),
                   std::string(usual_remedy(waits.cause)));
      case WaitCause::none:
      case WaitCause::work:
        return;
    }
  }

  /// The share of their time in which workers of a DataLoader load and collate, if nothing but
  /// themselves holds them up.
  double workers_efficiency(double seconds, std::int32_t workers) const {
    const double supply =
        std::max(predictor_.now(), found_.supply_img_per_s ? found_.supply_img_per_s->value : 0);
    return workers > 0 ? std::min(1.0, supply * seconds / workers) : 1;
  }

  /// Workers that wait for each other, because a few samples are slow.
  void add_even_workers() {
    constexpr double kHeldUp = 0.85;
    const auto* const loads = analysis::find_stage(found_.diagnosis, StageRole::loads);
    if (loads == nullptr || !found_.code || found_.waits.workers < 1 ||
        !has_slow_samples(*found_.code)) {
      return;
    }
    const double seconds = shared_s(StageRole::loads);
    if (workers_efficiency(seconds, found_.waits.workers) >= kHeldUp) return;
    LoaderWaits uneven = found_.waits;
    uneven.cause = WaitCause::uneven;
    uneven.spread.late_ms = found_.code->slowest.front().ms;
    const double demand = predictor_.demand();
    const double step_ms = 1e3 * images_per_step(found_.measurement.coupled()) / demand;
    add_changes(changes_against(uneven, step_ms), std::min(demand, found_.waits.workers / seconds));
  }

  void add_workers() {
    const analysis::StageFinding& narrow = found_.diagnosis.stages[*found_.diagnosis.bottleneck];
    if (!is_shared(narrow)) return;
    // Without workers, the process that asks for batches does this work.
    const auto* const asks = analysis::find_stage(found_.diagnosis, StageRole::asks);
    const bool has_workers = asks == nullptr || asks->workers != narrow.workers;
    add_workers_for(narrow.role, has_workers ? narrow.threads : 0);
  }

  /// Suggests as many workers of a DataLoader as the demand takes, but no more than the cores can
  /// run, or than may wait at once for what is no lock.
  void add_workers_for(StageRole role, std::int32_t now) {
    constexpr double kLeastComputing = 0.1;
    if (waits_for_lock()) return;
    const double seconds = shared_s(role);
    if (!(seconds > 0)) return;
    double most = plan_.cores;
    if (found_.code && !found_.code->states.empty()) {
      const double computing = state_percent(*found_.code, kComputing) +
                               state_percent(*found_.code, kWaitingForProcessor);
      most /= std::max(kLeastComputing, computing / 100);
    }
    const double each = workers_efficiency(seconds, now) / seconds;  // img/s
    const double needed = std::ceil(predictor_.demand() / each);
    const auto workers = static_cast<std::int32_t>(std::min(needed, std::floor(most)));
    if (workers <= now) return;
    add_setting(std::min(predictor_.demand(), workers * each),
                fmt::format("num_workers={}", workers), now);
  }

  /// Suggests another measured number of threads: the fewest that are about as good as the best.
  void add_threads() {
    if (!decodes_here() || !predictor_.can_predict()) return;
    const Row* best = nullptr;
    double best_rate = 0;
    for (const auto& [threads, row] : predictor_.supplies()) {
      if (threads == predictor_.config().feeder_threads || threads > plan_.cores) continue;
      const double rate = predictor_.with_supply(*row);
      if (rate <= kWorthwhile * best_rate) continue;
      best = row;
      best_rate = rate;
    }
    if (best != nullptr) add(best_rate, "feeder_threads", best->config.feeder_threads);
  }

  void add_cores() {
    const auto& needed = predictions_.cores_per_device;
    if (!needed || !needed->reachable) return;
    const std::int32_t devices = predictor_.config().num_gpus;
    if (needed->whole * devices <= plan_.cores) return;
    const double rate = predictor_.demand() * (1 - plan_.targets.margin);
    const std::string what =
        fmt::format("{}{} cores like these for each device (this machine has {} for {})",
                    needed->known ? "" : "at least ", needed->whole, plan_.cores,
                    devices == 1 ? "one" : std::to_string(devices));
    if (needed->known) return add(rate, what);
    if (!worthwhile(rate)) return;
    add_text(rate, fmt::format("{}, possibly more: at most {:.0f} img/s, now {:.0f}", what, rate,
                               predictor_.now()));
  }

  /// For samples that wait for a processor: other programs, or more workers than cores.
  void add_processors() {
    const double waiting = found_.waits.processor_percent;
    const double bound = predictor_.now() / std::max(0.01, 1 - waiting / 100);
    if (waiting < kMuchProcessorWait || !worthwhile(bound)) return;
    const std::int32_t workers = found_.waits.workers;
    add_text(
        std::min(bound, predictor_.demand()),
        fmt::format(
            "a free processor for the loader, whose samples wait for one for {:.0f} % "
            "of their time ({} on {} cores{}): at most {:.0f} img/s; now {:.0f}",
            waiting, workers == 1 ? "1 worker" : fmt::format("{} workers", std::max(workers, 0)),
            plan_.cores,
            workers > plan_.cores ? fmt::format("; num_workers={} do the same work", plan_.cores)
                                  : ", beside other programs",
            std::min(bound, predictor_.demand()), predictor_.now()));
    recommendations_.back().is_bound = true;
  }

  void add_cheaper_stage() {
    const analysis::Diagnosis& diagnosis = found_.diagnosis;
    const analysis::StageFinding& stage = diagnosis.stages[*diagnosis.bottleneck];
    std::string what = fmt::format("a cheaper {} stage", stage.name);
    double bound = predictor_.now() * diagnosis.gain_until_next;
    std::string free = "if it cost nothing";
    if (unpacks_many_arrays(found_)) {
      what = fmt::format(
          "packing the {:.0f} arrays of a batch into few, one for each type, in collate_fn",
          found_.traits.arrays);
    } else if (stage.role == StageRole::decodes) {
      what += " (smaller files, queue:upsampling=plain, decoded beforehand)";
    } else if (stage.role == StageRole::loads && found_.code) {
      const CodeShare& most = found_.code->shares.front();
      if (waits_for_lock()) {
        what = fmt::format("less time under the lock of {}", most.name);
      } else {
        what = fmt::format("{}, first of all {} ({:.0f} % of it)", what, most.name, most.percent);
        free = "without that";
        if (most.percent < 100) {
          bound = std::min(bound, predictor_.now() / (1 - most.percent / 100));
        }
      }
    }
    if (!worthwhile(bound)) return;
    add_text(std::min(bound, predictor_.demand()),
             fmt::format("{}: at most {:.0f} img/s, {}; now {:.0f}", what, bound, free,
                         predictor_.now()));
    recommendations_.back().is_bound = true;
  }

  /// Suggests enough machines like this one for the demand, if receiving costs no more than a copy.
  void add_machines() {
    if (!decodes_here() || !predictor_.supply()) return;
    const double each = predictor_.supply()->value;
    if (!(each > 0)) return;
    const double machines = std::ceil(predictor_.demand() / each);
    add(std::min(predictor_.demand(), machines * each),
        machines == 1
            ? fmt::format("a producer of {:.0f} img/s, like this machine's, over zmq-consume", each)
            : fmt::format(
                  "{:.0f} producers of {:.0f} img/s each, like this machine's, over zmq-consume",
                  machines, each));
  }

  void add_delivery() {
    if (!found_.delivery) return;
    for (Recommendation& recommendation : delivery_recommendations({.config = predictor_.config(),
                                          .diagnosis = found_.diagnosis,
                                          .delivery = *found_.delivery,
                                          .now = predictor_.now(),
                                          .demand = predictor_.demand(),
                                          .cores = plan_.cores})) {
      if (worthwhile(recommendation.img_per_s))
        recommendations_.push_back(std::move(recommendation));
    }
  }

  /// For steps that got longer because feeding uses the machine: t = t0 (1 + g u) with u feeding
  /// threads.
  void add_calmer_feeding() {
    if (!decodes_here()) return;
    const double current = predictor_.config().feeder_threads;
    for (const auto& [threads, row] : predictor_.supplies()) {
      const std::optional<statistics::Estimate> supply = analysis::supply_of(*row);
      if (threads >= current || !supply) continue;
      const double share = threads / current;
      const double rate = 1 / ((1 - share) / predictor_.demand() + share / predictor_.now());
      if (supply->value < rate) continue;
      add(rate, "feeder_threads", threads);
      return;
    }
  }

  void add_depth() {
    const Prediction* best = nullptr;
    for (const Prediction& depth : predictions_.depths) {
      if (best == nullptr || depth.img_per_s > kWorthwhile * best->img_per_s) best = &depth;
    }
    if (best == nullptr || best->change.empty()) return;
    const std::size_t space = best->change.find(' ');
    add(best->img_per_s, "prefetch", std::stoi(best->change.substr(space + 1)));
  }

  const Isolation& found_;
  const IsolatePlan& plan_;
  const Predictor& predictor_;
  const Predictions& predictions_;
  std::vector<Recommendation> recommendations_;
};

std::vector<Prediction> predict_depths(const Predictor& predictor) {
  std::vector<Prediction> depths;
  if (!predictor.can_predict() || has_loader(predictor.config())) return depths;
  for (const std::int32_t prefetch :
       std::set<std::int32_t>{1, 2, 4, 8, 16, 32, predictor.config().prefetch}) {
    const bool as_measured = prefetch == predictor.config().prefetch;
    depths.push_back({as_measured ? "" : fmt::format("--prefetch {}", prefetch),
                      predictor.with_depth(prefetch)});
  }
  return depths;
}

/// Is the achieved rate precise enough to confirm or refute a prediction?
bool is_clear(const Verification& verification) {
  const statistics::Estimate& achieved = verification.achieved_img_per_s;
  return 100 * achieved.half_width() <= 2 * kToleratedPercent * achieved.value;
}

/// The outcome of a prediction, in words.
std::string_view outcome_of(const Verification& verification) {
  if (verification.agrees) return "holds";
  return is_clear(verification) ? "does not hold" : "can be neither confirmed nor refuted";
}

}  // namespace

Predictions predict(const Isolation& found, const IsolatePlan& plan) {
  Predictions predictions;
  const Predictor predictor(found, plan);
  predictions.unexplained_share = predictor.unexplained_share();
  if (plan.threads_matter) {
    for (const auto& [threads, row] : predictor.supplies()) {
      predictions.supply_curve.push_back(
          {static_cast<double>(threads), analysis::supply_rates(*row)});
    }
  }
  if (!predictions.supply_curve.empty()) {
    const double demand = predictor.demand() / predictor.config().num_gpus;
    predictions.law = statistics::fit_scaling_law(predictions.supply_curve);
    predictions.cores_per_device = statistics::threads_needed(
        predictions.supply_curve, demand / (1 - plan.targets.margin), plan.config.seed);
  }
  predictions.depths = predict_depths(predictor);
  predictions.recommendations = RecommendationList(found, plan, predictor, predictions).make();
  return predictions;
}

std::vector<std::string> texts_of(const std::vector<Recommendation>& recommendations) {
  std::vector<std::string> texts;
  for (const Recommendation& recommendation : recommendations) texts.push_back(recommendation.text);
  return texts;
}

std::optional<Verification> verification_of(const Row& before, const Row& after,
                                            double now_img_per_s,
                                            const Recommendation& recommendation) {
  const std::vector<analysis::BlockPair> blocks = analysis::pair_blocks(before, after);
  if (blocks.empty()) return std::nullopt;
  const statistics::Estimate ratio =
      statistics::paired_ratio(analysis::step_pairs(blocks));  // of times: after over before
  Verification result;
  result.change = recommendation.change;
  result.predicted_img_per_s = recommendation.img_per_s;
  result.achieved_img_per_s = analysis::rate_of(ratio, now_img_per_s / 1e3);
  const statistics::Estimate& achieved = result.achieved_img_per_s;
  result.error_percent = 100 * (recommendation.img_per_s / achieved.value - 1);
  const bool inside =
      achieved.low <= recommendation.img_per_s && recommendation.img_per_s <= achieved.high;
  result.agrees =
      is_clear(result) && (inside || std::abs(result.error_percent) <= kToleratedPercent);
  return result;
}

std::string sentence_of(const Verification& verification) {
  return fmt::format(
      "Tried {}: predicted {:.0f} img/s, achieved {}; the prediction {} ({:+.1f} %).",
      verification.change, verification.predicted_img_per_s,
      format_estimate(verification.achieved_img_per_s, 0), outcome_of(verification),
      verification.error_percent);
}

}  // namespace penstock::isolate
