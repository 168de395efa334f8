// What the sanitizers have to know about our programs; include it in the file with main().
#pragma once

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
/// The OpenMP runtime is not instrumented: what it does inside is not judged, and what it orders is told by its tool
/// interface (LLVM's Archer, which comes with clang's runtime and starts by itself).
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }
#endif
#if __has_feature(address_sanitizer)
/// The OpenMP runtime keeps what it allocated for its threads to the end.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libomp"; }
#endif
#endif
