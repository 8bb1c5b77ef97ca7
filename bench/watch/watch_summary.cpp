// SPDX-License-Identifier: Apache-2.0
#include "bench/watch/watch_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/record/report_text.h"
#include "bench/statistics/series.h"
#include "bench/watch/loop_answer.h"

namespace penstock::watch {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNoticeableStart = 0.5;  // seconds

/// "3", "3 on node1" if there are several hosts, or "3 (process 123)" if several processes of a
/// host have this rank.
std::string label_of(const Rank& rank, const WatchRecord& record) {
  const bool one_host =
      std::ranges::all_of(record.ranks, [&](const Rank& other) { return other.host == rank.host; });
  const std::string host = one_host || rank.host.empty() ? "" : " on " + rank.host;
  const auto count = std::ranges::count_if(record.ranks, [&](const Rank& other) {
    return other.rank == rank.rank && other.host == rank.host;
  });
  return count == 1 ? fmt::format("{}{}", rank.rank, host)
                    : fmt::format("{} (process {}{})", rank.rank, rank.pid, host);
}

/// What the loops count: "tokens", or "samples or img" if they differ.
std::string units_of(const WatchRecord& record) {
  std::set<std::string> units;
  for (const Rank& rank : record.ranks) {
    for (const Loop& loop : rank.loops) units.insert(loop.unit);
  }
  return fmt::format("{}", fmt::join(units, " or "));
}

/// True if the waits of a GPU are known.
bool tells_gpu(const WatchRecord& record) {
  return std::ranges::any_of(record.ranks, [](const Rank& rank) {
    return std::ranges::any_of(rank.loops, [](const Loop& loop) {
      return summary_of(loop).gpu_waited_percent.has_value();
    });
  });
}

std::vector<std::string> cells_of(const std::string& rank, const Loop& loop, bool with_gpu) {
  const LoopSummary sum = summary_of(loop);
  const auto steady = [&](double value, int decimals) {
    return sum.steady > 0 ? format_fixed(value, decimals) : std::string("-");
  };
  std::vector<std::string> cells{
      rank,
      loop.name + (loop.in_thread ? ", in a thread" : ""),
      fmt::format("{}", sum.batches),
      steady(sum.waited_percent, 1),
      sum.rate > 0 ? steady(sum.rate, 1) : "-",
      steady(sum.batches_per_s, 2),
      steady(sum.wait_ms_p50, 2),
      steady(sum.wait_ms_p95, 2),
      steady(sum.wait_ms_p99, 2),
      steady(sum.wait_ms_max, 2),
      format_fixed(sum.first_batch_s, 2),
      fmt::format("{} ({})", format_fixed(sum.epoch_edges_s, 2), sum.epochs)};
  if (with_gpu) {
    cells.push_back(sum.gpu_waited_percent ? format_fixed(*sum.gpu_waited_percent, 1)
                                           : std::string("-"));
  }
  return cells;
}

/// How long the loop waited, why, and what would save how much of its time; for the rank that
/// waits longest.
std::string answer_sentence(const WatchRecord& record) {
  std::vector<std::pair<double, const Rank*>> shares;
  for (const Rank& rank : record.ranks) {
    const LoopSummary sum = summary_of(rank.loops.front());
    if (sum.waited_percent_with_edges) shares.emplace_back(*sum.waited_percent_with_edges, &rank);
  }
  if (shares.empty()) {
    const Loop& first = record.ranks.front().loops.front();
    return first.waits_for_first && !record.exit_code
               ? fmt::format("The loop {} waits for its first batch.", first.name)
               : "No loop has two complete steps yet, so there is no share of waiting.";
  }
  const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
  const Loop& loop = most->second->loops.front();
  std::string text = record.ranks.size() == 1
                         ? fmt::format("The loop {} waited for input for {:.1f} % of its time",
                                       loop.name, most->first)
                         : fmt::format(
                               "The ranks waited for input for {:.1f} % (rank {}) to {:.1f} % "
                               "(rank {}) of their time in the loop {}",
                               least->first, label_of(*least->second, record), most->first,
                               label_of(*most->second, record), loop.name);
  const LoopSummary sum = summary_of(loop);
  if (sum.first_batch_s >= kNoticeableStart) {
    text += fmt::format(" (after {:.1f} s for the very first batch)", sum.first_batch_s);
  }
  const LoopAnswer answer = answer_of(loop, record);
  if (answer.waits.cause == WaitCause::none) return text + ": its loader keeps up.";
  // A GPU that still has work does not wait when the loop does.
  const double saves =
      std::min(answer.saves_percent, sum.gpu_waited_percent.value_or(answer.saves_percent));
  return text + fmt::format(", {}; {} would save {} {:.0f} % of the time.", answer.why,
                            answer.remedy, answer.is_bound ? "up to" : "about", saves);
}

/// What loads the samples of each loop, if that is known.
document::Table loading_table(const WatchRecord& record) {
  document::Table table{{{"rank"}, {"loop"}}, {}};
  for (const auto& [name, member] : kLoaderSettings) {
    table.columns.push_back({std::string(name), true});
  }
  for (const char* const name : {"sample ms", "on a processor %", "waiting for one %", "collate ms",
                                 "batch ms", "slowest batch"}) {
    table.columns.push_back({name, true});
  }
  table.columns.push_back({"workers"});
  for (const Rank& rank : record.ranks) {
    for (const Loop& loop : rank.loops) {
      if (loop.settings == LoaderSettings{}) continue;
      std::vector<std::string> cells{label_of(rank, record), loop.name};
      for (const auto& [name, member] : kLoaderSettings) {
        cells.push_back(loop.settings.*member < 0 ? "-" : std::to_string(loop.settings.*member));
      }
      const Loading& loading = loop.loading;
      for (const double value :
           {loading.sample_ms(), 100 * loading.computing(), 100 * loading.waiting_for_core(),
            loading.collate_ms(), loading.batch_ms(), loading.slowest_batch_us / 1e3}) {
        cells.push_back(loading.batches > 0 ? format_fixed(value, 1) : "not known");
      }
      const std::string states = describe_states(loop);
      cells.push_back(loop.settings.workers == 0 ? "-" : states.empty() ? "not known" : states);
      table.rows.push_back(std::move(cells));
    }
  }
  return table;
}

std::string gpu_sentence(const WatchRecord& record) {
  std::string shares;
  for (const Rank& rank : record.ranks) {
    const std::optional<double> share = summary_of(rank.loops.front()).gpu_waited_percent;
    if (!share) continue;
    if (!shares.empty()) shares += ", ";
    shares += fmt::format("{:.1f} %", *share);
    if (record.ranks.size() > 1) shares += fmt::format(" (rank {})", label_of(rank, record));
  }
  return shares.empty() ? "No event of CUDA tells how long a GPU waited in the main loop."
                        : fmt::format("The GPU itself waited for {} of the time.", shares);
}

std::vector<std::string> how_to_read(const WatchRecord& record) {
  std::vector<std::string> texts{
      "A wait is the time that the loop spent in the loader's next, by the clock of the CPU. A "
      "step is the time from one next to the following one. Shares, rates and waits of the table "
      "leave out the first batch of each epoch; first batch and epoch edges (with the number of "
      "epochs) show it. The first sentence counts the edges, and leaves out the very first batch."};
  if (const document::Table table = loading_table(record); !table.rows.empty()) {
    texts.emplace_back(
        "Samples and collating are timed where they are loaded: in the loop's process, or in "
        "workers that are forked; of others they are not known. The time of a sample that is not "
        "on a processor, and no wait for one, is a wait for storage, a network, a lock or a sleep. "
        "\"workers\" is what they were seen to do, ten times a second, while they loaded.");
  }
  const bool cuda = std::ranges::any_of(record.ranks, &Rank::cuda);
  texts.emplace_back(
      tells_gpu(record)
          ? "CUDA works asynchronously: the loop may run ahead of the GPU. \"GPU waited\" is the "
            "share of the time in which the GPU had done all work of the loop's stream before the "
            "batch came, by events of CUDA. This is what a faster loader could gain at most."
      : cuda
          ? "CUDA works asynchronously: the loop may run ahead of the GPU, so a wait of the loop "
            "is not a wait of the GPU. The GPU waited for input at most as long as the loop, and "
            "less if it still had work."
          : "No process used CUDA through PyTorch. If the training runs on another accelerator, "
            "the loop may run ahead of it: a wait of the loop is then not a wait of the device.");
  return texts;
}

}  // namespace

