/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * The C ABI of datapath: host memory that a GPU can see, a stream scheduler, and disk I/O.
 *
 * Words: a *buffer* is a range of host memory, an *extent* a range in a volume's files, a *transfer*
 * moves bytes from one place to another, a *ticket* stands for work in flight and carries its error.
 *
 * Rules that hold for every function:
 *  - It returns DP_OK (0) or a status; negative ones are errors. `dp_last_error` then gives the text and
 *    the details for the calling thread until its next failing call.
 *  - Handles are reference-counted. A function that gives a handle gives one reference; `dp_X_retain`
 *    adds one, `dp_X_release` drops one and takes NULL. Dropping the last reference never loses bytes:
 *    work in flight keeps what it needs.
 *  - Every function may be called from any thread. None calls back into the caller, but for
 *    `dp_owner.release`, which runs once, on any thread, with no lock of the library held.
 *  - Structs that grow begin with `size`, which the caller sets to `sizeof` of the struct it compiled
 *    against; a shorter struct means defaults for what it lacks. Zero-filled options mean defaults.
 *  - Sizes and offsets are bytes, times are nanoseconds of CLOCK_MONOTONIC.
 *  - Nothing touches CUDA before a device is opened; nothing initialises anything at load.
 *  - After a fork, handles made by the parent return DP_ERR_FORKED in the child; new ones work.
 */
#ifndef DATAPATH_DATAPATH_H
#define DATAPATH_DATAPATH_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define DP_API __attribute__((visibility("default")))
#else
#define DP_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Raised by one with every change that an older caller could notice. */
#define DP_ABI_VERSION 1u

/* ------------------------------------------------------------------ status and errors */

typedef int32_t dp_status;
enum {
  DP_OK              = 0,
  DP_PENDING         = 1,  /**< Not an error: the work is still in flight. */
  DP_TIMEOUT         = 2,  /**< Not an error: the wait ended first; the work goes on. */
  DP_ERR_INVALID     = -1, /**< An argument is out of its domain (Python: ValueError). */
  DP_ERR_IO          = -2, /**< A system call failed; see `os_errno`, `path`, `offset`. */
  DP_ERR_NO_SPACE    = -3, /**< A drive, a volume or a quota is full. */
  DP_ERR_BUDGET      = -4, /**< A memory budget would be exceeded, or memory is out. */
  DP_ERR_UNSUPPORTED = -5, /**< Cannot be served on this machine in this state. */
  DP_ERR_CUDA        = -6, /**< A CUDA driver call failed; see `cuda_result`. */
  DP_ERR_CLOSED      = -7, /**< The object was closed (Python: ValueError, as for files). */
  DP_ERR_FORKED      = -8, /**< The handle was made before a fork (Python: UnsupportedError). */
  DP_ERR_INTERNAL    = -9  /**< A broken invariant: please report it. */
};

typedef struct dp_error_info {
  uint32_t size;
  dp_status status;
  int32_t os_errno;    /**< errno of the failed call, else 0. */
  int32_t cuda_result; /**< CUresult of the failed call, else 0. */
  int64_t offset;      /**< Byte offset in the file, else -1. */
  const char* message; /**< What, where, why, remedy. Never NULL. */
  const char* path;    /**< The file, or NULL. */
} dp_error_info;

/** The calling thread's last error; the strings live until its next failing call. */
DP_API void dp_last_error(dp_error_info* out);
/** The version of the loaded library's ABI: compare with DP_ABI_VERSION. */
DP_API uint32_t dp_abi_version(void);
/** The release, "0.1.0". */
DP_API const char* dp_version(void);
/** Free a string that this library gave. Takes NULL. */
DP_API void dp_string_free(char* text);

/* ------------------------------------------------------------------ settings and description */

/** Value of a setting ("io.depth") and where it comes from ("argument", "environment", "file", "default").
 *  Both strings are to be freed. An unknown name is DP_ERR_INVALID and names the nearest one. */
DP_API dp_status dp_setting_get(const char* name, char** value, char** source);
/** Set for this process ("argument"); NULL goes back to environment, file, default. Validated. */
DP_API dp_status dp_setting_set(const char* name, const char* value);
/** All settings as a JSON array of {name, kind, environment, value, source, default, domain, help}; where a
 *  given value is wrong, value is null, source "error" and a field "error" says why. */
DP_API dp_status dp_settings_json(char** json);
/** Everything about the machine and the library as JSON: devices, backends with state and reason,
 *  memory limits, live objects. Opens no device unless `probe_devices`. */
