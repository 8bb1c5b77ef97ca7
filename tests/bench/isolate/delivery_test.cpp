// SPDX-License-Identifier: Apache-2.0
// Finds the slow side in made-up runs: producers, networks and consumers with known speeds.
#include "bench/isolate/delivery.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/isolate/delivery_recommendations.h"
#include "bench/isolate/isolation_json.h"
#include "bench/isolate/isolation_report.h"
#include "bench/isolate/predictions.h"
#include "tests/bench/isolate/isolation_fixture.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

constexpr double kWindow = 10;  // s
constexpr std::int32_t kBatch = 64;

/// The supply of a device that could take 12,800 img/s. Times are per batch, in ms.
struct Feed {
  double batches_per_s = 20;
  double producers = 2;
  double making = 100, holding = 0, way = 1;
  bool timed = true, begun = true;
  double receiving = 0.64, unpacking = 1.28;
  double waits_in = 0.95, waits_out = 0;  // shares of the receiver's time
  double bound_us = 0;                    // of clocks; below 0: not known
  std::string feeder = "zmq-consume:endpoint=ipc://feed";
};

StageUse stage(const char* name, const char* workers, StageRole role, double batches, double ms) {
  const auto items = static_cast<std::int64_t>(batches);
  return {.name = name,
          .workers = workers,
          .role = role,
          .images = items * kBatch,
          .items = items,
          .timed_items = items,
          .cpu_s = 1e-3 * ms * batches,
          .wall_s = 1e-3 * ms * batches};
}

Row row_of(const Feed& feed) {
  const double batches = feed.batches_per_s * kWindow;
  RunResult result;
  result.config.fake_location = feed.feeder;
  result.config.batch_size = kBatch;
  result.images_per_step = kBatch;
  result.window_s = kWindow;
  result.img_per_s = feed.batches_per_s * kBatch;
  result.step_ms.assign(100, 1e3 / feed.batches_per_s);
  result.stages = {stage("receive", "receiver", StageRole::receives, batches, feed.receiving),
                   stage("unpack", "receiver", StageRole::unpacks, batches, feed.unpacking),
                   stage("copy", "stager", StageRole::copies, batches, 0.1)};
  result.stages[0].wait_in_s = feed.waits_in * kWindow;
  result.stages[1].wait_out_s = feed.waits_out * kWindow;
  QueueUse ring;
  ring.name = "host ring";
  ring.slots = 3;
  ring.mean_filled = 0.5;
  result.queues = {ring};
  result.counters["producers_seen"] = static_cast<std::int64_t>(feed.producers);
  if (feed.timed) {
    result.facts["batches_timed_in_window"] = batches;
    if (feed.begun) result.facts["producing_window_mean_s"] = 1e-3 * feed.making;
    result.facts["socket_wait_window_mean_s"] = 1e-3 * feed.holding;
    result.facts["hand_off_window_mean_s"] = 1e-3 * feed.way;
  }
  if (feed.bound_us > 0) result.facts["hand_off_clock_bound_us"] = feed.bound_us;
  if (feed.bound_us < 0) result.facts["hand_off_clocks_unknown"] = 1;
  Row row;
  row.config = result.config;
  for (std::int32_t block = 0; block < 3; ++block) row.repetitions.push_back({block, result});
  return row;
}

class DeliveryTest : public testing::Test {
 protected:
  const isolate::DeliveryFinding& find(const Feed& feed, double cost_percent = 50) {
    row_ = row_of(feed);
    analysis::InputCostFinding cost;
    cost.ceiling_img_per_s.value = 12800;
    cost.coupled_img_per_s.value = feed.batches_per_s * kBatch;
    cost.percent.value = cost_percent;
    cost.verdict = cost_percent > 1 ? statistics::Verdict::slower : statistics::Verdict::equal;
    cost.split.starvation_ms.value = cost_percent / 2;
    diagnosis_ = analysis::diagnose({.coupled = row_, .cost = cost, .has_producer = true});
    found_ = *isolate::find_delivery(row_, ladder_, diagnosis_);
    recommendations_ = isolate::delivery_recommendations({.config = row_.config,
                                                          .diagnosis = diagnosis_,
                                                          .delivery = found_,
                                                          .now = cost.coupled_img_per_s.value,
                                                          .demand = 12800,
                                                          .cores = 2});
    return found_;
  }
  void add_rung(isolate::Side part, double img_per_s) {
    isolate::RungFinding& rung = ladder_.emplace_back();
    rung.part = part;
    rung.supply_img_per_s = statistics::Estimate{img_per_s, img_per_s, img_per_s, 3};
  }
  std::string said() const {
    std::string all;
    for (const std::string& sentence : isolate::delivery_sentences(found_)) all += sentence + "\n";
    return all;
  }
  const analysis::StageFinding& bottleneck() const {
    return diagnosis_.stages.at(*diagnosis_.bottleneck);
  }

