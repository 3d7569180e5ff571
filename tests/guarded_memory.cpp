// Replaces operator new of a test program: each allocation ends at a page that nothing may touch, so that a kernel that
// reads or writes beyond its operands ends the test, and freed addresses are never used again. It checks the program
// that users run, where a sanitizer would check another one.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

// Before each allocation. `mapped` is 0 for small ones, which are objects of the tests and not operands.
struct Header {
  void* begin;
  size_t mapped;
};
constexpr size_t kAlignment = alignof(std::max_align_t), kSmall = 64;
static_assert(sizeof(Header) % kAlignment == 0);

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

std::byte* with_header(void* begin, std::byte* data, size_t mapped) {
  new (data - sizeof(Header)) Header{begin, mapped};
  return data;
}

std::byte* allocate(size_t bytes) {
  if (bytes < kSmall) {
    void* begin = std::malloc(sizeof(Header) + bytes);
    return begin ? with_header(begin, static_cast<std::byte*>(begin) + sizeof(Header), 0) : nullptr;
  }
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  bytes = round_up(bytes, kAlignment);
  const size_t usable = round_up(sizeof(Header) + bytes, page);
  void* begin = mmap(nullptr, usable + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED || mprotect(begin, usable, PROT_READ | PROT_WRITE) != 0) return nullptr;
  return with_header(begin, static_cast<std::byte*>(begin) + usable - bytes, usable + page);
}

void release(void* data) {
  if (!data) return;
  const Header header = *reinterpret_cast<Header*>(static_cast<std::byte*>(data) - sizeof(Header));
  if (header.mapped == 0) {
    std::free(header.begin);
    return;
  }
  constexpr int kAnew = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (mmap(header.begin, header.mapped, PROT_NONE, kAnew, -1, 0) == MAP_FAILED) std::abort();
}

}  // namespace

void* operator new(size_t bytes) {
  if (void* data = allocate(bytes)) return data;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
void operator delete(void* data) noexcept { release(data); }
void operator delete(void* data, size_t) noexcept { release(data); }
