// SPDX-License-Identifier: Apache-2.0
// The stack of a pickle, and the operations of NumPy's own pickles on it. Only pickle.cpp uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dataflow/values/value_tree.h"

namespace penstock::values {

/// Why a step failed. The parser adds the position.
struct PickleProblem {
  std::string text;
};

class PickleMachine {
 public:
  /// `most_kept` is the limit of bytes to keep in addition to the input.
  PickleMachine(const ValueLimits& limits, std::size_t most_kept)
      : limits_(limits), most_kept_(most_kept) {}

  // Each function throws PickleProblem.
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
  void append_marked();  ///< the values above the mark to the list below it
  void set_item();       ///< a key and a value to the dict below them
  void set_marked();     ///< keys and values above the mark
  void remember(std::uint64_t number);
  void remember_next() { remember(memo_.size()); }
  void recall(std::uint64_t number);
  void call();   ///< a function below its tuple of arguments
  void build();  ///< an array or a type below its state

  /// Returns the one value that is left.
  ValueTree finish();

 private:
  /// The kinds of entries on the stack, plain values and others.
  enum class Role : std::uint8_t {
    plain,
    arguments,  ///< a tuple that contains an entry other than plain values
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
    bool placed = false;     ///< part of another value; must not change any more
    bool buildable = false;  ///< waits for its state
    std::int32_t depth = 1;
    NumpyType type{};
  };

  ValueId add(Value value, Role role = Role::plain);
  ValueId take();
  ValueId top() const;
  std::vector<ValueId> take_marked();
  void place(ValueId container, ValueId item);
  void push_tuple(std::span<const ValueId> items);
  void extend(ValueKind kind, std::span<const ValueId> items);
  const Value& argument(const Value& arguments, std::size_t index, ValueKind kind) const;
  NumpyType type_argument(const Value& arguments, std::size_t index) const;
  NumpyArray make_array(NumpyType type, const Value& shape, std::span<const std::byte> data,
                        bool fortran_order);
  std::span<const std::byte> narrow(std::string_view text);
  std::span<const std::byte> keep(std::vector<std::byte> bytes);

  void make_type(const Value& arguments);
  void make_array_from_buffer(const Value& arguments);
  void make_scalar(const Value& arguments);
  void make_bytes(const Value& arguments, bool needs_text);
  void build_type(ValueId target, const Value& state);
  void build_array(ValueId target, const Value& state);

  const ValueLimits limits_;
  std::size_t most_kept_;
  ValueTree tree_;
  std::vector<Note> notes_;  // one per value of tree_
  std::vector<ValueId> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, ValueId> memo_;
};

}  // namespace penstock::values
