// SPDX-License-Identifier: Apache-2.0
// Builds flags that share a heading in the help text of a verb.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "bench/config/flags.h"

namespace penstock {

/// Makes flags with the heading `group`.
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
