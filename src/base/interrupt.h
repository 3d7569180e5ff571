// Ctrl-C asks for a clean end: long work looks here now and then. A second Ctrl-C ends the process at once.
#pragma once

namespace millrace {

void catch_interrupts();  // for a program of ours: it also says so when a mapped file is cut short
bool interrupted();
bool clear_interrupt();       // chat: one Ctrl-C stops an answer, not the conversation. False: SIGTERM ends all
void throw_if_interrupted();  // Cancelled

}  // namespace millrace
