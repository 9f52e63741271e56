// Loaded into the processes of a stack (LD_PRELOAD), it keeps beside the files under $SYNCED_OF those that a loss of
// power would leave, under $SYNCED_TO: what fsync or fdatasync has been called for, and nothing else.
//
// A file's own sync makes its content durable under the name that it has then; a directory's makes the names in it
// durable, each with the content that its file had when that was last synced, and nothing of one that never was. A
// rename that neither follows is lost.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static char *const NONE = "";

static const char *of(void) { const char *path = getenv("SYNCED_OF"); return path ? path : NONE; }
static const char *to(void) { const char *path = getenv("SYNCED_TO"); return path ? path : NONE; }

static void make_parents(char *path) {
  for (char *at = path + 1; (at = strchr(at, '/')); ++at) {
    *at = 0;
    mkdir(path, 0700);
    *at = '/';
  }
}

// Where the content of a file is kept that was synced, whatever its name. Inodes are used again: their birth tells.
static void content_path(char *path, int directory, const char *name, int flags) {
  struct statx found;
  path[0] = 0;
  if (statx(directory, name, flags | AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &found)) return;
  snprintf(path, PATH_MAX, "%s/.content/%llu-%lld-%u", to(), (unsigned long long)found.stx_ino,
           (long long)found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
}

static void give_name(const char *content, const char *path) {
  char staging[PATH_MAX + 32];
  snprintf(staging, sizeof staging, "%s/.staging-%d-%lu", to(), getpid(), (unsigned long)pthread_self());
  unlink(staging);
  if (link(content, staging) == 0) {
    rename(staging, path);
    unlink(staging);  // what rename leaves where both are the same file
  }
}

static void keep_file(int fd, const char *relative) {
  char content[PATH_MAX], staging[PATH_MAX + 32], path[PATH_MAX], block[65536];
  content_path(content, fd, "", AT_EMPTY_PATH);
  snprintf(path, sizeof path, "%s/tree%s", to(), relative);
  make_parents(content);
  make_parents(path);
  snprintf(staging, sizeof staging, "%s.%d-%lu", content, getpid(), (unsigned long)pthread_self());
  char self[64];
  snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
  int from = open(self, O_RDONLY | O_CLOEXEC), into = open(staging, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (from >= 0 && into >= 0) {
    ssize_t num;
    while ((num = read(from, block, sizeof block)) > 0)
      if (write(into, block, num) != num) break;
    rename(staging, content);
    give_name(content, path);
  }
  if (from >= 0) close(from);
  if (into >= 0) close(into);
}

static void keep_names(int fd, const char *relative) {
  char there[PATH_MAX], path[PATH_MAX], content[PATH_MAX];
  snprintf(there, sizeof there, "%s/tree%s", to(), relative);
  snprintf(path, sizeof path, "%s/.content/", to());
  make_parents(path);
  snprintf(path, sizeof path, "%s/", there);
  make_parents(path);
  int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *names = own >= 0 ? fdopendir(own) : NULL;
  for (struct dirent *entry; names && (entry = readdir(names));) {
    struct stat found;
    if (fstatat(fd, entry->d_name, &found, AT_SYMLINK_NOFOLLOW) || !S_ISREG(found.st_mode)) continue;
    snprintf(path, sizeof path, "%s/%s", there, entry->d_name);
    content_path(content, fd, entry->d_name, 0);
    if (access(content, F_OK)) close(open(content, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    give_name(content, path);
  }
  if (names) closedir(names);
  for (DIR *kept = opendir(there); kept; kept = (closedir(kept), NULL))
    for (struct dirent *entry; (entry = readdir(kept));)
      if (entry->d_type == DT_REG && faccessat(fd, entry->d_name, F_OK, AT_SYMLINK_NOFOLLOW))
        unlinkat(dirfd(kept), entry->d_name, 0);
}

static int keep(int fd) {
  char self[64], path[PATH_MAX];
  struct stat found;
  snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(self, path, sizeof path - 1);
  size_t root = strlen(of());
  if (length < 0 || root == 0 || fstat(fd, &found)) return 0;
  path[length] = 0;
  if (strncmp(path, of(), root) || (path[root] && path[root] != '/')) return 0;
  int before = errno, own = open(to(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  flock(own, LOCK_EX);  // of all processes: a cut of power finds one state
  if (S_ISREG(found.st_mode)) keep_file(fd, path + root);
  if (S_ISDIR(found.st_mode)) keep_names(fd, path + root);
  close(own);
  errno = before;
  return 0;
}

int fsync(int fd) { return keep(fd); }
int fdatasync(int fd) { return keep(fd); }
