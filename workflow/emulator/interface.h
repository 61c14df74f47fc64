// The C interface of the emulator's shared library.
//
// A module is loaded once and launched as often as wanted; findings and counters add up until ptx_reset. No
// function throws, prints or keeps a pointer to what it was given beyond the call. A module may be used by
// one thread at a time.
#ifndef PTX_EMULATOR_INTERFACE_H
#define PTX_EMULATOR_INTERFACE_H

#include <stdint.h>

#define PTX_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ptx_module ptx_module;

enum ptx_status {
    PTX_OK = 0,
    PTX_UNAVAILABLE = 1,     // an instruction or feature that the emulator lacks
    PTX_NOT_LAUNCHABLE = 2,  // a limit of the device is exceeded
    PTX_BAD_ARGUMENT = 3,    // no such entry, or text that isn't PTX
    PTX_NO_MEMORY = 4,
};

// In bits of ptx_launch::flags.
enum ptx_flag {
    PTX_FIND = 1,   // look for races and reads of uninitialised memory as well as for stray accesses
    PTX_COUNT = 2,  // fill the counters
};

// In the flags of ptx_load.
enum ptx_load_flag {
    PTX_JOIN = 1,  // count shared accesses as ptxas joins them, which it doesn't at -O0
};

typedef struct {
    const char* name;
    void* data;
    uint64_t bytes;
} ptx_buffer;

typedef struct {
    uint32_t bytes;
    uint32_t offset;  // in the block of parameters
} ptx_parameter;

typedef struct {
    const char* entry;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;  // dynamic
    uint32_t flags;
    uint64_t order;         // 0: blocks and warps in their natural order; otherwise shuffled by this seed
    uint64_t block_budget;  // instructions of a block's warps, after which it counts as making no progress
    const uint8_t* parameters;
    uint32_t parameter_bytes;
    uint32_t buffer_count;
    const ptx_buffer* buffers;
} ptx_launch;

// The order of FINDING_KINDS in the front end.
enum ptx_finding_kind {
    PTX_RACE = 0,
    PTX_OUT_OF_BOUNDS = 1,
    PTX_MISALIGNED = 2,
    PTX_UNINITIALISED_READ = 3,
    PTX_DIVERGENT_BARRIER = 4,
    PTX_NO_PROGRESS = 5,
};

typedef struct {
    uint32_t kind;
    uint32_t line;        // 0 when unknown
    const char* message;  // valid until the next call with this module, as are all texts here
    const char* instruction;
    const char* file;  // empty when unknown
    uint32_t block[3];
    uint32_t thread[3];
    uint32_t has_other_thread;
    uint32_t other_thread[3];
    uint64_t count;
} ptx_finding;

// Null on failure; `message` then says why.
PTX_EXPORT ptx_module* ptx_load(const char* text, uint64_t length, uint32_t flags, char* message,
                                uint32_t message_bytes);
PTX_EXPORT void ptx_free(ptx_module* module);

// Device address that a pointer to the start of a launch's buffer has.
PTX_EXPORT uint64_t ptx_buffer_address(uint32_t buffer);

PTX_EXPORT uint32_t ptx_entry_count(const ptx_module* module);
PTX_EXPORT const char* ptx_entry_name(const ptx_module* module, uint32_t entry);
PTX_EXPORT uint32_t ptx_parameter_count(const ptx_module* module, uint32_t entry);
PTX_EXPORT void ptx_parameter_at(const ptx_module* module, uint32_t entry, uint32_t index,
                                 ptx_parameter* parameter);
PTX_EXPORT uint32_t ptx_parameter_bytes(const ptx_module* module, uint32_t entry);

// A ptx_status; `message` says what is wrong unless it is PTX_OK.
PTX_EXPORT int ptx_run(ptx_module* module, const ptx_launch* launch, char* message, uint32_t message_bytes);

PTX_EXPORT void ptx_reset(ptx_module* module);
PTX_EXPORT uint32_t ptx_finding_count(const ptx_module* module);
PTX_EXPORT void ptx_finding_at(const ptx_module* module, uint32_t index, ptx_finding* finding);
PTX_EXPORT uint32_t ptx_counter_count(void);
PTX_EXPORT const char* ptx_counter_name(uint32_t counter);
PTX_EXPORT void ptx_counters(const ptx_module* module, uint64_t* values);

// Shared-memory cost of an access by itself: wavefronts in the low, phases in the high half.
PTX_EXPORT uint64_t ptx_shared_cost(const uint32_t* addresses, uint32_t active, uint32_t bytes,
                                    uint32_t is_store);
PTX_EXPORT uint32_t ptx_sectors(const uint64_t* addresses, uint32_t active, uint32_t bytes);

// Shared loads (five numbers) and stores (five more) in the text of an entry, by the width that ptxas is
// predicted to give them: 1, 2, 4, 8 and 16 bytes.
PTX_EXPORT int ptx_shared_widths(ptx_module* module, const char* entry, uint32_t* counts, char* message,
                                 uint32_t message_bytes);

#ifdef __cplusplus
}
#endif

#endif
