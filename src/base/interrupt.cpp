#include "base/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"

namespace millrace {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;
int g_pipe[2] = {-1, -1};  // what is read, what the handler writes

extern "C" void on_interrupt(int signal) {
  if (g_interrupted != 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  g_interrupted = signal;
  [[maybe_unused]] const auto written = ::write(g_pipe[1], "", 1);
}

// SIGBUS: a mapped file was truncated while in use. Its pages cannot be recovered, so the process ends.
extern "C" void on_lost_file(int) {
  constexpr char kMessage[] = "millrace: a model file was made shorter while it was in use\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  ::_exit(1);
}

}  // namespace

void catch_interrupts() {
  if (::pipe2(g_pipe, O_CLOEXEC | O_NONBLOCK) != 0) fail_errno("cannot make a pipe");
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a write to a closed pipe returns EPIPE instead of ending the process
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the file size limit returns EFBIG
  std::signal(SIGBUS, on_lost_file);
}

bool interrupted() { return g_interrupted != 0; }
int interrupt_descriptor() { return g_pipe[0]; }

bool clear_interrupt() {
  if (g_interrupted == SIGTERM) return false;
  for (char told = 0; ::read(g_pipe[0], &told, 1) > 0;) {
  }
  g_interrupted = 0;
  return true;
}

void end_by_interrupt() {
  const int signal = g_interrupted;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  ::_exit(128 + signal);  // where the signal is blocked
}

void throw_if_interrupted() {
  if (interrupted()) fail(ErrorKind::Cancelled, "stopped");
}

}  // namespace millrace
