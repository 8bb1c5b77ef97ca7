// SPDX-License-Identifier: Apache-2.0
// Chooses the device for --device auto on this machine.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "bench/config/run_config.h"

namespace penstock {

/// The value of --device that choose_devices() replaces, and its default on the command line.
inline constexpr std::string_view kAutoDevice = "auto";

/// Replaces --device auto in `runs`: by `gpu` if this machine has a usable GPU, else by `emulated`.
/// If --num-gpus is not among the `arguments`, limits it to the number of GPUs. Returns a line with
/// the choice and the reason; empty if no run asks for auto. Opens the GPU library at most once.
/// Not thread-safe.
std::string choose_devices(std::span<RunConfig> runs, std::span<const std::string> arguments);

}  // namespace penstock
