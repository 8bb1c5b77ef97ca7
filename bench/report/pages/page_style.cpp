// SPDX-License-Identifier: Apache-2.0
#include "bench/report/pages/page_style.h"

namespace penstock::report {

std::string_view page_style() {
  return R"(:root { color-scheme: light dark; --ink: #1b2127; --soft: #56616b; --line: #dfe3e7;
  --page: #ffffff; --panel: #f4f6f8; --bad: #c5512d; --good: #2c8a69; --open: #8b959e;
  --warn: #b98a16; }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e8ebee; --soft: #a3aeb8;
  --line: #333c45; --page: #14181c; --panel: #1f262d; --bad: #ee8660; --good: #54bd95;
  --open: #7f8a94; --warn: #d9ab3c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 57.5rem; padding: 2rem 1rem 4rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: .95rem; font-weight: 600; color: var(--soft); margin: 0 0 .75rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; line-height: 1.3; }
p { margin: .5rem 0; max-width: 46rem; }
ul { padding-left: 1.2rem; max-width: 46rem; }
li { margin: .25rem 0; }
p.soft, figcaption { color: var(--soft); font-size: .9rem; }
p.lead { font-size: 1.6rem; line-height: 1.3; font-weight: 600; margin: 0 0 .75rem;
  border-left: .3rem solid var(--open); padding-left: .9rem; }
p.lead.bad { border-color: var(--bad); } p.lead.good { border-color: var(--good); }
.verdict { list-style: none; padding: 0; margin: .75rem 0; }
.verdict li { padding-left: 1.2rem; position: relative; }
.verdict li::before { content: ""; position: absolute; left: 0; top: .5em; width: .6rem;
  height: .6rem; border-radius: 50%; background: var(--open); }
.verdict .bad::before { background: var(--bad); }
.verdict .good::before { background: var(--good); border-radius: 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); gap: .6rem;
  margin: 1.25rem 0; }
.tiles div { background: var(--panel); border-radius: .4rem; padding: .7rem .9rem; }
.tiles span { display: block; color: var(--soft); font-size: .85rem; }
.tiles b { font-size: 1.25rem; font-variant-numeric: tabular-nums; }
figure { margin: 0; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { margin-top: .4rem; max-width: 46rem; }
.narrow { display: none; max-width: 30rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; overflow-wrap: normal; }
th, td { text-align: left; vertical-align: top; padding: .4rem 1rem .4rem 0;
  border-bottom: 1px solid var(--line); }
th:last-child, td:last-child { padding-right: 0; }
th { font-weight: 600; color: var(--soft); }
td { font-variant-numeric: tabular-nums; }
td.number, th.number { text-align: right; }
td.number { white-space: nowrap; }
.scroll { overflow-x: auto; }
.warnings { background: var(--panel); border-left: .3rem solid var(--warn);
  padding: .4rem 1rem; margin: 1rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.2rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; min-width: 0; }
pre { background: var(--panel); border-radius: .4rem; padding: .8rem 1rem; white-space: pre-wrap;
  overflow-wrap: anywhere; font-size: .9rem; }
pre span { display: inline-block; max-width: 100%; }
details { margin: .5rem 0; } summary { cursor: pointer; }
details[open] summary { margin-bottom: .5rem; }
@media screen and (max-width: 43.75rem) {
  body { padding-top: 1.25rem; }
  p.lead { font-size: 1.3rem; }
  .wide { display: none; } .narrow { display: block; }
  .tiles { grid-template-columns: 1fr 1fr; }
  table, tbody, tr, td { display: block; }
  thead { display: none; }
  tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  td, td.number { border: 0; padding: .1rem 0; text-align: left; display: grid;
    grid-template-columns: 9rem 1fr; gap: .6rem; overflow-wrap: anywhere; white-space: normal; }
  td::before { content: attr(data-name); color: var(--soft); }
  td:first-child { font-weight: 600; display: block; } td:first-child::before { display: none; }
  td:empty { display: none; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 11pt; }
  figure, tr, .tiles, .warnings { break-inside: avoid; }
  h2 { break-after: avoid; }
  .tiles div, pre, .warnings { border: 1px solid var(--line); }
  table { font-size: 8.5pt; } th, td { padding-right: .6rem; } td.number { white-space: normal; }
  .scroll { overflow: visible; }
  * { print-color-adjust: exact; }
}
)";
}

}  // namespace penstock::report
