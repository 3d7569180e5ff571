// Ctrl-C requests a clean end: long work polls interrupted(). A second Ctrl-C ends the process at once.
#pragma once

namespace millrace {

void catch_interrupts();  // for programs; also reports a mapped file that was truncated (SIGBUS)
bool interrupted();
// Can be read from after an interrupt, until clear_interrupt(). A poll of it and of the input misses no interrupt; one
// that comes just before a read would not end it.
int interrupt_descriptor();
bool clear_interrupt();       // chat: Ctrl-C stops an answer, not the conversation. False after SIGTERM
void throw_if_interrupted();  // throws Cancelled

// Ends the process by the signal that interrupted it. A shell then stops the loop that runs the program, and its $? is
// 130 for Ctrl-C; after an ordinary exit it would go on. Call only if interrupted().
[[noreturn]] void end_by_interrupt();

}  // namespace millrace
