// Flushes stdout, and fails if the reader is gone: work whose output is lost should end.
#pragma once

namespace millrace {

// Throws Io, or std::errc::broken_pipe for a closed pipe, as fmt::print does.
void flush_stdout();

}  // namespace millrace
