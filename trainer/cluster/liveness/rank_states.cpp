// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/liveness/rank_states.h"

#include <fmt/format.h>

#include <utility>

namespace penstock::liveness {
namespace {

/// A longer time between two calls means that the process was stopped.
constexpr Nanoseconds kStoodStill = std::chrono::seconds(1);
/// If a rank is lost, other ranks that have been silent for this long were probably lost with it.
constexpr Nanoseconds kSuspicious = std::chrono::seconds(2);
/// After this time, a message names the ranks that have not joined.
constexpr Nanoseconds kSlowToJoin = std::chrono::seconds(2);
/// The maximum number of ranks in this message.
constexpr std::size_t kListed = 8;

std::string where(const cluster::RankState& state) {
  switch (state.phase) {
    case cluster::RankPhase::joining:
      return "while joining the other ranks";
    case cluster::RankPhase::preparing:
      return "while preparing";
    case cluster::RankPhase::gathering:
    case cluster::RankPhase::leaving:
      return "at the end";
    case cluster::RankPhase::training:
      break;
  }
  if (state.step <= 0) return "in the first step";
  if (state.warm_up < 0) return fmt::format("while training, at step {}", state.step + 1);
  if (state.step < state.warm_up)
    return fmt::format("while warming up, at step {}", state.step + 1);
  return fmt::format("while measuring, at step {}", state.step - state.warm_up + 1);
}

}  // namespace

std::string to_text(std::span<const LostRank> lost) {
  std::string text;
  for (const LostRank& each : lost) {
    text += fmt::format("{}{} {}: {}", text.empty() ? "" : "; ",
                        each.rank == LostRank::kNone ? "no rank was lost, but all ranks stopped"
                                                     : each.name + " was lost",
                        where(each.last), each.how);
  }
  return text;
}

RankStates::RankStates(std::vector<std::string> names, std::int32_t self,
                       const RankDeadlines& deadlines, Time now)
    : self_(self), deadlines_(deadlines), begin_(now), asked_(now), entries_(names.size()) {
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    entries_[rank].name = std::move(names[rank]);
  }
  if (self != LostRank::kNone) entry(self).arrived = true;
}

void RankStates::arrived(std::int32_t rank, std::string name, Time now) {
  entry(rank).name = std::move(name);
  entry(rank).heard = now;
  entry(rank).arrived = true;
}

void RankStates::heard(std::int32_t rank, const cluster::RankState& state, Time now) {
  entry(rank).state = state;
  entry(rank).heard = now;
}

void RankStates::left(std::int32_t rank) { entry(rank).left = true; }

void RankStates::closed(std::int32_t rank) { entry(rank).closed = entry(rank).arrived; }

void RankStates::overdue(std::int32_t rank, const cluster::RankState& state) {
  entry(rank).state = state;
  overdue_meeting_ = std::max(overdue_meeting_, state.meetings);
}

bool RankStates::all_arrived() const {
  return std::all_of(entries_.begin(), entries_.end(),
                     [](const Entry& each) { return each.arrived; });
}

LostRank RankStates::loss(std::int32_t rank, std::string how) const {
  LostRank lost{
      .rank = rank, .name = entry(rank).name, .last = entry(rank).state, .how = std::move(how)};
  // All members meet before most phases, so this one's phase is a bound for the others.
  if (self_ != LostRank::kNone) {
    lost.last.phase = std::max(lost.last.phase, cluster::least_of_others(entry(self_).state.phase));
  }
  return lost;
}

std::vector<LostRank> RankStates::lost(Time now) {
  if (const Nanoseconds passed = now - std::exchange(asked_, now); passed > kStoodStill) {
    for (Entry& entry : entries_) entry.heard = now;
    begin_ += passed;
  }
  std::vector<LostRank> lost;
  bool certain = false;
  for (std::int32_t rank = 0; rank < size(); ++rank) {
    const Entry& other = entry(rank);
    if (rank == self_ || other.left) continue;
    const Nanoseconds silent = now - other.heard;
    const Nanoseconds patience = deadlines_.silence_in(other.state.phase);
    if (other.closed) {
      certain = true;
      lost.push_back(loss(rank, "its connection closed"));
    } else if (!other.arrived) {
      if (now - begin_ <= deadlines_.rendezvous) continue;
      certain = true;
      lost.push_back(loss(rank, fmt::format("it did not join within {:.3g} s; check that it was "
                                            "started, and that it is not stopped",
                                            to_seconds(deadlines_.rendezvous))));
    } else if (silent > std::min(patience, kSuspicious)) {
      certain = certain || silent > patience;
      lost.push_back(loss(rank, fmt::format("silent for {:.1f} s: it is stopped, or cannot be "
                                            "reached",
                                            to_seconds(silent))));
    }
  }
  if (certain) return lost;
  if (overdue_meeting_ == 0) return {};
  return lost.empty() ? missing_at_meeting() : lost;
}

std::string RankStates::waiting_text(Time now) const {
  if (now - begin_ < kSlowToJoin) return {};
  std::string list;
  std::size_t absent = 0;
  for (std::size_t rank = 0; rank < entries_.size(); ++rank) {
    if (entries_[rank].arrived) continue;
    if (++absent <= kListed) list += fmt::format("{}{}", list.empty() ? "" : ", ", rank);
  }
  if (absent == 0) return {};
  return fmt::format("waiting for rank{} {}{} to join ({} of {} are here)", absent == 1 ? "" : "s",
                     list, absent > kListed ? ", ..." : "", entries_.size() - absent,
                     entries_.size());
}

/// Live ranks that did not come to a meeting where others waited too long.
std::vector<LostRank> RankStates::missing_at_meeting() const {
  std::vector<LostRank> lost;
  for (std::int32_t rank = 0; rank < size(); ++rank) {
    if (entry(rank).left || entry(rank).state.meetings >= overdue_meeting_) continue;
    lost.push_back(loss(rank,
                        "it is alive, but did not reach the point where the other ranks waited for "
                        "it until their deadline"));
  }
  if (lost.empty()) {
    lost.push_back({.name = {},
                    .last = entry(self_).state,
                    .how = "all ranks reached the exchange and waited until the deadline; check "
                           "the network between their hosts"});
  }
  return lost;
}

}  // namespace penstock::liveness
