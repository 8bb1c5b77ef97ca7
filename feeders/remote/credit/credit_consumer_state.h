// SPDX-License-Identifier: Apache-2.0
// The state of a CreditConsumer, shared by credit_consumer.cpp, which handles incoming messages,
// and credit_consumer_out.cpp, which handles outgoing ones.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "feeders/remote/credit/credit_consumer.h"
#include "feeders/remote/credit/credit_peer.h"
#include "feeders/remote/credit/credit_scheduler.h"
#include "feeders/remote/receive/bad_messages.h"
#include "feeders/remote/receive/framed_intake.h"
#include "feeders/remote/receive/zmq_message.h"
#include "feeders/remote/wire/framed_text.h"

namespace penstock::remote {

struct CreditConsumer::State {
  State(const CreditPlan& plan, const BatchSpec& spec, Probe& probe)
      : book(plan.credit, plan.together),
        bad(plan.on_bad_sample, probe),
        accounts(spec, probe, plan.ends_with, false,
                 {.producers = static_cast<std::size_t>(plan.producers) + kMostLeft}) {}
  /// How many producers are remembered after they have gone.
  static constexpr std::size_t kMostLeft = 1024;

  std::map<std::string, std::unique_ptr<CreditPeer>> peers;  // by routing id
  std::map<CreditScheduler::Producer, CreditPeer*> by_id;
  std::vector<std::unique_ptr<CreditPeer>> displaced;  // gone; routing id taken over
  CreditScheduler::Producer ids = 0;
  CreditScheduler book;
  const std::string boot = boot_id();

  // The last message, without its routing id.
  std::string routing_id;
  ZmqMessage message;
  std::int64_t arrival_ns = 0;
  BadMessages bad;
  FramedIntake accounts;

  std::set<std::uint64_t> lost;  // producers that left without an end and are not back
  bool has_heard_all = false;    // whether next() had read all messages when it was last called
  std::int64_t seen_left = 0;
  std::chrono::steady_clock::time_point probe_until{}, next_probe{};
};

}  // namespace penstock::remote
