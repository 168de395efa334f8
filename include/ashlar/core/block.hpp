// Kernel bodies are written once, against a Block: on the device it is the CUDA thread block (core/block.cuh), on the
// host HostBlock runs the same body serially and watches it.
//
//   struct Scale {
//     View<float, 1, device> x;  ...
//     template <class Block> ASHLAR_HOST_DEVICE void operator()(Block& block) const {
//       auto tile = block.template shared<float>(64);
//       block.for_each(64, [&](Index i) { tile[i] = x[i]; });
//       block.sync();
//       ...
//     }
//   };
//
// A Block has
//   index()            which block of the grid this is
//   for_each(n, f)     f(i) for 0 <= i < n, shared out among the threads; does not wait for them
//   sync()             waits for all threads of the block
//   shared<T>(n)       n elements that all threads see; what they hold is unspecified
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <vector>

#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"

namespace ashlar {

/// A thread block played by one host thread. It throws std::logic_error where the device would read garbage:
/// an index outside shared memory, an element nobody has written, an element that another thread of the block wrote
/// (or reads while this one writes it) since the last sync().
class HostBlock {
 public:
  explicit HostBlock(Index block_index, int threads) : index_(block_index), threads_(threads) {}
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  Index index() const { return index_; }
  int threads() const { return threads_; }

  template <class F>
  void for_each(Index n, F&& f) {
    struct Restore {
      int& thread;
      ~Restore() { thread = everyone; }
    } restore{thread_};
    for (Index i = 0; i < n; ++i) {
      thread_ = static_cast<int>(i % threads_);
      f(i);
    }
  }

  void sync() {
    if (thread_ != everyone) throw std::logic_error("HostBlock: sync() inside for_each would not be reached by all threads");
    ++epoch_;
  }

  template <class T>
  class Shared;

  template <class T>
  Shared<T> shared(Index n) {
    shared_bytes_ += shared_size<T>(n);
    auto cells = std::make_shared<std::vector<typename Shared<T>::Cell>>(static_cast<std::size_t>(n));
    return Shared<T>(this, std::move(cells));
  }

  /// Bytes of shared memory the body has asked for; what a launch has to provide.
  std::size_t shared_bytes() const { return shared_bytes_; }

  /// Bytes that shared<T>(n) takes from the block's arena.
  template <class T>
  static constexpr std::size_t shared_size(Index n) {
    return (static_cast<std::size_t>(n) * sizeof(T) + 15) / 16 * 16;
  }

 private:
  static constexpr int nobody = -1, everyone = -2, several = -3;

  Index index_;
  int threads_;
  int thread_ = everyone;
  unsigned epoch_ = 1;
  std::size_t shared_bytes_ = 0;
};

/// Shared memory under observation: every read and write goes through a Reference.
template <class T>
class HostBlock::Shared {
 public:
  struct Cell {
    T value{};
    bool written = false;
    unsigned epoch = 0;
    int writer = nobody, reader = nobody;
  };

  class Reference {
   public:
    operator T() const { return owner_.read(cell_); }
    T operator=(T value) const {
      owner_.write(cell_, value);
      return value;
    }
    T operator=(const Reference& other) const { return *this = static_cast<T>(other); }
    T operator+=(T value) const { return *this = static_cast<T>(static_cast<T>(*this) + value); }
    T operator-=(T value) const { return *this = static_cast<T>(static_cast<T>(*this) - value); }
    T operator*=(T value) const { return *this = static_cast<T>(static_cast<T>(*this) * value); }

   private:
    friend class Shared;
    Reference(const Shared& owner, Cell& cell) : owner_(owner), cell_(cell) {}
    const Shared& owner_;
    Cell& cell_;
  };

  Reference operator[](Index i) const {
    if (i < 0 || i >= size())
      throw std::logic_error(message("HostBlock: shared memory of ", size(), " elements has no element ", i));
    return Reference(*this, (*cells_)[static_cast<std::size_t>(i)]);
  }
  Index size() const { return static_cast<Index>(cells_->size()); }

