/* nvtx.c - records NVTX ranges as annotations.
 *
 * NVTX_INJECTION64_PATH makes a program's first call into NVTX load this library and pass its table of functions. Ranges thereby get the
 * recorder's own clock and threads, with and without a GPU, inside and outside of windows, and POSTRUN_GPU_STEPS sees them. The records
 * that CUPTI makes of ranges (kind MARKER) are halves without an order, and exist only while CUPTI is attached.
 *
 * The declarations of NVTX 3 below are our own. Marks and names of categories are not recorded. */
#define _GNU_SOURCE
#include <string.h>
#include <wchar.h>

#include "core/names.h"
#include "core/ring.h"
#include "core/step_name.h"
#include "postrun.h"

#define CALLBACKS 1 /* number of the table of modules */
#define CORE 1
#define CORE2 5
#define DEPTH 64

enum core { RANGE_START_EX = 4, RANGE_START_A, RANGE_START_W, RANGE_END, RANGE_PUSH_EX, RANGE_PUSH_A, RANGE_PUSH_W, RANGE_POP };
enum core2 {
    DOMAIN_RANGE_START_EX = 2,
    DOMAIN_RANGE_END,
    DOMAIN_RANGE_PUSH_EX,
    DOMAIN_RANGE_POP,
    DOMAIN_REGISTER_STRING_A = 10,
    DOMAIN_REGISTER_STRING_W,
    DOMAIN_CREATE_A,
    DOMAIN_CREATE_W,
    DOMAIN_DESTROY
};
enum payload { PAYLOAD_U64 = 1, PAYLOAD_I64, PAYLOAD_DOUBLE, PAYLOAD_U32, PAYLOAD_I32 };
enum message { MESSAGE_ASCII = 1, MESSAGE_WIDE, MESSAGE_REGISTERED };

struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    union {
        int64_t i64;
        uint32_t u32;
        int32_t i32;
    } payload;
    int32_t message_type;
    const void *message;
};
struct callbacks {
    size_t size;
    int (*module)(int module, void ****table, unsigned *size);
};

static _Thread_local struct {
    struct {
        const void *domain;
        uint64_t handle;
    } ranges[DEPTH];
    uint32_t depth, beyond;
} stack;
static _Atomic uintptr_t domains; /* counts the domains; an own value for each, no other access depends on it */
static _Atomic bool has_steps; /* a range that began was named as a step; set and read by the range callbacks */

/* ---------------------------------------------------------------- texts */

static uint32_t name_of(const char *text) { return postrun_name(text, text ? strlen(text) : 0); }

static uint32_t name_of_wide(const wchar_t *wide) {
    char text[1024];
    size_t n = 0;
    for (; wide && *wide && n + 4 < sizeof text; wide++) {
        uint32_t c = (uint32_t)*wide;
        if (c < 0x80) {
            text[n++] = (char)c;
        } else if (c < 0x800) {
            text[n++] = (char)(0xc0 | c >> 6);
            text[n++] = (char)(0x80 | (c & 0x3f));
        } else if (c < 0x10000) {
            text[n++] = (char)(0xe0 | c >> 12);
            text[n++] = (char)(0x80 | (c >> 6 & 0x3f));
            text[n++] = (char)(0x80 | (c & 0x3f));
        } else {
            text[n++] = (char)(0xf0 | (c >> 18 & 7));
            text[n++] = (char)(0x80 | (c >> 12 & 0x3f));
            text[n++] = (char)(0x80 | (c >> 6 & 0x3f));
            text[n++] = (char)(0x80 | (c & 0x3f));
        }
    }
    return postrun_name(text, n);
}

static uint32_t message_of(const struct attributes *a) {
    if (!a || a->size < sizeof *a) {
        return 0;
    }
    switch ((enum message)a->message_type) {
    case MESSAGE_ASCII: return name_of(a->message);
    case MESSAGE_WIDE: return name_of_wide(a->message);
    case MESSAGE_REGISTERED: return (uint32_t)(uintptr_t)a->message; /* the result of register_text */
    }
    return 0;
}

static int64_t value_of(const struct attributes *a) {
    if (!a || a->size < sizeof *a) {
        return POSTRUN_NO_VALUE;
    }
    switch ((enum payload)a->payload_type) {
    case PAYLOAD_U64:
    case PAYLOAD_I64: return a->payload.i64;
    case PAYLOAD_U32: return a->payload.u32;
    case PAYLOAD_I32: return a->payload.i32;
    case PAYLOAD_DOUBLE: break;
    }
    return POSTRUN_NO_VALUE;
}

/* ---------------------------------------------------------------- ranges */

static uint32_t noted(uint32_t name) {
    int64_t number;
    if (!atomic_load_explicit(&has_steps, memory_order_relaxed) && name != 0 && name <= postrun_names_count()) {
        prt_text text = postrun_names_text(name);
        if (step_name(text.at, text.length, &number)) {
            atomic_store_explicit(&has_steps, true, memory_order_relaxed);
        }
    }
    return name;
}

