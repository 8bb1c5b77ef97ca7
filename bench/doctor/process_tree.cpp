// SPDX-License-Identifier: Apache-2.0
#include "bench/doctor/process_tree.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>

#include "dataflow/error.h"
#include "dataflow/machine/kernel_file.h"
#include "dataflow/machine/memory_limit.h"
#include "dataflow/machine/processes.h"
#include "dataflow/machine/thread_places.h"

namespace penstock::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kBytesPerKib = 1024;

std::optional<ThreadReading> read_thread(const fs::path& folder) {
  const ProcessStat stat(folder);
  if (!stat) return std::nullopt;
  ThreadReading thread{.state = stat.state(),
                       .processor = stat.small_number(ProcessStat::kProcessor)};
  // schedstat: ns on a core, ns waiting for one, times it had one
  std::istringstream times(KernelFile(folder / "schedstat").text);
  if (std::uint64_t running = 0, waiting = 0; times >> running >> waiting) {
    thread.cpu_ns = running;
    thread.core_wait_ns = waiting;
  } else {
    constexpr std::uint64_t kNsPerS = 1'000'000'000;
    thread.cpu_ns =
        (stat.number(ProcessStat::kUserTicks) + stat.number(ProcessStat::kSystemTicks)) *
        (kNsPerS / static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK)));
  }
  thread.preemptions =
      KernelFile(folder / "status").value("nonvoluntary_ctxt_switches").value_or(0);
  return thread;
}

std::string thread_settings_in(const std::string& environment) {
  std::string settings;
  std::istringstream variables(environment);
  for (std::string variable; std::getline(variables, variable, '\0');) {
    for (const std::string_view name :
         {"OMP_NUM_THREADS=", "MKL_NUM_THREADS=", "OPENBLAS_NUM_THREADS="}) {
      const std::string_view value =
          std::string_view(variable).substr(std::min(name.size(), variable.size()));
      const bool plain = value.find_first_not_of("0123456789,") == std::string_view::npos;
      if (!variable.starts_with(name) || !plain) continue;
      settings += (settings.empty() ? "" : ", ") + variable;
    }
  }
  return settings;
}

/// Bytes of the files in /dev/shm among the lines "BEGIN-END FLAGS OFFSET DEVICE INODE PATH" of
/// /proc/PID/maps. The names of files that are removed already remain in it.
std::map<std::string, std::uint64_t> shared_files_in(const std::string& maps) {
  std::map<std::string, std::uint64_t> files;
  std::istringstream lines(maps);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" /dev/shm/") == std::string::npos) continue;
    std::istringstream words(line);
    std::uint64_t begin = 0, end = 0;
    char dash = 0;
    std::string flags, offset, device, inode;
    if (words >> std::hex >> begin >> dash >> end >> flags >> offset >> device >> inode &&
        end > begin) {
      files[fmt::format("{} {}", device, inode)] += end - begin;
    }
  }
  return files;
}

Pressure read_pressure(const fs::path& folder, std::string_view suffix) {
  const auto read = [&](std::string_view what) {
    return KernelFile(folder / fmt::format("{}{}", what, suffix)).pressure_us();
  };
  return {.cpu_us = read("cpu"), .io_us = read("io"), .memory_us = read("memory")};
}

std::optional<std::uint64_t> sum(std::optional<std::uint64_t> a, std::optional<std::uint64_t> b) {
  return a && b ? *a + *b : a ? a : b;
}

/// Counts states of threads in one reading.
void add_sample(const Reading& reading, Observation& seen) {
  ++seen.samples;
  for (const auto& [pid, process] : reading.processes) {
    bool in_disk_sleep = false;
    for (const auto& [id, thread] : process.threads) {
      in_disk_sleep = in_disk_sleep || thread.state == 'D';
      if (thread.state == 'R') ++seen.runs_on[thread.processor];
    }
    if (in_disk_sleep) ++seen.disk_sleeps[pid];
  }
}

}  // namespace

TreeReader::TreeReader(std::int32_t pid, std::int32_t self, fs::path root)
    : pid_(pid), self_(self), root_(std::move(root)) {}

