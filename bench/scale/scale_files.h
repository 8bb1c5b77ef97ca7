// SPDX-License-Identifier: Apache-2.0
// A ladder as files, laid out as tfperftest lays its logs out. Pure functions but for the last.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/figures/svg.h"
#include "bench/scale/scale_result.h"

namespace penstock {

/// A line for each rung that ran: "devices,images per second", no header. A rung that failed has
/// none, rather than an old or an empty one.
std::string rates_csv(const ScaleResult& result);
/// The same with what the first of them would make of so many devices if nothing were lost.
std::string ideal_csv(const ScaleResult& result);
std::string scale_figure(const ScaleResult& result, const FigureSize& size);
nlohmann::ordered_json to_json(const ScaleResult& result);

/// Writes into `folder`, which exists: NAME.csv, NAME.csv.ideal, NAME.svg, NAME.json, and for each
/// rung with runs NAME_gDEVICES/runs.json, as `penstock run --json` printed them, a line each, and
/// NAME_gDEVICES/imagespersec, the rate of one device. Throws DataError.
void write_scale_files(const ScaleResult& result, const std::filesystem::path& folder);

}  // namespace penstock
