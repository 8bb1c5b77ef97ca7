// SPDX-License-Identifier: Apache-2.0
#include "bench/analysis/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock::analysis {
namespace {

/// The work of stages, as the beginning of a sentence.
constexpr std::pair<StageRole, std::string_view> kWorks[] = {
    {StageRole::reads_storage, "Reading files"},
    {StageRole::decodes, "JPEG decoding"},
    {StageRole::crops, "Cropping stored pixels"},
    {StageRole::draws, "Drawing pixels"},
    {StageRole::receives, "Receiving messages"},
    {StageRole::unpacks, "Unpacking messages"},
    {StageRole::copies, "Copying batches to the device"},
    {StageRole::loads, "Loading samples in the loader"},
    {StageRole::collates, "Collating samples in the loader"},
    {StageRole::pins, "Pinning batches in the loader"},
    {StageRole::asks, "The loader"},
    {StageRole::produces, "The producer outside this run"},
    {StageRole::carries, "The network between the producer and this run"},
    {StageRole::sends, "The producer or the network, outside this run,"}};

/// Workers that are idle for more than half of their time are no bottleneck.
constexpr double kBusyPercent = 50;
constexpr double kUnbounded = statistics::kInfinity;

/// Stages of all usable runs, summed.
struct WorkSum {
  std::vector<StageUse> stages;
  double window_s = 0, instrumentation_s = 0;
  double core_wait_s = 0;  ///< of all threads
  bool knows_core_wait = true;
};

void add(StageUse& sum, const StageUse& more) {
  sum.threads = std::max(sum.threads, more.threads);
  sum.images += more.images;
  sum.items += more.items;
  sum.timed_items += more.timed_items;
  sum.cpu_s += more.cpu_s;
  sum.wall_s += more.wall_s;
  sum.wait_in_s += more.wait_in_s;
  sum.wait_out_s += more.wait_out_s;
  sum.bytes += more.bytes;
}

/// Only reading may wait for storage. The wall time of copies belongs to the device.
bool reads(const StageUse& stage) { return stage.role == StageRole::reads_storage; }
bool copies(const StageUse& stage) { return stage.role == StageRole::copies; }

/// Time in a stage without computing: waiting for a core or for storage.
double idle_s(const StageUse& stage) { return std::max(0.0, stage.wall_s - stage.cpu_s); }

/// Shortens the idle time of a group's stages to the time that its workers had. Wall times are
/// scaled up from samples, and are too long on a machine with other work.
void fit_to_window(WorkSum& work, const std::string& workers) {
  double idle = 0, left = threads_of(work.stages, workers) * work.window_s;
  for (const StageUse& stage : work.stages) {
    if (stage.workers != workers) continue;
    idle += idle_s(stage);
    left -= stage.cpu_s + stage.wait_in_s + stage.wait_out_s;
  }
  left = std::max(0.0, left);
  if (idle <= left) return;
  const double share = left / idle;
  for (StageUse& stage : work.stages) {
    if (stage.workers == workers) stage.wall_s -= (1 - share) * idle_s(stage);
  }
}

WorkSum work_of(const Row& row) {
  WorkSum work;
  for (const RunResult* run : usable_runs(row)) {
    const RunResult& result = *run;
    if (result.stages.empty()) continue;
    work.window_s += result.window_s;
    work.instrumentation_s += result.instrumentation_s;
    const auto core_wait = fact_of(result, "waited_for_core_s");
    work.knows_core_wait = work.knows_core_wait && core_wait;
    work.core_wait_s += core_wait.value_or(0);
    for (const StageUse& stage : result.stages) {
      const auto same = [&](const StageUse& known) {
        return known.name == stage.name && known.workers == stage.workers;
      };
      const auto known = std::find_if(work.stages.begin(), work.stages.end(), same);
      if (known == work.stages.end()) {
        work.stages.push_back(stage);
      } else {
        add(*known, stage);
      }
    }
  }
  // Groups that already fit do not change, so repeating a group for each of its stages is harmless.
  for (const StageUse& stage : work.stages) {
    if (!copies(stage)) fit_to_window(work, stage.workers);
  }
  return work;
}

/// What remains of all stages' time without computing and without waiting for a core.
std::optional<double> storage_s(const WorkSum& work) {
  if (!work.knows_core_wait) return std::nullopt;
  double idle = 0, reading = 0;
  for (const StageUse& stage : work.stages) {
    if (copies(stage)) continue;
    idle += idle_s(stage);
    if (reads(stage)) reading += idle_s(stage);
  }
  return std::clamp(idle - work.core_wait_s, 0.0, reading);
}

/// The time that a stage would take from its threads if they never waited for a core: computing and
/// storage. Wall time, if waiting for a core is not known, as for stages of another process, whose
/// CPU time is not measured.
double service_s(const StageUse& stage, const WorkSum& work) {
  if (!work.knows_core_wait || copies(stage) || stage.cpu_s == 0) return stage.wall_s;
  return std::min(stage.wall_s, stage.cpu_s + (reads(stage) ? *storage_s(work) : 0));
}

/// Images per second if all threads that may run this stage did nothing else.
double capacity(const StageUse& stage, const WorkSum& work) {
  const double seconds = service_s(stage, work);
  return seconds > 0 ? static_cast<double>(stage.images) * stage.threads / seconds : kUnbounded;
}

StageFinding finding_of(const StageUse& stage, const WorkSum& work) {
  StageFinding finding{
      .name = stage.name, .workers = stage.workers, .role = stage.role, .threads = stage.threads};
  const double bound = capacity(stage, work);
  if (bound < kUnbounded) finding.capacity_img_per_s = bound;
  if (const double all = threads_of(work.stages, stage.workers) * work.window_s; all > 0) {
    // What began before the window, or ends after it, counts in it.
    const auto percent = [all](double seconds) { return std::min(100.0, 100 * seconds / all); };
    finding.utilisation_percent = percent(stage.wall_s);
    finding.waits_in_percent = percent(stage.wait_in_s);
    finding.waits_out_percent = percent(stage.wait_out_s);
  }
  if (stage.images > 0) {
    const auto images = static_cast<double>(stage.images);
    finding.cpu_us_per_image = 1e6 * stage.cpu_s / images;
    finding.wall_us_per_image = 1e6 * stage.wall_s / images;
    finding.bytes_per_image = static_cast<double>(stage.bytes) / images;
    if (const auto seconds = storage_s(work); seconds && !copies(stage)) {
      finding.storage_us_per_image = reads(stage) ? 1e6 * *seconds / images : 0;
    }
  }
  return finding;
}

/// The rate of a group if its stage `without` costs nothing. It is limited by the time of its
/// workers, and by stages that only some workers may run at once.
double group_bound(const WorkSum& work, const std::string& workers, std::size_t without) {
  const std::vector<StageUse>& stages = work.stages;
  double seconds_per_image = 0, bound = kUnbounded;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (stages[i].workers != workers || i == without || stages[i].images == 0) continue;
    seconds_per_image += service_s(stages[i], work) / static_cast<double>(stages[i].images);
    bound = std::min(bound, capacity(stages[i], work));
  }
  if (!(seconds_per_image > 0)) return kUnbounded;
  return std::min(bound, threads_of(stages, workers) / seconds_per_image);
}