void TreeReader::give_reason(const std::string& figure, std::int32_t pid, int error) {
  const ProcessStat stat(root_ / "proc" / std::to_string(pid));
  if (!stat.runs()) return;  // it has just ended, so its files are gone
  std::string text = fmt::format("process {} ({}): {}", pid, stat.name(),
                                 error == 0 ? "no such figure" : std::strerror(error));
  if (error == EACCES || error == EPERM) text += "; run penstock as the same user, or as root";
  reasons_.emplace(figure, std::move(text));
}

std::optional<ProcessReading> TreeReader::read_process(std::int32_t pid) {
  const fs::path folder = root_ / "proc" / std::to_string(pid);
  const ProcessStat stat(folder);
  if (!stat.runs()) return std::nullopt;
  ProcessReading process{.parent = stat.small_number(ProcessStat::kParent),
                         .start_ticks = stat.number(ProcessStat::kStart),
                         .name = stat.name(),
                         .major_faults = stat.number(ProcessStat::kMajorFaults)};
  const KernelFile status(folder / "status");
  if (!status.value("VmRSS")) give_reason("rss", pid, status.error);
  process.rss_bytes = status.value("VmRSS").value_or(0) * kBytesPerKib;
  process.swap_bytes = status.value("VmSwap").value_or(0) * kBytesPerKib;
  const KernelFile io(folder / "io");
  process.read_bytes = io.value("read_bytes");
  if (!process.read_bytes) give_reason("read_bytes", pid, io.error);
  for (const std::int32_t thread : numbers_in(folder / "task")) {
    const auto reading = read_thread(folder / "task" / std::to_string(thread));
    if (reading) process.threads.emplace(thread, *reading);
  }
  const KernelFile waits(folder / "schedstat");
  if (!waits.number()) give_reason("core_wait", pid, waits.error);
  if (process.threads.empty()) give_reason("threads", pid, EACCES);
  return process;
}

ProcessFacts TreeReader::read_facts(std::int32_t pid) {
  const fs::path folder = root_ / "proc" / std::to_string(pid);
  ProcessFacts facts;
  const auto list = KernelFile(folder / "status").field("Cpus_allowed_list");
  try {
    if (list) facts.allowed_processors = parse_cpu_list(*list, "Cpus_allowed_list");
  } catch (const Error&) {  // counts as not known below
  }
  if (facts.allowed_processors.empty()) give_reason("affinity", pid, 0);
  // Max open files            1024                 4096                 files
  const KernelFile limits(folder / "limits");
  facts.open_files_limit = limits.value("Max open files");
  if (!facts.open_files_limit) give_reason("open_files", pid, limits.error);
  std::error_code error;
  const fs::directory_iterator descriptors(folder / "fd", error);
  if (!error) {
    facts.open_files = numbers_in(folder / "fd").size() + fs::exists(folder / "fd/0", error);
  } else {
    give_reason("open_files", pid, error.value());
  }
  const KernelFile environment(folder / "environ"), maps(folder / "maps");
  facts.thread_settings = thread_settings_in(environment.text);
  if (environment.error != 0) give_reason("environment", pid, environment.error);
  facts.shared_files = shared_files_in(maps.text);
  if (maps.error != 0) give_reason("shared_files", pid, maps.error);
  return facts;
}

void TreeReader::read_groups(MachineReading& machine) const {
  const std::string process = std::to_string(pid_);
  for (const auto& [version, folder] : control_groups(process, "cpu", root_)) {
    const KernelFile stat(folder / "cpu.stat");
    machine.quota_periods = sum(machine.quota_periods, stat.value("nr_periods"));
    machine.quota_throttles = sum(machine.quota_throttles, stat.value("nr_throttled"));
    if (version == 2) machine.group = read_pressure(folder, ".pressure");  // the last is its own
  }
}

