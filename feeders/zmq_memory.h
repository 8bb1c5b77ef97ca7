// SPDX-License-Identifier: Apache-2.0
// Memory that messages of batches pass through on their way: the kernel's, and this process's heap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

/// Bytes that the kernel should hold of a connection through which batches are sent.
inline constexpr std::int64_t kSendBuffer = std::int64_t{1} << 20;

/// Lets the kernel hold `bytes` of what was sent through a connection between processes of this
/// machine and not read yet, as far as net.core.wmem_max allows; its default, 208 KiB, wakes both
/// sides dozens of times for a batch. Takes nothing away. Other descriptors stay as they are: TCP's
/// buffers grow by themselves as long as nobody sets them.
void enlarge_send_buffer(int connection, std::int64_t bytes) noexcept;

/// Has glibc keep the pages of freed messages of `bytes` for the next ones. By default it returns
/// them to the kernel, which hands out pages of zeros anew: a page fault for every 4 KiB of each
/// message above 32 MiB, and for some of smaller ones. For the whole process, for good.
void keep_message_memory(std::size_t bytes) noexcept;

}  // namespace penstock
