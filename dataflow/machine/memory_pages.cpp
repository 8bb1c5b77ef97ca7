// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/memory_pages.h"

#include <linux/mempolicy.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <sstream>
#include <string>

namespace penstock {
namespace {

constexpr std::size_t kPage = 4096, kHugePage = std::size_t{2} << 20;

/// Reads hexadecimal "begin-end" at the start of a line. False: the line does not have this form.
bool read_range(const std::string& line, std::uintptr_t& begin, std::uintptr_t& end) {
  std::istringstream text(line);
  char dash = 0;
  return text >> std::hex >> begin && text.get(dash) && dash == '-' && text >> end && begin < end;
}

/// The value of "AnonHugePages:      2048 kB" in bytes; 0 for other lines.
std::uint64_t read_huge(const std::string& line) {
  for (const char* const name : {"AnonHugePages:", "Private_Hugetlb:", "Shared_Hugetlb:"}) {
    if (!line.starts_with(name)) continue;
    std::istringstream text(line.substr(std::strlen(name)));
    std::uint64_t kib = 0;
    return text >> kib ? kib * 1024 : 0;
  }
  return 0;
}

}  // namespace

Buffer allocate_pages(std::size_t bytes, PageChoice pages) {
  const bool huge = pages == PageChoice::explicit_huge;
  const std::size_t unit = huge ? kHugePage : kPage;
  const std::size_t size = (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (huge ? MAP_HUGETLB | MAP_HUGE_2MB : 0);
  void* const address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (address == MAP_FAILED) return {};
  if (!huge) ::madvise(address, size, MADV_NOHUGEPAGE);
  // This call refuses pages that a limit forbids; without it, touching them would end the program.
  if (::madvise(address, size, MADV_POPULATE_WRITE) != 0) {
    if (errno != EINVAL) {
      ::munmap(address, size);
      return {};
    }
    std::memset(address, 0, size);  // for kernels that do not know the advice
  }
  return Buffer(static_cast<std::byte*>(address), bytes,
                [size](std::byte* block) { ::munmap(block, size); });
}

bool move_to_node(std::span<std::byte> memory, std::int32_t node) noexcept {
  constexpr std::size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, 16> mask{};
  const auto bit = static_cast<std::size_t>(node);
  if (node < 0 || bit >= mask.size() * kBits) {
    errno = EINVAL;
    return false;
  }
  mask[bit / kBits] = 1UL << (bit % kBits);
  // Whole pages; the first and the last may hold other data too.
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data()) / kPage * kPage;
  const auto end = reinterpret_cast<std::uintptr_t>(memory.data()) + memory.size();
  return ::syscall(SYS_mbind, begin, end - begin, MPOL_BIND, mask.data(), mask.size() * kBits + 1,
                   MPOL_MF_MOVE) == 0;
}

std::int32_t node_of(std::span<const std::byte> memory) noexcept {
  void* page = const_cast<std::byte*>(memory.data());
  int status = -1;
  if (::syscall(SYS_move_pages, 0, 1UL, &page, nullptr, &status, 0) != 0) return -1;
  return std::max(status, -1);
}

std::uint64_t huge_bytes(std::istream& smaps, std::uintptr_t begin, std::uintptr_t end) {
  std::uint64_t sum = 0, overlap = 0;
  std::uintptr_t first = 0, last = 0;
  for (std::string line; std::getline(smaps, line);) {
    if (read_range(line, first, last)) {
      overlap = std::min(last, end) > std::max(first, begin)
                    ? std::min(last, end) - std::max(first, begin)
                    : 0;
    } else if (overlap > 0) {
      const std::uint64_t huge = std::min(read_huge(line), overlap);
      sum += huge;
      overlap -= huge;
    }
  }
  return sum;
}

}  // namespace penstock