  /// old = *element; *element += value, by any number of threads at once.
  T atomic_add(Index i, T value) const {
    Cell& cell = (*this)[i].cell_;
    if (!cell.written) throw std::logic_error("HostBlock: atomic_add to shared memory that was never written");
    const T old = cell.value;
    cell.value = static_cast<T>(cell.value + value);
    return old;
  }

 private:
  friend class HostBlock;
  Shared(HostBlock* block, std::shared_ptr<std::vector<Cell>> cells) : block_(block), cells_(std::move(cells)) {}

  void enter_epoch(Cell& cell) const {
    if (cell.epoch == block_->epoch_) return;
    cell.epoch = block_->epoch_;
    cell.writer = cell.reader = nobody;
  }
  T read(Cell& cell) const {
    enter_epoch(cell);
    if (!cell.written) throw std::logic_error("HostBlock: read of shared memory that was never written");
    if (cell.writer != nobody && cell.writer != block_->thread_)
      throw std::logic_error("HostBlock: read of what another thread wrote, without sync() between");
    if (cell.reader == nobody)
      cell.reader = block_->thread_;
    else if (cell.reader != block_->thread_)
      cell.reader = several;
    return cell.value;
  }
  void write(Cell& cell, T value) const {
    enter_epoch(cell);
    if (block_->thread_ == everyone)
      throw std::logic_error("HostBlock: write to shared memory by all threads at once; use for_each");
    if (cell.writer != nobody && cell.writer != block_->thread_)
      throw std::logic_error("HostBlock: two threads write one element, without sync() between");
    if (cell.reader != nobody && cell.reader != block_->thread_)
      throw std::logic_error("HostBlock: write to what another thread reads, without sync() between");
    cell.writer = block_->thread_;
    cell.value = value;
    cell.written = true;
  }

  HostBlock* block_;
  std::shared_ptr<std::vector<Cell>> cells_;
};

/// Runs a body over a grid of `blocks` blocks, one after the other. Returns the shared memory a block needs, in bytes.
template <class Body>
std::size_t run_on_host(Index blocks, int threads, const Body& body) {
  std::size_t bytes = 0;
  for (Index b = 0; b < blocks; ++b) {
    HostBlock block(b, threads);
    body(block);
    bytes = std::max(bytes, block.shared_bytes());
  }
  return bytes;
}

/// c(i, j, sum over k of a(i, k) b(k, j)) for 0 <= i < m, 0 <= j < n. Every thread keeps 4 x 4 sums in registers, so each
/// value read from shared memory is used four times. Does not sync.
template <class Block, class A, class B, class C>
ASHLAR_HOST_DEVICE void tile_product(Block& block, Index m, Index n, Index k, const A& a, const B& b, const C& c) {
  using Sum = decltype(a(Index{0}, Index{0}) * b(Index{0}, Index{0}));
  constexpr int tile = 4;
  const Index rows = (m + tile - 1) / tile, cols = (n + tile - 1) / tile;
  block.for_each(rows * cols, [&](Index at) {
    // Neighbouring threads take neighbouring columns, strided by the tile count: reads of b fall on different banks.
    const Index i0 = at / cols, j0 = at % cols;
    Sum sum[tile][tile] = {};
    for (Index l = 0; l < k; ++l) {
      Sum left[tile], right[tile];
      for (int i = 0; i < tile; ++i) left[i] = i0 + i * rows < m ? a(i0 + i * rows, l) : Sum{0};
      for (int j = 0; j < tile; ++j) right[j] = j0 + j * cols < n ? b(l, j0 + j * cols) : Sum{0};
      for (int i = 0; i < tile; ++i)
        for (int j = 0; j < tile; ++j) sum[i][j] += left[i] * right[j];
    }
    for (int i = 0; i < tile; ++i)
      for (int j = 0; j < tile; ++j)
        if (i0 + i * rows < m && j0 + j * cols < n) c(i0 + i * rows, j0 + j * cols, sum[i][j]);
  });
}

}  // namespace ashlar
