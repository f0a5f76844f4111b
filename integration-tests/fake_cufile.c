/* SPDX-License-Identifier: Apache-2.0 */
/* A libcufile for tests: the functions that datapath uses, by the CUDA driver and plain I/O, for
 * machines without GPUDirect Storage. It says that it is direct. FAKE_CUFILE_FAILS_AFTER=N makes
 * every write after the first N fail with EIO. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { int operation, cuda; } outcome;
typedef struct { int type; union { int fd; void* handle; } file; void const* operations; } description;

static int (*to_host)(void*, unsigned long long, size_t);
static int (*to_device)(unsigned long long, void const*, size_t);

atomic_long fake_cufile_bytes_read, fake_cufile_bytes_written;

outcome cuFileDriverOpen(void)
{
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  outcome failed = {5001, 0}, fine = {0, 0};
  if (driver == NULL) return failed;
  *(void**)&to_host = dlsym(driver, "cuMemcpyDtoH_v2");
  *(void**)&to_device = dlsym(driver, "cuMemcpyHtoD_v2");
  return to_host != NULL && to_device != NULL ? fine : failed;
}

outcome cuFileDriverGetProperties(void* properties)
{
  outcome fine = {0, 0};
  ((unsigned*)properties)[0] = 2; /* A version of nvidia-fs. */
  return fine;
}

outcome cuFileHandleRegister(void** handle, description* file)
{
  char path[64];
  outcome fine = {0, 0}, failed = {5005, 0};
  snprintf(path, sizeof path, "/proc/self/fd/%d", file->file.fd);
  long const fd = open(path, O_RDWR | O_CLOEXEC); /* Not direct: any offset and size will do. */
  if (fd < 0) return failed;
  *handle = (void*)(fd + 1);
  return fine;
}

void cuFileHandleDeregister(void* handle) { close((int)((long)handle - 1)); }

ssize_t cuFileRead(void* handle, void* base, size_t size, off_t offset, off_t in_buffer)
{
  void* const bounce = malloc(size);
  ssize_t const moved = pread((int)((long)handle - 1), bounce, size, offset);
  if (moved > 0 && to_device((unsigned long long)base + in_buffer, bounce, moved) != 0) {
    free(bounce);
    return -5030;
  }
  if (moved > 0) fake_cufile_bytes_read += moved;
  free(bounce);
  return moved;
}

ssize_t cuFileWrite(void* handle, void const* base, size_t size, off_t offset, off_t in_buffer)
{
  static atomic_long writes;
  char const* const limit = getenv("FAKE_CUFILE_FAILS_AFTER");
  if (limit != NULL && writes++ >= atol(limit)) {
    errno = EIO;
    return -1;
  }
  void* const bounce = malloc(size);
  if (to_host(bounce, (unsigned long long)base + in_buffer, size) != 0) {
    free(bounce);
    return -5030;
  }
  ssize_t const moved = pwrite((int)((long)handle - 1), bounce, size, offset);
  if (moved > 0) fake_cufile_bytes_written += moved;
  free(bounce);
  return moved;
}

/* PyTorch is linked with these and calls none of them here. */
static outcome no(void)
{
  outcome const failed = {5002, 0};
  return failed;
}
outcome cuFileBufRegister(void) { return no(); }
outcome cuFileBufDeregister(void) { return no(); }
outcome cuFileDriverClose(void) { return no(); }
outcome cuFileReadAsync(void) { return no(); }
outcome cuFileWriteAsync(void) { return no(); }
outcome cuFileStreamRegister(void) { return no(); }
outcome cuFileStreamDeregister(void) { return no(); }
