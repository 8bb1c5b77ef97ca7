// SPDX-License-Identifier: Apache-2.0
#include "dataflow/net/shared_memory/shared_pool.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "dataflow/error.h"
#include "dataflow/machine/memory_limit.h"

// From Linux 5.1; older headers lack it.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace penstock::net {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t checked_stride(std::size_t slot_bytes, std::size_t slots) {
  constexpr std::size_t kMost = std::numeric_limits<std::int64_t>::max();
  PENSTOCK_ASSERT(slot_bytes > 0 && slots > 0);
  if (slot_bytes > kMost - kPage || slots > kMost / (slot_bytes + kPage)) {
    throw DeviceError("cannot share {} slots of {} bytes: more than the address space", slots,
                      slot_bytes);
  }
  return (slot_bytes + kPage - 1) / kPage * kPage;
}

[[noreturn]] void refuse(std::size_t bytes, const char* call) {
  const int error = errno;
  throw DeviceError(
      "cannot share {} bytes of memory: {}: {}; lower --batch-size or --hwm, or send without "
      "--shared-memory",
      bytes, call, std::strerror(error));
}

/// Call it before another process has `fd`. Fixes the size, so that reads never fail, and, if `fd`
/// is mapped here first, forbids other writers.
bool seal(int fd) {
  constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  return fcntl(fd, F_ADD_SEALS, kSize | F_SEAL_FUTURE_WRITE) == 0 ||
         (errno == EINVAL && fcntl(fd, F_ADD_SEALS, kSize) == 0);
}

}  // namespace

SharedPool::SharedPool(std::size_t slot_bytes, std::size_t slots)
    : stride_(checked_stride(slot_bytes, slots)),
      slots_(slots),
      fd_(memfd_create("penstock-batches", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  const std::size_t size = stride_ * slots;
  // The kernel itself would grant the memory, and later end a process when it runs out.
  const MemoryNeed need{.what = "slots in shared memory",
                        .bytes = static_cast<double>(size),
                        .factors = {{"slots", static_cast<double>(slots)}}};
  require_memory(std::span(&need, 1));
  if (!fd_) refuse(size, "memfd_create");
  if (ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) refuse(size, "ftruncate");
  if (fallocate(fd_.get(), 0, 0, static_cast<off_t>(size)) != 0) refuse(size, "fallocate");
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) refuse(size, "mmap");
  memory_ = {static_cast<std::byte*>(memory), size};
  if (!seal(fd_.get())) {
    munmap(memory, size);
    refuse(size, "F_ADD_SEALS");
  }
  std::memset(memory, 0, size);
}

SharedPool::~SharedPool() { munmap(memory_.data(), memory_.size()); }

}  // namespace penstock::net
