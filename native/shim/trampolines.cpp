/* The trampolines, the slots behind all exported symbols, and their lazy resolution: generated from hooks.def.
 *
 * A forwarded symbol loads its slot and jumps. A slot starts at a stub of its own that hands the slot's address to vgpu_lazy, which keeps
 * the argument registers, resolves the symbol, stores the result and jumps to it. Hooks reach the real function through the same slots.
 * Another instruction set adds its three macros here and nothing anywhere else.
 */
#include "driver.h"
#include "shim.h"

#if defined(__x86_64__)

#define VGPU_TRAMPOLINE(name)                                                                                                    \
    asm(".pushsection .text\n.globl " #name "\n.type " #name ",@function\n.p2align 4\n" #name ":\n endbr64\n"                     \
        " movq vgpu_slot_" #name "(%rip), %r11\n jmp *%r11\n.size " #name ", . - " #name "\n.popsection\n");

#define VGPU_SLOT(name)                                                                                                          \
    asm(".pushsection .text\nvgpu_lazy_" #name ":\n endbr64\n leaq vgpu_slot_" #name "(%rip), %r11\n jmp vgpu_lazy\n.popsection\n"  \
        ".pushsection .data.vgpu_slots,\"aw\",@progbits\nvgpu_slot_" #name ":\n .quad vgpu_lazy_" #name "\n.popsection\n");

/* All integer and vector argument registers (and %al, for variadic callees) live across the resolution. On entry the stack is at
 * 8 modulo 16, after 7 pushes at 0: aligned for the call. */
asm(".pushsection .text\n.p2align 4\nvgpu_lazy:\n"
    " pushq %rax\n pushq %rdi\n pushq %rsi\n pushq %rdx\n pushq %rcx\n pushq %r8\n pushq %r9\n"
    " subq $128, %rsp\n"
    " movups %xmm0, (%rsp)\n movups %xmm1, 16(%rsp)\n movups %xmm2, 32(%rsp)\n movups %xmm3, 48(%rsp)\n"
    " movups %xmm4, 64(%rsp)\n movups %xmm5, 80(%rsp)\n movups %xmm6, 96(%rsp)\n movups %xmm7, 112(%rsp)\n"
    " movq %r11, %rdi\n call vgpu_resolve\n movq %rax, %r11\n"
    " movups (%rsp), %xmm0\n movups 16(%rsp), %xmm1\n movups 32(%rsp), %xmm2\n movups 48(%rsp), %xmm3\n"
    " movups 64(%rsp), %xmm4\n movups 80(%rsp), %xmm5\n movups 96(%rsp), %xmm6\n movups 112(%rsp), %xmm7\n"
    " addq $128, %rsp\n"
    " popq %r9\n popq %r8\n popq %rcx\n popq %rdx\n popq %rsi\n popq %rdi\n popq %rax\n"
    " jmp *%r11\n.popsection\n");

#else
#error "no trampolines for this instruction set: add VGPU_TRAMPOLINE, VGPU_SLOT and vgpu_lazy to native/shim/trampolines.cpp"
#endif

asm(".pushsection .data.vgpu_slots,\"aw\",@progbits\n.p2align 3\n.globl vgpu_slots\n.hidden vgpu_slots\nvgpu_slots:\n.popsection\n");

#define VGPU_HOOK(library, name, ...) VGPU_SLOT(name)
#define VGPU_FORWARD(library, name) VGPU_SLOT(name) VGPU_TRAMPOLINE(name)
#include "vgpu/hooks.def"

namespace vgpu {

__thread int depth;

namespace {

const char *const symbol_name[] = {
#define VGPU_HOOK(library, name, ...) #name,
#define VGPU_FORWARD(library, name) #name,
#include "vgpu/hooks.def"
};

const unsigned char symbol_library[] = {
#define VGPU_HOOK(library, ...) library,
#define VGPU_FORWARD(library, name) library,
#include "vgpu/hooks.def"
};

int missing_cuda() { return CUDA_ERROR_NOT_FOUND; }
int missing_nvml() { return NVML_ERROR_FUNCTION_NOT_FOUND; }

}  // namespace

/* Called from vgpu_lazy at the first call of each symbol. Two threads may resolve the same slot: both store the same value. */
extern "C" __attribute__((visibility("hidden"), used)) void *vgpu_resolve(std::atomic<void *> *slot) {
    size_t index = size_t(slot - vgpu_slots);
    void *function = real_symbol(Library(symbol_library[index]), symbol_name[index]);
    if (!function)
        function = symbol_library[index] == CUDA ? reinterpret_cast<void *>(missing_cuda) : reinterpret_cast<void *>(missing_nvml);
    slot->store(function, std::memory_order_relaxed);
    return function;
}

}  // namespace vgpu
