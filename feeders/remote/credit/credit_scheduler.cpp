// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/credit/credit_scheduler.h"

#include <algorithm>
#include <tuple>

#include "dataflow/error.h"

namespace penstock::remote {

void CreditScheduler::remove(Producer producer) {
  const auto found = accounts_.find(producer);
  if (found == accounts_.end()) return;
  under_way_ -= found->second.under_way();
  accounts_.erase(found);
}

void CreditScheduler::retire(Producer producer) {
  Account& account = accounts_.at(producer);
  lapse(producer);
  account.granted = account.most_granted = account.taken;
  account.lapsed = false;
  account.retired = true;
}

bool CreditScheduler::take(Producer producer) {
  Account& account = accounts_.at(producer);
  if (account.taken == account.most_granted) return false;
  under_way_ -= account.under_way();
  account.granted = std::max(account.granted, ++account.taken);
  account.lapsed = false;
  under_way_ += account.under_way();
  return true;
}

std::int64_t CreditScheduler::lapse(Producer producer) {
  Account& account = accounts_.at(producer);
  const auto unused = static_cast<std::int64_t>(account.granted - account.taken);
  if (account.lapsed || unused == 0) return 0;
  under_way_ -= unused;
  account.granted = account.taken + 1;
  account.lapsed = true;
  return unused;
}

bool CreditScheduler::is_short() const noexcept {
  return under_way_ >= together_ &&
         std::any_of(accounts_.begin(), accounts_.end(), [this](const auto& entry) {
           const Account& account = entry.second;
           return account.may_grow() && account.granted == account.taken &&
                  account.under_way() < per_producer_;
         });
}

void CreditScheduler::give_back(Producer producer) {
  Account& account = accounts_.at(producer);
  PENSTOCK_ASSERT(account.given_back < account.taken);
  ++account.given_back;
  --under_way_;
}

bool CreditScheduler::has_unused() const noexcept {
  return std::any_of(accounts_.begin(), accounts_.end(),
                     [](const auto& entry) { return entry.second.granted > entry.second.taken; });
}

std::vector<CreditScheduler::Producer> CreditScheduler::grant() {
  std::vector<Producer> grown;
  while (under_way_ < together_ && !accounts_.empty()) {
    const auto next =
        std::min_element(accounts_.begin(), accounts_.end(), [](const auto& a, const auto& b) {
          return std::tuple(!a.second.may_grow(), a.second.under_way(), a.second.turn) <
                 std::tuple(!b.second.may_grow(), b.second.under_way(), b.second.turn);
        });
    auto& [producer, account] = *next;
    if (!account.may_grow() || account.under_way() >= per_producer_) break;
    ++account.granted;
    account.most_granted = std::max(account.most_granted, account.granted);
    account.turn = ++turns_;
    ++under_way_;
    if (std::find(grown.begin(), grown.end(), producer) == grown.end()) grown.push_back(producer);
  }
  return grown;
}

}  // namespace penstock::remote
