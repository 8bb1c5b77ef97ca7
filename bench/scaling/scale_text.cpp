// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/scale_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "bench/document/document.h"
#include "bench/record/report_text.h"
#include "bench/scaling/scale_files.h"

namespace penstock::scaling {
namespace {

std::string status_of(const Rung& rung) {
  if (!rung.failures.empty()) {
    return fmt::format("failed, exit code {}", rung.failures.front().exit_code);
  }
  if (rung.runs.empty()) return "did not run";
  const bool draining = std::any_of(rung.runs.begin(), rung.runs.end(), [](const RunResult& run) {
    return run.status == Status::draining;
  });
  return draining ? "draining" : "ok";
}

std::vector<std::string> cells_of(const Rung& rung, const std::optional<IdealRate>& ideal) {
  std::vector<std::string> cells{
      fmt::format("{}", rung.ranks), where_text(rung), "-", "-", "-", status_of(rung)};
  if (const std::optional<Spread> rate = rung.img_per_s()) {
    const double lossless = ideal->per_device_img_per_s * static_cast<double>(rung.devices());
    cells[2] = format_spread(*rate, 1);
    cells[3] = format_fixed(lossless, 1);
    cells[4] = format_fixed(100 * rate->median / lossless, 1);
  }
  return cells;
}

}  // namespace

std::string where_text(const Rung& rung) {
  return rung.hosts.empty() ? "this machine" : to_text(rung.hosts);
}

void write_scale_text(const ScaleResult& result, std::ostream& out) {
  out << fmt::format("{}, batch {} per device; {}; at most {} run{} of each.\n\n", result.model,
                     result.batch_size, result.what, result.repetitions,
                     result.repetitions == 1 ? "" : "s");
  const std::optional<IdealRate> ideal = ideal_rate(result);
  document::Table table{
      {{"ranks", true}, {"hosts"}, {"img/s"}, {"ideal", true}, {"efficiency %", true}, {"status"}},
      {}};
  for (const Rung& rung : result.rungs) table.rows.push_back(cells_of(rung, ideal));
  document::write_text(table, out);
  out << "\nimg/s: images of all ranks over the longest of their windows, measured; median of the "
         "repetitions (lowest..highest).\n";
  if (ideal) {
    out << fmt::format(
        "ideal: {:.2f} img/s, what each of {} device{} reached, times the devices.\n",
        ideal->per_device_img_per_s, ideal->devices, ideal->devices == 1 ? "" : "s");
  }
  for (const Rung& rung : result.rungs) {
    for (const RungFailure& failure : rung.failures) {
      out << fmt::format("{} rank{}: repetition {} failed, exit code {}: {}\n", rung.ranks,
                         rung.ranks == 1 ? "" : "s", failure.repetition + 1, failure.exit_code,
                         failure.reason);
    }
  }
  for (const std::string& note : result.notes) out << "note: " << note << ".\n";
  for (const std::string& note : notes_about_machines(result)) out << "note: " << note << ".\n";
}

void ScaleProgress::run_begins(const Rung& rung, std::int32_t repetition) {
  where_ = fmt::format("[{}/{}] round {}: {} rank{} on {}", ++begun_, runs_, repetition + 1,
                       rung.ranks, rung.ranks == 1 ? "" : "s", where_text(rung));
  line_.pass(where_.substr(0, line_.width()));
}

void ScaleProgress::run_ended(const Rung& rung, bool stopped) {
  if (stopped) {
    line_.print(where_ + ": stopped");
  } else if (!rung.failures.empty()) {
    const RungFailure& failure = rung.failures.back();
    line_.print(fmt::format("{}: failed, exit code {}: {}; going on with the next", where_,
                            failure.exit_code, failure.reason));
  } else {
    line_.print(fmt::format("{}: {:.1f} img/s", where_, rung.runs.back().img_per_s));
  }
}

void ScaleProgress::result_changed(const ScaleResult& result) {
  saver_.save([&] { write_scale_files(result, folder_); },
              [this](const std::string& text) { line_.print(text); });
}

}  // namespace penstock::scaling
