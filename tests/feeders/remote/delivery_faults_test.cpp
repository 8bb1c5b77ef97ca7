// SPDX-License-Identifier: Apache-2.0
// A fault x a way of delivery: each fault of a producer, in each way in which zmq-consume receives
// batches and in which that fault is possible.
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/feeders/remote/credit_fixture.h"
#include "tests/support/jpeg_writer.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kCredits = 4;

/// In the order of the bits below.
struct Delivery {
  const char* name;
  const char* options;
  bool by_credit = false, is_framed = true, has_files = false, is_shared = false;
};
constexpr const char* kByCredit = ",credit=4,credit_together=4";
constexpr Delivery kDeliveries[] = {
    {.name = "Pushed", .options = "", .is_framed = false},
    {.name = "PushedFrames", .options = ""},
    {.name = "PushedFiles", .options = ",encoded=true", .has_files = true},
    {.name = "ByCredit", .options = kByCredit, .by_credit = true},
    {.name = "FilesByCredit",
     .options = ",encoded=true,credit=4,credit_together=4",
     .by_credit = true,
     .has_files = true},
    {.name = "SharedMemory", .options = kByCredit, .by_credit = true, .is_shared = true}};
void PrintTo(const Delivery& delivery, std::ostream* out) { *out << delivery.name; }

/// A producer of one delivery. Its messages carry batches of the closed-form set in order.
class Sending {
 public:
  Sending(const Delivery& delivery, const std::string& endpoint, std::uint64_t number = 7)
      : delivery_(delivery), number_(number) {
    if (delivery.by_credit) {
      credited_.emplace(endpoint, number);
    } else {
      pushing_.emplace(endpoint, false);
      pushing_->abandon();
    }
    if (delivery.is_shared) pool_.emplace();
  }

  const Delivery& delivery() const { return delivery_; }
  /// By credit: says hello and waits for all credits.
  void enter() {
    if (!credited_) return;
    remote::FramedHeader hello = header(0);
    hello.kind = remote::FramedKind::hello;
    credited_->send_hello(hello, pool_ ? pool_->hello() : bare_hello());
    credited_->await_welcome();
    credited_->await_credit(kCredits);
  }
  remote::FramedHeader header(std::uint64_t index) const {
    remote::FramedHeader header = pixels_header(kSmall, number_, index);
    if (delivery_.has_files) {
      header.encoding = remote::FramedEncoding::jpeg;
      header.height = header.width = header.channels = 0;
    }
    return header;
  }
  static FrameList payload(bool has_files, std::uint64_t index) {
    FrameList pixels = BareProducer::payload_of(index);
    if (!has_files) return pixels;
    static const auto file = encode_jpeg(make_flat_image(8, 8, 9, 9, 9));
    const std::string_view view(reinterpret_cast<const char*>(file.data()), file.size());
    std::vector<std::int32_t> labels(4);
    std::memcpy(labels.data(), pixels[1].data(), pixels[1].size());
    return jpeg_payload(std::vector(4, view), labels);
  }
  FrameList framed(std::uint64_t index, bool with_checksum = false) const {
    return framed_message(header(index), payload(delivery_.has_files, index), with_checksum);
  }
  FrameList lease_message(std::uint64_t index, const remote::FramedLease& lease) const {
    remote::FramedHeader lent = header(index);
    lent.flags = remote::kFramedShared;
    return framed_message(lent, {lease_frame(lease)});
  }
  remote::FramedLease lease(std::uint64_t index) { return pool_->fill(index, index % 4, index); }
  FrameList batch(std::uint64_t index) {
    if (pool_) return lease_message(index, lease(index));
    return delivery_.is_framed ? framed(index) : FrameList{message_of(kSmall, index)};
  }
  void send(const FrameList& message) {
    credited_ ? credited_->send(message) : pushing_->send(message);
  }
  void send_batch(std::uint64_t index) { send(batch(index)); }
  /// By credit: waits until credits for this many messages have come back.
  void await_returned(std::uint64_t messages) {
    if (credited_) credited_->await_credit(kCredits + messages);
  }
  bool returns(std::size_t leases) { return credited_->returns(leases); }

 private:
  const Delivery& delivery_;
  const std::uint64_t number_;
  std::optional<Producer> pushing_;
  std::optional<BarePool> pool_;
  std::optional<BareProducer> credited_;
};

