// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/check_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "dataflow/io/output_file.h"

namespace penstock::gpu {
namespace {

constexpr std::array<std::string_view, 4> kWords{"PASS", "FAIL", "SKIP", "NOTE"};

std::string_view word_for(Verdict verdict) { return kWords[static_cast<std::size_t>(verdict)]; }

}  // namespace

CheckReport::CheckReport(const CheckSettings& settings) : settings_(settings) {}

double CheckReport::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

bool CheckReport::is_asked_for(std::string_view name) const {
  std::string_view left = settings_.only;
  while (true) {
    const std::size_t comma = left.find(',');
    if (name.find(left.substr(0, comma)) != std::string_view::npos) return true;
    if (comma == std::string_view::npos) return false;
    left.remove_prefix(comma + 1);
  }
}

bool CheckReport::wants(std::string_view name) {
  if (!is_asked_for(name)) return false;
  const std::scoped_lock lock(mutex_);
  if (settings_.seconds <= 0 || seconds() < settings_.seconds) return true;
  ++left_out_;
  return false;
}

void CheckReport::add(std::string_view name, Verdict verdict,
                      const std::map<std::string, double>& figures, std::string_view text) {
  const std::scoped_lock lock(mutex_);
  std::string line = fmt::format("{} {}", word_for(verdict), name);
  for (const auto& [unit, value] : figures) line += fmt::format(" {}={:.4g}", unit, value);
  if (!text.empty()) line += fmt::format(": {}", text);
  std::puts(line.c_str());
  std::fflush(stdout);
  lines_.push_back({std::string(name), verdict, figures, std::string(text)});
}

std::size_t CheckReport::count(Verdict verdict) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(lines_, [&](const Line& line) { return line.verdict == verdict; }));
}

int CheckReport::finish(std::string_view verb) {
  const std::scoped_lock lock(mutex_);
  fmt::print("{}: {} passed, {} failed, {} skipped in {:.1f} s", verb, count(Verdict::pass),
             count(Verdict::fail), count(Verdict::skip), seconds());
  if (left_out_ > 0) fmt::print("; {} not made, since the time was up", left_out_);
  if (lines_.empty()) fmt::print("; no check has '{}' in its name", settings_.only);
  fmt::print("\n");
  if (!settings_.json.empty()) write_json(verb);
  return count(Verdict::fail) > 0 ? 1 : 0;
}

void CheckReport::write_json(std::string_view verb) const {
  nlohmann::json checks = nlohmann::json::array();
  for (const Line& line : lines_) {
    nlohmann::json figures = nlohmann::json::object();
    for (const auto& [unit, value] : line.figures) {
      figures[unit] = std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
    }
    checks.push_back({{"name", line.name},
                      {"verdict", word_for(line.verdict)},
                      {"figures", std::move(figures)},
                      {"text", line.text}});
  }
  const nlohmann::json report{{"verb", verb},
                              {"seconds", seconds()},
                              {"passed", count(Verdict::pass)},
                              {"failed", count(Verdict::fail)},
                              {"skipped", count(Verdict::skip)},
                              {"left_out", left_out_},
                              {"checks", std::move(checks)}};
  OutputFile file(settings_.json, "give --json a file in a folder that can be written");
  file.write(report.dump(1) + '\n');
  file.commit();
}

}  // namespace penstock::gpu
