// SPDX-License-Identifier: Apache-2.0
// Tests one parameter server, event by event: how it handles gradients under each rule, whom it
// admits, what strangers can do, and when it ends.
#include <gtest/gtest.h>

#include "tests/support/server_script.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using Floats = std::vector<float>;

TEST(ServerTogether, AddsInTheOrderOfWorkersAndAppliesOnce) {
  // Sums of these differ by the order of adding: 1e8 + 1 - 1e8 is 0 in floats, 1e8 - 1e8 + 1 is 1.
  ServerScript script(3);
  script.begin(cluster::ServerRule::together, "sgd", {5});
  script.push(1, 0, {-1e8F}, 1, 1);
  script.push(2, 0, {1}, 1, 1);
  EXPECT_TRUE(script.take(1).empty());
  script.push(0, 0, {1e8F}, 1, 1);
  for (std::int32_t worker = 0; worker < 3; ++worker) {
    const auto answers = script.take(worker);
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers[0].header.kind, cluster::MessageKind::answer);
    EXPECT_EQ(answers[0].header.version, 1U);
    EXPECT_EQ(answers[0].floats(), Floats{4});
  }
}

TEST(ServerTogether, IsMomentumOnTheMeanOfAll) {
  ServerScript script(2);
  script.begin(cluster::ServerRule::together, "momentum:momentum=0.5,nesterov=false", {1});
  script.push(0, 0, {1}, 0.25F, 0.5F);
  script.push(1, 0, {3}, 0.25F, 0.5F);
  EXPECT_EQ(script.take(0)[0].floats(), Floats{1 - 0.25F * 2});
  script.push(1, 1, {1}, 0.25F, 0.5F);
  script.push(0, 1, {1}, 0.25F, 0.5F);
  EXPECT_EQ(script.take(1)[1].floats(), Floats{0.5F - 0.25F * (0.5F * 2 + 1)});
}

TEST(ServerOneByOne, AppliesEachInTheOrderOfArrivalAndAnswersAtTheBarrier) {
  // Momentum makes the order visible: v = 0.5 v + g, w -= v.
  const std::string momentum = "momentum:momentum=0.5,nesterov=false";
  ServerScript script(2);
  script.begin(cluster::ServerRule::one_by_one, momentum, {0});
  script.push(1, 0, {4}, 1, 1);
  EXPECT_TRUE(script.take(1).empty());  // worker 0 has not pushed yet
  script.push(0, 0, {1}, 1, 1);
  // -4, then v = 2 + 1.
  EXPECT_EQ(script.take(0)[0].floats(), Floats{-7});
  EXPECT_EQ(script.take(1)[0].floats(), Floats{-7});

  ServerScript other(2);
  other.begin(cluster::ServerRule::one_by_one, momentum, {0});
  other.push(0, 0, {1}, 1, 1);
  other.push(1, 0, {4}, 1, 1);
  // -1, then v = 0.5 + 4.
  EXPECT_EQ(other.take(0)[0].floats(), Floats{-5.5F});
}

TEST(ServerOnArrival, AppliesAndAnswersAtOnceAndCountsStaleness) {
  ServerScript script(3);
  script.begin(cluster::ServerRule::on_arrival, "sgd", {0});
  // All have version 0. Worker 0 takes two steps before the others finish their first one.
  script.push(0, 0, {1}, 1, 1, 0);
  auto answer = script.take(0).at(0);
  EXPECT_EQ(answer.floats(), Floats{-1});
  EXPECT_EQ(answer.header.step, 0U);
  script.push(0, 1, {1}, 1, 1, answer.header.version);
  EXPECT_EQ(script.take(0).at(0).header.step, 0U);
  script.push(2, 0, {10}, 1, 1, 0);
  answer = script.take(2).at(0);
  EXPECT_EQ(answer.floats(), Floats{-12});
  EXPECT_EQ(answer.header.step, 2U);  // two updates came between
  script.push(1, 0, {100}, 1, 1, 0);
  EXPECT_EQ(script.take(1).at(0).header.step, 3U);
  EXPECT_TRUE(script.take(0).empty());
  // A version that never existed is refused.
  script.push(1, 1, {1}, 1, 1, 9);
  EXPECT_EQ(script.take(1).at(0).header.kind, cluster::MessageKind::refused);
}

