// SPDX-License-Identifier: Apache-2.0
// Tunes the memory that messages of batches pass through: kernel buffers and this process's heap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::remote {

/// Size of the kernel's send buffer for a connection that carries batches, in bytes.
inline constexpr std::int64_t kSendBuffer = std::int64_t{1} << 20;

/// Lets the kernel hold `bytes` of unread data on a connection between processes of this machine,
/// within the limit net.core.wmem_max. The default buffer, 208 KiB, wakes both sides dozens of
/// times per batch. Never shrinks a buffer. Does nothing for other descriptors: TCP buffers grow on
/// their own unless a program sets their size.
void enlarge_send_buffer(int connection, std::int64_t bytes) noexcept;

/// Makes glibc keep the pages of freed messages of `bytes` for later messages. By default it
/// returns them to the kernel, and new pages of zeros cost a page fault per 4 KiB of each message
/// above 32 MiB, and of some smaller ones. Permanent, for the whole process.
void keep_message_memory(std::size_t bytes) noexcept;

}  // namespace penstock::remote