LoopSummary summary_of(const Loop& loop) {
  LoopSummary sum{.batches = loop.steps.size()};
  std::vector<double> waits_ms;
  double waited_us = 0, time_us = 0, images = 0, gpu_waited_us = 0, gpu_time_us = 0;
  double edges_us = 0;  // with the steps after them; the very first step is not among them
  bool all_known = true;
  for (const Step& step : loop.steps) {
    sum.images += step.images;
    sum.batch_size = std::max(sum.batch_size, step.images);
    if (step.begins_epoch) {
      (sum.epochs == 0 ? sum.first_batch_s : sum.epoch_edges_s) += step.wait_us / 1e6;
      if (sum.epochs > 0) edges_us += step.step_us;
      ++sum.epochs;
      continue;
    }
    waits_ms.push_back(step.wait_us / 1e3);
    waited_us += step.wait_us;
    time_us += step.step_us;
    if (step.gpu_wait_us) {
      gpu_waited_us += *step.gpu_wait_us;
      gpu_time_us += step.step_us;
    }
    images += step.images;
    all_known = all_known && step.images > 0;
  }
  for (const double end : loop.ends_us) {
    sum.epoch_edges_s += end / 1e6;
    edges_us += end;
  }
  if (const double all_us = time_us + edges_us; all_us > 0) {
    sum.waited_percent_with_edges =
        std::min(100.0, 100 * (waited_us + 1e6 * sum.epoch_edges_s) / all_us);
  }
  if (!(time_us > 0)) return sum;
  sum.steady = waits_ms.size();
  sum.waited_percent = 100 * waited_us / time_us;
  if (gpu_time_us > 0) sum.gpu_waited_percent = 100 * gpu_waited_us / gpu_time_us;
  sum.batches_per_s = 1e6 * static_cast<double>(sum.steady) / time_us;
  sum.rate = all_known ? 1e6 * images / time_us : 0;
  sum.wait_ms_p50 = statistics::quantile(waits_ms, 0.5);
  sum.wait_ms_p95 = statistics::quantile(waits_ms, 0.95);
  sum.wait_ms_p99 = statistics::quantile(waits_ms, 0.99);
  sum.wait_ms_max = std::ranges::max(waits_ms);
  return sum;
}