/// `first` and `pull` with step N are about arena N of the optimizer, from 1.
TEST(ServerResumed, ContinuesFromTheStateOfTheOptimizerAndGivesItBack) {
  ServerScript script(2);
  script.hello(0);
  script.hello(1);
  const cluster::ModelLayout layout{cluster::ServerRule::together,
                                    "momentum:momentum=0.5,nesterov=false",
                                    {{.count = 1, .segments = {{1}}}}};
  const auto from_0 = [&](cluster::ServerHeader header, const Floats& values = {}) {
    script.message(ServerScript::peer(0), header,
                   cluster::text_of(std::as_bytes(std::span(values))));
  };
  script.message(ServerScript::peer(0), {.kind = cluster::MessageKind::layout},
                 cluster::write_layout(layout, 0));
  script.sent.clear();
  const auto refused = [&](const std::string& why) {
    const auto answers = script.take(0);
    ASSERT_EQ(answers.size(), 1U) << why;
    EXPECT_EQ(answers[0].header.kind, cluster::MessageKind::refused);
    EXPECT_NE(answers[0].data.find(why), std::string::npos) << answers[0].data;
  };
  from_0({.kind = cluster::MessageKind::pull, .step = 1});
  refused("expected 0 before the weights");
  from_0({.kind = cluster::MessageKind::first, .step = 2}, {8});
  refused("expected at most 1");
  from_0({.kind = cluster::MessageKind::first, .step = 1}, {8, 8});
  refused("its length is 8; expected 4");
  from_0({.kind = cluster::MessageKind::first, .version = ~std::uint64_t{0}}, {100});
  refused("its version is");
  from_0({.kind = cluster::MessageKind::first, .step = 1}, {8});
  from_0({.kind = cluster::MessageKind::first, .version = 7}, {100});
  from_0({.kind = cluster::MessageKind::first, .step = 1}, {8});
  refused("first weights again");
  script.push(0, 0, {2}, 1, 0.5F);
  refused("its step is 0; expected 7");
  script.push(0, 7, {2}, 1, 0.5F);
  script.push(1, 7, {4}, 1, 0.5F);
  // v = 0.5 * 8 + (2 + 4) / 2 = 7, w = 100 - 7.
  const auto answer = script.take(0).at(0);
  EXPECT_EQ(answer.floats(), Floats{93});
  EXPECT_EQ(answer.header.version, 8U);
  from_0({.kind = cluster::MessageKind::pull});
  from_0({.kind = cluster::MessageKind::pull, .step = 1});
  const auto pulled = script.take(0);
  ASSERT_EQ(pulled.size(), 2U);
  EXPECT_EQ(pulled[0].floats(), Floats{93});
  EXPECT_EQ(pulled[1].floats(), Floats{7});
}

TEST(ServerSum, AnswersTheSumAndBeginsAnew) {
  ServerScript script(2);
  script.begin(cluster::ServerRule::sum, "sgd", {0, 0});
  script.push(0, 0, {1, 2}, 0, 1);
  script.push(1, 0, {10, 20}, 0, 1);
  EXPECT_EQ(script.take(1)[0].floats(), (Floats{11, 22}));
  script.push(1, 1, {5, 5}, 0, 1);
  script.push(0, 1, {1, 1}, 0, 1);
  EXPECT_EQ(script.take(0)[1].floats(), (Floats{6, 6}));
}

