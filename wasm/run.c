// Runs lists of calls on one or several threads.
//
// The current op's chunks are numbered. A thread takes the next number; whoever completes the last chunk begins the next
// op. So a thread that the system has put aside holds the others only while it is inside a chunk.
#include "module.h"
#include "ops.h"

#define SPINS 20000 // looks at the ticket before a thread sleeps

#define MAX_CHUNKS 3840 // every idle thread may count one too many

// Op (40 bits, ever growing) and, of it, the number of chunks and the next chunk (12 bits each).
#define TICKET(op, chunks, next) ((u64)(op) << 24 | (u64)(chunks) << 12 | (next))
#define CHUNKS_OF(ticket) ((u32)((ticket) >> 12) & 0xfff)
#define NEXT_OF(ticket) ((u32)(ticket) & 0xfff)
#define OP_OF(ticket) ((ticket) >> 24)

static struct {
  u64 ticket; // atomic
  u32 turn;   // atomic: changes with every op, for those who sleep
  u32 done;   // atomic: completed chunks
  u32 failed; // atomic: a thread has ended inside a chunk, which nobody completes
  u32 sleepers, threads;
  u8 *scratch; // memory of the threads
  u32 scratch_bytes;
  const u32 *list; // addresses of calls
  u32 size, index;
  u64 op;
} control = {.threads = 1};

u32 thread_count(void) { return control.threads; }

static const struct {
  Count *count;
  Work *work;
} ops[] = {
#define ENTRY(name) {(Count *)name##_chunks, (Work *)name##_work},
    OPS(ENTRY)};

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define STORE(x, value) __atomic_store_n(&(x), value, __ATOMIC_SEQ_CST)
#define ADD(x, value) __atomic_fetch_add(&(x), value, __ATOMIC_SEQ_CST)

INLINE const u32 *call_at(u32 index) { return AT(u32, control.list[index]); }

// Begin the next op that has chunks, or end the list.
static void advance(void) {
  u32 chunks = 0;
  while (++control.index < control.size && !(chunks = ops[*call_at(control.index)].count(call_at(control.index)))) {}
  STORE(control.done, 0);
  STORE(control.ticket, TICKET(++control.op, MIN(chunks, MAX_CHUNKS), 0));
  ADD(control.turn, 1);
  if (LOAD(control.sleepers)) __builtin_wasm_memory_atomic_notify((int *)&control.turn, -1u);
}

// Take part until the op that `ticket` is of has changed.
static void take_part(u64 ticket, u8 *scratch) {
  for (;;) {
    ticket = ADD(control.ticket, 1);
    const u32 chunks = CHUNKS_OF(ticket), chunk = NEXT_OF(ticket);
    if (chunk >= chunks) return;
    const u32 *r = call_at(control.index);
    ops[*r].work(r, chunk, chunks, scratch);
    if (ADD(control.done, 1) + 1 == chunks) advance();
  }
}

// Wait until there is another op. An op without chunks is the end of a list.
static void wait_after(u64 op) {
  for (u32 spins = SPINS; spins; spins--)
    if (OP_OF(LOAD(control.ticket)) != op) return;
  ADD(control.sleepers, 1);
  const u32 turn = LOAD(control.turn);
  if (OP_OF(LOAD(control.ticket)) == op && !LOAD(control.failed))
    __builtin_wasm_memory_atomic_wait32((int *)&control.turn, turn, -1);
  ADD(control.sleepers, -1);
}

INLINE u8 *scratch_of(u32 thread) { return control.scratch + (size_t)thread * control.scratch_bytes; }

// Give the module its memory: `bytes` of scratch for each of `threads` threads.
__attribute__((export_name("init"))) void init(u32 threads, u8 *scratch, u32 bytes) {
  control.threads = threads, control.scratch = scratch, control.scratch_bytes = bytes;
}

// Run a list: `size` addresses of calls.
__attribute__((export_name("run"))) void run(const u32 *list, u32 size) {
  control.list = list, control.size = size, control.index = -1u;
  advance();
  for (;;) {
    const u64 ticket = LOAD(control.ticket);
    if (!CHUNKS_OF(ticket)) return;
    if (NEXT_OF(ticket) < CHUNKS_OF(ticket)) take_part(ticket, scratch_of(0));
    else wait_after(OP_OF(ticket));
    if (LOAD(control.failed)) __builtin_trap(); // else this would wait for ever
  }
}

// End the list that runs, and all later ones: a thread has trapped.
__attribute__((export_name("fail"))) void fail(void) {
  STORE(control.failed, 1);
  ADD(control.turn, 1);
  __builtin_wasm_memory_atomic_notify((int *)&control.turn, -1u);
}

// Take part in all lists, until one fails: the main function of all threads but the first.
__attribute__((export_name("work"))) void work(u32 thread) {
  for (;;) {
    const u64 ticket = LOAD(control.ticket);
    if (LOAD(control.failed)) return;
    if (NEXT_OF(ticket) < CHUNKS_OF(ticket)) take_part(ticket, scratch_of(thread));
    else wait_after(OP_OF(ticket));
  }
}

void *memset(void *to, int value, size_t size) {
  __builtin_memset(to, value, size); // one instruction with -mbulk-memory
  return to;
}

void *memcpy(void *to, const void *from, size_t size) {
  __builtin_memcpy(to, from, size);
  return to;
}
