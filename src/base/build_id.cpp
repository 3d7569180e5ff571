#include "base/build_id.h"

#include <elf.h>
#include <fmt/core.h>
#include <link.h>

#include <cstring>

namespace millrace {
namespace {

// The linker's note is the hash of the linked output, so it changes exactly when the code does.
std::string read_note(const dl_phdr_info& object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const auto& segment = object.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* note = reinterpret_cast<const char*>(object.dlpi_addr + segment.p_vaddr);
    const auto* end = note + segment.p_memsz;
    while (note + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) header;
      std::memcpy(&header, note, sizeof header);
      const auto* text = note + sizeof header + (header.n_namesz + 3) / 4 * 4;
      if (header.n_type == NT_GNU_BUILD_ID) {
        std::string id;
        for (unsigned b = 0; b < header.n_descsz && b < 8; ++b)
          id += fmt::format("{:02x}", static_cast<unsigned char>(text[b]));
        return id;
      }
      note = text + (header.n_descsz + 3) / 4 * 4;
    }
  }
  return {};
}

bool contains(const dl_phdr_info& object, const void* code) {
  const auto address = reinterpret_cast<ElfW(Addr)>(code);
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const auto& segment = object.dlpi_phdr[i];
    const ElfW(Addr) begin = object.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address >= begin && address - begin < segment.p_memsz) return true;
  }
  return false;
}

// The kernels are in the program itself, or in a library that it loads.
std::string find() {
  std::string id;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* out) {
        if (!contains(*object, reinterpret_cast<const void*>(&read_note))) return 0;
        *static_cast<std::string*>(out) = read_note(*object);
        return 1;
      },
      &id);
  return id.empty() ? std::string(version()) : id;
}

}  // namespace

std::string_view version() { return MILLRACE_VERSION; }

const std::string& build_id() {
  static const std::string id = find();
  return id;
}

}  // namespace millrace
