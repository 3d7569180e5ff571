/* bin/millrace of the archive that scripts/bundle makes: starts libexec/millrace. Linked statically, because the loader
   finds the program's libraries by the place of the program, which it asks of /proc; a bare chroot has none. The loader
   takes the place from LD_ORIGIN_PATH there. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

int main(int argc, char** argv) {
  (void)argc;
  static char own[PATH_MAX], program[PATH_MAX + 32];
  const char* started = (const char*)getauxval(AT_EXECFN);
  if (started == NULL || realpath(started, own) == NULL) {
    fprintf(stderr, "millrace: cannot find its own folder: %s\n", strerror(errno));
    return 1;
  }
  for (int up = 0; up < 2; ++up) { /* FOLDER/bin/millrace -> FOLDER */
    char* slash = strrchr(own, '/');
    if (slash != NULL) *slash = '\0';
  }
  snprintf(program, sizeof program, "%s/libexec", own);
  setenv("LD_ORIGIN_PATH", program, 1);
  strcat(program, "/millrace");
  execv(program, argv);
  fprintf(stderr, "millrace: %s: %s\n", program, strerror(errno));
  return 1;
}
