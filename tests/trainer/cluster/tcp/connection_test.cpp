// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/tcp/connection.h"

#include <gtest/gtest.h>

#include <vector>

#include "dataflow/error.h"

namespace penstock {
namespace {

using tcp::Message;
using tcp::MessageReader;

TEST(MessageReader, FindsMessagesHoweverTheirBytesArrive) {
  const std::vector<Message> sent{{Message::Kind::hello, "0"},
                                  {Message::Kind::text, ""},
                                  {Message::Kind::texts, std::string(3000, 'x')}};
  std::string bytes;
  for (const Message& message : sent) bytes += tcp::to_bytes(message);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{17}, bytes.size()}) {
    MessageReader reader;
    std::vector<Message> received;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.add(std::string_view(bytes).substr(at, piece));
      while (auto message = reader.next()) received.push_back(std::move(*message));
    }
    ASSERT_EQ(received.size(), sent.size()) << piece;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(received[i].kind, sent[i].kind);
      EXPECT_EQ(received[i].body, sent[i].body);
    }
  }
}

TEST(MessageReader, RefusesBytesOfOtherProgramsAndMessagesThatAreTooLong) {
  const std::string good = tcp::to_bytes({Message::Kind::text, "text"});
  for (const std::size_t at : {0U, 3U, 4U, 7U}) {  // the mark, and the kind
    std::string changed = good;
    changed[at] = static_cast<char>(changed[at] ^ 0x40);
    MessageReader reader;
    reader.add(changed);
    EXPECT_THROW(reader.next(), DataError) << at;
  }
  MessageReader web;
  web.add("GET / HTTP/1.1\r\n\r\n");
  EXPECT_THROW(web.next(), DataError);
  MessageReader strict;
  strict.limit(3);
  strict.add(std::string_view(good).substr(0, 16));  // the length is enough
  EXPECT_THROW(strict.next(), DataError);
  std::string long_one = good;
  long_one[15] = 1;  // the highest byte of the length
  MessageReader usual;
  usual.add(long_one);
  EXPECT_THROW(usual.next(), DataError);
}

}  // namespace
}  // namespace penstock
