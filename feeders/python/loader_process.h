// SPDX-License-Identifier: Apache-2.0
// A Python loader in a child process (feed_loader.py), which writes its batches into memory that it
// shares with this process. README.md describes the messages, loader_messages.h reads them.
//
// Nothing that the loader does can make this process crash: the memory cannot shrink, and each
// number that the child sends is checked. But the child may write to a slot at any time.
//
// Thread-safety: one thread at a time, but any thread may read the memory of a slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/machine/file_descriptor.h"
#include "dataflow/net/shared_memory/mapped_pool.h"
#include "feeders/python/loader_messages.h"
#include "feeders/remote/receive/producer_process.h"

namespace penstock::python {

/// How to start a loader.
struct LoaderCommand {
  std::string python;     ///< interpreter: a name or a path
  std::string loader;     ///< FILE.py:FUNCTION or MODULE:FUNCTION
  std::string arguments;  ///< NAME=VALUE,...
  /// NAME=VALUE,...: environment variables of the interpreter; the last of equal names counts.
  std::string environment;
  std::string part;  ///< "all", "handover", "collate" or "samples": what is done for each batch
  bool profiles = false;       ///< says which code the time for samples goes to
  std::string pixels, labels;  ///< keys of the batch; empty: chosen by name and shape
  std::string samples;         ///< of a batch: a number, or a key; empty: found
  std::string count;           ///< a key or a function that counts in place of samples
  /// RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE of its environment.
  std::int32_t rank = 0, ranks = 1, local_rank = 0, local_ranks = 1;
};

class LoaderProcess {
 public:
  /// Starts the loader. Throws ConfigError if that fails.
  explicit LoaderProcess(const LoaderCommand& command);

  /// Waits for the first batch, until `limit` after the start. Call once, before anything else.
  /// Throws ConfigError if the loader cannot be started or used, DataError if it raises an
  /// exception, TimeoutError, and Error if a stop is requested.
  void await_batch(Nanoseconds limit, const std::stop_token& stop);
  std::int32_t rank() const noexcept { return command_.rank; }
  const LoaderBatches& batches() const noexcept { return batches_; }
  /// Makes the loader share memory for `slots` batches of at most `slot_bytes`. Call once. Throws
  /// as await_batch().
  void share(std::size_t slots, std::size_t slot_bytes, Nanoseconds limit,
             const std::stop_token& stop);
  /// The memory of a slot: pixels, then labels.
  std::span<const std::byte> slot(std::uint32_t slot) const;
  std::shared_ptr<const net::MappedPool> memory() const noexcept { return pool_; }

  /// Readable when next() has something to do.
  int fd() const noexcept { return socket_.get(); }
  /// The next batch; empty: none is here yet. Does not block. Throws DataError with the traceback
  /// if the loader failed, or how its process ended.
  std::optional<LoaderBatch> next();
  /// The newest profile, if the command asks for one.
  const LoadProfile& profile() const noexcept { return profile_; }
  /// The numbers that came since the last call.
  LoaderTraits take_traits() { return std::exchange(traits_, {}); }
  /// Asks for the loader's next batch, in this slot. The loader makes no batch that is not
  /// asked for, except for its first one, and may write to no other slot.
  void ask(std::uint32_t slot);
  /// Makes the loader and its forked workers print their threads' stacks to standard error, because
  /// it is silent.
  void show_stacks() const noexcept;

 private:
  struct Packet {
    std::string bytes;
    FileDescriptor memory;
  };
  bool wait(Time deadline, const std::stop_token& stop);
  std::optional<Packet> receive();
  Packet await_packet(const std::string& what, Time deadline, const std::stop_token& stop);
  [[noreturn]] void fail_ended();

  const LoaderCommand command_;
  Time started_{};
  FileDescriptor socket_;
  std::unique_ptr<remote::ProducerProcess> process_;
  EventFd stopped_;
  LoaderBatches batches_;
  LoadProfile profile_;
  LoaderTraits traits_;
  std::shared_ptr<const net::MappedPool> pool_;
  std::size_t slot_bytes_ = 0, stride_ = 0;
  std::optional<std::uint32_t> asked_;  // the slot that the loader may write to
  std::int32_t pid_ = 0;                // of the interpreter
  std::vector<char> buffer_;
};

}  // namespace penstock::python
