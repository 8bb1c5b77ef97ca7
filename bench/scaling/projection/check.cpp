// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/projection/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/record/statistics.h"
#include "bench/scaling/projection/measured_step.h"
#include "bench/scaling/projection/topology.h"
#include "penstock_published_scaling_json.h"

namespace penstock::scaling {

namespace {

/// The search range of a constant; the grid is logarithmic unless the constant may be 0.
struct Range {
  double low, high;
  bool logarithmic;
};
constexpr Range kPerImage{0.02, 5000, true}, kBandwidth{0.01, 1000, true}, kJitter{0, 1, false};
constexpr int kGrid = 21, kRounds = 40;
constexpr double kNarrowing = 0.7;  // from round to round

double between(const Range& range, double share) {
  if (!range.logarithmic) return range.low + share * (range.high - range.low);
  return range.low * std::pow(range.high / range.low, share);
}

/// A range around `middle` of `share` times the width of `whole`, clipped to `whole`.
Range around(double middle, const Range& whole, double share) {
  if (whole.logarithmic) {
    const double factor = std::pow(whole.high / whole.low, share / 2);
    return {std::max(whole.low, middle / factor), std::min(whole.high, middle * factor), true};
  }
  const double half = share / 2 * (whole.high - whole.low);
  return {std::max(whole.low, middle - half), std::min(whole.high, middle + half), false};
}

double worst_fitted(const PublishedSeries& series, const FittedConstants& constants) {
  double worst = 0;
  for (const PublishedPoint& point : series.points) {
    if (!point.fitted) continue;
    const double modelled = modelled_img_per_s(point, series.gradient_mb, constants);
    worst = std::max(worst, std::fabs(std::log(modelled / point.img_per_s)));
  }
  return worst;
}

struct Search {
  Range per_image, bandwidth, jitter;
};

/// The best point of the grid over the open constants.
FittedConstants best_of(const PublishedSeries& series, const Search& search) {
  const auto steps = [](bool open) { return open ? kGrid : 1; };
  double least = std::numeric_limits<double>::infinity();
  FittedConstants best;
  for (int i = 0; i < steps(series.open.per_image); ++i) {
    for (int k = 0; k < steps(series.open.bandwidth); ++k) {
      for (int m = 0; m < steps(series.open.jitter); ++m) {
        const auto at = [](const Range& range, bool open, int step) {
          return open ? between(range, step / (kGrid - 1.0)) : 0;
        };
        const FittedConstants tried{.ms_per_image = at(search.per_image, series.open.per_image, i),
                                    .gb_per_s = at(search.bandwidth, series.open.bandwidth, k),
                                    .jitter = at(search.jitter, series.open.jitter, m)};
        const double worst = worst_fitted(series, tried);
        if (worst >= least) continue;
        least = worst;
        best = tried;
      }
    }
  }
  return best;
}

std::string constants_text(const CheckedSeries& checked) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  const OpenConstants& open = checked.series->open;
  if (open.per_image) add(fmt::format("{:.3g} ms per image", checked.constants.ms_per_image));
  if (open.bandwidth) add(fmt::format("exchange at {:.3g} GB/s", checked.constants.gb_per_s));
  if (open.jitter) add(fmt::format("jitter {:.3g} of a step", checked.constants.jitter));
  return text;
}

int open_count(const OpenConstants& open) {
  return (open.per_image ? 1 : 0) + (open.bandwidth ? 1 : 0) + (open.jitter ? 1 : 0);
}

/// Avoids the sign of a rounded zero.
double percent(double error) { return std::fabs(error) < 5e-4 ? 0 : 100 * error; }

void write_points(const CheckedSeries& checked, bool fitted, std::ostream& out) {
  const PublishedSeries& series = *checked.series;
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    const PublishedPoint& point = series.points[i];
    if (point.fitted != fitted) continue;
    const double modelled = modelled_img_per_s(point, series.gradient_mb, checked.constants);
    const int decimals = point.img_per_s < 100 ? 2 : 0;
    out << fmt::format("  {:<9}  {:>5} ranks, batch {:>3}  {:>9.{}f}  {:>9.{}f}  {:>+6.1f} %{}{}\n",
                       fitted ? "fitted" : "predicted", point.ranks, point.batch, point.img_per_s,
                       decimals, modelled, decimals, percent(checked.errors[i]),
                       point.model.empty() ? "" : "  ", point.model);
  }
}

struct Errors {
  std::vector<double> sizes;  ///< of relative errors, in per cent
  std::string_view worst_series;

  void add(double error, std::string_view series) {
    const double size = 100 * std::fabs(error);
    if (sizes.empty() || size > std::ranges::max(sizes)) worst_series = series;
    sizes.push_back(size);
  }
  std::string text() const {
    if (sizes.empty()) return "none";
    const Spread all = spread(sizes);
    return fmt::format("median error {:.1f} %, worst {:.1f} % ({})", all.median, all.high,
                       worst_series);
  }
};

using Json = nlohmann::json;

struct Published {
  std::vector<PublishedSeries> series;
  std::vector<std::string> left_out;
};

