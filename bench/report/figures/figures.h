// SPDX-License-Identifier: Apache-2.0
// The figures of pages. Each function returns one SVG element, for a page or for a separate file.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/report/figures/svg.h"
#include "bench/statistics/estimate.h"
#include "bench/statistics/scaling_law.h"

namespace penstock::report {

/// A figure of `data` in any size, for document::Figure::draw: drawn<waterfall_figure>(waterfall).
template <auto Figure, typename... Data>
std::function<std::string(const FigureSize&)> drawn(Data... data) {
  return [... data = std::move(data)](const FigureSize& size) { return Figure(data..., size); };
}

// Draws the share of a device's speed that each row of a sweep loses: a dot with its interval, and
// every round.

struct CostDot {
  std::string label;
  statistics::Estimate percent;
  std::vector<double> rounds;  ///< percent per round
};

std::string cost_dots_figure(const std::vector<CostDot>& dots, const FigureSize& size);

// Draws the parts of a feeder's cost as stacked bars.

/// All times in ms per step; see CostSplit.
struct SplitBar {
  std::string label;
  statistics::Estimate total_ms, starvation_ms, transfer_ms, interference_ms;
  double residual_ms = 0;
};

/// Negative parts are left of the line at 0. All bars have the same scale.
std::string cost_split_figure(const std::vector<SplitBar>& bars, const FigureSize& size);

// Draws the path of an image from source to trainer: a box per stage, followed by an arrow with the
// rate that the stage could reach.

struct PipelineStage {
  std::string name;
  std::string workers{};  ///< "2 decode threads"; empty: not shown
  std::string use{};      ///< "busy 96 %"; empty: unknown
  double img_per_s = 0;   ///< if no other stage limited it; 0: unknown
  bool narrow = false;    ///< it is the bottleneck
};

/// `stages` are upstream first, the trainer last. `demand_img_per_s` is the rate that the trainer
/// could reach. The thickness of an arrow grows with its rate, up to twice the demand. Drawn from
/// left to right if there is room, else from top to bottom.
std::string pipeline_figure(const std::vector<PipelineStage>& stages, double demand_img_per_s,
                            const FigureSize& size);

// Draws how many batches were ready in each ring over the window.

/// See QueueUse.
struct QueueTrack {
  std::string name;
  int slots = 0;
  double mean_filled = 0, empty_percent = 0, full_percent = 0;
  std::vector<double> filled;  ///< means over equal parts of the window
};

/// One strip per ring, upstream first, on a common time axis of `window_s` seconds.
std::string queue_occupancy_figure(const std::vector<QueueTrack>& tracks, double window_s,
                                   const FigureSize& size);

// Draws the memory in use over the window.

/// See MemoryUse.
struct MemoryTrack {
  std::string name;
  double peak_mib = 0;
  std::vector<double> mib;  ///< means over equal parts of the window
};

/// One strip per kind of memory, each from 0 to its peak, on a common time axis.
std::string memory_figure(const std::vector<MemoryTrack>& tracks, double window_s,
                          const FigureSize& size);

// Draws a value over the number of ranks: measured and ideal, or several projections.

struct CurvePoint {
  double ranks = 0, value = 0;
  double low = 0, high = 0;  ///< drawn as a whisker if they differ
};

/// The style of a curve. The ideal is dashed. All styles differ in lightness or in dashes.
enum class CurveLook : unsigned char { first, second, third, fourth, fifth, ideal };

struct Curve {
  std::string name;  ///< shown in the legend
  CurveLook look = CurveLook::first;
  bool marked = false;  ///< draw a plus at each point
  std::vector<CurvePoint> points{};
};

struct ScalingCurves {
  std::string title{}, description{};
  std::string ranks_title{};    ///< title of the horizontal axis
  std::string value_title{};    ///< title of the vertical axis, with the unit
  std::string stamp{};          ///< written across the top, such as "projected, not measured"
  bool doublings = false;       ///< logarithmic axis: each doubling has the same width; else linear
  bool from_origin = false;     ///< for linear axes: begin at 0 ranks, and curves there at 0
  double at_least = 0;          ///< lower bound for the end of the vertical axis
  std::vector<Curve> curves{};  ///< the legend is above the plot, from the left
};

/// Points that are not finite are left out. Without points, returns a sentence.
std::string scaling_curves_figure(const ScalingCurves& data, const FigureSize& size);

// Draws the duration and the parts of each step of a window, in order and as a histogram.

struct StepSeries {
  std::vector<double> step_ms;  ///< in order
  /// Per step, or empty: the times that the device waited; see RunResult. The rest of a step is the
  /// device's work.
  std::vector<double> starved_ms, copy_exposed_ms, late_ms;
  /// The total idle time, if the reasons are unknown. Drawn only if the three vectors above are
  /// empty.
  std::vector<double> idle_ms;
  std::optional<double> ceiling_ms;  ///< a step of the device without feeding
};

/// The strip is on the left, the histogram on the right; both have one axis of ms. For long
/// windows, each column stands for several steps, with a dot for the longest one. A text gives the
/// number of steps that are too long for the figure.
std::string step_times_figure(const StepSeries& times, const FigureSize& size);

// Draws what each feeder supplies, compared with what the devices could use: one bar per feeder.

struct SupplyBar {
  std::string label;
  statistics::Estimate supply_img_per_s;
  double demand_img_per_s = 0;
};

/// All bars have the same scale. If a supply exceeds the scale, its bar is cut and drawn torn.
std::string supply_bars_figure(const std::vector<SupplyBar>& bars, const FigureSize& size);

// Draws what a feeder can supply with more cores, compared with the demand of the device.

struct LawPoint {
  double threads = 1;
  statistics::Estimate img_per_s;
};

struct SupplyDemand {
  std::vector<statistics::ScalingPoint> measured;
  std::vector<LawPoint> law;    ///< threads ascending, with a band
  double demand_img_per_s = 0;  ///< 0: unknown
  std::optional<statistics::ThreadsNeeded> needed;
};

/// Beyond the largest measured number of threads, the background is shaded and labelled as
/// extrapolated.
std::string supply_demand_figure(const SupplyDemand& data, const FigureSize& size);

/// "5 cores needed: 4.2 (3.9 to 4.6)", "at least 5 cores needed", or the reason why the number is
/// unknown.
std::string needed_text(const statistics::ThreadsNeeded& needed);

// Draws how a time is composed, as one stacked bar of consecutive parts.

struct TimeShare {
  std::string name;         ///< "made (producer)"
  statistics::Estimate ms;  ///< 0 or more
  std::string classes;      ///< style classes: "device", "transfer"
};

/// `label` names what the time belongs to: "a batch". Parts that are not finite are left out.
std::string time_shares_figure(const std::string& label, const std::vector<TimeShare>& parts,
                               const FigureSize& size);

// Draws what each rung of a ladder, or each feeder of a sweep, adds to the step time.

struct WaterfallBar {
  std::string label;
  double from_ms = 0;  ///< start of the bar
  std::optional<statistics::Estimate>
      added_ms{};  ///< none: not measured; negative values go to the left
  /// The bar is a total, such as the device's time, not an addition.
  bool whole = false;
  /// Draws the device's share, from 0 on, in front of the bar; for bars that stand side by side.
  bool over_device = false;
  std::string_view classes{};  ///< colour; empty: the colour of costs or of gains
};

struct Waterfall {
  std::string description;  ///< for users who cannot see the figure
  std::vector<WaterfallBar> bars;
  std::string axis = "ms per step";
};

/// Bars from top to bottom. A bar that begins where the previous one ends is connected to it.
std::string waterfall_figure(const Waterfall& waterfall, const FigureSize& size);

}  // namespace penstock::report
