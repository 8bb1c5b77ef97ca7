// SPDX-License-Identifier: Apache-2.0
// Writes a ladder as files in tfperftest's layout. Pure functions except the last.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/report/figures/svg.h"
#include "bench/scaling/scale_result.h"

namespace penstock::scaling {

/// One line for each rung that ran: "devices,images per second", without a header. Failed rungs
/// have no line.
std::string rates_csv(const ScaleResult& result);
/// The same lines with the ideal rate: that of the first rung, scaled to the number of devices.
std::string ideal_csv(const ScaleResult& result);
std::string scale_figure(const ScaleResult& result, const report::FigureSize& size);
nlohmann::ordered_json to_json(const ScaleResult& result);

/// Writes into the existing `folder`: NAME.csv, NAME.csv.ideal, NAME.svg and NAME.json. For each
/// rung with runs it also writes NAME_gDEVICES/runs.json, one line of `penstock run --json` per
/// run, and NAME_gDEVICES/imagespersec, the rate of one device. Throws DataError.
void write_scale_files(const ScaleResult& result, const std::filesystem::path& folder);

}  // namespace penstock::scaling
