// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/processes.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "dataflow/machine/kernel_file.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(std::int32_t pid, const fs::path& root) {
  return root / "proc" / std::to_string(pid);
}

}  // namespace

pid_t fork_watched(FileDescriptor& end) {
  // glibc 2.36 declares pidfd_open without C linkage, so that C++ cannot link it.
  const auto open = [](pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); };
  if (const FileDescriptor own(open(getpid())); own) {
    const pid_t pid = fork();
    if (pid > 0) end.reset(open(pid));
    return pid;
  }
  // Containers of older versions of Docker refuse pidfd_open, but let clone make the same thing. It
  // runs no handlers of fork, so it is not the first choice.
  int descriptor = -1;
  const auto pid = static_cast<pid_t>(
      syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, nullptr, &descriptor, nullptr, nullptr));
  if (pid > 0) end.reset(descriptor);
  return pid;
}

/// "PID (NAME) STATE PARENT ...". The name may have blanks and brackets.
ProcessStat::ProcessStat(const fs::path& folder) {
  const KernelFile file(folder / "stat");
  const std::size_t begin = file.text.find('('), end = file.text.rfind(')');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return;
  name_ = file.text.substr(begin + 1, end - begin - 1);
  for (char& c : name_) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
  std::istringstream words(file.text.substr(end + 1));
  for (std::string word; words >> word;) fields_.push_back(word);
}

std::uint64_t ProcessStat::number(std::size_t field) const {
  return parse_number<std::uint64_t>(fields_.at(field - kState)).value_or(0);
}

std::int32_t ProcessStat::small_number(std::size_t field) const {
  return static_cast<std::int32_t>(std::min<std::uint64_t>(number(field), INT32_MAX));
}

std::vector<std::int32_t> numbers_in(const fs::path& folder) {
  std::vector<std::int32_t> numbers;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto number = parse_number<std::int32_t>(entry->path().filename().native());
    if (number.value_or(0) > 0) numbers.push_back(*number);
  }
  return numbers;
}

std::vector<std::int32_t> process_tree(std::int32_t pid, std::int32_t without,
                                       const fs::path& root) {
  std::multimap<std::int32_t, std::int32_t> children;
  for (const std::int32_t each : numbers_in(root / "proc")) {
    const ProcessStat stat(folder_of(each, root));
    if (stat.runs()) children.emplace(stat.small_number(ProcessStat::kParent), each);
  }
  std::vector<std::int32_t> tree{pid};
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const auto [begin, end] = children.equal_range(tree[i]);
    for (auto child = begin; child != end; ++child) {
      const bool known = std::ranges::find(tree, child->second) != tree.end();
      if (!known && child->second != without) tree.push_back(child->second);
    }
  }
  return tree;
}

MemoryOfProcesses memory_of_descendants(std::int32_t pid, const fs::path& root) {
  constexpr std::uint64_t kBytesPerKib = 1024;
  MemoryOfProcesses memory;
  std::vector<std::int32_t> starters{pid};  // parents come before their children
  for (const std::int32_t each : process_tree(pid, 0, root)) {
    if (each == pid) continue;
    const fs::path folder = folder_of(each, root);
    const ProcessStat stat(folder);
    const bool is_started =
        stat && std::ranges::count(starters, stat.small_number(ProcessStat::kParent)) > 0;
    if (is_started && stat.name() == "sh") {
      starters.push_back(each);
      continue;
    }
    auto kib = KernelFile(folder / "smaps_rollup").value("Pss");
    if (!kib) kib = KernelFile(folder / "status").value("VmRSS");
    if (!kib || !stat) continue;  // it has just ended
    memory[each] = {.bytes = *kib * kBytesPerKib, .is_worker = !is_started};
  }
  return memory;
}

}  // namespace penstock