TEST(Server, RefusesAndCountsWhatMakesNoSenseAndGoesOn) {
  ServerScript script(2);
  script.begin(cluster::ServerRule::together, "sgd", {5, 5});
  std::int64_t rejected = script.server.rejected();
  const auto refused = [&](const std::string& part) {
    EXPECT_EQ(script.server.rejected(), ++rejected) << part;
    const auto answers = script.take(0);
    ASSERT_EQ(answers.size(), 1U) << part;
    EXPECT_EQ(answers[0].header.kind, cluster::MessageKind::refused);
    EXPECT_NE(answers[0].data.find(part), std::string::npos) << answers[0].data;
  };
  script.push(0, 0, {1}, 1, 1);  // too short
  refused("length");
  script.push(0, 7, {1, 1}, 1, 1);
  refused("its step is 7; expected 0");
  script.message(ServerScript::peer(0), {.kind = cluster::MessageKind::push, .key = 3}, "12345678");
  refused("key is 3");
  script.message(ServerScript::peer(0), {.kind = cluster::MessageKind::layout}, "abcd");
  refused("second layout");
  script.message(ServerScript::peer(0), {.kind = cluster::MessageKind::answer});
  refused("answer to a server");
  script.message(ServerScript::peer(0), {.kind = cluster::MessageKind::first}, "12345678");
  refused("first weights again");
  script.message(ServerScript::peer(0), {.kind = cluster::MessageKind::gather}, "abc");
  refused("texts");
  script.push(0, 0, {1, 1}, 1, 1);
  script.push(0, 0, {1, 1}, 1, 1);
  refused("a push again");
  script.push(1, 0, {1, 1}, 1, 1);
  EXPECT_EQ(script.take(1)[0].floats(), (Floats{3, 3}));
  EXPECT_TRUE(script.server.failure().empty());
}

TEST(Server, StrangersChangeNothingAndGetNothing) {
  ServerScript script(2);
  script.begin(cluster::ServerRule::together, "sgd", {5});
  const std::vector<std::byte> zeros(cluster::kHeaderBytes);
  script.raw("stranger", zeros, "", 1);
  script.raw("stranger", std::span(zeros).first(3), "", 1);
  script.raw("stranger", {}, "", 0);
  script.raw("stranger", zeros, "more", 9);
  script.message("stranger", {.kind = cluster::MessageKind::push}, "1234");
  script.message("stranger", {.kind = cluster::MessageKind::goodbye, .key = 3});
  EXPECT_EQ(script.server.rejected(), 6);
  EXPECT_TRUE(script.sent["stranger"].empty());
  EXPECT_NE(script.said.at(0).find(
                "what a stranger sent: message to a parameter server: its magic number"),
            std::string::npos)
      << script.said.at(0);
  EXPECT_FALSE(script.server.done());
}

TEST(Server, LetsEachTaskInOnce) {
  ServerScript script(2);
  script.hello(1);
  EXPECT_EQ(script.take(1)[0].header.kind, cluster::MessageKind::welcome);
  script.message("another", {.kind = cluster::MessageKind::hello, .task = 1},
                 script.cluster.describe());
  EXPECT_NE(script.sent["another"].at(0).data.find("takes part already"), std::string::npos);
  script.message("third", {.kind = cluster::MessageKind::hello, .task = 2},
                 script.cluster.describe());
  EXPECT_EQ(script.sent["third"].at(0).header.kind, cluster::MessageKind::refused);
  script.message("fourth", {.kind = cluster::MessageKind::hello, .task = 0}, "another run");
  EXPECT_NE(script.sent["fourth"].at(0).data.find("belongs to another run"), std::string::npos);
}

TEST(Server, GathersTextsByTask) {
  ServerScript script(2);
  script.hello(0);
  script.hello(1);
  script.sent.clear();
  const std::string about = "comparing";
  const std::string one[] = {about, "from one"}, zero[] = {about, ""};
  script.message(ServerScript::peer(1), {.kind = cluster::MessageKind::gather, .value = 5},
                 cluster::join_texts(one));
  EXPECT_TRUE(script.take(1).empty());
  script.message(ServerScript::peer(0), {.kind = cluster::MessageKind::gather, .value = 5},
                 cluster::join_texts(zero));
  const auto answer = script.take(1).at(0);
  EXPECT_EQ(answer.header.kind, cluster::MessageKind::gathered);
  EXPECT_EQ(cluster::split_texts(cluster::bytes_of(answer.data), 2),
            (std::vector<std::string>{"", "from one"}));
  // At the next meeting one worker is missing.
  script.message(ServerScript::peer(1),
                 {.kind = cluster::MessageKind::gather, .step = 1, .value = 5},
                 cluster::join_texts(one));
  script.pass(6s, {0, 1});
  EXPECT_EQ(script.server.failure(),
            "worker task 0 (w:1) was lost while training, at step 4: it did not come in time "
            "(comparing)");
}

