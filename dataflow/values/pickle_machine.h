// SPDX-License-Identifier: Apache-2.0
// The stack of a pickle, and what NumPy's own pickles do on it. Of pickle.cpp alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dataflow/wire/value_tree.h"

namespace penstock {

/// What a step cannot be done for; the parser adds where it was met.
struct PickleProblem {
  std::string text;
};

class PickleMachine {
 public:
  /// `most_kept`: bytes that may be kept beside the input.
  PickleMachine(const ValueLimits& limits, std::size_t most_kept)
      : limits_(limits), most_kept_(most_kept) {}

  // Each throws PickleProblem.
  void push(Value value);
  void push_bytes(ValueKind kind, std::span<const std::byte> bytes);
  void push_integer(ValueKind kind, std::int64_t integer);
  void push_name(std::string_view module, std::string_view name);
  void push_named_by_stack();
  void mark();
  void pop();
  void pop_to_mark() { take_marked(); }
  void make_tuple(std::size_t count);
  void make_marked_tuple();
  void append();         ///< one value to the list below it
  void append_marked();  ///< those above the mark to the list below it
  void set_item();       ///< a key and a value to the dict below them
  void set_marked();     ///< keys and values above the mark
  void remember(std::uint64_t number);
  void remember_next() { remember(memo_.size()); }
  void recall(std::uint64_t number);
  void call();   ///< a function below its tuple of arguments
  void build();  ///< an array or a type below its state

  /// The one value that is left.
  ValueTree finish();

 private:
  /// What stands on the stack beside plain values.
  enum class Role : std::uint8_t {
    plain,
    arguments,  ///< a tuple that holds something else than plain values
    type,       ///< NumPy's description of an element
    reconstruct,
    from_buffer,
    scalar,
    array_class,
    type_class,
    encode,
    bytes_class,
    bytearray_class
  };
  struct Note {
    Role role = Role::plain;
    bool placed = false;     ///< part of another value: it stays as it is
    bool buildable = false;  ///< waits for its state
    std::int32_t depth = 1;
    NumpyType type{};
  };

  ValueId add(Value value, Role role = Role::plain);
  ValueId take();
  ValueId top() const;
  std::vector<ValueId> take_marked();
  void place(ValueId container, ValueId item);
  void extend(ValueKind kind, std::span<const ValueId> items);
  const Value& argument(const Value& arguments, std::size_t index, ValueKind kind) const;
  NumpyType type_argument(const Value& arguments, std::size_t index) const;
  NumpyArray make_array(NumpyType type, const Value& shape, std::span<const std::byte> data) const;
  std::span<const std::byte> narrow(std::string_view text);

  void make_type(const Value& arguments);
  void make_array_from_buffer(const Value& arguments);
  void make_scalar(const Value& arguments);
  void make_bytes(const Value& arguments, bool needs_text);
  void build_type(ValueId target, const Value& state);
  void build_array(ValueId target, const Value& state);

  const ValueLimits limits_;
  std::size_t most_kept_;
  ValueTree tree_;
  std::vector<Note> notes_;  // of the values of tree_
  std::vector<ValueId> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, ValueId> memo_;
};

}  // namespace penstock
