// SPDX-License-Identifier: Apache-2.0
// The weights of one parameter server, and what becomes of the gradients that workers push. Knows
// no sockets: messages come from whoever calls, answers go to whoever was named.
//
// Gradients are added in the order of workers, whatever order they come in, so that sums have the
// same bits in every run; those that come too early are kept where they were received.
//
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dataflow/host_device.h"
#include "dataflow/options.h"
#include "trainer/optimizer.h"
#include "trainer/servers/frame.h"
#include "trainer/servers/message.h"
#include "trainer/servers/model_layout.h"

namespace penstock {

class PartStore {
 public:
  /// An answer to a worker. `stays`: the data lie where they are, unchanged, until the worker has
  /// them; else they have to be copied at once.
  using Send = std::function<void(std::int32_t worker, const ServerHeader& header,
                                  std::span<const std::byte> data, bool stays)>;

  /// Throws ConfigError for an optimizer that is none. `clock` outlives the store.
  PartStore(const ModelLayout& layout, std::int32_t workers, Clock& clock, Send send);
  ~PartStore();

  /// The calls throw DataError, and change nothing, where key, length or step are not what they
  /// have to be. First weights are taken once.
  void first(const ServerHeader& header, std::span<const std::byte> data);
  /// Answered once the first weights are there.
  void pull(std::int32_t worker, const ServerHeader& header);
  void push(std::int32_t worker, const ServerHeader& header, Frame data);

  /// Workers that others wait for: of some part they have pushed nothing where others have.
  std::vector<std::int32_t> awaited() const;

 private:
  struct Held;
  Held& find(const ServerHeader& header);
  void add(Held& held, std::span<const std::byte> data, bool first);
  void apply(Held& held, const ServerHeader& terms);
  void answer(Held& held, std::int32_t worker, std::span<const float> data, bool stays,
              std::uint64_t staleness = 0);
  void push_together(Held& held, std::int32_t worker, const ServerHeader& header, Frame data);
  void push_alone(Held& held, std::int32_t worker, const ServerHeader& header, const Frame& data);

  const ServerRule rule_;
  const std::int32_t workers_;
  const Send send_;
  HostDevice device_;
  const std::unique_ptr<Stream> stream_;
  std::map<std::uint32_t, std::unique_ptr<Held>> parts_;  // by key
};

}  // namespace penstock