DP_API dp_status dp_describe(int32_t probe_devices, char** json);
/** "8GiB", "1.5 MB" or "4096" in bytes; every unit is binary. */
DP_API dp_status dp_parse_bytes(const char* text, uint64_t* nbytes);
/** The oldest message of the library that nobody took yet: level as in Python's logging (30 is a warning),
 *  the part that speaks, and the text, both to be freed. Level 0 and NULL when there is none. */
DP_API dp_status dp_log_take(int32_t* level, char** source, char** message);

/* ------------------------------------------------------------------ handles */

typedef struct dp_device dp_device;
typedef struct dp_pool dp_pool;
typedef struct dp_buffer dp_buffer;
typedef struct dp_scheduler dp_scheduler;
typedef struct dp_ticket dp_ticket;
typedef struct dp_engine dp_engine;
typedef struct dp_file dp_file;
typedef struct dp_volume dp_volume;
typedef struct dp_extent dp_extent;

/** A stream of the device as an integer: a CUstream, where 0, 1 and 2 mean what CUDA means by them. */
typedef uint64_t dp_stream;

/** Something that must outlive work in flight. `release` may be NULL. A function that is given an owner
 *  takes it over in any case: when the function fails, it has released the owner. */
typedef struct dp_owner {
  void (*release)(void* context);
  void* context;
} dp_owner;

/* ------------------------------------------------------------------ devices */

/** "cuda:0" (or "cuda": the calling thread's current device, else 0), or "null": a device made of host
 *  memory and worker threads, with streams, events, copies and capture that behave as CUDA's do. */
DP_API dp_status dp_device_open(const char* name, dp_device** out);
DP_API void dp_device_retain(dp_device*);
DP_API void dp_device_release(dp_device*);

typedef struct dp_device_info {
  uint32_t size;
  int32_t is_cuda;
  int32_t ordinal;   /**< CUDA ordinal, 0 for the null device. */
  int32_t numa_node; /**< -1 where unknown. */
  char name[256];
} dp_device_info;
DP_API dp_status dp_device_get_info(dp_device*, dp_device_info* out);

/** Streams of the null device and non-blocking streams of a CUDA device, for tests and native callers. */
DP_API dp_status dp_stream_create(dp_device*, int32_t priority, dp_stream* out);
DP_API dp_status dp_stream_synchronize(dp_device*, dp_stream);
DP_API dp_status dp_stream_destroy(dp_device*, dp_stream);
/** 1 while the stream records a graph. */
DP_API dp_status dp_stream_is_capturing(dp_device*, dp_stream, int32_t* out);
/** Begin and end a capture on the null device (tests); DP_ERR_UNSUPPORTED elsewhere. */
DP_API dp_status dp_null_capture(dp_device*, dp_stream, int32_t begin);
/** Make the null device's copies last at least this long each (tests); DP_ERR_UNSUPPORTED elsewhere. */
DP_API dp_status dp_null_set_copy_delay(dp_device*, uint64_t nanoseconds);
/** Device memory by the driver's plain allocator; for native callers and tests. */
DP_API dp_status dp_device_allocate(dp_device*, uint64_t nbytes, uint64_t* address);
DP_API dp_status dp_device_free(dp_device*, uint64_t address);
/** Device of a pointer: sets `*ordinal` to the CUDA ordinal, or to -1 for host memory. Touches the driver
 *  only when it is loaded and initialised already. */
DP_API dp_status dp_pointer_device(const void* pointer, int32_t* ordinal);

/* ------------------------------------------------------------------ memory */

typedef struct dp_pool_options {
  uint32_t size;
  int32_t huge_pages; /**< 0 setting's default, 1 on, -1 off. */
  int32_t numa_node;  /**< Node + 1; 0 means the device's node, else no binding. */
  int32_t lock;       /**< Without CUDA: 1 mlock, 0 setting's default, -1 not. */
  /** Ceiling of backed bytes, at most 16 TiB; 0: what the cgroup and the machine leave. */
  uint64_t budget;
  /** What the pool grows by, unless more is asked for; 0 means the setting's. */
  uint64_t piece_bytes;
  /** NULL: CUDA if the driver is usable, else plain memory. "null" counts as pinned. */
  dp_device* device;
} dp_pool_options;

