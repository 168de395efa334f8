// Asks for memory that will be needed soon while something else is computed, a few cache lines at a time.
//
//   Prefetch ahead(16);                 // spread over 16 steps
//   ahead.add(next_rows);
//   for (...) { ahead.step(); ... }     // arithmetic
//
// Kernels that stream rows through a tile wait for memory at every tile otherwise: the rows arrive all at once, and a
// core has too few line buffers to hide that.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include "ashlar/core/view.hpp"

namespace ashlar {

class Prefetch {
 public:
  explicit Prefetch(Index steps) : steps_(steps) {}

  /// Up to eight views; those without a unit inner stride are left to the hardware.
  template <class T>
  void add(const View<T, 2>& rows) {
    if (rows.empty() || rows.stride(1) != 1 || count_ == regions_.size()) return;
    const Index lines = (rows.extent(1) * static_cast<Index>(sizeof(T)) + line - 1) / line;
    regions_[count_++] = {reinterpret_cast<const char*>(rows.data()), rows.stride(0) * static_cast<Index>(sizeof(T)),
                          rows.extent(0), lines, !std::is_const_v<T>};
    per_step_ += (rows.extent(0) * lines + steps_ - 1) / steps_;
  }

  void step() {
    for (Index n = 0; n < per_step_ && region_ < count_; ++n) {
      const Region& r = regions_[region_];
      const char* address = r.begin + row_ * r.stride + line_ * line;
      if (r.write)
        __builtin_prefetch(address, 1, 2);
      else
        __builtin_prefetch(address, 0, 2);
      if (++line_ < r.lines) continue;
      line_ = 0;
      if (++row_ < r.rows) continue;
      row_ = 0;
      ++region_;
    }
  }

 private:
  static constexpr Index line = 64;
  struct Region {
    const char* begin = nullptr;
    Index stride = 0, rows = 0, lines = 0;
    bool write = false;
  };
  std::array<Region, 8> regions_{};
  std::size_t count_ = 0, region_ = 0;
  Index steps_, per_step_ = 0, row_ = 0, line_ = 0;
};

}  // namespace ashlar
