// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "bench/report/figures/axis.h"
#include "bench/report/figures/markup.h"
#include "bench/report/figures/quantity.h"
#include "bench/report/figures/scale.h"
#include "bench/report/figures/svg.h"

namespace penstock::report {
namespace {

constexpr std::string_view kTitle = "Time of each step of the window";
constexpr double kPlot = 190, kBins = 38;
constexpr std::size_t kMaxColumns = 160;

struct Column {
  double device = 0, starved = 0, copy = 0, late = 0;  ///< means, in ms
  double longest = 0;
};

double at_or_zero(const std::vector<double>& values, std::size_t index) {
  const double value = index < values.size() ? values[index] : 0;
  return std::isfinite(value) && value > 0 ? value : 0;
}

bool has_causes(const StepSeries& times) {
  return !times.starved_ms.empty() || !times.copy_exposed_ms.empty() || !times.late_ms.empty();
}

/// Groups the steps of the window into columns of `stride` steps each.
std::vector<Column> columns_of(const StepSeries& times, std::size_t stride) {
  std::vector<Column> columns;
  for (std::size_t begin = 0; begin < times.step_ms.size(); begin += stride) {
    Column column;
    const std::size_t end = std::min(begin + stride, times.step_ms.size());
    const double share = 1 / static_cast<double>(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      const double step = at_or_zero(times.step_ms, i);
      double left = step;
      const auto take = [&](const std::vector<double>& values, double& sum) {
        const double part = std::min(at_or_zero(values, i), left);
        left -= part;
        sum += part * share;
      };
      take(times.starved_ms, column.starved);
      take(times.copy_exposed_ms, column.copy);
      take(times.late_ms, column.late);
      if (!has_causes(times)) take(times.idle_ms, column.starved);
      column.device += left * share;
      column.longest = std::max(column.longest, step);
    }
    columns.push_back(column);
  }
  return columns;
}

/// The end of the axis: above all steps except the longest few.
double limit_of(const StepSeries& times) {
  std::vector<double> sorted;
  for (const double step : times.step_ms) sorted.push_back(std::isfinite(step) ? step : 0);
  std::ranges::sort(sorted);
  const double most = sorted.back();
  const double usual = sorted[(sorted.size() - 1) * 98 / 100];
  const double floor = times.ceiling_ms.value_or(0);
  return rounded_up(1.04 * std::max(most <= 1.6 * usual ? most : 1.3 * usual, floor), 6);
}

/// Draws one part of every column on top of `base`, and raises `base`.
void draw_part(Svg& svg, const std::vector<Column>& columns, double Column::*part,
               std::vector<double>& base, const Scale& x, const Scale& y,
               std::string_view classes) {
  std::vector<Point> upper, lower;
  bool any = false;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const double left = x(static_cast<double>(i)), right = x(static_cast<double>(i + 1));
    lower.push_back({left, y(base[i])});
    lower.push_back({right, y(base[i])});
    base[i] += columns[i].*part;
    upper.push_back({left, y(base[i])});
    upper.push_back({right, y(base[i])});
    any = any || columns[i].*part > 0;
  }
  if (!any) return;
  upper.insert(upper.end(), lower.rbegin(), lower.rend());
  svg.polygon(upper, classes);
}

/// `device` is the class of the time in which the device did not wait.
void draw_columns(Svg& svg, const std::vector<Column>& columns, const Scale& x, const Scale& y,
                  bool grouped, std::string_view device) {
  std::vector<double> base(columns.size(), 0);
  draw_part(svg, columns, &Column::device, base, x, y, device);
  draw_part(svg, columns, &Column::late, base, x, y, "interference");
  draw_part(svg, columns, &Column::copy, base, x, y, "transfer");
  draw_part(svg, columns, &Column::starved, base, x, y, "starvation");
  std::vector<Point> longest;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const double middle = x(static_cast<double>(i) + 0.5), top = y.to();
    const bool inside = y.holds(columns[i].longest);
    if (inside && grouped) longest.push_back({middle, y(columns[i].longest)});
    if (inside) continue;
    svg.polygon(std::array{Point{middle - 3, top}, Point{middle + 3, top}, Point{middle, top - 5}},
                "ink");
  }
  svg.dots(longest, 1, "ink");
}