DP_API dp_status dp_pool_create(const dp_pool_options*, dp_pool** out);
DP_API void dp_pool_retain(dp_pool*);
DP_API void dp_pool_release(dp_pool*);
/** No more allocations; memory goes back when the last buffer does. */
DP_API dp_status dp_pool_close(dp_pool*);
/** Every buffer lies in one registered range, so that a single copy can move it; free memory that is in
 *  smaller ones is given back and replaced, or DP_ERR_BUDGET says how it is divided.
 *  Zero bytes are legal: a buffer with a non-NULL, unusable pointer. Sizes round up to 4 KiB, no more.
 *  `alignment` is a power of two up to 2 MiB; 0 means 4096. */
DP_API dp_status dp_pool_allocate(dp_pool*, uint64_t nbytes, uint64_t alignment, dp_buffer** out);
/** Back and register now what is missing of this many free bytes, as one range. */
DP_API dp_status dp_pool_reserve(dp_pool*, uint64_t nbytes);
/** Give back backing that no buffer uses; `*released` (may be NULL) gets the bytes. */
DP_API dp_status dp_pool_trim(dp_pool*, uint64_t* released);

typedef struct dp_pool_stats {
  uint32_t size;
  int32_t is_pinned;
  uint64_t budget;
  uint64_t backed;    /**< Bytes backed by memory now. */
  uint64_t pinned;    /**< Of these, registered with the device or locked. */
  uint64_t allocated; /**< Bytes of live buffers, rounded to their 4 KiB grain. */
  uint64_t requested; /**< Bytes of live buffers as asked for. */
  uint64_t pending;   /**< Released bytes that wait for events of work that used them. */
  uint64_t peak_allocated;
  uint64_t allocations; /**< Calls that succeeded, ever. */
  uint64_t live_buffers;
  uint64_t pieces; /**< Ranges that are backed and registered, each as one. */
} dp_pool_stats;
DP_API dp_status dp_pool_get_stats(dp_pool*, dp_pool_stats* out);

typedef struct dp_register_options {
  uint32_t size;
  int32_t read_only; /**< The memory is mapped read-only. */
  /** 1: fail where it cannot be pinned; 0: fall back to plain memory and say why. */
  int32_t required;
  uint32_t reserved;
  dp_device* device; /**< As in dp_pool_options. */
} dp_register_options;

/** Pin memory that the caller has, in place: exactly these bytes, as one range where none of them is
 *  registered yet. Overlapping and repeated registrations share ranges and are counted; ranges that
 *  another library registered are used and never unregistered. A single CUDA copy that starts in one
 *  range and runs into the next fails; transfers of a scheduler are cut there. The owner is
 *  released when the last reference is gone and the recorded work has ended. */
DP_API dp_status dp_register(
  void* pointer, uint64_t nbytes, const dp_register_options*, dp_owner owner, dp_buffer** out);

typedef struct dp_buffer_info {
  uint32_t size;
  int32_t is_pinned;      /**< Registered with the device, or locked without one. */
  int32_t is_registered;  /**< 1: memory of the caller (dp_register), 0: of a pool. */
  int32_t device_ordinal; /**< CUDA ordinal of `device_pointer`; -1 without. */
  void* pointer;
  /** The same bytes as the device addresses them; 0 without a device. */
  uint64_t device_pointer;
  uint64_t nbytes;
  /** Why it is not pinned; NULL if it is. Lives as long as the buffer. */
  const char* reason;
} dp_buffer_info;
DP_API dp_status dp_buffer_get_info(dp_buffer*, dp_buffer_info* out);
DP_API void dp_buffer_retain(dp_buffer*);
DP_API void dp_buffer_release(dp_buffer*);
/** Say that work now on `stream` uses the buffer: its memory is reused, or its owner released, only after. */
DP_API dp_status dp_buffer_record_use(dp_buffer*, dp_device*, dp_stream stream);

/* ------------------------------------------------------------------ tickets */

DP_API void dp_ticket_retain(dp_ticket*);
DP_API void dp_ticket_release(dp_ticket*);
/** DP_OK: done well; DP_PENDING; or the error of the work. Never blocks. */
DP_API dp_status dp_ticket_test(dp_ticket*);
/** Wait at most `timeout` (UINT64_MAX: for ever) for the end. DP_TIMEOUT leaves the work alive.
 *  `*nbytes` (may be NULL) gets the bytes moved. The error is reported by every call, not once. */
DP_API dp_status dp_ticket_result(dp_ticket*, uint64_t timeout, uint64_t* nbytes);
/** Order `stream` after the work. With only device hops left it records an event wait and returns; while
 *  a disk hop is open it waits on the host for that hop, at most `timeout`, and returns its error.
 *  `deferred`: never waits on the host: the stream waits for a flag in pinned memory; after an error the
 *  destination is poisoned (0xFF) and the caller must test the ticket before results leave. An error that
 *  is known by now is returned; tickets of plain I/O are DP_ERR_UNSUPPORTED, unless they have ended. */
