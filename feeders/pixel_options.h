// SPDX-License-Identifier: Apache-2.0
// The options with which feeders of other programs' batches say which pixels those have. Stateless:
// any thread may call any function.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dataflow/batch.h"
#include "dataflow/options.h"

namespace penstock {

inline constexpr OptionSpec kPixelOptions[] = {
    {"pixels", "u8", "type of the pixels: u8, f16, bf16 or f32"},
    {"planar", "false", "batches lie in memory as [N,C,H,W]"},
};

/// "u8", "f16", "bf16" or "f32".
std::string_view pixel_type_name(DType type);

/// Takes the options of `kPixelOptions`. Pixels that are no bytes count as normalised; the device
/// normalises bytes. Throws ConfigError.
void shape_pixels(const Options& options, BatchSpec& batches);

/// Takes batches that hold no images, from "NxBYTESB": at most as many bytes, of N samples in a
/// usual batch. `what` names the text in errors. Throws ConfigError.
void shape_arrays(std::string_view text, std::string_view what, BatchSpec& batches);

/// The lengths of the pixels' dimensions: [N,H,W,C], or [N,C,H,W] if planar.
std::array<std::int32_t, 4> pixel_lengths(const BatchSpec& spec);
/// "f32 [64,3,224,224]"; an unknown type is "?".
std::string describe_pixels(std::optional<DType> type, std::span<const std::int64_t> lengths);
std::string describe_pixels(const BatchSpec& spec);

/// The flags of a run that takes pixels of this type and shape, such as "--batch-size 32 and
/// zmq-consume:pixels=f32,planar=true", as far as they differ from those of `spec`. Empty: no run
/// takes them, or they fit.
std::string flags_for_pixels(std::string_view feeder, std::optional<DType> type,
                             std::span<const std::int64_t> shape, const BatchSpec& spec);

}  // namespace penstock
