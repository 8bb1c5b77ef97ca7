// SPDX-License-Identifier: Apache-2.0
// What --device auto stands for on this machine.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "bench/run_config.h"

namespace penstock {

/// The value of --device that choose_devices() replaces, and its default on the command line.
inline constexpr std::string_view kAutoDevice = "auto";

/// Replaces --device auto in `runs`: by `gpu` if this machine has a GPU that can be used, else by
/// `emulated`. If --num-gpus is not among the `arguments`, a run takes no more GPUs than there are.
/// Returns a line that says what was chosen and why; empty: no run asks for auto. Opens the GPU
/// library, at most once; not for use on several threads.
std::string choose_devices(std::span<RunConfig> runs, std::span<const std::string> arguments);

}  // namespace penstock
