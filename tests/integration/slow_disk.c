// Loaded into the processes of a stack (LD_PRELOAD), it makes the files under $SLOW_OF those of a slow disk: each write
// and each sync of one takes the milliseconds longer that $SLOW_BY, a file of two numbers, says at that moment.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind { WRITE, SYNC };
enum { LOOK_EVERY_MS = 100 };

static int is_there(int fd) {
  char self[64], path[PATH_MAX];
  const char *root = getenv("SLOW_OF");
  snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(self, path, sizeof path - 1);
  if (!root || length < 0) return 0;
  path[length] = 0;
  return strncmp(path, root, strlen(root)) == 0;
}

// What the control file says now; 0 where there is none.
static long longer_by_ms(enum kind kind) {
  long ms[2] = {0, 0};
  char text[64];
  const char *control = getenv("SLOW_BY");
  int by = control ? open(control, O_RDONLY | O_CLOEXEC) : -1;
  if (by < 0) return 0;
  int length = read(by, text, sizeof text - 1);
  close(by);
  text[length > 0 ? length : 0] = 0;
  sscanf(text, "%ld %ld", &ms[WRITE], &ms[SYNC]);
  return ms[kind];
}

// Looks again and again how long that is to be, so that who waits for long can be let go.
static void wait_for_disk(int fd, enum kind kind) {
  int before = errno;
  for (long waited_ms = 0, left_ms; is_there(fd) && (left_ms = longer_by_ms(kind) - waited_ms) > 0;) {
    long ms = left_ms < LOOK_EVERY_MS ? left_ms : LOOK_EVERY_MS;
    struct timespec left = {0, ms * 1000000};
    while (nanosleep(&left, &left) && errno == EINTR) continue;
    waited_ms += ms;
  }
  errno = before;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *block, size_t size) {
  wait_for_disk(fd, WRITE);
  return NEXT(write)(fd, block, size);
}

ssize_t writev(int fd, const struct iovec *blocks, int count) {
  wait_for_disk(fd, WRITE);
  return NEXT(writev)(fd, blocks, count);
}

int fsync(int fd) {
  wait_for_disk(fd, SYNC);
  return NEXT(fsync)(fd);
}

int fdatasync(int fd) {
  wait_for_disk(fd, SYNC);
  return NEXT(fdatasync)(fd);
}