  std::vector<isolate::RungFinding> ladder_;
  Row row_;
  analysis::Diagnosis diagnosis_;
  isolate::DeliveryFinding found_;
  std::vector<isolate::Recommendation> recommendations_;
};

TEST_F(DeliveryTest, ProducersThatAreAlwaysBusyAreToBlame) {
  const isolate::DeliveryFinding& found = find({});  // two producers of 10 batches a second each
  EXPECT_EQ(found.blame, isolate::Side::producer);
  EXPECT_NEAR(*found.making_percent, 100, 1e-9);
  EXPECT_NEAR(*found.held_percent, 0, 1e-9);
  EXPECT_NEAR(found.came_img_per_s, 1280, 1e-9);
  EXPECT_NEAR(*found.producers_img_per_s, 1280, 1e-9);
  EXPECT_EQ(bottleneck().name, "produce");
  EXPECT_TRUE(says(said(), "its 2 producers made 1280 img/s, busy for 100 % of the time"));
  EXPECT_TRUE(says(said(), "Times are by one clock"));
  ASSERT_EQ(recommendations_.size(), 1U);
  EXPECT_NEAR(recommendations_.front().img_per_s, 12800, 1e-6);
  EXPECT_TRUE(says(recommendations_.front().text,
                   "20 producers like these 2, 18 more (penstock serve "
                   "--processes 20)"));
}

TEST_F(DeliveryTest, PartsAreMeansOfABatchAndDepthsFollowByLittle) {
  const isolate::DeliveryFinding& found = find({.making = 90, .holding = 5, .way = 10});
  ASSERT_EQ(found.parts.size(), 5U);
  EXPECT_NEAR(found.parts[0].ms.value, 90, 1e-9);
  EXPECT_NEAR(found.parts[1].ms.value, 5, 1e-9);
  EXPECT_NEAR(found.parts[2].ms.value, 10, 1e-9);
  EXPECT_EQ(found.parts[2].side, isolate::Side::network);
  EXPECT_NEAR(found.parts[3].ms.value, 1.92, 1e-9);  // received and copied
  EXPECT_NEAR(found.parts[4].ms.value, 25, 1e-9);    // 0.5 batches at 20 a second
  double percent = 0;
  for (const isolate::DeliveryPart& part : found.parts) percent += part.percent;
  EXPECT_NEAR(percent, 100, 1e-9);
  EXPECT_NEAR(*found.ready, 0.1, 1e-9);
  EXPECT_NEAR(*found.under_way, 0.2, 1e-9);
}

TEST_F(DeliveryTest, ALinkThatIsTooSlowIsToBlameWhereProducersHaveBatchesReady) {
  add_rung(isolate::Side::consumer, 9000);
  const isolate::DeliveryFinding& found =
      find({.producers = 1, .making = 5, .holding = 100, .way = 150, .bound_us = 35});
  EXPECT_EQ(found.blame, isolate::Side::network);
  EXPECT_NEAR(*found.making_percent, 10, 1e-9);
  EXPECT_NEAR(*found.held_percent, 100, 1e-9);
  EXPECT_NEAR(*found.ready, 2, 1e-9);
  EXPECT_NEAR(*found.under_way, 3, 1e-9);
  EXPECT_NEAR(*found.producers_img_per_s, 12800, 1e-9);
  EXPECT_EQ(bottleneck().workers, "network");
  EXPECT_TRUE(says(said(), "corrected to within 35 us"));
  ASSERT_EQ(recommendations_.size(), 1U) << "no shared memory between machines";
  EXPECT_TRUE(says(recommendations_.front().text, "--encoded"));
  find({.producers = 1, .making = 5, .holding = 100, .way = 150});
  ASSERT_EQ(recommendations_.size(), 2U);
  EXPECT_TRUE(says(recommendations_.front().text, "--shared-memory"));
  EXPECT_NEAR(recommendations_.front().img_per_s, 9000, 1e-6)
      << "what the consumer does out of memory";
}

TEST_F(DeliveryTest, AProducerThatMakesBatchesAheadIsNotToBlame) {
  // The producers are busy with the next batches all the time, while one batch is always ready.
  EXPECT_EQ(find({.producers = 1, .making = 200, .holding = 60}).blame, isolate::Side::network);
}

TEST_F(DeliveryTest, WithoutABeginReadyBatchesTell) {
  EXPECT_EQ(find({.holding = 1, .begun = false}).blame, isolate::Side::producer);
  EXPECT_FALSE(found_.making_percent);
  EXPECT_FALSE(found_.producers_img_per_s);
  EXPECT_EQ(find({.holding = 80, .begun = false}).blame, isolate::Side::network);
}

