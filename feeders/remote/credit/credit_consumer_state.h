// SPDX-License-Identifier: Apache-2.0
// What a CreditDesk knows, for its two halves: credit_desk.cpp, messages in, and
// credit_desk_out.cpp, messages out.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "dataflow/wire/framed_text.h"
#include "feeders/bad_messages.h"
#include "feeders/credit_book.h"
#include "feeders/credit_desk.h"
#include "feeders/credit_peer.h"
#include "feeders/framed_intake.h"
#include "feeders/zmq_message.h"

namespace penstock {

struct CreditDesk::State {
  State(const CreditPlan& plan, const BatchSpec& spec, Probe& probe)
      : book(plan.credit, plan.together),
        bad(plan.on_bad_sample, probe),
        accounts(spec, probe, plan.ends_with, false,
                 {.producers = static_cast<std::size_t>(plan.producers) + kMostLeft}) {}
  /// Producers that are remembered when they have gone.
  static constexpr std::size_t kMostLeft = 1024;

  std::map<std::string, std::unique_ptr<CreditPeer>> peers;  // by routing id
  std::map<CreditBook::Producer, CreditPeer*> by_id;
  std::vector<std::unique_ptr<CreditPeer>> displaced;  // gone, and their routing ids are others'
  CreditBook::Producer ids = 0;
  CreditBook book;
  const std::string boot = boot_id();

  // The message that came last, without its routing id.
  std::string routing_id;
  ZmqMessage message;
  std::int64_t arrival_ns = 0;
  BadMessages bad;
  FramedIntake accounts;

  std::set<std::uint64_t> lost;  // numbers of producers that went without an end, until they return
  bool has_heard_all = false;    // that had come when the desk was last asked for a batch
  std::int64_t seen_left = 0;
  std::chrono::steady_clock::time_point probe_until{}, next_probe{};
};

}  // namespace penstock