/// The deliveries in which a fault is possible, as bits.
enum : unsigned {
  kPushed = 1,
  kPushedFrames = 2,
  kPushedFiles = 4,
  kCredited = 8,
  kCreditedFiles = 16,
  kShared = 32,
  kFiles = kPushedFiles | kCreditedFiles,
  kFramedMessages = kPushedFrames | kCredited | kFiles,
  kFramed = kFramedMessages | kShared,
  kAll = kPushed | kFramed
};

struct Fault {
  const char* name;
  unsigned deliveries;
  std::function<FrameList(Sending&)> make;  ///< batch 1, spoilt
  const char* why = "";                     ///< in the note about the message
  bool takes_credit = true;                 ///< it is a batch of this producer
  bool takes_lease = false;                 ///< in shared memory, which is returned
};

/// Batch 1 after a change.
template <typename Change>
auto changed(Change change) {
  return [change](Sending& from) {
    FrameList message = from.batch(1);
    change(message);
    return message;
  };
}
/// A lease of this range, in the place of batch 1.
auto leased(std::uint64_t offset, std::uint64_t bytes) {
  return [=](Sending& from) {
    return from.lease_message(1, {.lease = 9, .offset = offset, .bytes = bytes});
  };
}
FrameList more_images(Sending& from) {
  BatchSpec larger = kSmall;
  larger.images = 6;
  if (!from.delivery().is_framed) return {message_of(larger, 1)};
  return framed_message(pixels_header(larger, 7, 1),
                        {FrameBytes(larger.pixel_bytes()), FrameBytes(larger.label_bytes())});
}
FrameList number_of_another(Sending& from) {
  remote::FramedHeader other = from.header(1);
  other.producer = 99;
  return framed_message(other, Sending::payload(from.delivery().has_files, 1));
}
FrameList changed_in_transit(Sending& from) {
  FrameList message = from.framed(1, true);
  message[1].front() ^= std::byte{1};
  return message;
}

const Fault kFaults[] = {
    {"NoBytes", kAll, [](Sending&) { return FrameList{FrameBytes()}; }, "", false},
    {"AnotherProtocol", kAll, [](Sending&) { return FrameList{bytes_of_text("GET / HTTP/1.1")}; },
     "", false},
    {"AByteTooFew", kAll, changed([](FrameList& message) { message.back().pop_back(); })},
    {"SurplusFrames", kAll,
     changed([](FrameList& message) { message.resize(message.size() + 4, message.back()); }),
     "frames"},
    {"MoreImages", kPushed | kPushedFrames | kCredited, more_images,
     "; a run with --batch-size 6 takes it"},
    {"ALabelBeyondTheClasses", kFramedMessages,
     changed([](FrameList& message) { message.back()[0] = std::byte{100}; }), "label"},
    {"AByteChangedInTransit", kFramedMessages, changed_in_transit, "checksum of batch 1"},
    {"ADuplicate", kFramed, [](Sending& from) { return from.batch(0); }, "came a second time", true,
     true},
    {"FilesInsteadOfPixels", kPushedFrames | kCredited | kShared,
     [](Sending&) { return framed_message(jpeg_header(4, 7, 1), Sending::payload(true, 1)); },
     "encoded=true"},
    {"PixelsInsteadOfFiles", kFiles,
     [](Sending&) {
       return framed_message(pixels_header(kSmall, 7, 1), Sending::payload(false, 1));
     },
     "serve --encoded"},
    {"AMessageOfConsumers", kFramed,
     [](Sending&) {
       return framed_message(header_of(remote::FramedKind::welcome), {bytes_of_text("{}")});
     },
     "welcome", false},
    {"TheNumberOfAnotherProducer", kCredited | kCreditedFiles | kShared, number_of_another,
     "is not that of bare", false},
    {"ALeaseWithoutAPool", kCredited, leased(0, 400), "named no pool"},
    {"FilesInSharedMemory", kCreditedFiles, leased(0, 400),
     "are in shared memory; expected them in the message"},
    {"ALeaseBehindThePool", kShared, leased(4 * 4096, 400), "ends beyond its pool", true, true},
    {"ALeaseBeforeThePool", kShared, leased(std::uint64_t{0} - 4096, 400), "ends beyond its pool",
     true, true},
    {"ALeaseOfAllBytes", kShared, leased(4096, ~std::uint64_t{0}), "ends beyond its pool", true,
     true},
    {"ALeaseThatEndsBehindThePool", kShared, leased(4096, 3 * 4096 + 1), "ends beyond its pool",
     true, true},
    {"ALeaseOfTooFewBytes", kShared, leased(4096, 100), "", true, true}};

