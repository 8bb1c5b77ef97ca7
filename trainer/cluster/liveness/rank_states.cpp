// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/liveness/rank_states.h"

#include <fmt/format.h>

#include <algorithm>
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

double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

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
  if (state.step < state.warm_up)
    return fmt::format("while warming up, at step {}", state.step + 1);
  return fmt::format("while measuring, at step {}", state.step - state.warm_up + 1);
}

}  // namespace

std::string to_text(std::span<const LostRank> lost) {
  std::string text;
  for (const LostRank& each : lost) {
    if (!text.empty()) text += "; ";
    if (each.rank == LostRank::kNobody) {
      text +=
          fmt::format("no rank was lost, but all ranks stopped {}: {}", where(each.last), each.how);
      continue;
    }
    const std::string place =
        each.place.host.empty()
            ? ""
            : fmt::format(" (host {}, pid {})", each.place.host, each.place.pid);
    text += fmt::format("rank {}{} was lost {}: {}", each.rank, place, where(each.last), each.how);
  }
  return text;
}

RankStates::RankStates(std::int32_t size, std::int32_t self, const RankDeadlines& deadlines,
                       Time now)
    : self_(self),
      deadlines_(deadlines),
      begin_(now),
      asked_(now),
      entries_(static_cast<std::size_t>(size)) {
  entries_[static_cast<std::size_t>(self)].arrived = true;
}

void RankStates::arrived(std::int32_t rank, RankPlace place, Time now) {
  Entry& entry = entries_[static_cast<std::size_t>(rank)];
  entry.place = std::move(place);
  entry.heard = now;
  entry.arrived = true;
}

void RankStates::heard(std::int32_t rank, const cluster::RankState& state, Time now) {
  Entry& entry = entries_[static_cast<std::size_t>(rank)];
  entry.state = state;
  entry.heard = now;
}

void RankStates::left(std::int32_t rank) { entries_[static_cast<std::size_t>(rank)].left = true; }

void RankStates::closed(std::int32_t rank) {
  Entry& entry = entries_[static_cast<std::size_t>(rank)];
  entry.closed = entry.arrived;
}

void RankStates::overdue(std::int32_t rank, const cluster::RankState& state) {
  entries_[static_cast<std::size_t>(rank)].state = state;
  overdue_meeting_ = std::max(overdue_meeting_, state.meetings);
}

LostRank RankStates::loss(std::int32_t rank, std::string how) const {
  const Entry& entry = entries_[static_cast<std::size_t>(rank)];
  LostRank lost;
  lost.rank = rank;
  lost.place = entry.place;
  lost.last = entry.state;
  const cluster::RankPhase own = entries_[static_cast<std::size_t>(self_)].state.phase;
  lost.last.phase = std::max(lost.last.phase, cluster::least_of_others(own));
  lost.how = std::move(how);
  return lost;
}

std::vector<LostRank> RankStates::lost(Time now) {
  if (const Nanoseconds passed = now - std::exchange(asked_, now); passed > kStoodStill) {
    for (Entry& entry : entries_) entry.heard = now;
    begin_ += passed;
  }
  std::vector<LostRank> lost;
  bool certain = false;
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(entries_.size()); ++rank) {
    const Entry& entry = entries_[static_cast<std::size_t>(rank)];
    if (rank == self_ || entry.left) continue;
    const Nanoseconds silent = now - entry.heard;
    const Nanoseconds patience = deadlines_.silence_in(entry.state.phase);
    if (entry.closed) {
      certain = true;
      lost.push_back(loss(rank, "its connection closed"));
    } else if (!entry.arrived) {
      if (now - begin_ <= deadlines_.rendezvous) continue;
      certain = true;
      lost.push_back(loss(rank, fmt::format("it did not join within {:.3g} s; check that it was "
                                            "started, and that it is not stopped",
                                            seconds(deadlines_.rendezvous))));
    } else if (silent > std::min(patience, kSuspicious)) {
      certain = certain || silent > patience;
      lost.push_back(loss(rank, fmt::format("silent for {:.1f} s: it is stopped, or cannot be "
                                            "reached",
                                            seconds(silent))));
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
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(entries_.size()); ++rank) {
    const Entry& entry = entries_[static_cast<std::size_t>(rank)];
    if (entry.left || entry.state.meetings >= overdue_meeting_) continue;
    lost.push_back(loss(rank,
                        "it is alive, but did not reach the point where the other ranks waited for "
                        "it until their deadline"));
  }
  if (lost.empty()) {
    LostRank nobody;
    nobody.rank = LostRank::kNobody;
    nobody.last = entries_[static_cast<std::size_t>(self_)].state;
    nobody.how =
        "all ranks reached the exchange and waited until the deadline; check the network between "
        "their hosts";
    lost.push_back(std::move(nobody));
  }
  return lost;
}

}  // namespace penstock::liveness
