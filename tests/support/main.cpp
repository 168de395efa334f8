// The runner of every test program, and the allocation counter behind support/allocations.hpp.
#define CATCH_CONFIG_RUNNER
#include "support/catch.hpp"

#include "support/allocations.hpp"
#include "support/sanitizer_options.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ASHLAR_TEST_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ASHLAR_TEST_SANITIZED
#endif
#endif

namespace ashlar::test {
std::atomic<long> allocation_count{0};
}

#if defined(ASHLAR_TEST_SANITIZED)

extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, std::size_t),
                                                         void (*)(const volatile void*));
static void count_allocation(const volatile void*, std::size_t) { ++ashlar::test::allocation_count; }
static void ignore_free(const volatile void*) {}

#else

// glibc lets a program replace malloc; Eigen, operator new and our tensors all end here.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) {
  ++ashlar::test::allocation_count;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++ashlar::test::allocation_count;
  return __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) {
  ++ashlar::test::allocation_count;
  return __libc_realloc(memory, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  ++ashlar::test::allocation_count;
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  *memory = memalign(alignment, size);
  return *memory ? 0 : 12;
}
}

#endif

int main(int argc, char** argv) {
#if defined(ASHLAR_TEST_SANITIZED)
  __sanitizer_install_malloc_and_free_hooks(count_allocation, ignore_free);
#endif
  return Catch::Session().run(argc, argv);
}