/// A consumer of a delivery, which a test starts.
class Receiving : public Consumer {
 public:
  Receiving(const Delivery& delivery, const std::string& endpoint, BadSamplePolicy policy = kSkip,
            std::chrono::milliseconds timeout = 20s)
      : Consumer("endpoint=" + endpoint + delivery.options, timeout, policy,
                 {.order = delivery.has_files ? Order::strict : Order::relaxed}) {
    start();
  }
};

constexpr BadSamplePolicy kFail{.action = BadSamplePolicy::Action::fail};

struct FaultOfDelivery {
  const Fault& fault;
  const Delivery& delivery;
};
void PrintTo(const FaultOfDelivery& one, std::ostream* out) {
  *out << one.fault.name << "_" << one.delivery.name;
}
std::vector<FaultOfDelivery> possible_faults() {
  std::vector<FaultOfDelivery> all;
  for (const Fault& fault : kFaults) {
    for (std::size_t i = 0; i < std::size(kDeliveries); ++i) {
      if ((fault.deliveries >> i & 1U) != 0) all.push_back({fault, kDeliveries[i]});
    }
  }
  return all;
}

class MessageFault : public ZmqConsume, public ::testing::WithParamInterface<FaultOfDelivery> {};
INSTANTIATE_TEST_SUITE_P(All, MessageFault, ::testing::ValuesIn(possible_faults()),
                         ::testing::PrintToStringParamName());

TEST_P(MessageFault, IsRefusedAndReportedAndCostsNothingElse) {
  const auto& [fault, delivery] = GetParam();
  Receiving consumer(delivery, endpoint());
  Sending producer(delivery, endpoint());
  producer.enter();
  producer.send_batch(0);
  producer.send(fault.make(producer));
  producer.send_batch(2);
  EXPECT_EQ(consumer.next(), 0U);
  EXPECT_EQ(consumer.next(), 2U);
  producer.await_returned(fault.takes_credit ? 3 : 2);
  if (delivery.is_shared) {
    EXPECT_TRUE(producer.returns(fault.takes_lease ? 3 : 2));
  }
  consumer.stop();
  EXPECT_EQ(consumer.counter("messages_rejected"), 1);
  EXPECT_TRUE(says(consumer.all_notes(), fault.why));
  EXPECT_TRUE(says(consumer.all_notes(), " refused: "));
}

TEST_P(MessageFault, EndsTheRunIfThePolicyIsToFail) {
  const auto& [fault, delivery] = GetParam();
  Receiving consumer(delivery, endpoint(), kFail);
  Sending producer(delivery, endpoint());
  producer.enter();
  producer.send_batch(0);
  producer.send(fault.make(producer));
  EXPECT_TRUE(says(thrown_by<DataError>([&] {
                     while (consumer.next()) {
                     }
                   }),
                   fault.why));
}

class DeliveryFault : public ZmqConsume, public ::testing::WithParamInterface<Delivery> {
 protected:
  static void send_nonsense(Sending& producer, int messages = 1) {
    for (int i = 0; i < messages; ++i) producer.send({bytes_of_text("nonsense")});
  }
  /// The text of the timeout that ends a consumer once `make_fault` has happened. Retries with
  /// longer timeouts until it has `part`.
  template <typename Make>
  std::string timeout_with(std::string_view part, const Make& make_fault) const {
    std::string text;
    EXPECT_TRUE(with_patience([&](std::chrono::milliseconds timeout) {
      Receiving consumer(GetParam(), endpoint(), kSkip, timeout);
      Sending producer(GetParam(), endpoint());
      try {
        make_fault(producer);
        text = thrown_by<TimeoutError>([&] {
          while (consumer.next()) {
          }
        });
      } catch (const TimeoutError&) {
        return false;
      }
      return static_cast<bool>(says(text, part));
    })) << text;
    return text;
  }
};
INSTANTIATE_TEST_SUITE_P(All, DeliveryFault, ::testing::ValuesIn(kDeliveries),
                         ::testing::PrintToStringParamName());

