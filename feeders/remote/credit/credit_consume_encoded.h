// SPDX-License-Identifier: Apache-2.0
// zmq-consume:encoded=true by credit: messages of image files, each held until all its images are
// decoded. Only then may its producer send another one.
#pragma once

#include <memory>

#include "feeders/feeder.h"
#include "feeders/zmq_socket.h"

namespace penstock {

/// As make_credit_consume. Throws ConfigError.
std::unique_ptr<Feeder> make_credit_consume_encoded(const FeederContext& context,
                                                    ZmqSocketOptions socket);

}  // namespace penstock
