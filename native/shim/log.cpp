#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace vgpu {

void log(const char *format, ...) {
    const char *wanted = getenv("VGPU_LOG");
    if (!wanted || strcmp(wanted, "1") != 0) return;
    int saved = errno;
    char line[512];
    int length = snprintf(line, sizeof line, "vgpu[%d]: ", int(getpid()));
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(line + length, sizeof line - size_t(length) - 1, format, arguments);
    va_end(arguments);
    if (more > 0) length += more < int(sizeof line) - length - 2 ? more : int(sizeof line) - length - 2;
    line[length++] = '\n';
    /* One write, so that lines of several processes do not mix; nobody to tell if it fails. */
    if (write(STDERR_FILENO, line, size_t(length)) < 0) {
    }
    errno = saved;
}

}  // namespace vgpu