Json summary_json(const LoopSummary& sum, std::string_view unit) {
  const Json rate = sum.rate > 0 ? Json(sum.rate) : Json();
  const auto if_counts = [&](bool counts) { return counts ? rate : Json(); };
  const auto steady = [&](double value) { return sum.steady > 0 ? Json(value) : Json(); };
  return Json{
      {"batches", sum.batches},
      {"images_total", sum.images},
      {"batch_size", sum.batch_size},
      {"steady_steps", sum.steady},
      {"waited_percent", steady(sum.waited_percent)},
      {"waited_percent_with_edges",
       sum.waited_percent_with_edges ? Json(*sum.waited_percent_with_edges) : Json()},
      {"gpu_waited_percent", sum.gpu_waited_percent ? Json(*sum.gpu_waited_percent) : Json()},
      {"batches_per_s", steady(sum.batches_per_s)},
      {"rate", rate},
      {"samples_per_s", if_counts(unit == "img" || unit == "samples")},
      {"img_per_s", if_counts(unit == "img")},
      {"wait_ms_p50", steady(sum.wait_ms_p50)},
      {"wait_ms_p95", steady(sum.wait_ms_p95)},
      {"wait_ms_p99", steady(sum.wait_ms_p99)},
      {"wait_ms_max", steady(sum.wait_ms_max)},
      {"first_batch_s", sum.first_batch_s},
      {"epochs", sum.epochs},
      {"epoch_edges_s", sum.epoch_edges_s}};
}

