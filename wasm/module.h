// What every file of the module shares: types, addresses, and the division of work among threads.
//
// calls.h is made by tools/wasm.py from py_engine/cpu/call_layouts.py: a struct for each kind of call, and the numbers
// that Python shares. A call is one op. Its fields are addresses in the module's memory, sizes and parameters.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <wasm_simd128.h>

typedef uint8_t u8;
typedef int8_t i8;
typedef uint16_t u16;
typedef int16_t i16;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef float f32;
typedef double f64;

#include "calls.h"

#define INLINE static inline __attribute__((always_inline))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define UP(a, b) (((a) + (b) - 1) / (b))

// The pointer at an address of the memory. Addresses in calls count words of 4 bytes: so 32 bits reach 16 GiB, the most that
// the memory of the 64-bit modules can have.
#define AT(type, address) ((type *)((uintptr_t)(address) << 2))
#define ROW(address, stride, m) (AT(f32, address) + (size_t)(stride) * (m))

typedef struct {
  u32 pos, n, resampled, seq; // wgsl/lib/state.wgsl
} State;

typedef struct {
  u32 first, end, row; // of a packed batch: a token's segment, and the row of its result
} Segment;

INLINE State *states(u32 state) { return AT(State, state); }
INLINE u32 batch_size(u32 state) { return states(state)->n; }
INLINE u32 position(u32 state, u32 per_token, u32 m) {
  return per_token ? states(state)[m].pos : states(state)->pos + m;
}
INLINE u32 sequence(u32 state, u32 per_token, u32 m) { return states(state)[per_token ? m : 0].seq; }
INLINE u32 *tables(u32 state) { return (u32 *)(AT(u8, state) + TABLES); }

// The position of token m. `anchor`: not 0: index in the tables of the first sequence's anchor (wgsl/lib/sequence.wgsl).
INLINE u32 anchored_position(u32 state, u32 per_token, u32 anchor, u32 m) {
  return anchor ? tables(state)[anchor + sequence(state, per_token, m)] : position(state, per_token, m);
}

// The segment of a token; `segments`: index of the first one among the tables' words, 0 for a batch that is not packed.
INLINE Segment segment(u32 state, u32 segments, u32 m) {
  if (segments) return ((Segment *)(tables(state) + segments))[m];
  return (Segment){0, states(state)->pos + states(state)->n, 0};
}

// What a token of a batch with media has; `records`: index of the first one among the tables' words.
typedef struct {
  u32 end;       // the position after the last one that it sees
  u32 places[4]; // by which it is rotated: in time, down, across, by its picture's number
} MediaRecord;

_Static_assert(sizeof(MediaRecord) == 4 * RECORD_WORDS, "plan/pages.py has the size of a record");

INLINE const MediaRecord *media_record(u32 state, u32 records, u32 m) {
  return (MediaRecord *)(tables(state) + records) + m;
}

// The row of a cache that holds a position.
INLINE u32 cache_row(u32 state, u32 table, u32 pages, u32 page, u32 seq, u32 pos) {
  return page ? tables(state)[table + seq * pages + pos / page] * page + pos % page : pos;
}

// Each op is two functions: the chunks that its work divides into, and the work of one chunk. Chunks run in any order on
// any thread, so no result may depend on how many threads there are.
typedef u32 Count(const void *call);
typedef void Work(const void *call, u32 chunk, u32 chunks, u8 *scratch);
#define OP(name)                                                                                                       \
  u32 name##_chunks(const name##_call *r);                                                                           \
  void name##_work(const name##_call *r, u32 chunk, u32 chunks, u8 *scratch);

u32 thread_count(void);

// Parts of `size` items for all threads: some per thread, so that a busy core does not hold the others, each worth at
// least `least` items.
INLINE u32 divided(u32 size, u32 least) {
  u32 threads = thread_count();
  return threads == 1 ? size > 0 : MIN(8 * threads, UP(size, least));
}
INLINE u32 part_begin(u32 size, u32 chunk, u32 chunks) { return (u64)size * chunk / chunks; }

void *memset(void *to, int value, size_t size);
void *memcpy(void *to, const void *from, size_t size);