/// Fills in busy_percent. If other processes compute on the same processors, the wall time of a
/// stage that few workers may run at once includes their work, and is not used.
void add_busy(const WorkSum& work, bool crowded, std::vector<StageFinding>& stages) {
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const StageUse& stage = work.stages[i];
    const double own_s = crowded ? 0 : stage.threads * work.window_s;
    const double own = own_s > 0 ? 100 * service_s(stage, work) / own_s : 0;
    stages[i].busy_percent = std::max(use_of(stages, stages[i].workers).works, own);
  }
}

/// Is this stage limited to some of its workers, and are these busier than the whole group?
bool is_narrow(const std::vector<StageFinding>& stages, const StageFinding& stage) {
  return stage.busy_percent > use_of(stages, stage.workers).works;
}

/// Does stage `a` limit the rate more than `b`? Its workers are busier; within one group, fewer
/// workers may run it, or it takes more of their time.
bool holds_up_more(const std::vector<StageFinding>& stages, const StageFinding& a,
                   const StageFinding& b, bool crowded) {
  if (a.workers != b.workers) return a.busy_percent > b.busy_percent;
  const bool a_is_narrow = is_narrow(stages, a);
  if (a_is_narrow != is_narrow(stages, b)) return a_is_narrow;
  const bool knows_cpu = a.cpu_us_per_image > 0 || b.cpu_us_per_image > 0;
  if (crowded && knows_cpu) return a.cpu_us_per_image > b.cpu_us_per_image;
  return a.utilisation_percent > b.utilisation_percent;
}

std::optional<std::size_t> busiest(const std::vector<StageFinding>& stages, bool crowded) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (stages[i].busy_percent >= kBusyPercent &&
        (!found || holds_up_more(stages, stages[i], stages[*found], crowded))) {
      found = i;
    }
  }
  return found;
}

/// The stage that copies batches to devices.
std::optional<std::size_t> copying(const std::vector<StageFinding>& stages) {
  for (std::size_t i = stages.size(); i-- > 0;) {
    if (stages[i].role == StageRole::copies) return i;
  }
  return std::nullopt;
}

