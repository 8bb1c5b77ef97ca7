// SPDX-License-Identifier: Apache-2.0
// The images of messages as a Source: each is lent as it lies in its message, which goes back to be
// used again once all that was lent of it has been let go. There are so many messages and no more:
// who receives waits until one is free.
//
//   receiver: free() -> receive -> put()      decoders: await() -> next() -> let go
//
// Thread-safety: free(), has_free(), is_idle(), put() and end() on one thread, a Source's members
// as it says.
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
#include "dataflow/wire/framed.h"
#include "feeders/credit_debt.h"
#include "feeders/zmq_message.h"

namespace penstock {

/// A message of image files.
struct ImageMessage {
  ZmqMessage message;
  std::optional<FramedImages> images;  ///< views of the message
  std::string name;                    ///< "batch 17 of loader on host7, pid 4711"
  CreditDebt debt;                     ///< by credit: what is owed once it is free again
};

class MessageImages final : public Source {
 public:
  /// Images of so many count as an epoch, for who looks for one without a good sample.
  static constexpr std::uint64_t kEpoch = 65'536;

  /// Thrown by next() at the end where there was a failure: a DataError would be taken for a
  /// sample's.
  struct Failed {};

  /// Told, on any thread, of a message whose images have all been let go, and whose memory is free.
  using LetGo = std::function<void(const CreditDebt&)>;

  /// At most `messages` at once, made as they are needed. The clock outlives this, and this what it
  /// lends.
  MessageImages(std::size_t messages, std::int32_t classes, Clock& clock, LetGo let_go = {});
  ~MessageImages() override { current_.reset(); }

  /// One to receive into, which the caller has until put(); null: stopped.
  ImageMessage* free(const std::stop_token& stop);
  /// free() does not block now.
  bool has_free();
  /// No message is in use but those free() gave and put() has not had back.
  bool is_idle();
  /// Its images come behind those of the messages before it.
  void put(ImageMessage& message);
  /// There will be no more, and why; null: the data end.
  void end(std::exception_ptr failure);
  /// Throws that failure.
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

  // Of whoever calls next().
  std::shared_ptr<ImageMessage> current_;  // whose images are being lent; null: none
  std::size_t place_ = 0;                  // of the next one in it
  std::uint64_t lent_ = 0;                 // images so far

  std::mutex mutex_;
  // All below under mutex_.
  Gate freed_, filled_;
  std::deque<ImageMessage> all_;
  std::vector<ImageMessage*> free_;
  std::deque<ImageMessage*> waiting_;  // in the order in which they came
  std::size_t in_use_ = 0;             // that were put and are not free again
  bool ended_ = false;
  std::exception_ptr failure_;
};

}  // namespace penstock