DP_API dp_status
dp_ticket_wait_stream(dp_ticket*, dp_device*, dp_stream stream, int32_t deferred, uint64_t timeout);

/* ------------------------------------------------------------------ I/O */

typedef struct dp_engine_options {
  uint32_t size;
  uint32_t depth;      /**< Requests in flight a ring or pool; 0 means the setting's. */
  uint32_t threads;    /**< Rings or workers; 0 means the setting's. */
  int32_t direct;      /**< O_DIRECT: 0 setting's default (auto), 1 required, -1 never. */
  const char* backend; /**< "auto", "uring", "threads", "cufile"; NULL means the setting's. */
  /** Fault plan for tests, see docs/core/faults; NULL: setting io.faults. */
  const char* faults;
  uint64_t max_inflight_bytes; /**< 0 means the setting's. */
} dp_engine_options;

DP_API dp_status dp_engine_create(const dp_engine_options*, dp_engine** out);
DP_API void dp_engine_retain(dp_engine*);
DP_API void dp_engine_release(dp_engine*);
/** Ends what is in flight, then refuses more. */
DP_API dp_status dp_engine_close(dp_engine*);
DP_API dp_status dp_engine_describe(dp_engine*, char** json);

/** Modes "r", "r+", "w", "w+" as Python's open, binary; w and w+ create with 0600 and truncate. */
DP_API dp_status dp_engine_open(dp_engine*, const char* path, const char* mode, dp_file** out);
DP_API void dp_file_retain(dp_file*);
DP_API void dp_file_release(dp_file*);
DP_API dp_status dp_file_close(dp_file*);
DP_API dp_status dp_file_size(dp_file*, uint64_t* nbytes);
DP_API dp_status dp_file_truncate(dp_file*, uint64_t nbytes);
/** fdatasync, after every write submitted before it. */
DP_API dp_status dp_file_sync(dp_file*);

typedef struct dp_io_request {
  void* pointer;   /**< Host memory, any alignment. */
  uint64_t nbytes; /**< Zero is legal. */
  uint64_t offset; /**< In the file or in the extent. */
} dp_io_request;

/** One ticket for the batch: bytes moved in all, or the first error. A read past the end of a file is
 *  short and leaves the bytes behind it untouched. `owner` is released when no request can touch the
 *  memory any more; on a lost completion, never. The requests are copied. */
DP_API dp_status
dp_file_read(dp_file*, const dp_io_request*, size_t count, dp_owner owner, dp_ticket** out);
DP_API dp_status
dp_file_write(dp_file*, const dp_io_request*, size_t count, dp_owner owner, dp_ticket** out);

typedef struct dp_volume_options {
  uint32_t size;
  int32_t keep_files;     /**< 0: files are unlinked at once; 1: they stay until close. */
  uint64_t capacity;      /**< Ceiling in bytes over all directories. */
  uint64_t segment_bytes; /**< Growth of a file; 0 means the setting's. */
  uint64_t stripe_bytes;  /**< Unit of striping over directories; 0 means the setting's. */
  uint64_t reserve_bytes; /**< Free bytes left alone on each drive; 0 means the setting's. */
  dp_engine* engine;      /**< NULL: one of its own. */
} dp_volume_options;

DP_API dp_status dp_volume_create(const char* const* directories,
                                  size_t count,
                                  const dp_volume_options*,
                                  dp_volume** out);
DP_API void dp_volume_retain(dp_volume*);
DP_API void dp_volume_release(dp_volume*);
DP_API dp_status dp_volume_close(dp_volume*);
DP_API dp_status dp_volume_describe(dp_volume*, char** json);
typedef struct dp_volume_stats {
  uint32_t size;
  uint32_t drives;
  uint64_t capacity;
  uint64_t backed;    /**< Bytes of the files. */
  uint64_t allocated; /**< Bytes of live extents, rounded to their grain. */
  uint64_t requested; /**< Bytes of live extents as asked for. */
  uint64_t extents;
  uint64_t bytes_read;
  uint64_t bytes_written;
} dp_volume_stats;
DP_API dp_status dp_volume_get_stats(dp_volume*, dp_volume_stats* out);
DP_API dp_status dp_volume_allocate(dp_volume*, uint64_t nbytes, dp_extent** out);
/** Drops the bytes too, once I/O in flight on them has ended. */
DP_API void dp_extent_release(dp_extent*);
DP_API void dp_extent_retain(dp_extent*);
/** Give the bytes back now; later I/O on the extent is DP_ERR_CLOSED. */
DP_API dp_status dp_extent_free(dp_extent*);
DP_API dp_status dp_extent_size(dp_extent*, uint64_t* nbytes);
/** As for files, but a request past the extent's end is DP_ERR_INVALID and a short transfer an error. */
DP_API dp_status
dp_extent_read(dp_extent*, const dp_io_request*, size_t count, dp_owner, dp_ticket** out);
DP_API dp_status
dp_extent_write(dp_extent*, const dp_io_request*, size_t count, dp_owner, dp_ticket** out);

