// SPDX-License-Identifier: Apache-2.0
#include "bench/isolate/delivery_recommendations.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "dataflow/options.h"

namespace penstock::isolate {
namespace {

constexpr std::int32_t kMostReceivers = 16;

class DeliveryRecommendations {
 public:
  explicit DeliveryRecommendations(const DeliveryGround& ground)
      : ground_(ground),
        delivery_(ground.delivery),
        feeder_(parse_component(ground.config.fake_location)) {}

  std::vector<Recommendation> make() {
    switch (delivery_.blame) {
      case Side::producer:
      case Side::producer_or_network:
        add_producers();
        break;
      case Side::network:
        add_other_ways();
        break;
      case Side::consumer:
        add_receivers();
        break;
      case Side::none:
        break;
    }
    return std::move(recommendations_);
  }

 private:
  /// The rate that the next bottleneck would allow, if nothing outside held the feeder up.
  double next_bound() const {
    return std::min(ground_.demand, ground_.now * ground_.diagnosis.gain_until_next);
  }

  Recommendation& add(std::string text, double img_per_s) {
    return recommendations_.emplace_back(Recommendation{
        .text = std::move(text), .change = {}, .config = ground_.config, .img_per_s = img_per_s});
  }

  void add_producers() {
    const double producers = std::max(1.0, delivery_.producers);
    const double each =
        delivery_.producers_img_per_s.value_or(delivery_.came_img_per_s) / producers;
    double most = next_bound();
    const bool carries_less =
        delivery_.transport_img_per_s && *delivery_.transport_img_per_s < most;
    if (carries_less) most = *delivery_.transport_img_per_s;
    if (!(each > 0)) return;
    const double all = std::ceil(most / each - 1e-6);
    if (all <= producers) return;
    std::string text = fmt::format(
        "{:.0f} producers like {}, {:.0f} more (penstock serve --processes {:.0f}), or faster "
        "ones: "
        "about {:.0f} img/s{}, now {:.0f}",
        all, producers == 1 ? std::string("this one") : fmt::format("these {:.0f}", producers),
        all - producers, all, most, carries_less ? ", what the transport carries" : "",
        ground_.now);
    if (delivery_.blame == Side::producer_or_network) text += "; if the network is not the limit";
    add(std::move(text), most);
  }

  void add_other_ways() {
    const double most = next_bound();
    const double copied = std::min(most, delivery_.consumer_img_per_s.value_or(most));
    if (delivery_.clocks == "one clock" && !is_on(feeder_, "shared_memory")) {
      add(fmt::format("shared memory, for producers on this machine (zmq-consume:credit=8,"
                      "shared_memory=true and penstock serve --shared-memory): at most {:.0f} "
                      "img/s, now {:.0f}",
                      copied, ground_.now),
          copied);
    }
    if (is_on(feeder_, "credit")) {
      add(fmt::format("more batches under way (zmq-consume:credit=N): at most {:.0f} img/s, now "
                      "{:.0f}",
                      most, ground_.now),
          most);
    }
    if (!is_on(feeder_, "encoded")) {
      add(fmt::format(
              "fewer bytes, image files that are decoded here (penstock serve --encoded and "
              "zmq-consume:encoded=true), or a faster link: at most {:.0f} img/s, now {:.0f}",
              most, ground_.now),
          most);
    }
  }

  void add_receivers() {
    // One thread receives by credit, and decoding has --feeder-threads.
    if (is_on(feeder_, "credit") || is_on(feeder_, "encoded")) return;
    double receiving_us = 0, copying_us = 0;
    for (const analysis::StageFinding& stage : ground_.diagnosis.stages) {
      if (stage.role == StageRole::receives) receiving_us += stage.wall_us_per_image;
      if (stage.role == StageRole::unpacks) copying_us += stage.wall_us_per_image;
    }
    if (!(receiving_us + copying_us > 0)) return;
    const double transport = delivery_.transport_img_per_s.value_or(statistics::kInfinity);
    const auto rate = [&](std::int32_t receivers) {
      const double together = 1e6 * receivers / (receiving_us + copying_us);
      const double alone = receiving_us > 0 ? 1e6 / receiving_us : together;
      return std::min({together, alone, ground_.demand, std::max(transport, ground_.now)});
    };
    constexpr const char* kReceivers = "receivers";
    const auto present = static_cast<std::int32_t>(
        parse_integer(value_of(feeder_, kReceivers).value_or("1"), kReceivers));
    const std::int32_t most = std::min(kMostReceivers, ground_.cores);
    std::int32_t best = present;
    for (std::int32_t receivers = present + 1; receivers <= most; ++receivers) {
      if (rate(receivers) > kWorthwhile * std::max(ground_.now, best > present ? rate(best) : 0)) {
        best = receivers;
      }
    }
    if (best == present) return;
    const std::string feeder = with_value(feeder_, kReceivers, std::to_string(best));
    Recommendation& recommendation =
        add(fmt::format("{} receivers ({}): about {:.0f} img/s, now {:.0f}", best, feeder,
                        rate(best), ground_.now),
            rate(best));
    recommendation.change = "--fake-location " + feeder;
    recommendation.config.fake_location = feeder;
    recommendation.settings = {
        {SettingKind::option, kReceivers, std::to_string(best), std::to_string(present)}};
  }

  const DeliveryGround& ground_;
  const DeliveryFinding& delivery_;
  const ComponentText feeder_;
  std::vector<Recommendation> recommendations_;
};

}  // namespace

std::vector<Recommendation> delivery_recommendations(const DeliveryGround& ground) {
  return DeliveryRecommendations(ground).make();
}

}  // namespace penstock::isolate