/// Do the most upstream workers wait for messages more than for anything else, and more than they
/// work?
bool waits_for_producer(const std::vector<StageFinding>& stages) {
  if (stages.empty()) return false;
  const WorkersUse use = use_of(stages, stages.front().workers);
  return use.waits_in > use.waits_out && use.waits_in > use.works;
}

/// Finds the next bottleneck and the rate there. `stages` has no producer in front.
void find_next(const WorkSum& work, std::optional<std::size_t> bottleneck,
               const InputCostFinding& cost, Diagnosis& diagnosis) {
  const std::vector<StageUse>& stages = work.stages;
  const std::size_t without = bottleneck.value_or(stages.size());
  double next = cost.ceiling_img_per_s.value;
  std::optional<std::size_t> found;  // none: the trainer
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (i == without) continue;
    const double bound = group_bound(work, stages[i].workers, without);
    const bool tied = found && stages[*found].workers == stages[i].workers &&
                      service_s(stages[i], work) > service_s(stages[*found], work);
    if (bound < next || tied) {
      next = std::min(next, bound);
      found = i;
    }
  }
  diagnosis.next_bottleneck = found;
  const double now = cost.coupled_img_per_s.value;
  diagnosis.gain_until_next = now > 0 ? std::max(1.0, next / now) : 1;
}

void blame_producer(const WorkSum& work, const InputCostFinding& cost, Diagnosis& diagnosis) {
  find_next(work, std::nullopt, cost, diagnosis);
  if (diagnosis.next_bottleneck) ++*diagnosis.next_bottleneck;
  const StageUse& receiver = work.stages.front();
  StageFinding producer{.name = "produce", .workers = "producer", .role = StageRole::produces};
  producer.capacity_img_per_s =
      work.window_s > 0 ? static_cast<double>(receiver.images) / work.window_s : 0;
  producer.utilisation_percent = 100 - diagnosis.stages.front().waits_out_percent;
  producer.busy_percent = producer.utilisation_percent;
  diagnosis.stages.insert(diagnosis.stages.begin(), std::move(producer));
  diagnosis.bottleneck = 0;
}

}  // namespace

Diagnosis diagnose(const DiagnosisInput& input) {
  const WorkSum work = work_of(input.coupled);
  Diagnosis diagnosis;
  double cpu_s = 0;
  for (const StageUse& stage : work.stages) {
    diagnosis.stages.push_back(finding_of(stage, work));
    cpu_s += stage.cpu_s > 0 ? stage.cpu_s : stage.wall_s;  // not known of other processes
  }
  add_busy(work, input.crowded, diagnosis.stages);
  if (cpu_s > 0) diagnosis.instrumentation_percent = 100 * work.instrumentation_s / cpu_s;
  const CostSplit& split = input.cost.split;
  const double waited_ms = split.starvation_ms.value + split.transfer_ms.value;
  const bool costs = input.cost.verdict == statistics::Verdict::slower;
  if (!costs || split.interference_ms.value > waited_ms || work.stages.empty()) return diagnosis;
  if (split.transfer_ms.value > split.starvation_ms.value) {
    diagnosis.bottleneck = copying(diagnosis.stages);
  } else if (input.has_producer && waits_for_producer(diagnosis.stages)) {
    blame_producer(work, input.cost, diagnosis);
    return diagnosis;
  } else {
    diagnosis.bottleneck = busiest(diagnosis.stages, input.crowded);
  }
  if (!diagnosis.bottleneck) return diagnosis;
  find_next(work, diagnosis.bottleneck, input.cost, diagnosis);
  return diagnosis;
}

std::int32_t threads_of(const std::vector<StageUse>& stages, std::string_view workers) {
  std::int32_t threads = 0;
  for (const StageUse& stage : stages) {
    if (stage.workers == workers) threads = std::max(threads, stage.threads);
  }
  return threads;
}

WorkersUse use_of(const std::vector<StageFinding>& stages, std::string_view workers) {
  WorkersUse use;
  for (const StageFinding& stage : stages) {
    if (stage.workers != workers) continue;
    use.works += stage.utilisation_percent;
    use.waits_in += stage.waits_in_percent;
    use.waits_out += stage.waits_out_percent;
  }
  return use;
}

const StageFinding* find_stage(const Diagnosis& diagnosis, StageRole role) {
  const auto found = std::ranges::find(diagnosis.stages, role, &StageFinding::role);
  return found == diagnosis.stages.end() ? nullptr : &*found;
}

std::string work_of_stage(const StageFinding& stage) {
  for (const auto& [role, work] : kWorks) {
    if (role == stage.role) return std::string(work);
  }
  return fmt::format("The stage '{}'", stage.name);
}

}  // namespace penstock::analysis
