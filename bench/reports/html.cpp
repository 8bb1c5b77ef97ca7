// SPDX-License-Identifier: Apache-2.0
// report.html: one file that needs nothing else. Light and dark as the reader's system is, cards
// instead of table rows on narrow screens. Every text that is not ours goes through `escaped`.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "bench/report.h"
#include "bench/report_text.h"
#include "bench/statistics.h"

namespace penstock {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ink: #1d2329; --soft: #5b6670; --line: #d8dde2; --page: #ffffff;
  --panel: #f4f6f8; --bar: #2f6fb0; --cost: #c2542d; --range: #1d232966; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --soft: #9aa5b0; --line: #39424b;
  --page: #14181c; --panel: #1d2329; --bar: #5b9bd8; --cost: #e08a5f; --range: #e4e8ec88; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1.5rem 1rem 4rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .45rem .9rem .45rem 0;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--soft); font-size: .85rem; }
td { font-variant-numeric: tabular-nums; }
td.figure { min-width: 11rem; }
small, .note { color: var(--soft); font-size: .85rem; }
small { white-space: nowrap; }
.track { position: relative; height: .5rem; margin-top: .3rem; background: var(--panel);
  border-radius: .15rem; overflow: hidden; }
.fill { position: absolute; inset: 0 auto 0 0; background: var(--bar); }
.cost .fill { background: var(--cost); }
.range { position: absolute; top: .15rem; height: .2rem; min-width: 2px; background: var(--range); }
.status { white-space: nowrap; }
.status::before { content: ""; display: inline-block; width: .6rem; height: .6rem; margin-right: .4rem;
  border-radius: 50%; background: #b98a16; }
.status.ok::before { background: #3d9a50; }
.status.failed::before { background: #cc3b3b; }
.warnings { background: var(--panel); border-left: .25rem solid #b98a16; padding: .6rem 1rem; }
.warnings p { margin: .2rem 0; }
ul { padding-left: 1.2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; min-width: 0; }
pre { background: var(--panel); padding: .8rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .4rem 0; } summary { cursor: pointer; }
.scroll { overflow-x: auto; }
@media (max-width: 44rem) {
  .rows thead { display: none; }
  .rows tr { display: block; border-bottom: 1px solid var(--line); padding: .6rem 0; }
  .rows td { display: block; border: 0; padding: .15rem 0; }
  .rows td::before { content: attr(data-name) ": "; color: var(--soft); font-size: .85rem; }
  .rows td:empty { display: none; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; }
}
)";

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

/// A bar to the median and a mark from lowest to highest, on a scale that ends at `full`.
std::string bar(const Spread& spread, double full) {
  const auto percent = [full](double value) {
    return full > 0 ? std::clamp(100 * value / full, 0.0, 100.0) : 0.0;
  };
  const double low = percent(spread.low), high = percent(spread.high);
  return fmt::format(R"(<div class="track"><div class="fill" style="width:{:.2f}%"></div>)"
                     R"(<div class="range" style="left:{:.2f}%;width:{:.2f}%"></div></div>)",
                     percent(spread.median), low, high - low);
}

std::string figure(const Spread& spread, double full) {
  return fmt::format("{} <small>{} to {}</small>{}", format_fixed(spread.median, 1),
                     format_fixed(spread.low, 1), format_fixed(spread.high, 1), bar(spread, full));
}

void write_rows(const SweepResult& sweep, std::ostream& out) {
  const std::vector<std::string> columns = text_columns(sweep);
  const std::size_t keys = sweep.varied.size();
  double fastest = 0;
  for (const Row& row : sweep.rows)
    fastest = std::max(fastest, row.img_per_s.value_or(Spread{}).high);
  out << "<table class=\"rows\">\n<thead><tr>";
  for (const std::string& column : columns) out << "<th>" << escaped(column) << "</th>";
  out << "</tr></thead>\n<tbody>\n";
  for (const Row& row : sweep.rows) {
    const std::vector<std::string> cells = text_cells(sweep, row);
    out << "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i) {
      std::string text = escaped(cells[i]), kind;
      if (i == keys) {
        kind = "figure";
        if (row.img_per_s) text = figure(*row.img_per_s, fastest);
      } else if (i == keys + 1) {
        kind = "figure cost";
        if (row.input_cost && !row.is_ceiling) text = figure(row.input_cost->percent, 100);
      } else if (i == keys + 4) {
        text = fmt::format(R"(<span class="status {0}">{0}</span>)", to_string(row.status));
      } else if (i == keys + 5) {
        kind = "note";
      }
      out << fmt::format(R"(<td class="{}" data-name="{}">{}</td>)", kind, escaped(columns[i]),
                         text);
    }
    out << "</tr>\n";
  }
  out << "</tbody>\n</table>\n";
}

void write_repetitions(const SweepResult& sweep, std::ostream& out) {
  out << "<h2>Each repetition</h2>\n";
  for (const Row& row : sweep.rows) {
    if (row.repetitions.empty()) continue;
    out << "<details><summary>" << escaped(label_of(sweep, row))
        << "</summary>\n<div class=\"scroll\"><table>\n<tr>";
    for (const char* head : {"round", "seed", "started", "status", "img/s", "sustained img/s",
                             "batches ready, start", "and end", "steps", "step ms, median",
                             "input wait ms, median", "device idle ms, median", "device idle %"}) {
      out << "<th>" << head << "</th>";
    }
    out << "</tr>\n";
    for (const Repetition& repetition : row.repetitions) {
      const RunResult& run = repetition.result;
      out << fmt::format(
          "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.1f}</"
          "td><td>{:.0f}</td>"
          "<td>{:.0f}</td><td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.1f}</td></"
          "tr>\n",
          repetition.round + 1, run.config.seed, escaped(run.started), to_string(run.status),
          run.img_per_s, run.sustained_img_per_s, run.reserve_start, run.reserve_end,
          run.step_ms.size(), median(run.step_ms), median(run.input_wait_ms),
          median(run.device_idle_ms), run.device_idle_percent);
    }
    out << "</table></div></details>\n";
  }
}

void write(const SweepResult& sweep, const ReportStyle&, std::ostream& out) {
  out << "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<title>Penstock: what input costs</title>\n<style>"
      << kStyle << "</style>\n</head>\n<body>\n<h1>What input costs</h1>\n<p>"
      << escaped(headline(sweep)) << "</p>\n";
  if (!sweep.warnings.empty()) out << "<div class=\"warnings\">\n";
  for (const std::string& warning : sweep.warnings) {
    out << "<p>Warning: " << escaped(warning) << ".</p>\n";
  }
  if (!sweep.warnings.empty()) out << "</div>\n";
  write_rows(sweep, out);
  out << "<h2>How to read it</h2>\n<ul>\n";
  for (const std::string& line : how_to_read(sweep)) out << "<li>" << escaped(line) << "</li>\n";
  out << "<li>Bars: medians; the mark inside spans the lowest and the highest "
         "repetition.</li>\n</ul>\n";
  write_repetitions(sweep, out);
  out << "<h2>Where it ran</h2>\n<dl>\n";
  for (const auto& [name, value] : environment_lines(sweep)) {
    out << "<dt>" << escaped(name) << "</dt><dd>" << escaped(value) << "</dd>\n";
  }
  out << "</dl>\n<h2>To measure it again</h2>\n<pre>" << escaped(sweep.command)
      << "</pre>\n</body>\n</html>\n";
}

}  // namespace

extern constinit const ReportEntry html_report{
    .name = "html",
    .summary = "one page that needs nothing else",
    .file = "report.html",
    .write = write,
};

}  // namespace penstock