void draw_histogram(Svg& svg, const StepSeries& times, const Scale& y, double left, double right) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(kBins), 0);
  for (const double step : times.step_ms) {
    if (!std::isfinite(step) || !y.holds(step)) continue;
    const double bin = (step - y.low()) / (y.high() - y.low()) * kBins;
    ++counts[static_cast<std::size_t>(std::min(bin, kBins - 1))];
  }
  const std::size_t most = std::max<std::size_t>(std::ranges::max(counts), 1);
  const double height = kPlot / kBins;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const double from = y.high() / kBins * static_cast<double>(i);
    const double length =
        std::max((right - left) * static_cast<double>(counts[i]) / static_cast<double>(most), 1.0);
    svg.box({left, y(from) - height + 0.5, length, height - 1}, "device faint",
            fmt::format("{} to {} ms: {} steps", number_text(from),
                        number_text(from + y.high() / kBins), counts[i]));
  }
  svg.line({left, y.from()}, {left, y.to()}, "axis");
}

std::string summary_of(const StepSeries& times, double limit) {
  std::vector<double> sorted = times.step_ms;
  std::ranges::sort(sorted);
  const auto share = [&](std::size_t percent) {
    return sorted[(sorted.size() - 1) * percent / 100];
  };
  std::string text = fmt::format("{} steps: median {}, 95 % within {}, longest {}.", sorted.size(),
                                 quantity_text(share(50), "ms"), quantity_text(share(95), "ms"),
                                 quantity_text(sorted.back(), "ms"));
  const auto above = std::ranges::count_if(sorted, [&](double step) { return step > limit; });
  if (above > 0) {
    text += fmt::format(" {} above {} (triangles).", above, quantity_text(limit, "ms"));
  }
  return text;
}

std::vector<LegendEntry> legend_of(const StepSeries& times) {
  const auto any = [](const std::vector<double>& values) {
    return std::ranges::any_of(values, [](double value) { return value > 0; });
  };
  if (!has_causes(times) && times.idle_ms.empty()) return {{"residual", "the whole step"}};
  std::vector<LegendEntry> entries{{"device", "computing"}};
  if (!has_causes(times)) entries.push_back({"starvation", "idle"});
  if (any(times.starved_ms)) entries.push_back({"starvation", "no batch ready"});
  if (any(times.copy_exposed_ms)) entries.push_back({"transfer", "waiting for the copy"});
  if (any(times.late_ms)) entries.push_back({"interference", "host late"});
  return entries;
}

}  // namespace

std::string step_times_figure(const StepSeries& times, const FigureSize& size) {
  const bool known = std::ranges::any_of(
      times.step_ms, [](double step) { return std::isfinite(step) && step > 0; });
  if (!known) return sentence_figure(size, kTitle, "No step of this window was timed.");
  const double limit = limit_of(times);
  const std::string summary = summary_of(times, limit);
  Svg svg(size, std::string(kTitle), summary);
  double top = svg.paragraph({0, 14}, size.width, summary, "soft") - 10;
  top = legend(svg, 0, top, size.width, legend_of(times)) + 30;
  const Scale y(0, limit, top + kPlot, top);
  const double left = vertical_axis_width(y);
  const double right = size.width * 0.78, histogram = right + 14;
  const std::size_t steps = times.step_ms.size();
  const std::size_t fitting =
      std::min(kMaxColumns, static_cast<std::size_t>(std::max(right - left, 40.0) / 2));
  const std::size_t stride = (steps + fitting - 1) / fitting;
  const std::vector<Column> columns = columns_of(times, stride);
  vertical_axis(svg, y, left, size.width, {"ms"});
  draw_columns(svg, columns, {0, static_cast<double>(columns.size()), left, right}, y, stride > 1,
               legend_of(times).front().classes);
  draw_histogram(svg, times, y, histogram, size.width);
  if (times.ceiling_ms && y.holds(*times.ceiling_ms)) {
    svg.line({left, y(*times.ceiling_ms)}, {size.width, y(*times.ceiling_ms)}, "demand");
    const std::string text = fmt::format("device alone {}", quantity_text(*times.ceiling_ms, "ms"));
    const double words = size.width - text_width(text, Svg::kSmall) - 6;
    svg.line({words - 26, top - 16}, {words, top - 16}, "demand");
    svg.text({size.width, top - 12}, text, "small demand-text", Anchor::end);
  }
  const double bottom = top + kPlot;
  const std::string title =
      stride > 1 ? fmt::format("step; columns of {}, dots: the longest of each", stride) : "step";
  horizontal_axis(svg, {0, static_cast<double>(steps), left, right}, bottom, bottom, {title, true});
  svg.text({size.width, bottom + 15}, "histogram", "small soft", Anchor::end);
  return std::move(svg).finish(bottom + kAxisHeight);
}

}  // namespace penstock::report
