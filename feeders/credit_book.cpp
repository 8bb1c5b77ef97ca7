// SPDX-License-Identifier: Apache-2.0
#include "feeders/credit_book.h"

#include <algorithm>
#include <tuple>

#include "dataflow/error.h"

namespace penstock {

void CreditBook::remove(Producer producer) {
  const auto found = accounts_.find(producer);
  if (found == accounts_.end()) return;
  under_way_ -= found->second.under_way();
  accounts_.erase(found);
}

void CreditBook::retire(Producer producer) {
  Account& account = accounts_.at(producer);
  under_way_ -= static_cast<std::int64_t>(account.granted - account.taken);
  account.granted = account.taken;
  account.retired = true;
}

bool CreditBook::take(Producer producer) {
  Account& account = accounts_.at(producer);
  if (account.taken == account.granted) return false;
  ++account.taken;
  return true;
}

void CreditBook::give_back(Producer producer) {
  Account& account = accounts_.at(producer);
  PENSTOCK_ASSERT(account.given_back < account.taken);
  ++account.given_back;
  --under_way_;
}

bool CreditBook::has_unused() const noexcept {
  return std::any_of(accounts_.begin(), accounts_.end(),
                     [](const auto& entry) { return entry.second.granted > entry.second.taken; });
}

std::vector<CreditBook::Producer> CreditBook::grant() {
  std::vector<Producer> grown;
  while (under_way_ < together_ && !accounts_.empty()) {
    const auto next =
        std::min_element(accounts_.begin(), accounts_.end(), [](const auto& a, const auto& b) {
          return std::tuple(a.second.retired, a.second.under_way(), a.second.turn) <
                 std::tuple(b.second.retired, b.second.under_way(), b.second.turn);
        });
    auto& [producer, account] = *next;
    if (account.retired || account.under_way() >= per_producer_) break;
    ++account.granted;
    account.turn = ++turns_;
    ++under_way_;
    if (std::find(grown.begin(), grown.end(), producer) == grown.end()) grown.push_back(producer);
  }
  return grown;
}

}  // namespace penstock
