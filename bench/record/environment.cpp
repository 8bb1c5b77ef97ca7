// SPDX-License-Identifier: Apache-2.0
#include "bench/record/environment.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <sstream>

#include "bench/record/machine.h"
#include "dataflow/machine/kernel_file.h"
#include "penstock_build.h"
#include "penstock_revision.h"

namespace penstock {
namespace {

/// The text after "key<space>:" in a file of such lines; empty if there is none.
std::string field_of(const std::filesystem::path& path, std::string_view key) {
  return KernelFile(path).field(key).value_or("");
}

std::string cpu_model(const utsname& system) {
  const std::string name = field_of("/proc/cpuinfo", "model name");
  return name.empty() ? fmt::format("unknown, {}", system.machine) : name;
}

bool is_virtual_machine() {
  std::istringstream flags(field_of("/proc/cpuinfo", "flags"));
  for (std::string flag; flags >> flag;) {
    if (flag == "hypervisor") return true;
  }
  return false;
}

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  std::error_code missing;
  const std::filesystem::directory_iterator folder("/proc/driver/nvidia/gpus", missing);
  for (const std::filesystem::directory_entry& gpu : folder) {
    if (std::string name = field_of(gpu.path() / "information", "Model"); !name.empty()) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

/// The driver version without its label: "NVIDIA UNIX x86_64 Kernel Module  550.54.15  ..."
std::optional<std::string> gpu_driver() {
  std::string text = field_of("/proc/driver/nvidia/version", "NVRM version");
  return text.empty() ? std::nullopt : std::optional(std::move(text));
}

/// Parses the list that the build defines: "fmt 9.1.0;TBB 2021.8.0".
std::map<std::string, std::string> libraries() {
  std::map<std::string, std::string> result{{"glibc", gnu_get_libc_version()}};
  std::istringstream list(PENSTOCK_BUILD_LIBRARIES);
  for (std::string item; std::getline(list, item, ';');) {
    const std::size_t space = item.find(' ');
    if (space != std::string::npos) result[item.substr(0, space)] = item.substr(space + 1);
  }
  return result;
}

double share_percent(const CpuTicks& before, const CpuTicks& after, std::uint64_t CpuTicks::*part) {
  if (after.total <= before.total || after.*part < before.*part) return 0;
  return 100 * static_cast<double>(after.*part - before.*part) /
         static_cast<double>(after.total - before.total);
}

/// Above this load per core, other processes probably take cycles from the measurement.
constexpr double kHighLoad = 0.75;
/// Above this share in per cent, stolen time explains differences of the size that matters here.
constexpr double kHighSteal = 1;

bool is_loaded(const Environment& environment) {
  return environment.load_average > kHighLoad * environment.usable_cores;
}

}  // namespace

CpuTicks read_cpu_ticks(const std::filesystem::path& root) {
  // cpu user nice system idle iowait irq softirq steal guest guest_nice; guests are within user
  std::istringstream file(KernelFile(root / "proc/stat").text);
  std::string label;
  CpuTicks ticks;
  file >> label;
  for (int column = 0; column < 8; ++column) {
    std::uint64_t value = 0;
    if (!(file >> value)) return {};
    ticks.total += value;
    const bool idles = column == 3 || column == 4;
    if (column == 7) {
      ticks.steal = value;
    } else if (!idles) {
      ticks.busy += value;
    }
  }
  return ticks;
}

std::optional<std::string> read_governor(std::int32_t processor,
                                         const std::filesystem::path& root) {
  return KernelFile(root /
                    fmt::format("sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", processor))
      .first_line();
}

std::optional<std::uint64_t> read_heat_throttles(const std::filesystem::path& root) {
  std::optional<std::uint64_t> throttles;
  std::error_code missing;
  for (const auto& entry :
       std::filesystem::directory_iterator(root / "sys/devices/system/cpu", missing)) {
    const KernelFile count(entry.path() / "thermal_throttle/core_throttle_count");
    if (count.number()) throttles = throttles.value_or(0) + *count.number();
  }
  return throttles;
}

double steal_percent(const CpuTicks& before, const CpuTicks& after) {
  return share_percent(before, after, &CpuTicks::steal);
}

double busy_percent(const CpuTicks& before, const CpuTicks& after) {
  return share_percent(before, after, &CpuTicks::busy);
}

Environment read_environment() {
  utsname system{};
  uname(&system);
  Environment environment;
  environment.cpu_model = cpu_model(system);
  environment.usable_cores = usable_cores();
  environment.online_cores = static_cast<std::int32_t>(sysconf(_SC_NPROCESSORS_ONLN));
  environment.memory_bytes = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                             static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  environment.virtual_machine = is_virtual_machine();
  environment.cpu_governor = read_governor(0);
  static_cast<void>(getloadavg(&environment.load_average, 1));
  environment.kernel = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  environment.gpus = gpu_names();
  environment.gpu_driver = gpu_driver();
  environment.version = PENSTOCK_BUILD_VERSION;
  environment.revision = PENSTOCK_REVISION;
  environment.compiler = PENSTOCK_BUILD_COMPILER;
  environment.compiler_flags = PENSTOCK_BUILD_FLAGS;
  environment.build_type = PENSTOCK_BUILD_TYPE;
  environment.libraries = libraries();
  environment.date = utc_now();
  return environment;
}

bool was_busy(const Environment& environment) {
  if (environment.steal_percent.value_or(0) > kHighSteal) return true;
  return environment.busy_percent ? *environment.busy_percent > kAtRestPercent
                                  : is_loaded(environment);
}

std::vector<std::string> warnings_of(const Environment& environment) {
  std::vector<std::string> warnings;
  if (environment.cpu_governor && *environment.cpu_governor != "performance") {
    warnings.push_back(
        fmt::format("the processor's frequency governor is '{}', not 'performance': speed depends "
                    "on what ran before",
                    *environment.cpu_governor));
  }
  if (environment.busy_percent) {
    if (*environment.busy_percent > kAtRestPercent) {
      warnings.push_back(
          fmt::format("the machine was not idle before the first round: other programs used {:.0f} "
                      "% of its processors",
                      *environment.busy_percent));
    }
  } else if (is_loaded(environment)) {
    warnings.push_back(fmt::format(
        "the load average was {:.1f} on {} usable cores when the measurement began: other programs "
        "may have taken processor time (a build that has just ended shows here too)",
        environment.load_average, environment.usable_cores));
  }
  if (environment.steal_percent.value_or(0) > kHighSteal) {
    warnings.push_back(fmt::format(
        "the hypervisor took {:.1f} % of the processor time for others while the sweep ran",
        *environment.steal_percent));
  }
  return warnings;
}

}  // namespace penstock