/* ------------------------------------------------------------------ scheduler */

typedef struct dp_scheduler_options {
  uint32_t size;
  uint32_t chunks;      /**< Staging chunks of a multi-hop transfer; 0 means the setting's. */
  uint64_t chunk_bytes; /**< 0 means the setting's. */
  uint64_t credits;     /**< Bytes in flight a lane; 0 means the setting's. */
  dp_pool* pool;        /**< Staging memory; NULL: one of its own. */
} dp_scheduler_options;

DP_API dp_status dp_scheduler_create(dp_device*, const dp_scheduler_options*, dp_scheduler** out);
DP_API void dp_scheduler_retain(dp_scheduler*);
DP_API void dp_scheduler_release(dp_scheduler*);
DP_API dp_status dp_scheduler_close(dp_scheduler*);
DP_API dp_status dp_scheduler_describe(dp_scheduler*, char** json);

typedef enum dp_place_kind { DP_HOST = 1, DP_DEVICE = 2, DP_FILE = 3, DP_EXTENT = 4 } dp_place_kind;
/** One end of a transfer. Host memory may be pageable (it is staged then). */
typedef struct dp_place {
  int32_t kind;
  uint32_t reserved;
  uint64_t address;  /**< DP_HOST, DP_DEVICE. */
  dp_file* file;     /**< DP_FILE. */
  dp_extent* extent; /**< DP_EXTENT. */
  uint64_t offset;   /**< In the file or extent; 0 for memory. */
} dp_place;

typedef struct dp_transfer_options {
  uint32_t size;
  int32_t priority; /**< Higher first; 0 by default. */
  /** CLOCK_MONOTONIC; earlier first within a priority; 0: none, after those. */
  uint64_t deadline;
  /** The transfer touches memory only after the work now on these. A file or extent that goes to device
   *  memory is read before, unless a stream waits deferred for a transfer to a disk or for one that
   *  follows a write. */
  const dp_stream* after_streams;
  size_t after_stream_count;
  /** And after these, if they end well; else it fails with their error. */
  dp_ticket* const* after_tickets;
  size_t after_ticket_count;
  dp_owner owner; /**< Released when the transfer touches neither end any more. */
} dp_transfer_options;

/** Move `nbytes` from `source` to `destination`. Returns at once: queued by lane. A stream that records a
 *  graph is refused (DP_ERR_UNSUPPORTED). */
DP_API dp_status dp_transfer(dp_scheduler*,
                             const dp_place* destination,
                             const dp_place* source,
                             uint64_t nbytes,
                             const dp_transfer_options*,
                             dp_ticket** out);

typedef enum dp_lane {
  DP_LANE_H2D    = 0,
  DP_LANE_D2H    = 1,
  DP_LANE_READ   = 2,
  DP_LANE_WRITE  = 3,
  DP_LANE_KERNEL = 4
} dp_lane;
/** The lane's own stream (H2D, D2H and KERNEL lanes), for kernels and for torch as an external stream. */
DP_API dp_status dp_scheduler_stream(dp_scheduler*, int32_t lane, dp_stream* out);

typedef struct dp_lane_stats {
  uint32_t size;
  uint32_t reserved;
  uint64_t queued; /**< Transfers waiting. */
  uint64_t inflight_bytes;
  uint64_t bytes;     /**< Ever moved. */
  uint64_t transfers; /**< Ever ended. */
  uint64_t late;      /**< Ended after their deadline. */
  uint64_t busy;      /**< Nanoseconds with work in flight. */
} dp_lane_stats;
DP_API dp_status dp_scheduler_lane_stats(dp_scheduler*, int32_t lane, dp_lane_stats* out);

#ifdef __cplusplus
}
#endif
#endif