TEST_F(DeliveryTest, AReceiverThatIsAlwaysBusyIsToBlameAndMoreOfThemHelp) {
  // 20 batches per second at 50 ms each: a quarter of that time alone, the rest on as many threads.
  const isolate::DeliveryFinding& found = find({.making = 1,
                                                .holding = 90,
                                                .receiving = 12.5,
                                                .unpacking = 37.5,
                                                .waits_in = 0,
                                                .feeder = "zmq-consume:endpoint='ipc://a,b'"});
  EXPECT_EQ(found.blame, isolate::Side::consumer);
  EXPECT_NEAR(found.receiving_percent, 100, 1e-9);
  ASSERT_EQ(recommendations_.size(), 1U);
  EXPECT_NEAR(recommendations_.front().img_per_s, 2 * 1280, 1e-6);
  EXPECT_EQ(recommendations_.front().config.fake_location,
            "zmq-consume:endpoint='ipc://a,b',receivers=2");
  EXPECT_EQ(recommendations_.front().change,
            "--fake-location " + recommendations_.front().config.fake_location);
}

TEST_F(DeliveryTest, AReceiverThatIsBusierThanItWaitsDoesNotWaitForItsProducer) {
  find({.receiving = 15, .unpacking = 15, .waits_in = 0.4});  // busy for 60 % of its time
  EXPECT_EQ(bottleneck().workers, "receiver");
  find({.receiving = 10, .unpacking = 10, .waits_in = 0.6});  // busy for 40 %
  EXPECT_EQ(bottleneck().workers, "producer");
}

TEST_F(DeliveryTest, MoreReceiversTakeNoMoreThanOneThreadReceives) {
  find({.receiving = 40, .unpacking = 10, .waits_in = 0});
  ASSERT_EQ(recommendations_.size(), 1U);
  EXPECT_NEAR(recommendations_.front().img_per_s, 25 * kBatch, 1e-6);
}

TEST_F(DeliveryTest, NoPartIsToBlameIfTheTrainerIsSaturated) {
  const isolate::DeliveryFinding& found =
      find({.holding = 95, .waits_in = 0, .waits_out = 0.98}, 0.2);
  EXPECT_EQ(found.blame, isolate::Side::none);
  EXPECT_TRUE(says(said(), "Neither the producer"));
  EXPECT_TRUE(recommendations_.empty());
}

TEST_F(DeliveryTest, WithoutTimesTheTransportsOwnRateMayTell) {
  EXPECT_EQ(find({.timed = false}).blame, isolate::Side::producer_or_network);
  EXPECT_TRUE(says(said(), "use the format framed"));
  EXPECT_EQ(bottleneck().name, "send");
  EXPECT_EQ(found_.parts.size(), 2U) << "what this process sees itself";
  add_rung(isolate::Side::network, 1.5 * 1280);
  EXPECT_EQ(find({.timed = false}).blame, isolate::Side::producer_or_network);
  ladder_.clear();
  add_rung(isolate::Side::network, 5 * 1280);
  EXPECT_EQ(find({.timed = false}).blame, isolate::Side::producer);
  EXPECT_TRUE(says(said(), "the transport alone carries 6400"));
  ASSERT_FALSE(recommendations_.empty());
  EXPECT_NEAR(recommendations_.front().img_per_s, 6400, 1e-6)
      << "no more than the transport carries";
}

TEST_F(DeliveryTest, ATransportWithoutTheirWireTellsNothingOfTheProducers) {
  const Feed feed{.timed = false, .feeder = "zmq-consume:endpoint=tcp://0.0.0.0:5555"};
  add_rung(isolate::Side::network, 5 * 1280);
  EXPECT_EQ(find(feed).blame, isolate::Side::producer);
  ladder_.back().own_producer = true;
  EXPECT_EQ(find(feed).blame, isolate::Side::producer_or_network);
}

TEST_F(DeliveryTest, UnknownClocksAreReported) {
  find({.bound_us = -1});
  EXPECT_TRUE(says(said(), "from the fastest one"));
  EXPECT_TRUE(says(said(), "zmq-consume:credit=N"));
}

TEST_F(DeliveryTest, ReportsCarryTheParts) {
  isolate::Isolation isolation = make_isolation();
  isolation.delivery = find({.making = 90, .holding = 5, .way = 10});
  const auto json = isolate::to_json(isolation);
  EXPECT_EQ(json["delivery"]["blame"], "producer");
  EXPECT_EQ(json["delivery"]["parts"].size(), 5U);
  EXPECT_EQ(json["delivery"]["parts"][2]["side"], "network");
  EXPECT_NEAR(json["delivery"]["batches_under_way"].get<double>(), 0.2, 1e-9);
  std::ostringstream text, page;
  isolate::write_isolation_text(isolation, text);
  EXPECT_TRUE(says(text.str(), "on its way"));
  isolate::write_isolation_page(isolation, page);
  EXPECT_TRUE(says(page.str(), "Producer, network, consumer"));
  EXPECT_TRUE(says(page.str(), "made (producer) 90.0 ms"));
  isolation.delivery.reset();
  EXPECT_TRUE(isolate::to_json(isolation)["delivery"].is_null());
}

}  // namespace
}  // namespace penstock