std::optional<LoopPace> loop_pace(const WatchRecord& record) {
  // A loop that waits for each step leaves the GPU nothing to do while it waits for a batch.
  constexpr double kSameShare = 0.8, kFastest = 0.1;
  if (record.ranks.empty() || record.ranks.front().loops.empty()) return std::nullopt;
  const Loop& loop = record.ranks.front().loops.front();
  const LoopSummary sum = summary_of(loop);
  if (sum.steady == 0) return std::nullopt;
  if (!sum.gpu_waited_percent || *sum.gpu_waited_percent >= kSameShare * sum.waited_percent) {
    return LoopPace{};
  }
  std::vector<double> outside_ms;
  for (const Step& step : loop.steps) {
    if (!step.begins_epoch) outside_ms.push_back((step.step_us - step.wait_us) / 1e3);
  }
  const auto fast = outside_ms.begin() +
                    static_cast<std::ptrdiff_t>(kFastest * static_cast<double>(outside_ms.size()));
  std::nth_element(outside_ms.begin(), fast, outside_ms.end());
  return LoopPace{.waits_for_steps = false, .launch_ms = std::max(0.0, *fast)};
}

std::optional<RankSkew> skew_of(const WatchRecord& record) {
  std::set<std::int32_t> names;
  for (const Rank& rank : record.ranks) names.insert(rank.rank);
  if (names.size() < 2 || names.size() != record.ranks.size()) return std::nullopt;
  std::vector<RankWaits> ranks;
  double step_ms = 0;  // of the slowest rank: all of them take as long if they step together
  for (const Rank& rank : record.ranks) {
    const Loop& loop = rank.loops.front();
    RankWaits& waits = ranks.emplace_back(RankWaits{rank.rank, rank.host, {}});
    for (const Step& step : loop.steps) waits.waits_ms.push_back(step.wait_us / 1e3);
    const auto steps = static_cast<double>(loop.steps.size());
    if (steps > 0) step_ms = std::max(step_ms, loop.total_us() / steps / 1e3);
  }
  return find_skew(ranks, step_ms);
}

document::Document document_of(const WatchRecord& record) {
  document::Section section{
      .heading = fmt::format("penstock watch: {} after {:.0f} s",
                             record.exit_code
                                 ? fmt::format("the command ended with code {}", *record.exit_code)
                                 : std::string("the command runs"),
                             record.seconds),
      .blocks = {}};
  document::List left_out{"Left out:", record.left_out};
  if (record.ranks.empty()) {
    section.blocks = {document::Paragraphs{
                          {"No loop was watched so far. Loops over torch.utils.data.DataLoader are "
                           "watched unless Python ignores PYTHONPATH (options -I and -E). For any "
                           "other loop, change `for batch in loader` in the script to `for batch "
                           "in watching.watch(loader)`, after `from penstock_bench import "
                           "watching`. A batch counts when the loop asks for the next one."}},
                      std::move(left_out)};
    return {std::move(section)};
  }
  document::Table table{{{"rank"},
                         {"loop"},
                         {"batches", true},
                         {"waited %", true},
                         {units_of(record) + "/s", true},
                         {"batches/s", true},
                         {"p50 ms", true},
                         {"p95", true},
                         {"p99", true},
                         {"max", true},
                         {"first batch s", true},
                         {"epoch edges s", true}},
                        {}};
  const bool with_gpu = tells_gpu(record);
  if (with_gpu) table.columns.push_back({"GPU waited %", true});
  for (const Rank& rank : record.ranks) {
    const std::string label = label_of(rank, record);
    for (const Loop& loop : rank.loops) table.rows.push_back(cells_of(label, loop, with_gpu));
  }
  std::vector<std::string> answers;
  if (with_gpu) answers.push_back(gpu_sentence(record));
  if (const auto skew = skew_of(record); skew && skew->culprit != Culprit::none) {
    answers.push_back(sentence_of(*skew));
  }
  section.blocks = {
      document::Verdict{.lines = {{"open", answer_sentence(record)}}, .answers = true},
      std::move(table), loading_table(record), document::Paragraphs{std::move(answers)}};
  if (record.exit_code) {
    section.blocks.emplace_back(
        document::Paragraphs{how_to_read(record), {}, document::Look::soft});
  }
  section.blocks.emplace_back(std::move(left_out));
  return {std::move(section)};
}

}  // namespace penstock::watch
