// Ctrl-C requests a clean end: long work polls interrupted(). A second Ctrl-C ends the process at once.
#pragma once

namespace millrace {

void catch_interrupts();  // for programs; also reports a mapped file that was truncated (SIGBUS)
bool interrupted();
bool clear_interrupt();       // chat: Ctrl-C stops an answer, not the conversation. False after SIGTERM
void throw_if_interrupted();  // throws Cancelled

}  // namespace millrace
