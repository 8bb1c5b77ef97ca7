// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/projection/published_scaling.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "penstock_published_scaling_json.h"

namespace penstock::scaling {
namespace {

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
      return std::find(fit.begin(), fit.end(), constant) != fit.end();
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

std::span<const PublishedSeries> published_scaling() { return published().series; }

std::span<const std::string> left_out() { return published().left_out; }

}  // namespace penstock::scaling