/// Some sources give the rate of one device, and what share of it each of many devices reaches.
PublishedPoint read_point(const Json& json) {
  PublishedPoint point{.ranks = json.at("ranks"),
                       .batch = json.at("batch"),
                       .fitted = json.at("use") == "fitted",
                       .model = json.value("model", ""),
                       .gradient_mb = json.value("gradient_mb", 0.0)};
  const double alone = json.value("alone_img_per_s", 0.0);
  if (alone > 0) point.ms_per_image = 1e3 / alone;
  point.img_per_s = json.contains("img_per_s")
                        ? json.at("img_per_s").get<double>()
                        : point.ranks * json.at("efficiency").get<double>() * alone;
  return point;
}

Published read_published() {
  const Json file = Json::parse(kPublishedScaling);
  Published published{.series = {}, .left_out = file.at("left_out")};
  for (const Json& group : file.at("published")) {
    const Json& fit = group.at("fit");
    const auto fits = [&fit](const char* constant) {
      return std::ranges::find(fit, constant) != fit.end();
    };
    for (const Json& json : group.at("series")) {
      PublishedSeries series{.name = json.at("name"),
                             .source = group.at("source"),
                             .caveat = group.value("caveat", ""),
                             .gradient_mb = json.at("gradient_mb"),
                             .open = {.per_image = fits("per_image"),
                                      .bandwidth = fits("bandwidth"),
                                      .jitter = fits("jitter")}};
      for (const Json& point : json.at("points")) series.points.push_back(read_point(point));
      published.series.push_back(std::move(series));
    }
  }
  return published;
}

const Published& published() {
  static const Published read = read_published();
  return read;
}

}  // namespace

double modelled_img_per_s(const PublishedPoint& point, double gradient_mb,
                          const FittedConstants& constants) {
  const double per_image = point.ms_per_image > 0 ? point.ms_per_image : constants.ms_per_image;
  const double compute = point.batch * per_image;
  const double megabytes = point.gradient_mb > 0 ? point.gradient_mb : gradient_mb;
  const double exchange =  // MB over GB/s are ms
      constants.gb_per_s > 0
          ? 2 * (point.ranks - 1.0) / point.ranks * megabytes / constants.gb_per_s
          : 0;
  const double step = compute * (1 + constants.jitter * slowest_of(point.ranks)) +
                      hidden_share(exchange, compute, kHidden).exposed_ms;
  return 1e3 * point.ranks * point.batch / step;
}

FittedConstants fit(const PublishedSeries& series) {
  Search search{kPerImage, kBandwidth, kJitter};
  FittedConstants best;
  double share = 1;
  for (int round = 0; round < kRounds; ++round) {
    best = best_of(series, search);
    share *= kNarrowing;
    search = {around(best.ms_per_image, kPerImage, share), around(best.gb_per_s, kBandwidth, share),
              around(best.jitter, kJitter, share)};
  }
  return best;
}

CheckedSeries check(const PublishedSeries& series) {
  CheckedSeries checked{.series = &series, .constants = fit(series), .errors = {}};
  for (const PublishedPoint& point : series.points) {
    checked.errors.push_back(
        modelled_img_per_s(point, series.gradient_mb, checked.constants) / point.img_per_s - 1);
  }
  return checked;
}

void write_check_text(std::span<const CheckedSeries> checked, std::ostream& out) {
  Errors fitted, predicted;
  out << "Published scaling against the formula, img/s of all devices: published, modelled, "
         "error.\n";
  for (const CheckedSeries& each : checked) {
    const PublishedSeries& series = *each.series;
    out << fmt::format("\n{} ({})\n", series.name, series.source);
    if (!series.caveat.empty()) out << fmt::format("  caveat: {}\n", series.caveat);
    std::size_t points = 0;
    for (std::size_t i = 0; i < series.points.size(); ++i) {
      (series.points[i].fitted ? fitted : predicted).add(each.errors[i], series.name);
      points += series.points[i].fitted ? 1 : 0;
    }
    out << fmt::format("  {} constants from {} points: {}\n", open_count(series.open), points,
                       constants_text(each));
    write_points(each, true, out);
    write_points(each, false, out);
  }
  out << fmt::format(
      "\n{} fitted points: {}. They show that the formula can take such a shape, not that it is "
      "right:\nmost series have as many constants as fitted points.\n{} predicted points: {}. "
      "These were not used for any constant.\n",
      fitted.sizes.size(), fitted.text(), predicted.sizes.size(), predicted.text());
  out << fmt::format(
      "Points of a series share machines, software and authors, so that other machines may be "
      "further off.\nThe form was chosen with these figures in view, and the share of a step that "
      "hides exchange ({:g}) too.\nBandwidths that fit are far below the links' labels: project "
      "with a measured one.\n\nLeft out:\n",
      kHidden);
  for (const std::string& why : left_out()) out << "  " << why << ".\n";
}

std::span<const PublishedSeries> published_scaling() { return published().series; }

std::span<const std::string> left_out() { return published().left_out; }

}  // namespace penstock::scaling
