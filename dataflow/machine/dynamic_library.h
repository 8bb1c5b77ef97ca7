// SPDX-License-Identifier: Apache-2.0
// A shared library that is opened when it is needed, so that the program starts without it.
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>

#include "dataflow/error.h"

namespace penstock {

/// The library stays open until the program ends. Errors are Unavailable. Its functions may be
/// called from any thread.
class DynamicLibrary {
 public:
  /// `file` is a path, or a name that the loader looks up. Errors end with the remedy.
  DynamicLibrary(std::string file, std::string remedy)
      : file_(std::move(file)), remedy_(std::move(remedy)) {
    library_ = dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) refuse(std::string(" cannot be loaded: ") + dlerror());
  }

  /// Converts to a pointer to the function or the variable of that name, whose type is trusted.
  class Symbol {
   public:
    template <typename Type>
    operator Type*() const {  // NOLINT(google-explicit-constructor)
      void* const symbol = dlsym(library_.library_, name_);
      if (symbol == nullptr) library_.refuse(std::string(" has no ") + name_);
      return reinterpret_cast<Type*>(symbol);
    }

   private:
    friend class DynamicLibrary;
    Symbol(const DynamicLibrary& library, const char* name) : library_(library), name_(name) {}
    const DynamicLibrary& library_;
    const char* name_;
  };
  Symbol operator[](const char* name) const { return {*this, name}; }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Unavailable("{}{}; {}", file_, why, remedy_);
  }

  std::string file_, remedy_;
  void* library_ = nullptr;
};

/// A member of a struct that has a DynamicLibrary named `library`: its function of that name.
#define PENSTOCK_FUNCTION(name) decltype(&::name) name = library[#name]

}  // namespace penstock