int postrun_nvtx_steps(void) { return atomic_load_explicit(&has_steps, memory_order_relaxed); }

static int push(const void *domain, uint32_t name, int64_t value) {
    if (stack.depth == DEPTH) {
        stack.beyond++;
        return (int)(DEPTH + stack.beyond - 1);
    }
    stack.ranges[stack.depth].domain = domain;
    stack.ranges[stack.depth].handle = postrun_range_begin_deeper(name, value, stack.depth);
    return (int)stack.depth++;
}

/* The innermost range of the domain: ranges of other domains may be above it. */
static int pop(const void *domain) {
    if (stack.beyond) {
        return (int)(DEPTH + --stack.beyond);
    }
    for (uint32_t i = stack.depth; i-- > 0;) {
        if (stack.ranges[i].domain == domain) {
            postrun_range_end(stack.ranges[i].handle);
            memmove(&stack.ranges[i], &stack.ranges[i + 1], (stack.depth - i - 1) * sizeof *stack.ranges);
            stack.depth--;
            return (int)i;
        }
    }
    return -2; /* NVTX: nothing to pop */
}

static int push_text(const char *text) {
    return postrun_recording() ? push(NULL, noted(name_of(text)), POSTRUN_NO_VALUE) : push(NULL, 0, 0);
}
static int push_wide(const wchar_t *text) {
    return postrun_recording() ? push(NULL, noted(name_of_wide(text)), POSTRUN_NO_VALUE) : push(NULL, 0, 0);
}
static int domain_push(const void *domain, const struct attributes *a) {
    return postrun_recording() ? push(domain, noted(message_of(a)), value_of(a)) : push(domain, 0, 0);
}
static int push_attributes(const struct attributes *a) { return domain_push(NULL, a); }
static int pop_default(void) { return pop(NULL); }
static uint64_t begin_text(const char *text) {
    return postrun_recording() ? postrun_range_begin(noted(name_of(text)), POSTRUN_NO_VALUE) : 0;
}
static uint64_t begin_wide(const wchar_t *text) {
    return postrun_recording() ? postrun_range_begin(noted(name_of_wide(text)), POSTRUN_NO_VALUE) : 0;
}
static uint64_t domain_begin(const void *domain, const struct attributes *a) {
    (void)domain;
    return postrun_recording() ? postrun_range_begin(noted(message_of(a)), value_of(a)) : 0;
}
static uint64_t begin_attributes(const struct attributes *a) { return domain_begin(NULL, a); }
static void end(uint64_t handle) { postrun_range_end(handle); }
static void domain_end(const void *domain, uint64_t handle) {
    (void)domain;
    postrun_range_end(handle);
}

static void *register_text(const void *domain, const char *text) {
    (void)domain;
    return (void *)(uintptr_t)name_of(text);
}
static void *register_wide(const void *domain, const wchar_t *text) {
    (void)domain;
    return (void *)(uintptr_t)name_of_wide(text);
}
static void *create_domain(const void *name) {
    (void)name;
    return (void *)(atomic_fetch_add(&domains, 16) + 16);
}
static void destroy_domain(const void *domain) { (void)domain; }

/* ---------------------------------------------------------------- the table */

#define SET(id, function)                        \
    do {                                         \
        __typeof__(&function) own = function;    \
        if ((id) < size && table[id]) {          \
            memcpy(table[id], &own, sizeof own); \
        }                                        \
    } while (0)

int InitializeInjectionNvtx2(const void *(*get)(uint32_t)) {
    const struct callbacks *callbacks = get ? get(CALLBACKS) : NULL;
    void ***table = NULL;
    unsigned size = 0;
    if (!callbacks || callbacks->size < sizeof *callbacks || !callbacks->module) {
        return 0;
    }
    if (callbacks->module(CORE, &table, &size) && table) {
        SET(RANGE_START_EX, begin_attributes);
        SET(RANGE_START_A, begin_text);
        SET(RANGE_START_W, begin_wide);
        SET(RANGE_END, end);
        SET(RANGE_PUSH_EX, push_attributes);
        SET(RANGE_PUSH_A, push_text);
        SET(RANGE_PUSH_W, push_wide);
        SET(RANGE_POP, pop_default);
    }
    if (callbacks->module(CORE2, &table, &size) && table) {
        SET(DOMAIN_RANGE_START_EX, domain_begin);
        SET(DOMAIN_RANGE_END, domain_end);
        SET(DOMAIN_RANGE_PUSH_EX, domain_push);
        SET(DOMAIN_RANGE_POP, pop);
        SET(DOMAIN_REGISTER_STRING_A, register_text);
        SET(DOMAIN_REGISTER_STRING_W, register_wide);
        SET(DOMAIN_CREATE_A, create_domain);
        SET(DOMAIN_CREATE_W, create_domain);
        SET(DOMAIN_DESTROY, destroy_domain);
    }
    return 1;
}