TEST(Server, EndsOnceAllHaveSaidGoodbye) {
  ServerScript script(2);
  script.hello(0);
  script.hello(1);
  script.message(ServerScript::peer(0), {.kind = cluster::MessageKind::goodbye});
  EXPECT_FALSE(script.server.done());
  script.server.connection_ended(0);  // no change
  script.message(ServerScript::peer(1), {.kind = cluster::MessageKind::goodbye});
  EXPECT_TRUE(script.server.done());
  EXPECT_TRUE(script.server.failure().empty());
}

TEST(Server, EndsTheRunForAllIfOneWorkerFails) {
  ServerScript script(3);
  script.begin(cluster::ServerRule::together, "sgd", {5});
  script.push(1, 0, {1}, 1, 1);
  script.message(ServerScript::peer(1), {.kind = cluster::MessageKind::goodbye, .key = 6});
  EXPECT_EQ(script.server.failure(),
            "worker task 1 (w:2) was lost in the first step: it ended with exit code 6");
  for (const std::int32_t worker : {0, 2}) {
    EXPECT_EQ(script.take(worker).at(0).header.kind, cluster::MessageKind::lost);
  }
  EXPECT_FALSE(script.server.done());
  script.message(ServerScript::peer(0), {.kind = cluster::MessageKind::goodbye, .key = 5});
  script.clock.advance(9s);
  EXPECT_FALSE(script.server.done());
  script.clock.advance(2s);  // the third worker does not say goodbye
  EXPECT_TRUE(script.server.done());
}

TEST(Server, NamesWhoNeverCameWhoFellSilentAndWhomOthersWaitFor) {
  ServerScript absent(2);
  absent.hello(0);
  absent.pass(60s, {0});
  EXPECT_EQ(absent.server.failure(), "");
  absent.pass(1s, {0});
  EXPECT_EQ(absent.server.failure(),
            "worker task 1 (w:2) was lost while joining the other ranks: it did not join within 60 "
            "s; check that it was started, and that it is not stopped");
  absent.message(ServerScript::peer(0), {.kind = cluster::MessageKind::goodbye, .key = 5});
  EXPECT_TRUE(absent.server.done());  // the server does not wait for workers that never connected

  ServerScript silent(2);
  silent.begin(cluster::ServerRule::together, "sgd", {5});
  silent.pass(20s, {0, 1});
  silent.pass(30s, {0});
  EXPECT_EQ(silent.server.failure(), "");
  silent.pass(500ms, {0});
  EXPECT_EQ(silent.server.failure(),
            "worker task 1 (w:2) was lost while training, at step 4: silent for 30.5 s: it is "
            "stopped, or cannot be reached");

  ServerScript gone(2);
  gone.begin(cluster::ServerRule::together, "sgd", {5});
  gone.pass(1s, {0, 1});
  gone.server.connection_ended(1);
  EXPECT_EQ(gone.server.failure(),
            "worker task 1 (w:2) was lost while training, at step 4: its connection closed");

  ServerScript hangs(2);
  hangs.begin(cluster::ServerRule::together, "sgd", {5});
  hangs.push(0, 0, {1}, 1, 1);
  hangs.pass(30s, {0, 1});
  EXPECT_EQ(hangs.server.failure(), "");
  hangs.pass(500ms, {0, 1});
  EXPECT_EQ(hangs.server.failure(),
            "worker task 1 (w:2) was lost while training, at step 4: it has pushed no gradients "
            "for 30 s");
}

}  // namespace
}  // namespace penstock
