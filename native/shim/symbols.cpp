/* cuGetProcAddress: the driver answers, and its answer, a pointer, is exchanged for the hook of exactly that pointer.
 *
 * Which version and which stream variant a caller gets is thus the driver's decision, for names of today and of tomorrow; a pointer that
 * is none of our hooks' goes back untouched.
 */
#include <stdlib.h>

#include "driver.h"
#include "shim.h"

namespace vgpu {
namespace {

struct Hook {
    const char *name;
    void *function;
};

const Hook hooks[] = {
#define VGPU_HOOK(library, name, ...) {library == CUDA ? #name : nullptr, reinterpret_cast<void *>(&::name)},
#define VGPU_FORWARD(library, name)
#include "vgpu/hooks.def"
};

constexpr size_t TABLE_SIZE = 512;
static_assert(sizeof hooks / sizeof hooks[0] * 4 < TABLE_SIZE, "keep the open-addressing table sparse");

struct Entry {
    void *real;
    void *hook;
};

/* Made at the first question, then read only. No lock: a fork could leave it held. */
std::atomic<Entry *> table;

size_t start(const void *real) { return size_t(reinterpret_cast<uintptr_t>(real) * 0x9E3779B97F4A7C15ull >> 55); }

/* Where the driver exports one function under two names, the first in the list answers for both: either hook ends in that function. */
Entry *fill() {
    Entry *made = static_cast<Entry *>(calloc(TABLE_SIZE, sizeof(Entry)));
    if (!made) return nullptr;
    for (const Hook &hook : hooks) {
        void *real = hook.name ? real_symbol(CUDA, hook.name) : nullptr;
        if (!real) continue;
        size_t i = start(real);
        while (made[i].real && made[i].real != real) i = (i + 1) % TABLE_SIZE;
        if (!made[i].real) made[i] = {real, hook.function};
    }
    Entry *expected = nullptr;
    if (table.compare_exchange_strong(expected, made)) return made;
    free(made);
    return expected;
}

/* False when there is no memory for the table: then the driver's pointer must not get out, or the quota would not hold. */
bool exchange(void **function) {
    Entry *known = table.load(std::memory_order_acquire);
    if (!known && !(known = fill())) return false;
    for (size_t i = start(*function); known[i].real; i = (i + 1) % TABLE_SIZE) {
        if (known[i].real != *function) continue;
        *function = known[i].hook;
        break;
    }
    return true;
}

template <class Call>
CUresult answer(void **function, Call call) {
    if (depth > 0) return call();
    Guard guard;
    CUresult result = call();
    if (result != CUDA_SUCCESS || !function || !*function || exchange(function)) return result;
    *function = nullptr;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace
}  // namespace vgpu

using namespace vgpu;

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags) {
    return answer(pfn, [&] { return VGPU_REAL(cuGetProcAddress)(symbol, pfn, cudaVersion, flags); });
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
    return answer(pfn, [&] { return VGPU_REAL(cuGetProcAddress_v2)(symbol, pfn, cudaVersion, flags, status); });
}

CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status) {
    return answer(pfn, [&] { return VGPU_REAL(cuGetProcAddress_v2_ptsz)(symbol, pfn, cudaVersion, flags, status); });
}
