// SPDX-License-Identifier: Apache-2.0
// Flags that a verb lists together in its help.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "bench/flags.h"

namespace penstock {

/// Makes flags of the group of that name.
struct FlagGroup {
  std::string_view group;

  Flag operator()(std::string name, std::string help, std::string fallback,
                  std::function<void(const std::string&)> set, std::string aliases = {}) const {
    return {.name = std::move(name),
            .aliases = std::move(aliases),
            .help = std::move(help),
            .fallback = std::move(fallback),
            .set = std::move(set),
            .group = std::string(group)};
  }
};

}  // namespace penstock
