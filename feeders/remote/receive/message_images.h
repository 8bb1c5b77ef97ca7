// SPDX-License-Identifier: Apache-2.0
// Makes the images of messages available as a Source. Each image is lent from the message buffer
// without a copy. A message is reused when all its images have been released. The number of
// messages is limited, so the receiver waits until one is free.
//
//   receiver: free() -> receive -> put()      decoders: await() -> next() -> release
//
// Thread-safety: one thread calls free(), has_free(), is_idle(), put() and end(). Members of Source
// as there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/source.h"
#include "feeders/remote/credit/batch_receipt.h"
#include "feeders/remote/receive/zmq_message.h"
#include "feeders/remote/wire/framed.h"

namespace penstock::remote {

/// A message of image files.
struct ImageMessage {
  ZmqMessage message;
  std::optional<FramedImages> images;  ///< views of the message
  std::string name;                    ///< such as "batch 17 of loader on host7, pid 4711"
  BatchReceipt receipt;                ///< with credit: what we owe once the message is free again
};

class MessageImages final : public Source {
 public:
  /// How many images count as an epoch, for callers that search an epoch for a good sample.
  static constexpr std::uint64_t kEpoch = 65'536;

  /// next() throws this at the end after a failure. A DataError would be taken for a bad sample.
  struct Failed {};

  /// Called when all images of a message are released and its memory is free. Any thread.
  using LetGo = std::function<void(const BatchReceipt&)>;

  /// Holds at most `messages` at once, made when needed. The clock outlives this object, and this
  /// object outlives what it lends.
  MessageImages(std::size_t messages, std::int32_t classes, Clock& clock, LetGo let_go = {});
  ~MessageImages() override { current_.reset(); }

  /// Returns a free message to receive into; the caller holds it until put(). Null: stopped.
  ImageMessage* free(const std::stop_token& stop);
  /// Whether free() would return without blocking.
  bool has_free();
  /// Whether no message is in use, except those that free() returned and put() has not taken.
  bool is_idle();
  /// Adds the images of this message after those of earlier messages.
  void put(ImageMessage& message);
  /// No more messages will come. `failure` says why; null: the data end.
  void end(std::exception_ptr failure);
  /// Throws the failure given to end().
  [[noreturn]] void rethrow();

  bool is_ready() override;
  void await(const std::stop_token& stop) override;
  bool next(Sample& sample) override;
  std::uint64_t size() const noexcept override { return kEpoch; }
  std::int32_t classes() const noexcept override { return classes_; }

 private:
  bool has_news() const noexcept { return ended_ || !waiting_.empty(); }
  bool begin_message();
  void give_back(ImageMessage& message) noexcept;
  bool has_free_one() const noexcept { return !free_.empty() || all_.size() < most_; }

  const std::size_t most_;
  const std::int32_t classes_;
  Clock& clock_;
  const LetGo let_go_;

  // Used by the thread that calls next().
  std::shared_ptr<ImageMessage> current_;  // whose images are being lent; null: none
  std::size_t place_ = 0;                  // of its next image
  std::uint64_t lent_ = 0;                 // images so far

  std::mutex mutex_;
  // All below under mutex_.
  Gate freed_, filled_;
  std::deque<ImageMessage> all_;
  std::vector<ImageMessage*> free_;
  std::deque<ImageMessage*> waiting_;  // in the order of arrival
  std::size_t in_use_ = 0;             // given to put() and not free again
  bool ended_ = false;
  std::exception_ptr failure_;
};

}  // namespace penstock::remote
