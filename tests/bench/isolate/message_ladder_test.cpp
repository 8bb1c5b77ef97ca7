// SPDX-License-Identifier: Apache-2.0
// The ladder that separates producer, network and consumer.

#include <gtest/gtest.h>

#include "bench/isolate/message_ladder.h"
#include "dataflow/options.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

class MessageLadderTest : public testing::Test {
 protected:
  std::vector<isolate::LadderRung> rungs(const std::string& feeder,
                                         const std::string& endpoint = "") {
    RunConfig base;
    base.fake_location = feeder;
    base.model = "lenet";
    base.batch_size = 32;
    return isolate::message_rungs(
        base, {.program = "/opt/penstock", .folder = "/tmp/x", .endpoint = endpoint});
  }
  /// An option of the rung for the transport; empty if it has none.
  static std::string option(const isolate::LadderRung& rung, std::string_view name) {
    return isolate::value_of(parse_component(rung.config.fake_location), name).value_or("");
  }
  static bool serves(const isolate::LadderRung& rung, std::string_view text) {
    return says(option(rung, "producer"), text);
  }
};

TEST_F(MessageLadderTest, ClimbsFromTheConsumerOverTheTransportToTheProducers) {
  const auto found = rungs("zmq-consume:endpoint=ipc://feed,hwm=2,receivers=2,producers=3");
  ASSERT_EQ(found.size(), 5U);
  EXPECT_TRUE(found[0].is_ceiling);
  EXPECT_EQ(found[1].config.fake_location, "host");
  EXPECT_EQ(found[2].config.fake_location, "messages:format=framed,receivers=2");
  EXPECT_EQ(found[2].part, isolate::Side::consumer);
  EXPECT_EQ(found[3].part, isolate::Side::network);
  EXPECT_EQ(option(found[3], "endpoint"), "ipc:///tmp/x/ladder");
  EXPECT_EQ(option(found[3], "hwm"), "2");
  EXPECT_EQ(option(found[3], "receivers"), "2");
  EXPECT_EQ(option(found[3], "producers"), "") << "it never ends";
  EXPECT_TRUE(serves(found[3], "/opt/penstock serve --fake-location host"));
  EXPECT_TRUE(serves(found[3], "--format framed")) << option(found[3], "producer");
  EXPECT_TRUE(serves(found[3], "--hwm 2"));
  EXPECT_EQ(found[4].part, isolate::Side::producer);
}

TEST_F(MessageLadderTest, TransportFormatAndProtocolMatchTheFeeder) {
  const isolate::LadderRung tcp = rungs(
      "zmq-consume:endpoint=bind:tcp://0.0.0.0:5555,insecure=true,"
      "format=zmq_op")[3];
  EXPECT_TRUE(option(tcp, "endpoint").starts_with("tcp://127.0.0.1:")) << option(tcp, "endpoint");
  EXPECT_TRUE(serves(tcp, "--format zmq-op"));
  EXPECT_TRUE(says(tcp.adds, "no wire is in it"));
  EXPECT_EQ(option(rungs("zmq-consume:endpoint=ipc://@feed")[3], "endpoint"),
            "ipc://@/tmp/x/ladder");
  EXPECT_TRUE(serves(rungs("zmq-consume:endpoint=ipc://feed,credit=4")[3], "--credit"));
  EXPECT_TRUE(serves(rungs("zmq-consume:endpoint=ipc://feed,credit=4,shared_memory=true")[3],
                     "--shared-memory"));
  EXPECT_TRUE(serves(rungs("zmq-consume:endpoint=ipc://feed,format=pickle")[3], "--format pickle"));
}

TEST_F(MessageLadderTest, WithoutProducersOfTheUsersTheTransportIsTheLast) {
  EXPECT_EQ(rungs("zmq-consume").size(), 4U);
}

TEST_F(MessageLadderTest, AUsersOwnConstantProducerStandsForTheTransport) {
  const isolate::LadderRung rung =
      rungs("zmq-consume:endpoint=tcp://0.0.0.0:5555,insecure=true", "tcp://0.0.0.0:5556")[3];
  EXPECT_EQ(option(rung, "endpoint"), "tcp://0.0.0.0:5556");
  EXPECT_EQ(option(rung, "insecure"), "true");
  EXPECT_EQ(option(rung, "producer"), "");
}

TEST_F(MessageLadderTest, ImageFilesHaveNoRungInMemory) {
  const auto found = rungs("zmq-consume:endpoint=ipc://feed,encoded=true");
  EXPECT_FALSE(found[2].unavailable.empty());
  EXPECT_TRUE(serves(found[3], "--encoded"));
}

}  // namespace
}  // namespace penstock