Reading TreeReader::read(Time now) {
  Reading reading;
  reading.time = now;
  for (const std::int32_t pid : process_tree(pid_, self_, root_)) {
    auto process = read_process(pid);
    if (!process && pid == pid_) return reading;
    if (!process) continue;
    if (!facts_.contains(pid)) facts_.emplace(pid, read_facts(pid));
    reading.processes.emplace(pid, std::move(*process));
  }
  MachineReading& machine = reading.machine;
  machine.ticks = read_cpu_ticks(root_);
  machine.machine = read_pressure(root_ / "proc/pressure", "");
  machine.heat_throttles = read_heat_throttles(root_);
  read_groups(machine);
  machine.uptime_s = KernelFile(root_ / "proc/uptime").number();
  const KernelFile memory(root_ / "proc/meminfo");
  const auto bytes = [&](std::string_view key) -> std::optional<std::uint64_t> {
    const auto kib = memory.value(key);
    return kib ? std::optional(*kib * kBytesPerKib) : std::nullopt;
  };
  machine.memory_bytes = bytes("MemTotal");
  machine.available_bytes = bytes("MemAvailable");
  const auto swap = bytes("SwapTotal"), free = bytes("SwapFree");
  if (swap && free) machine.swap_used_bytes = *swap - std::min(*swap, *free);
  return reading;
}

MachineFacts TreeReader::read_machine() {
  const std::string process = std::to_string(pid_);
  const fs::path system = root_ / "sys/devices/system";
  MachineFacts facts;
  facts.quota_cores = cpu_quota(process, root_);
  facts.group_memory_bytes = group_memory_limit(root_, process);
  facts.room_bytes = available_memory(root_, process);
  // The process may be in a container, which has its own /dev/shm.
  struct statvfs shm {};
  if (statvfs((root_ / "proc" / process / "root/dev/shm").c_str(), &shm) == 0) {
    facts.shm_bytes = {std::uint64_t{shm.f_blocks} * shm.f_frsize,
                       std::uint64_t{shm.f_bavail} * shm.f_frsize};
  } else {
    give_reason("shm", pid_, errno);
  }
  try {
    const std::string online = KernelFile(system / "cpu/online").first_line().value_or("");
    const std::vector<std::int32_t> processors = parse_cpu_list(online, "cpu/online");
    facts.online_processors = static_cast<std::int32_t>(processors.size());
    for (const Cpu& cpu : read_cpu_topology(processors, system)) facts.nodes[cpu.id] = cpu.node;
    for (const std::int32_t processor : processors) {
      if (auto governor = read_governor(processor, root_)) facts.governors.insert(*governor);
    }
  } catch (const ConfigError& error) {
    reasons_.emplace("nodes", error.what());
  }
  std::error_code missing;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(root_ / "sys/bus/pci/drivers/nvidia", missing)) {
    if (entry.path().filename().string().find(':') == std::string::npos) continue;
    const auto node = KernelFile(entry.path() / "numa_node").number();  // "-1": not known
    facts.gpu_nodes.push_back(node ? static_cast<std::int32_t>(*node) : -1);
  }
  return facts;
}

Observation observe(std::int32_t pid, TreeReader reader, Nanoseconds window, Clock& clock,
                    const std::stop_token& stop) {
  constexpr int kReadings = 10;
  constexpr int kPause =
      20;  // times the duration of a reading: reading takes 5 % of a core at most
  Observation seen;
  seen.root_pid = pid;
  const Time begin = clock.now();
  seen.first = reader.read(begin);
  if (seen.first.processes.empty()) {
    throw ConfigError(
        "there is no running process {}; expected the number of a training process, which `pgrep "
        "-f train.py` or nvidia-smi prints",
        pid);
  }
  const std::uint64_t start = seen.first.processes.at(pid).start_ticks;
  seen.machine = reader.read_machine();
  add_sample(seen.first, seen);
  for (Time now = clock.now(), before = begin; now < begin + window && !stop.stop_requested();) {
    const Nanoseconds pause = std::max(window / kReadings, kPause * (now - before));
    clock.sleep_until(std::min(now + pause, begin + window), stop);
    before = clock.now();
    Reading reading = reader.read(before);
    now = clock.now();
    const auto root = reading.processes.find(pid);
    seen.ended = root == reading.processes.end() || root->second.start_ticks != start;
    if (seen.ended) break;
    add_sample(reading, seen);
    seen.last = std::move(reading);
  }
  if (seen.last.processes.empty()) {
    throw ConfigError(
        "process {} ended before anything was measured; expected one that runs for some seconds",
        pid);
  }
  seen.facts = reader.facts();
  seen.reasons = reader.reasons();
  return seen;
}

}  // namespace penstock::doctor