TEST_P(DeliveryFault, MoreBadMessagesThanTheLimitEndTheRun) {
  Receiving consumer(GetParam(), endpoint(), {BadSamplePolicy::Action::skip, 1});
  Sending producer(GetParam(), endpoint());
  producer.enter();
  send_nonsense(producer);
  producer.send_batch(0);
  EXPECT_EQ(consumer.next(), 0U);
  send_nonsense(producer);
  EXPECT_TRUE(says(thrown_by<DataError>([&] { consumer.next(); }), "limit=1"));
}

TEST_P(DeliveryFault, ALimitOfNoneEndsTheRunWithTheFirstBadMessage) {
  Receiving consumer(GetParam(), endpoint(), {BadSamplePolicy::Action::skip, 0});
  Sending producer(GetParam(), endpoint());
  producer.enter();
  send_nonsense(producer);
  EXPECT_TRUE(says(thrown_by<DataError>([&] { consumer.next(); }), "limit=0"));
}

TEST_P(DeliveryFault, AProducerOfBadMessagesAloneIsCutOffAndOthersGoOn) {
  Receiving consumer(GetParam(), endpoint());
  Sending bad(GetParam(), endpoint()), good(GetParam(), endpoint(), 8);
  send_nonsense(bad, 8);
  EXPECT_TRUE(reaches(consumer, "producers_cut_off", 1));
  good.enter();
  good.send_batch(2);
  EXPECT_EQ(consumer.next(), 2U);
}

TEST_P(DeliveryFault, NoProducerIsATimeoutThatSaysWhatToStart) {
  Receiving consumer(GetParam(), endpoint(), kSkip, 200ms);
  const std::string text = thrown_by<TimeoutError>([&] { consumer.next(); });
  for (const std::string& part :
       {endpoint(), std::string("0.2 s"), std::string("this side binds"),
        std::string("no producer ever connected"), std::string("penstock serve --")}) {
    EXPECT_TRUE(says(text, part));
  }
}

TEST_P(DeliveryFault, SilenceAfterABatchIsATimeout) {
  timeout_with(GetParam().by_credit ? "1 producers were welcomed, of which 1 are here"
                                    : "a producer is connected but silent",
               [](Sending& producer) {
                 producer.enter();
                 producer.send_batch(0);
               });
}

TEST_P(DeliveryFault, BadMessagesAloneAreATimeoutThatDescribesThem) {
  const std::string text = timeout_with("1 messages were refused, the last: message ",
                                        [](Sending& producer) { send_nonsense(producer); });
  EXPECT_TRUE(text.starts_with("no usable batch came over ")) << text;
  EXPECT_TRUE(says(text, "correct the producer"));
}

TEST_P(DeliveryFault, AProducerThatLeavesLosesNothingAndOthersGoOn) {
  Receiving consumer(GetParam(), endpoint());
  {
    Sending first(GetParam(), endpoint());
    first.enter();
    first.send_batch(0);
    EXPECT_EQ(consumer.next(), 0U);
  }
  if (GetParam().by_credit) {
    EXPECT_TRUE(reaches(consumer, "producers_lost", 1));
    EXPECT_TRUE(says(consumer.all_notes(), "disconnected without an end message, after 1 batches"));
  }
  Sending second(GetParam(), endpoint(), 8);
  second.enter();
  second.send_batch(5);
  EXPECT_EQ(consumer.next(), 5U);
}

TEST_P(DeliveryFault, AStopEndsTheWaitForABatch) {
  for (const bool had_one : {false, true}) {
    EXPECT_TRUE(is_prompt(500ms, [&] {
      Receiving consumer(GetParam(), endpoint());
      Sending producer(GetParam(), endpoint());
      producer.enter();
      if (had_one) {
        producer.send_batch(0);
        EXPECT_EQ(consumer.next(), 0U);
      }
      const auto took = consumer.stop();
      EXPECT_EQ(consumer.next(), std::nullopt);
      return took;
    }));
  }
}

TEST_P(DeliveryFault, AStopEndsTheWaitForAFullRing) {
  EXPECT_TRUE(is_prompt(500ms, [&] {
    Receiving consumer(GetParam(), endpoint());
    Sending producer(GetParam(), endpoint());
    producer.enter();
    for (std::uint64_t i = 0; i < kCredits; ++i) producer.send_batch(i);
    EXPECT_EQ(consumer.next(), 0U);
    return consumer.stop();
  }));
}

}  // namespace
}  // namespace penstock
