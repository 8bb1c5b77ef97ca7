// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures/figure_style.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <string_view>

namespace penstock::report {
namespace {

struct Colour {
  std::string_view selector, property, light, dark;
};
constexpr std::array kColours = {
    Colour{"text", "fill", "#1b2127", "#e8ebee"},
    Colour{".soft", "fill", "#56616b", "#a3aeb8"},
    Colour{".ink", "fill", "#1b2127", "#e8ebee"},
    Colour{".paper", "fill", "#ffffff", "#14181c"},
    Colour{".grid", "stroke", "#e2e6ea", "#2c343c"},
    Colour{".axis", "stroke", "#8b959e", "#6d7882"},
    Colour{".whisker", "stroke", "#1b2127", "#e8ebee"},
    Colour{".demand", "stroke", "#b3402a", "#f08d70"},
    Colour{".demand-text", "fill", "#a63a25", "#f3a18a"},
    Colour{".device", "fill", "#3a75b4", "#5b9bdc"},
    Colour{".starvation", "fill", "#c5512d", "#ee8660"},
    Colour{".transfer", "fill", "#dba32c", "#e9bd5a"},
    Colour{".interference", "fill", "#7c559d", "#b78ee0"},
    Colour{".gain", "fill", "#2c8a69", "#54bd95"},
    Colour{".residual", "fill", "#b4bcc4", "#5d6872"},
    Colour{".band", "fill", "#3a75b4", "#5b9bdc"},
    Colour{".law", "stroke", "#3a75b4", "#5b9bdc"},
    Colour{".curve-1", "stroke", "#3a75b4", "#5b9bdc"},
    Colour{".curve-2", "stroke", "#c5512d", "#ee8660"},
    Colour{".curve-3", "stroke", "#2c8a69", "#54bd95"},
    Colour{".curve-4", "stroke", "#7c559d", "#b78ee0"},
    Colour{".curve-5", "stroke", "#dba32c", "#e9bd5a"},
    Colour{".curve-ideal", "stroke", "#8b959e", "#6d7882"},
    Colour{".shade", "fill", "#eff2f5", "#1f262d"},
    Colour{".halo", "stroke", "#ffffff", "#14181c"},
    Colour{".tear", "stroke", "#ffffff", "#14181c"},
    Colour{".edge", "stroke", "#ffffff", "#14181c"},
    Colour{".frame", "stroke", "#8b959e", "#6d7882"},
    Colour{".narrow-place", "stroke", "#c5512d", "#ee8660"},
};

/// Rules that are the same for light and dark.
constexpr std::string_view kShapes =
    R"(.ps{font:12px/1.3 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums}
.ps .small{font-size:11px}
.ps .strong{font-weight:600}
.ps .grid,.ps .axis{stroke-width:1}
.ps .whisker{stroke-width:1.5}
.ps .demand{stroke-width:1.5;stroke-dasharray:6 4}
.ps .dotted{stroke-dasharray:2 3}
.ps .band{fill-opacity:.2}
.ps .law{fill:none;stroke-width:2}
.ps .curve{fill:none;stroke-width:2}
.ps .curve-2{stroke-dasharray:9 3}
.ps .curve-3{stroke-dasharray:2 2}
.ps .curve-4{stroke-dasharray:9 3 2 3}
.ps .curve-ideal{stroke-dasharray:6 4}
.ps .faint{fill-opacity:.4}
.ps .thin{stroke-width:1}
.ps .edge{stroke-width:1.5}
.ps .halo{stroke-width:4;stroke-linejoin:round;paint-order:stroke}
.ps .frame{fill:none;stroke-width:1}
.ps .narrow-place{fill:none;stroke-width:2.5}
.ps .tear{stroke-width:4}
)";

}  // namespace

std::string figure_style() {
  std::string style(kShapes);
  for (const Colour& colour : kColours) {
    fmt::format_to(std::back_inserter(style), ".ps {}{{{}:{}}}\n", colour.selector, colour.property,
                   colour.light);
  }
  style += "@media screen and (prefers-color-scheme:dark){\n";
  for (const Colour& colour : kColours) {
    fmt::format_to(std::back_inserter(style), ".ps {}{{{}:{}}}\n", colour.selector, colour.property,
                   colour.dark);
  }
  return style + "}\n";
}

}  // namespace penstock::report
