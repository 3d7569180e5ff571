// What was printed is on its way. Fails where nobody takes it: the work whose results nobody sees should end.
#pragma once

namespace millrace {

// Throws Io; where the other end of a pipe is closed std::errc::broken_pipe, as fmt::print does.
void flush_stdout();

}  // namespace millrace
