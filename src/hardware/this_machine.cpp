#include "hardware/this_machine.h"

#include "hardware/detect.h"

namespace millrace {

Hardware this_machine(int threads, bool measure, IsaSet allowed) { return detect_cpu(threads, allowed); }

}  // namespace millrace
