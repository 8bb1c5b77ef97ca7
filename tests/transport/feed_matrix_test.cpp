// SPDX-License-Identifier: Apache-2.0
// Every format over every transport and in every topology: each batch that was sent arrives once,
// at one consumer, whole, and all sums agree.

#include <memory>
#include <mutex>
#include <tuple>

#include "tests/support/entry_names.h"
#include "tests/transport/feed.h"
#include "tests/transport/raw_producer.h"

namespace penstock::transport {
namespace {

enum class Transport : std::uint8_t { ipc_file, ipc_abstract, tcp };

struct Topology {
  const char* name;
  bool producers_bind;
  std::int32_t producers;
  std::size_t consumers;
};
void PrintTo(const Topology& topology, std::ostream* out) { *out << topology.name; }

constexpr Topology kTopologies[] = {
    {"consumer_binds_1_producer", false, 1, 1},  {"consumer_binds_3_producers", false, 3, 1},
    {"producer_binds_1_consumer", true, 1, 1},   {"producer_binds_2_consumers", true, 1, 2},
    {"3_producers_bind_1_consumer", true, 3, 1}, {"2_producers_bind_2_consumers", true, 2, 2},
};

using Cell = std::tuple<Format, Transport, Topology>;

class FeedMatrix : public ::testing::TestWithParam<Cell> {
 protected:
  static constexpr std::int32_t kBatches = 40;  // of each producer

  /// Number 0, 1, ... where several sides bind.
  std::string endpoint(std::int32_t number) const {
    const std::string name = "feed" + std::to_string(number);
    switch (std::get<Transport>(GetParam())) {
      case Transport::ipc_file:
        return "ipc://" + (folder_ / name).native();
      case Transport::ipc_abstract:
        return "ipc://@" + folder_.path().filename().native() + name;
      case Transport::tcp:
        break;
    }
    return "tcp://127.0.0.1:*";
  }
  bool is_tcp() const { return std::get<Transport>(GetParam()) == Transport::tcp; }
  static void produce(RawProducer& producer, std::int32_t number) {
    for (std::int32_t batch = 0; batch < kBatches; ++batch) {
      producer.send(message_of(std::get<Format>(GetParam()), kTiny, {number, batch}));
    }
  }

  TempFolder folder_;
};

TEST_P(FeedMatrix, EveryBatchArrivesOnceAtOneConsumer) {
  const Topology topology = std::get<Topology>(GetParam());
  std::vector<std::unique_ptr<RawProducer>> producers;  // stay until all has been read
  std::string where = topology.producers_bind ? "" : endpoint(0);
  for (std::int32_t number = 0; topology.producers_bind && number < topology.producers; ++number) {
    producers.push_back(std::make_unique<RawProducer>(endpoint(number), RawProducer::Side::binds));
    where += (number == 0 ? "connect:" : "+connect:") + producers.back()->address();
  }
  std::vector<std::unique_ptr<Feed>> feeds;
  for (std::size_t i = 0; i < topology.consumers; ++i) {
    feeds.push_back(std::make_unique<Feed>("hwm=2,endpoint=" + where));
  }
  if (!topology.producers_bind && is_tcp()) where = feeds[0]->address();
  for (std::int32_t number = 0; !topology.producers_bind && number < topology.producers; ++number) {
    producers.push_back(std::make_unique<RawProducer>(where, RawProducer::Side::connects));
  }
  std::vector<std::jthread> producing;
  for (std::int32_t number = 0; number < topology.producers; ++number) {
    RawProducer& producer = *producers[static_cast<std::size_t>(number)];
    if (topology.producers_bind) producer.await_peers(static_cast<int>(topology.consumers));
    producing.emplace_back([number, &producer] { produce(producer, number); });
  }

  const std::int64_t sent = std::int64_t{kBatches} * topology.producers;
  std::mutex mutex;
  std::stop_source all_here;
  Ledger all;
  std::vector<Ledger> each(topology.consumers);
  {
    std::vector<std::jthread> reading;
    for (std::size_t i = 0; i < topology.consumers; ++i) {
      reading.emplace_back([&, i] {
        try {
          while (const std::optional<BatchName> name = feeds[i]->next(all_here.get_token())) {
            each[i].arrived(*name);
            const std::lock_guard lock(mutex);
            all.arrived(*name);
            if (all.total() == sent) all_here.request_stop();
          }
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
          all_here.request_stop();
        }
      });
    }
  }
  producing.clear();
  std::int64_t received = 0, images = 0, bytes = 0, expected_bytes = 0;
  for (std::size_t i = 0; i < topology.consumers; ++i) {
    feeds[i]->stop();
    EXPECT_GT(each[i].total(), 0) << "consumer " << i;
    EXPECT_EQ(each[i].disorders(), 0) << "consumer " << i;
    EXPECT_EQ(feeds[i]->counter("messages_received"), each[i].total());
    EXPECT_EQ(feeds[i]->counter("messages_rejected"), 0) << feeds[i]->all_notes();
    if (std::get<Format>(GetParam()) == Format::framed) {
      // What a consumer knows of: all up to the last batch that it got.
      EXPECT_EQ(feeds[i]->counter("images_sent"),
                feeds[i]->counter("images_received") + feeds[i]->counter("images_missing"));
      EXPECT_TRUE(topology.consumers > 1 || feeds[i]->counter("images_missing") == 0);
      EXPECT_EQ(feeds[i]->counter("batches_duplicate"), 0);
    }
    received += feeds[i]->counter("messages_received");
    images += feeds[i]->counter("images_received");
    bytes += feeds[i]->counter("bytes_received");
  }
  for (std::int32_t number = 0; number < topology.producers; ++number) {
    all.expect_once(number, 0, kBatches);
    for (std::int32_t batch = 0; batch < kBatches; ++batch) {
      expected_bytes += bytes_of(message_of(std::get<Format>(GetParam()), kTiny, {number, batch}));
    }
  }
  EXPECT_EQ(all.total(), sent);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(images, sent * kTiny.images);
  EXPECT_EQ(bytes, expected_bytes);
}

std::string cell_name(const ::testing::TestParamInfo<Cell>& info) {
  constexpr const char* kTransports[] = {"ipc_file", "ipc_abstract", "tcp"};
  return test_name(name_of(std::get<Format>(info.param)) + "_" +
                   kTransports[static_cast<std::size_t>(std::get<Transport>(info.param))] + "_" +
                   std::get<Topology>(info.param).name);
}

INSTANTIATE_TEST_SUITE_P(All, FeedMatrix,
                         ::testing::Combine(::testing::ValuesIn(kFormats),
                                            ::testing::Values(Transport::ipc_file,
                                                              Transport::ipc_abstract,
                                                              Transport::tcp),
                                            ::testing::ValuesIn(kTopologies)),
                         cell_name);

}  // namespace
}  // namespace penstock::transport
